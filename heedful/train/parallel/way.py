"""The setting `train.parallel`: how a model is spread over the processes of a run.

ddp          every process has the whole model; gradients are added while the backward pass goes on
fsdp         every process has a shard of each weight, and gets the rest when a block needs it
hsdp         fsdp within a machine, ddp between machines
auto         one of these, by memory
fsdp,tensor=2    and the matrices of every block in two parts: two processes compute each example together
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches

from ...errors import BadInput

KINDS = ("auto", "ddp", "fsdp", "hsdp")
FORM = re.compile(r"([a-z]*)(?:,([a-z]+)=([1-9][0-9]{0,5}))?")


@dataclass(frozen=True)
class ProcessGrid:
    """Processes as replicas x shards x parts of each matrix, the last one counting fastest."""

    replicas: int = 1
    shards: int = 1
    tensor: int = 1

    @property
    def size(self) -> int:
        return self.replicas * self.shards * self.tensor


@dataclass(frozen=True)
class Way:
    """What was asked for, or chosen."""

    kind: str = "auto"
    tensor: int = 1  # processes that compute each example together

    def __str__(self) -> str:
        return self.kind if self.tensor == 1 else f"{self.kind},tensor={self.tensor}"

    def grid(self, size: int, local: int) -> ProcessGrid:
        """The grid of so many processes, of which `local` are on each machine."""
        if size % self.tensor:
            raise BadInput(
                f"train.parallel={self} computes each example in {self.tensor} processes, and {size} cannot "
                f"be divided by {self.tensor}: start another number"
            )
        if self.kind == "fsdp":
            return ProcessGrid(1, size // self.tensor, self.tensor)
        if self.kind != "hsdp":
            return ProcessGrid(size // self.tensor, 1, self.tensor)
        if size % local or local % self.tensor:
            raise BadInput(
                f"train.parallel={self} shards within each machine, and {size} processes, {local} of them on "
                f"this machine, cannot be grouped so: start as many on each, a multiple of {self.tensor}"
            )
        return ProcessGrid(size // local, local // self.tensor, self.tensor)


def read_way(text: str) -> Way:
    """What `train.parallel` says."""
    found = FORM.fullmatch(text)
    kind, word, number = found.groups() if found else (text.partition(",")[0], None, None)
    if kind not in KINDS:
        near = get_close_matches(kind, KINDS, 1)
        meant = f"; did you mean {near[0]}?" if near else ""
        raise BadInput(f"train.parallel is {', '.join(KINDS[:-1])} or {KINDS[-1]}, not {text[:40]!r}{meant}")
    if found is None or word not in (None, "tensor"):
        raise BadInput(
            f"after train.parallel={kind} only a number of processes may follow, as in {kind},tensor=2, "
            f"not {text[len(kind) :][:40]!r}"
        )
    return Way(kind, int(number or 1))
