"""How a run makes pictures ready, as its recipe says."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...data.images.prepare import preprocessing_of
from ...data.images.preprocessing import Preprocessing
from ...files import inside, read_json
from ..run_folder import RECIPE

KINDS = {"image_size": int, "resize": str, "color": bool}


@dataclass(frozen=True)
class Fitting:
    """What the recipe says of sizes and colors."""

    image_size: int
    resize: str
    color: bool


def preprocessing_in_run(folder: Path, config: Any) -> Preprocessing | None:
    """The preprocessing of a run; None if its model reads no pictures, or if its recipe is damaged."""
    if not hasattr(config, "image_size"):
        return None
    data = read_json(inside(folder, RECIPE)).get("data")
    said = data if isinstance(data, dict) else {}
    known = {name: said.get(name) for name in KINDS}
    if any(type(known[name]) is not kind for name, kind in KINDS.items()):
        return None
    how = preprocessing_of(Fitting(**known))  # type: ignore[arg-type]
    mean, std = said.get("mean", 0.5), said.get("std", 0.5)
    if not all(type(number) in (int, float) for number in (mean, std)):
        return None
    return replace(how, mean=(float(mean),), std=(float(std),))
