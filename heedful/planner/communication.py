"""Communication: how many seconds GPUs take to exchange tensors.

All-gather: everybody gets everybody's part. Reduce-scatter: everybody gets the sum of its part. All-reduce:
everybody gets the whole sum. In a ring of n GPUs each sends to the next one, so that n - 1 messages of S / n
bytes complete an all-gather or a reduce-scatter, and twice as many an all-reduce. In a tree, sums go up and
come down again in pieces: more bytes and fewer hops.

Every kind takes seconds = start + hops x latency + bytes / bandwidth. The slowest link of a ring, that
between machines, decides the bandwidth; hops within a machine and between machines have their own latency.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .machines import Cluster, Latency


@dataclass(frozen=True)
class Group:
    """GPUs that exchange tensors: some in each of several machines."""

    per_machine: int
    machines: int
    nvlink: float  # bytes/s of one GPU in one direction, as a ring reaches them
    network: float  # bytes/s that this group has of each machine's network, as a ring reaches them
    latency: Latency

    @property
    def size(self) -> int:
        return self.per_machine * self.machines

    @property
    def bandwidth(self) -> float:
        """Bytes/s of the slowest link."""
        links = [self.nvlink] * (self.per_machine > 1) + [self.network] * (self.machines > 1)
        return min(links, default=math.inf)

    def all_gather(self, size: float) -> float:
        """Seconds until each has the `size` bytes that all have together."""
        return self.ring(size, rounds=1)

    def reduce_scatter(self, size: float) -> float:
        """Seconds until each has its part of the sum of tensors of `size` bytes."""
        return self.ring(size, rounds=1)

    def all_reduce(self, size: float) -> float:
        """Seconds until each has the whole sum of tensors of `size` bytes, by a ring or a tree."""
        return min(self.ring(size, rounds=2), self.tree(size))

    def ring(self, size: float, rounds: int) -> float:
        """So many times around, less one hop each time."""
        if self.size == 1:
            return 0.0
        between = self.machines - 1  # hops from machine to machine
        within = self.size - 1 - between
        hops = rounds * (within * self.latency.nvlink + between * self.latency.network)
        return self.latency.start + hops + rounds * (self.size - 1) / self.size * size / self.bandwidth

    def tree(self, size: float) -> float:
        """Up and down a double binary tree of machines, whose GPUs form a chain."""
        if self.size == 1:
            return 0.0
        chain = (self.per_machine - 1) * self.latency.nvlink
        hops = 2 * (chain + math.ceil(math.log2(self.machines)) * self.latency.network)
        return self.latency.start + hops + 2 * size / self.bandwidth


def group_of(cluster: Cluster, per_machine: int, machines: int, groups: int = 1) -> Group:
    """A group of GPUs in a cluster.

    groups: how many such groups exchange tensors at the same time in a machine; they share its network.
    """
    gpu = cluster.gpu
    network = cluster.network * cluster.network_share / groups
    return Group(per_machine, machines, gpu.nvlink * gpu.ring, network, cluster.latency)
