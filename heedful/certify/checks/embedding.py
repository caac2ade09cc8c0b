"""Embedding: every row of the token embedding, as the other library holds it."""

from __future__ import annotations

from typing import Any

import torch

from ...models.base.shells import shells_of
from ..certificate import Check
from ..sides import Sides

NAME = "embedding"


def check(sides: Sides) -> Check | None:
    """Compare rows bit for bit; None where the library does not show them."""
    give = getattr(sides.exact, "embedding", None)
    if give is None or sides.ours.sees_pictures:
        return None
    shell: Any = next(iter(shells_of(sides.rounded.model).values()))
    ours_VD, theirs_VD = shell.inputs.tokens.weight.detach().float(), give()
    if ours_VD.shape != theirs_VD.shape:
        return None  # a library may hold it in parts
    equal = int((ours_VD == theirs_VD).all(-1).sum())
    total = len(ours_VD)
    faults = () if equal == total else (f"{total - equal} of {total} rows of the embedding differ",)
    worst = float((ours_VD - theirs_VD).abs().nan_to_num(torch.inf).max())
    result = {"equal": equal, "of": total, "largest": worst}
    return Check(NAME, f"{equal} of {total} rows equal", {"rows": total}, result, faults)
