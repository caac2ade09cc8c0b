"""Attention: the weights of every head, of both with the same rounded weights and products in float32."""

from __future__ import annotations

import math

from ...interop.foreign import Outputs
from ..certificate import Check
from ..sides import Sides

NAME = "attention"
TEXTS = 4  # inputs whose weights are compared
LONGEST = 64  # tokens of an input


def check(sides: Sides) -> Check | None:
    """Compare weights; None where the library does not show them."""
    ask = getattr(sides.exact, "attention", None)
    if ask is None or sides.ours.sees_pictures:
        return None
    rows = [row for row in (*sides.inputs.texts, *sides.inputs.drawn) if len(row.ids) <= LONGEST][:TEXTS]
    worst, heads = 0.0, 0
    for number, row in enumerate(rows, 1):
        sides.tell(f"comparing attention: input {number} of {len(rows)}")
        ours = sides.rounded.attention(row)
        worst = max(worst, apart(ours, ask(row)))
        heads = sum(weights_HTS.shape[0] for weights_HTS in ours.values())
    allowed = sides.tolerance.exact
    faults = () if worst <= allowed else (f"attention differs by {worst:.2g}, and {allowed:g} is allowed",)
    said = f"weights of {heads} heads differ by at most {worst:.2g}, in {len(rows)} inputs"
    return Check(NAME, said, {"inputs": len(rows)}, {"heads": heads, "largest": worst}, faults)


def apart(ours: Outputs, theirs: Outputs) -> float:
    """The largest difference of a weight; infinite if the layers are others."""
    if ours.keys() != theirs.keys() or any(ours[name].shape != theirs[name].shape for name in ours):
        return math.inf
    return max(float((ours[name] - theirs[name]).abs().max()) for name in ours)
