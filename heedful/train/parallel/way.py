"""The setting `train.parallel`: how a model is spread over the processes of a run.

ddp     every process has the whole model; gradients are added while the backward pass goes on
fsdp    every process has a shard of each weight, and gets the rest when a block needs it
hsdp    fsdp within a machine, ddp between machines
auto    one of these, by memory
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches

from ...errors import BadInput

KINDS = ("auto", "ddp", "fsdp", "hsdp")


@dataclass(frozen=True)
class ProcessGrid:
    """A grid of processes: (replicas, shards), the last one counting fastest."""

    replicas: int = 1
    shards: int = 1

    @property
    def size(self) -> int:
        return self.replicas * self.shards


@dataclass(frozen=True)
class Way:
    """What was asked for, or chosen."""

    kind: str = "auto"

    def __str__(self) -> str:
        return self.kind

    def grid(self, size: int, local: int) -> ProcessGrid:
        """The grid of so many processes, of which `local` are on each machine."""
        if self.kind == "fsdp":
            return ProcessGrid(1, size)
        if self.kind != "hsdp":
            return ProcessGrid(size, 1)
        if size % local:
            raise BadInput(
                f"train.parallel={self} shards within each machine, and {size} processes are not {local} on "
                f"every machine: start as many on each"
            )
        return ProcessGrid(size // local, local)


def read_way(text: str) -> Way:
    """What `train.parallel` says."""
    if text not in KINDS:
        near = get_close_matches(text, KINDS, 1)
        meant = f"; did you mean {near[0]}?" if near else ""
        raise BadInput(f"train.parallel is {', '.join(KINDS[:-1])} or {KINDS[-1]}, not {text[:40]!r}{meant}")
    return Way(text)
