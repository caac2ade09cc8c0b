"""Load and save: from a folder to a model that is ready for use, and back."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import torch

from ..errors import BadInput
from ..files import replacing_folder
from ..interop.formats import load as read
from ..interop.hf.write import write
from ..interop.loaded import Loaded
from ..interop.peft.write import write as write_adapter
from ..interop.quantize import quantize_weights
from ..interop.run_folder import is_run
from ..train.device import find_device
from .model import Model


def load(
    folder: str | os.PathLike[str],
    device: str | torch.device = "cpu",
    dtype: torch.dtype | None = None,
    weights: Literal["fp32", "fp16", "int8"] = "fp32",
    base: str | os.PathLike[str] | None = None,
    quantize: Literal["int8", "int4"] | None = None,
) -> Model:
    """The model of a folder, ready for use: a run of heedful's own, or a Hugging Face folder.

    device: "cpu", "cuda", or "auto" for the GPU if there is one. dtype: torch.float32 unless said. weights:
    what `translate`, `generate` and `stream` read on a CPU; fewer bits are read sooner, and "int8" may change
    a word. base: of a folder that holds only adapters (PEFT's), the model that they stand beside, if it is
    not where they say. quantize: round the weights of all blocks to 8 or 4 bits, through torchao, on any
    device.

    >>> model = load("runs/toy")
    >>> model.translate("i am a student")
    'je suis étudiant'
    """
    how = find_device(device), torch.float32 if dtype is None else dtype
    found = read(folder, *how, base)
    if quantize is not None:
        if weights != "fp32":
            raise BadInput("`weights` and `quantize` are two ways to round weights: give one of them")
        quantize_weights(found.model, quantize)
    return Model(found, os.fspath(folder), own=is_run(Path(folder)), weights=weights, quantize=quantize)


def save(model: Model | Loaded, folder: str | os.PathLike[str]) -> None:
    """Write a model as a Hugging Face folder: config.json, model.safetensors, tokenizer.json."""
    if isinstance(model, Model) and model.quantize:
        raise BadInput(
            f"{model.folder} was loaded with rounded weights, which are not saved: load it without `quantize`"
        )
    write(model.loaded if isinstance(model, Model) else model, folder)


def save_adapter(run: str | os.PathLike[str], folder: str | os.PathLike[str]) -> None:
    """Write what a run of LoRA has learned, alone, as Hugging Face's PEFT keeps it: adapter_config.json and
    adapter_model.safetensors, for PeftModel.from_pretrained."""
    with replacing_folder(Path(folder)) as aside:
        write_adapter(Path(run), aside)
