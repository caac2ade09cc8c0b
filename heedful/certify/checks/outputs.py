"""Outputs: every number that the network returns, of every input, both computing in float32.

Our side has its weights rounded as the export stores them. So the two differ by the order of additions only,
and a single damaged weight shows.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

import torch
from torch import Tensor

from ...interop.foreign import Outputs
from ..certificate import Check
from ..inputs import SEED, ProbeInputs
from ..sides import Sides

NAME = "outputs"
PICTURES = 3
HIDDEN = ("last_hidden_state", "pooler_output")  # whose largest number means nothing
ROWS = 64  # of logits that are compared at once, so that few copies exist


class Differences:
    """The differences of one output, added up input by input."""

    def __init__(self) -> None:
        self.inputs = self.numbers = self.rows = self.agreed = 0
        self.largest = self.total = self.scale = 0.0

    def add(self, ours_TV: Tensor, theirs_TV: Tensor) -> None:
        self.inputs += 1
        if ours_TV.shape != theirs_TV.shape:
            self.largest = math.inf
            return
        for ours, theirs in zip(ours_TV.split(ROWS), theirs_TV.split(ROWS), strict=True):
            self.add_rows(ours, theirs)

    def add_rows(self, ours_TV: Tensor, theirs_TV: Tensor) -> None:
        off_TV = (ours_TV.double() - theirs_TV.double()).abs()
        largest = float(off_TV.max())
        self.largest = max(self.largest, math.inf if math.isnan(largest) else largest)
        self.total += float(off_TV.sum())
        self.numbers, self.rows = self.numbers + off_TV.numel(), self.rows + len(off_TV)
        self.scale = max(self.scale, float(ours_TV.abs().max()))
        self.agreed += int((ours_TV.argmax(-1) == theirs_TV.argmax(-1)).sum())

    @property
    def relative(self) -> float:
        return self.largest / self.scale if self.scale else self.largest

    def result(self, name: str) -> dict[str, float | int]:
        found = {
            "inputs": self.inputs,
            "numbers": self.numbers,
            "largest": self.largest,
            "mean": self.total / max(1, self.numbers),
            "scale": self.scale,
            "relative": self.relative,
        }
        return found if name in HIDDEN else found | {"argmax": self.agreed / max(1, self.rows)}


def check(sides: Sides) -> Check | None:
    """Compare all outputs that both have; None if there are none."""
    found: dict[str, Differences] = {}
    missing: Counter[str] = Counter()
    for ours, theirs in pairs(sides):
        for name, value in ours.items():
            if name in theirs:
                found.setdefault(name, Differences()).add(value, theirs[name])
            else:
                missing[name] += 1
    if not found:
        return None
    allowed = sides.tolerance.exact
    faults = [
        f"{name} differ by {apart.relative:.2g} of their scale, and {allowed:g} is allowed"
        for name, apart in found.items()
        if not apart.relative <= allowed  # nor if it is no number
    ]
    results = {name: apart.result(name) for name, apart in found.items()}
    return Check(
        NAME,
        in_words(found),
        described(sides),
        {"compared": results, "only_here": sorted(missing.keys() - found.keys())},
        tuple(faults),
    )


def described(sides: Sides) -> dict[str, object]:
    """What was given to both."""
    if sides.ours.sees_pictures:
        return {"pictures": PICTURES, "seed": SEED}
    inputs: ProbeInputs = sides.inputs
    return {
        "random": len(inputs.drawn),
        "texts": len(inputs.texts),
        "lengths": inputs.lengths,
        "embedding_rows": {"read": inputs.read, "of": inputs.rows},
        "segments": inputs.drawn[0].segments is not None,
        "seed": SEED,
    }


def in_words(found: dict[str, Differences]) -> str:
    parts = [
        f"{name} differ by at most {apart.largest:.2g} ({apart.relative:.1g} of their scale)"
        for name, apart in found.items()
    ]
    inputs = max(apart.inputs for apart in found.values())
    return f"{'; '.join(parts)}, in {inputs} inputs"


def pairs(sides: Sides) -> Iterator[tuple[Outputs, Outputs]]:
    """Outputs of every input, ours and theirs: alone, and a few of unequal length in one batch."""
    if sides.ours.sees_pictures:
        yield from of_pictures(sides)
        return
    rows = sides.inputs.all
    for number, row in enumerate(rows, 1):
        sides.tell(f"comparing outputs: input {number} of {len(rows)}")
        yield sides.rounded.outputs([row])[0], sides.exact.outputs([row])[0]
    together = rows[1:4]
    yield from zip(sides.rounded.outputs(together), sides.exact.outputs(together), strict=True)


def of_pictures(sides: Sides, used: bool = False) -> Iterator[tuple[Outputs, Outputs]]:
    """Outputs of random pictures. used: of the source, and of the export as it is used."""
    here, there = (sides.ours, sides.used) if used else (sides.rounded, sides.exact)
    c, sees = sides.ours.loaded.config, getattr(there, "pictures", None)
    made = torch.Generator().manual_seed(SEED)
    images_BCHW = torch.randn(PICTURES, c.channels, c.image_size, c.image_size, generator=made)
    if sees is not None:
        yield from zip(here.pictures(images_BCHW), sees(images_BCHW), strict=True)
