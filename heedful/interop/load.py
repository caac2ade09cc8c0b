"""Load a model of any format: a run of heedful's own, Hugging Face, GGUF, CTranslate2, or PEFT's adapters.

Every reader checks a folder against its config before it reads a weight, and returns nothing half-loaded.
"""

from __future__ import annotations

import os
from pathlib import Path

import torch

from ..errors import BadInput
from .formats import format_of, part
from .loaded import Loaded
from .run.adapters import is_peft
from .run.read import read as read_run


def load(
    folder: str | os.PathLike[str],
    device: str | torch.device = "cpu",
    dtype: torch.dtype = torch.float32,
    base: str | os.PathLike[str] | None = None,
) -> Loaded:
    """The model of a folder, ready for use (in evaluation mode).

    base: of adapters of PEFT, the folder of their model, if it is not where they say.
    """
    path = Path(folder)
    if base is not None and not is_peft(path):
        raise BadInput(f"{os.fspath(folder)} holds no adapters of PEFT: leave out `base`")
    name = format_of(path)
    if name == "run":
        return load_run(path, device, dtype)
    read = part(name, "read").read
    if name == "peft":
        return read(path, device, dtype, load, None if base is None else Path(base))
    return read(path, device, dtype)


def load_run(folder: Path, device: str | torch.device, dtype: torch.dtype) -> Loaded:
    """The best model of a run."""
    return read_run(folder, device, dtype, load)
