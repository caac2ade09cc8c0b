"""A probe: inputs with what Python computes, by which a page checks itself in the browser that opens it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..interop.loaded import Loaded
from ..interop.rounding import with_weights
from .inputs import inputs_for
from .own import OwnModel
from .sides import as_stored

ROWS, NUMBERS = 3, 8  # inputs, and numbers of the last row of their outputs
LONGEST = 48  # tokens of an input


def probe_of(loaded: Loaded, folder: Path, to: str, kind: str) -> list[dict[str, Any]]:
    """[{ids, target, segments, numbers}], computed with weights rounded as the export has them."""
    here = OwnModel(with_weights(loaded, as_stored(loaded, folder, to, kind)))
    inputs = inputs_for(here)
    rows = [row for row in (*inputs.texts, *inputs.drawn) if len(row.ids) <= LONGEST][:ROWS]
    found = []
    for row in rows:
        outputs = here.outputs([row])[0]
        last = outputs.get("last_hidden_state", outputs.get("logits"))
        assert last is not None
        given = {"ids": row.ids, "target": row.target, "segments": row.segments}
        found.append(given | {"numbers": [round(x, 7) for x in last[-1, :NUMBERS].tolist()]})
    return found
