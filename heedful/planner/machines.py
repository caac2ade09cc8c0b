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
    """A GPU by its data sheet, and the shares of it that kernels reach."""

    name: str
    peak: float  # FLOP/s of dense bf16
    memory: float  # bytes
    bandwidth: float  # of its memory, bytes/s
    processors: int  # streaming multiprocessors
    nvlink: float  # bytes/s in one direction
    watts: float  # at most
    price: float  # dollars an hour
    network: str  # what usually links machines of these
    products: float  # share of the peak that a large matrix product reaches
    copies: float  # share of the bandwidth that passes over memory reach
    attention: float  # share of the peak that attention would reach with endless heads and texts
    ring: float  # share of NVLink's bandwidth that a ring reaches


@dataclass(frozen=True)
class Latency:
    """Seconds of a message beside its bytes: once for all hops, and for each hop by its kind."""

    start: float
    nvlink: float
    network: float


@dataclass(frozen=True)
class Cluster:
    """Equal GPUs in equal machines, all linked with each other."""

    gpu: Gpu
    gpus: int
    per_machine: int
    network: float  # bytes/s in and out of one machine, in one direction
    network_name: str
    network_share: float  # of the network's bandwidth, that a ring reaches
    latency: Latency

    @property
    def machines(self) -> int:
        return self.gpus // self.per_machine

    def describe(self) -> str:
        """In words."""
        one = f"{self.gpus:,} x {self.gpu.name}"
        if self.machines == 1:
            return one
        return f"{one}, {self.per_machine} per machine, {self.network_name} between machines"


@cache
def table() -> dict[str, Any]:
    """The numbers of machines.json."""
    return json.loads(TABLE.read_text(encoding="utf-8"))


def gpus() -> tuple[str, ...]:
    """The names of the GPUs in the table."""
    return tuple(table()["gpus"])


def find_gpu(name: str) -> Gpu:
    """A GPU by its name; a miss suggests the nearest."""
    if name not in gpus():
        raise BadInput(f'there is no GPU "{name}" in the table{nearest(name, gpus())}')
    return Gpu(**table()["gpus"][name])


def find_cluster(gpu: Gpu, gpus: int, per_machine: int | None = None, network: str | None = None) -> Cluster:
    """The machines that so many GPUs are in: 8 in each, unless there are fewer."""
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
