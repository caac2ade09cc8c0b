"""The weights of a GGUF file beside those that it should have."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from ..binary import mapped
from ..loaded import Loaded
from ..rounding import BLOCK, in_half, q8_0_blocks
from .file import read_contents
from .read import find
from .write import FILE, is_qwen, tensors


def rounded(loaded: Loaded, folder: Path, kind: str) -> dict[str, Tensor]:
    """{parameter: its value as it is stored}: matrices only, and as float16 where blocks do not fit."""
    if kind == "float32":
        return {}
    matrices = {name: weight for name, weight in loaded.model.named_parameters() if weight.ndim == 2}
    return {
        name: q8_0_blocks(weight)
        if kind == "q8_0" and weight.shape[1] % BLOCK == 0
        else in_half(weight, "float16" if kind == "q8_0" else kind)
        for name, weight in matrices.items()
    }


def expected(loaded: Loaded) -> dict[str, Tensor]:
    """{their name: the value that should be stored}."""
    return tensors(loaded, "qwen2" if is_qwen(loaded.config) else "llama")


def stored(folder: Path) -> dict[str, Tensor]:
    """{their name: what heedful reads from the file}."""
    with mapped(find(folder) or folder / FILE) as data:
        return {name: each.tensor() for name, each in read_contents(data).tensors.items()}
