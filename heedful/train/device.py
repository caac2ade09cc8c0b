"""Where to compute."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import BadInput

if TYPE_CHECKING:
    import torch


def find_device(asked: str | torch.device) -> torch.device:
    """The device of a name; auto is the GPU if there is one."""
    import torch

    if asked == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if str(asked).startswith("cuda") and not torch.cuda.is_available():
        raise BadInput("there is no CUDA GPU here: use --device cpu")
    return torch.device(asked)
