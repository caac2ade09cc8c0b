"""Load a model from a folder, and save it: `heedful.load("runs/demo")`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import torch

from ..files import replacing_folder
from ..interop.formats import load as read
from ..interop.hf.write import write
from ..interop.loaded import Loaded
from ..interop.peft.write import write as write_adapter
from ..interop.run_folder import is_run
from ..train.device import find_device
from .model import Model


def load(
    folder: str | os.PathLike[str],
    device: str | torch.device = "cpu",
    dtype: torch.dtype | None = None,
    weights: Literal["fp32", "fp16", "int8", "fp8"] = "fp32",
    base: str | os.PathLike[str] | None = None,
) -> Model:
    """Load a model: a run of heedful's own, a Hugging Face folder, a GGUF file or a CTranslate2 folder.

    Args:
        folder: The folder or the file. It is read as it lies there; nothing is downloaded.
        device: "cpu", "cuda", or "auto" for the GPU if there is one.
        dtype: Type of the weights. None means torch.float32.
        weights: What `translate`, `generate` and `stream` multiply with. On a CPU, "fp16" and "int8" take
            less time than "fp32". On a GPU, "int8" and "fp8" take less time for one text of a large model,
            more for several texts, and "fp32" means the weights as they are. 8 bits may change a word.
        base: For a folder that holds only PEFT's adapters, the folder of the model that they belong to, if
            it is not where they say.

    Returns:
        A `Model`, ready for use.

    Raises:
        BadInput: The folder holds no model, or one that cannot be read; the message says why.

    Example:
        >>> model = heedful.load("runs/demo")
        >>> model.translate("The small girl eats a red apple.")
        'La petite fille mange une pomme rouge.'
    """
    how = find_device(device), torch.float32 if dtype is None else dtype
    found = read(folder, *how, base)
    return Model(found, os.fspath(folder), own=is_run(Path(folder)), weights=weights)


def save(
    model: Model | Loaded,
    folder: str | os.PathLike[str],
    kind: Literal["float32", "bfloat16", "float16"] = "float32",
) -> None:
    """Write a model as a Hugging Face folder: config.json, model.safetensors, tokenizer.json.

    Args:
        model: What `load` gave, or its `Loaded`.
        folder: Where to write. The folder appears when it is complete.
        kind: Type of the stored weights. A folder of "bfloat16" or "float16" has half the size.

    Raises:
        BadInput: Hugging Face has no layout for the model.

    Example:
        >>> heedful.save(heedful.load("runs/lm"), "saved")
        >>> heedful.load("saved").generate("The old king", max_new_tokens=4)
        ' is going to be'
    """
    write(model.loaded if isinstance(model, Model) else model, folder, kind)


def save_adapter(run: str | os.PathLike[str], folder: str | os.PathLike[str]) -> None:
    """Write what a run of LoRA has learned, alone, as Hugging Face's PEFT keeps it.

    Args:
        run: The folder of a run that trained adapters.
        folder: Where to write adapter_config.json and adapter_model.safetensors, which
            PeftModel.from_pretrained reads.

    Raises:
        BadInput: The run trained no adapters.

    Example:
        >>> heedful.save_adapter("runs/demo", "adapter")
        Traceback (most recent call last):
        ...
        heedful.errors.BadInput: runs/demo was not trained with train.tune=lora: it has no adapters to save
    """
    with replacing_folder(Path(folder)) as aside:
        write_adapter(Path(run), aside)
