"""Weights: what heedful reads from the export, bit for bit what should be stored there."""

from __future__ import annotations

from torch import Tensor

from ...errors import BadInput
from ...interop.formats import part
from ...interop.loaded import some
from ..certificate import Check
from ..sides import Sides

NAME = "weights"


def check(sides: Sides) -> Check | None:
    """Compare every stored tensor; None of a format that heedful does not read."""
    if sides.folder is None or not hasattr(file := part(sides.format, "stored"), "stored"):
        return None
    sides.tell("comparing weights")
    try:
        stored = file.stored(sides.folder)
    except BadInput as error:
        return Check(NAME, "heedful cannot read them", faults=(f"heedful cannot read the export: {error}",))
    return compared(file.expected(sides.rounded.loaded), stored)


def compared(expected: dict[str, Tensor], stored: dict[str, Tensor]) -> Check:
    """Which tensors are stored as they should be."""
    wrong = [name for name, value in expected.items() if name not in stored or not same(value, stored[name])]
    total = len(expected)
    result = {"equal": total - len(wrong), "of": total, "different": sorted(wrong)[:10]}
    faults = (f"{len(wrong)} of {total} weights differ: {some(sorted(wrong))}",) if wrong else ()
    return Check(NAME, f"{total - len(wrong)} of {total} tensors equal, bit for bit", {}, result, faults)


def same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and bool((one == other.to(one.dtype)).all())
