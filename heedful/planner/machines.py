"""Machines: what a GPU and the links between GPUs can do. The numbers are in machines.json;
docs/howto/planning.md says where they come from."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ..errors import BadInput
from ..models import nearest

TABLE = Path(__file__).with_name("machines.json")
MOST_GPUS = 1 << 20
GIGABIT = 1e9 / 8  # bytes


@dataclass(frozen=True)
class Gpu:
    """A GPU by its data sheet, and the shares of it that kernels reach.

    Attributes:
        name: Its name.
        peak: FLOP/s of dense matrix products in bf16.
        memory: Bytes.
        bandwidth: Bytes/s of its memory.
        processors: Streaming multiprocessors.
        nvlink: Bytes/s to other GPUs of its machine, in one direction.
        watts: Power at most.
        price: Dollars an hour.
        network: What usually links machines of these GPUs.
        products: Share of the peak that a large matrix product reaches.
        copies: Share of the bandwidth that passes over memory reach.
        attention: Share of the peak that attention would reach with endless heads and texts.
        ring: Share of NVLink's bandwidth that a ring reaches.

    Example:
        >>> gpu = find_gpu("h200")
        >>> round(gpu.memory / 2**30), round(gpu.peak / 1e12)
        (131, 989)
    """

    name: str
    peak: float
    memory: float
    bandwidth: float
    processors: int
    nvlink: float
    watts: float
    price: float
    network: str
    products: float
    copies: float
    attention: float
    ring: float


@dataclass(frozen=True)
class Latency:
    """Seconds of a message beside its bytes.

    Attributes:
        start: Once for all hops.
        nvlink: For each hop by NVLink.
        network: For each hop by the network.

    Example:
        >>> find_cluster(find_gpu("h100"), 8).latency.start < 1e-3
        True
    """

    start: float
    nvlink: float
    network: float


@dataclass(frozen=True)
class Cluster:
    """Equal GPUs in equal machines, all linked with each other.

    Attributes:
        gpu: The GPU.
        gpus: Number of GPUs.
        per_machine: GPUs of a machine.
        network: Bytes/s in and out of one machine, in one direction.
        network_name: The network in words.
        network_share: Share of the network's bandwidth that a ring reaches.
        latency: Seconds of a message beside its bytes.

    Example:
        >>> cluster = find_cluster(find_gpu("h100"), gpus=16)
        >>> cluster.machines, cluster.describe().partition(",")[0]
        (2, '16 x NVIDIA H100 SXM')
    """

    gpu: Gpu
    gpus: int
    per_machine: int
    network: float
    network_name: str
    network_share: float
    latency: Latency

    @property
    def machines(self) -> int:
        """The number of machines."""
        return self.gpus // self.per_machine

    def describe(self) -> str:
        """The cluster in words.

        Returns:
            Such as "8 x NVIDIA H100".
        """
        one = f"{self.gpus:,} x {self.gpu.name}"
        if self.machines == 1:
            return one
        return f"{one}, {self.per_machine} per machine, {self.network_name} between machines"


@cache
def table() -> dict[str, Any]:
    """The numbers of machines.json."""
    return json.loads(TABLE.read_text(encoding="utf-8"))


def gpus() -> tuple[str, ...]:
    """The names of the GPUs in the table.

    Returns:
        The names, for `find_gpu`.

    Example:
        >>> "h100" in gpus()
        True
    """
    return tuple(table()["gpus"])


def find_gpu(name: str) -> Gpu:
    """A GPU of the table.

    Args:
        name: Its name, such as "h100".

    Returns:
        `Gpu`.

    Raises:
        BadInput: There is no such GPU in the table; the message names the nearest.

    Example:
        >>> find_gpu("a100").watts
        400
    """
    if name not in gpus():
        raise BadInput(f'there is no GPU "{name}" in the table{nearest(name, gpus())}')
    return Gpu(**table()["gpus"][name])


def find_cluster(gpu: Gpu, gpus: int, per_machine: int | None = None, network: str | None = None) -> Cluster:
    """The machines that so many GPUs are in.

    Args:
        gpu: The GPU.
        gpus: Number of GPUs.
        per_machine: GPUs of a machine. None: 8, or all if there are fewer.
        network: A network of the table, or a number of Gb/s per machine. None: what is usual for the GPU.

    Returns:
        `Cluster`.

    Raises:
        BadInput: The GPUs are not whole machines, or there is no such network.

    Example:
        >>> find_cluster(find_gpu("h100"), gpus=32, network="800").network / 1e9
        100.0
    """
    if not 1 <= gpus <= MOST_GPUS:
        raise BadInput(f"--gpus must be from 1 to {MOST_GPUS:,}, not {gpus:,}")
    if per_machine is None:
        per_machine = math.gcd(gpus, 8) if gpus > 8 else gpus
    if per_machine < 1 or gpus % per_machine:
        raise BadInput(
            f"--gpus {gpus:,} are not whole machines of --gpus-per-machine {per_machine:,}: "
            f"give a multiple of it"
        )
    bandwidth, name = find_network(network or gpu.network, per_machine)
    share, latency = table()["network_share"], Latency(**table()["latency"])
    return Cluster(gpu, gpus, per_machine, bandwidth, name, share, latency)


def find_network(name: str, per_machine: int) -> tuple[float, str]:
    """(bytes/s of one machine, name) of a network in the table, or of so many Gb/s per machine."""
    known = table()["networks"]
    if name in known:
        found = known[name]
        return found.get("per_machine") or per_machine * found["per_gpu"], found["name"]
    if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,3})?", name) or not float(name):
        raise BadInput(
            f"--network is a number of Gb/s per machine or one of {', '.join(known)}, not {name!r}"
        )
    return float(name) * GIGABIT, f"a network of {float(name):g} Gb/s per machine"
