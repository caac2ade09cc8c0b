"""Load and save: a folder is a model.

`load` reads a Hugging Face folder of a family heedful knows: config.json, safetensors (one file or shards)
and the tokenizer beside them. Everything is checked against the config before any weight is read, and
nothing is returned half-loaded. `save` writes such a folder, which Hugging Face's own classes read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..errors import BadInput
from ..models import MODEL_TYPES, family, nearest
from ..models.names import Table
from .files import inside, naming, read_json
from .tokenizer import read_tokenizer
from .weights import SINGLE, Stored, find_weights, publish, read_tensors, write_tensors

if TYPE_CHECKING:
    from tokenizers import Tokenizer


@dataclass(frozen=True)
class Loaded:
    """A model with what belongs to it."""

    architecture: str  # the file in heedful/models
    config: Any
    model: nn.Module
    tokenizer: Tokenizer | None
    special: dict[str, int]  # ids of tokens with a meaning: pad, bos, eos, decoder_start


SPECIAL = ("pad", "bos", "eos", "decoder_start")


def load(
    folder: str | os.PathLike[str],
    device: str | torch.device = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Loaded:
    """The model of a folder, ready for use (in evaluation mode)."""
    folder = Path(folder)
    if not folder.is_dir():
        raise BadInput(f"{folder} is not a folder; a model is a folder with a config.json and its weights")
    architecture, config, special, stored = read_description(folder)
    table = family(architecture).names(config)
    with torch.device("meta"):
        model = family(architecture).build(config)
    plan = check_weights(folder, table, parameters(model), stored)
    model = model.to(dtype).to_empty(device=device)
    fill(model, table, plan)
    check_copies(table, plan, stored)
    return Loaded(architecture, config, model.eval(), read_tokenizer(folder), special)


def read_description(folder: Path) -> tuple[str, Any, dict[str, int], dict[str, Stored]]:
    """What the folder says it is, before anything is built: architecture, config, special ids, tensors."""
    path = inside(folder, "config.json")
    theirs = read_json(path)
    kind = theirs.get("model_type")
    if kind not in MODEL_TYPES:
        raise BadInput(f"{path}: model_type is {kind!r}{nearest(str(kind), MODEL_TYPES)}")
    architecture = MODEL_TYPES[kind]
    stored = find_weights(folder)
    with naming(path):
        config = family(architecture).read_config(theirs, stored.keys())
        layers = config.layers + getattr(config, "decoder_layers", 0)
        if layers > len(stored):
            raise BadInput(f"{layers} layers are announced, but the weights have only {len(stored)} tensors")
    special = {
        name: theirs[f"{name}_token_id"] for name in SPECIAL if type(theirs.get(f"{name}_token_id")) is int
    }
    return architecture, config, special, stored


def parameters(model: nn.Module) -> dict[str, Tensor]:
    """Every weight once, under the first of its names: tied weights stay tied because they are one."""
    return dict(model.named_parameters())


def check_weights(
    folder: Path, table: Table, ours: Mapping[str, Tensor], stored: Mapping[str, Stored]
) -> dict[str, Stored]:
    """Compare what is stored with what the config needs: {their name: where it is}, or an error that says all."""
    needed = {name: tuple(tensor.shape) for name, tensor in table.to_theirs(ours).items()}
    copies = dict(table.copies or {})
    plan: dict[str, Stored] = {}
    extra = []
    for name, tensor in stored.items():
        full = table.today(name)
        spelled = None if full is None else table.spelled(full)
        if spelled in needed:
            plan[spelled] = tensor
        elif full is not None and full not in copies:
            extra.append(name)
    for copy, original in copies.items():  # a file may keep only the copy
        if original not in plan and copy in stored and original in needed:
            plan[original] = stored[copy]
    missing = [name for name in needed if name not in plan]
    if missing:
        raise BadInput(f"{folder} lacks {some(missing)}, which its config.json calls for")
    if extra:
        raise BadInput(f"{folder} holds {some(extra)}, for which its config.json has no place")
    for name, tensor in plan.items():
        if tensor.shape != needed[name]:
            raise BadInput(
                f"{tensor.path}: {tensor.name} is {by(tensor.shape)}, but config.json asks for {by(needed[name])}"
            )
    for copy, original in copies.items():
        if copy in stored and stored[copy].shape != needed.get(original, stored[copy].shape):
            raise BadInput(
                f"{stored[copy].path}: {copy} is {by(stored[copy].shape)}, but it is tied to "
                f"{original}, which is {by(needed[original])}"
            )
    return plan


def fill(model: nn.Module, table: Table, plan: Mapping[str, Stored]) -> None:
    """Copy the stored tensors into the model, one at a time."""
    ours = parameters(model)
    with torch.no_grad():
        for name, tensor in read_tensors(plan):
            for part, value in table.to_ours({name: tensor}).items():
                ours[part].copy_(value)


def check_copies(table: Table, plan: Mapping[str, Stored], stored: Mapping[str, Stored]) -> None:
    """A stored copy of a tied weight must be one: otherwise the config is wrong about the tie."""
    for copy, original in (table.copies or {}).items():
        if copy in stored and original in plan and plan[original] != stored[copy]:
            (_, a), (_, b) = read_tensors({"copy": stored[copy], "original": plan[original]})
            if not torch.equal(a, b):
                raise BadInput(
                    f"{stored[copy].path}: {copy} differs from {original}, though config.json ties them: "
                    f"set tie_word_embeddings to false there, or drop one of the two"
                )


def save(loaded: Loaded, folder: str | os.PathLike[str]) -> None:
    """Write a model as a Hugging Face folder: config.json, model.safetensors, tokenizer.json."""
    family_file = family(loaded.architecture)
    if not hasattr(family_file, "names"):
        raise BadInput(f"{loaded.architecture} has no Hugging Face counterpart to be saved as")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    theirs = family_file.names(loaded.config).to_theirs(parameters(loaded.model))
    dtype = next(iter(theirs.values())).dtype
    config = family_file.write_config(loaded.config) | {"dtype": str(dtype).removeprefix("torch.")}
    config |= {f"{name}_token_id": number for name, number in loaded.special.items()}
    write_tensors(folder / SINGLE, theirs)
    if loaded.tokenizer is not None:
        write_text(folder / "tokenizer.json", loaded.tokenizer.to_str())
    write_text(folder / "config.json", json.dumps(config, indent=2) + "\n")


def write_text(path: Path, text: str) -> None:
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.write_text(text, encoding="utf-8")
    publish(aside, path)


def some(names: list[str]) -> str:
    """The first few of a list of names."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def by(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "a single number"
