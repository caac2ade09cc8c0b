"""Embedding: every row of the token embedding, as the other library holds it."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ...interop.formats import part
from ...models.base.shells import shells_of
from ..certificate import Check
from ..sides import Sides

NAME = "embedding"


def check(sides: Sides) -> Check | None:
    """Compare rows bit for bit; None where the library does not show them."""
    give = getattr(sides.exact, "embedding", None)
    if give is None or sides.ours.sees_pictures:
        return None
    theirs_VD = give()
    tables = [table for table in tables_of(sides) if table.shape == theirs_VD.shape]
    if not tables:
        return None  # a library may hold it in parts
    equal, total = max(int((table == theirs_VD).all(-1).sum()) for table in tables), len(theirs_VD)
    faults = () if equal == total else (f"{total - equal} of {total} rows of the embedding differ",)
    return Check(
        NAME, f"{equal} of {total} rows equal", {"rows": total}, {"equal": equal, "of": total}, faults
    )


def tables_of(sides: Sides) -> list[Tensor]:
    """Our embedding, as it is and as the format stores it: columns may have another order there."""
    shell: Any = next(iter(shells_of(sides.rounded.model).values()))
    found = [shell.inputs.tokens.weight.detach().float()]
    if sides.format:
        found += part(sides.format, "stored").expected(sides.rounded.loaded).values()
    return found
