"""The weights of a Hugging Face folder beside those that it should have."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from ..loaded import Loaded
from ..rounding import HALVES, in_half
from .read import read
from .write import in_their_terms


def rounded(loaded: Loaded, folder: Path, kind: str) -> dict[str, Tensor]:
    """{parameter: its value as it is stored}: all of them alike."""
    if kind not in HALVES:
        return {}
    return {name: in_half(weight, kind) for name, weight in loaded.model.named_parameters()}


def expected(loaded: Loaded) -> dict[str, Tensor]:
    """{their name: the value that should be stored}."""
    return dict(in_their_terms(loaded)[1])


def stored(folder: Path) -> dict[str, Tensor]:
    """{their name: what heedful reads from the folder}."""
    return dict(in_their_terms(read(folder, "cpu", torch.float32))[1])
