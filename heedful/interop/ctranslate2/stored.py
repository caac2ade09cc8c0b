"""The weights of a CTranslate2 folder beside those that it should have."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from ..binary import mapped
from ..loaded import Loaded
from ..rounding import HALVES, in_half, int8_rows
from .file import read_variables
from .layout import names
from .vocabulary import MODEL


def rounded(loaded: Loaded, folder: Path, kind: str) -> dict[str, Tensor]:
    """{parameter: its value as it is stored}: embeddings and matrices in int8, all weights in 16 bits."""
    if kind == "float32":
        return {}
    if kind in HALVES:
        return {name: in_half(weight, kind) for name, weight in loaded.model.named_parameters()}
    placed = {
        name for theirs, ours in names(loaded.model).items() if theirs.endswith("/weight") for name in ours
    }
    weights = {name: weight for name, weight in loaded.model.named_parameters() if name in placed}
    return {name: int8_rows(weight) for name, weight in weights.items() if weight.ndim == 2}


def expected(loaded: Loaded) -> dict[str, Tensor]:
    """{their name: the value that should be stored}."""
    model = loaded.model
    return {
        theirs: torch.cat([model.get_parameter(name).detach().float().cpu() for name in ours])
        for theirs, ours in names(model).items()
    }


def stored(folder: Path) -> dict[str, Tensor]:
    """{their name: what heedful reads from the folder}."""
    with mapped(folder / MODEL) as data:
        _, variables = read_variables(data)
        found = [name for name in (*variables.found, *variables.others) if name.rpartition("/")[2] in PARTS]
        return {name: variables.tensor(name).clone() for name in found}


PARTS = ("weight", "bias", "gamma", "beta", "encodings", "relative_attention_bias")  # what is learned
