"""Shardings: the ways to spread a model over GPUs.

ddp keeps all weights on every GPU. fsdp keeps a share of them on each, and gathers those of a block before
the block is computed. hsdp does so within a machine, and every machine has all weights. Any of them can be
combined with tensor parallelism: several GPUs of a machine share each matrix product.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from ..errors import BadInput
from ..train.parallel.splittable import refuse_unsplittable
from .communication import Group, group_of
from .machines import Cluster

Parallel = Literal["ddp", "fsdp", "hsdp"]
PARALLEL: tuple[Parallel, ...] = ("ddp", "fsdp", "hsdp")  # the simplest first
TENSOR = (1, 2, 4, 8)  # GPUs that may share a product


@dataclass(frozen=True)
class Sharding:
    """How weights and rows are divided over GPUs.

    Attributes:
        parallel: "ddp" keeps all weights on every GPU, "fsdp" a share, "hsdp" a share within a machine.
        tensor: GPUs that share each matrix product.
        cluster: The machines.

    Example:
        >>> from heedful.planner.machines import find_cluster, find_gpu
        >>> sharding = Sharding("hsdp", 2, find_cluster(find_gpu("h100"), gpus=16))
        >>> sharding.replicas, sharding.shards
        (8, 8)
    """

    parallel: Parallel
    tensor: int
    cluster: Cluster

    @property
    def replicas(self) -> int:
        """How many parts the rows of a step are divided into."""
        return self.cluster.gpus // self.tensor

    @property
    def shards(self) -> int:
        """How many parts weights, gradients and moments are divided into."""
        within = {"ddp": 1, "fsdp": self.replicas, "hsdp": self.cluster.per_machine // self.tensor}
        return self.tensor * within[self.parallel]

    @property
    def gathers(self) -> bool:
        """Whether a GPU has to gather the weights of a block."""
        return self.shards > self.tensor

    @property
    def tensor_group(self) -> Group:
        """The GPUs that share each product."""
        return group_of(self.cluster, self.tensor, 1)

    @property
    def shard_group(self) -> Group:
        """The GPUs that hold the shards of the same weights."""
        size = self.shards // self.tensor
        within = min(size, self.cluster.per_machine // self.tensor)
        return group_of(self.cluster, within, size // within, self.tensor)

    @property
    def copy_group(self) -> Group:
        """The GPUs that hold the same shard, one in each machine for hsdp; all replicas for ddp."""
        copies = self.replicas * self.tensor // self.shards
        within = self.cluster.per_machine // self.tensor if self.parallel == "ddp" else 1
        at_once = self.cluster.per_machine // within
        return group_of(self.cluster, within, copies // within, at_once)


def shardings(cluster: Cluster, model: Any) -> Iterator[Sharding]:
    """All shardings that differ: one GPU has one, and hsdp needs several machines."""
    for tensor in TENSOR:
        if cluster.per_machine % tensor or not can_divide(model, tensor):
            continue
        found = {parallel: Sharding(parallel, tensor, cluster) for parallel in PARALLEL}
        yield found["ddp"]
        if found["fsdp"].gathers:
            yield found["fsdp"]
        if found["hsdp"].gathers and cluster.machines > 1:
            yield found["hsdp"]


def can_divide(model: Any, tensor: int) -> bool:
    """Whether so many GPUs can share the products of a model."""
    try:
        if tensor > 1:
            refuse_unsplittable(model, tensor)
    except BadInput:
        return False
    return True
