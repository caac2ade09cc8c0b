"""Write a Hugging Face folder, which transformers' Auto classes load, offline and without code of ours."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...errors import BadInput
from ...files import replacing_folder
from ...models import family
from ...models.base import classifying
from ...models.base.shells import DecoderClassifier
from ...parts.positions.absolute import PRECISIONS
from ..loaded import Loaded, check_export
from ..run_folder import CONFIG
from .generation import generation_config, token_ids
from .generation_settings import GENERATION
from .image_processor import PREPROCESSOR, preprocessor_config
from .problem import problem_config
from .sentences import UnreadSentences, sentence_files
from .tokenizer_files import as_json, tokenizer_files, write_files
from .weights import SINGLE, write_tensors

KINDS = ("float32", "bfloat16", "float16")


def refuse(loaded: Loaded) -> str | None:
    """Why Hugging Face has no such model, or None."""
    try:
        in_their_terms(loaded)
        sentences_of(loaded)
        if loaded.preprocessing is not None:
            preprocessor_config(loaded.preprocessing)
    except BadInput as error:
        return str(error)
    return None


def write(loaded: Loaded, folder: str | os.PathLike[str], kind: str = "float32") -> None:
    """Write config.json, model.safetensors, the tokenizer and generation_config.json.

    kind: of the weights; float32 leaves them as they are.
    """
    check_export(None, kind, KINDS, f"a Hugging Face folder is written as {' or '.join(KINDS)}")
    config, weights = in_their_terms(loaded)
    if kind != KINDS[0]:
        config, weights = config | {"dtype": kind}, rounded(weights, kind)
    files = tokenizer_files(loaded) | {CONFIG: as_json(config)} | sentences_of(loaded)
    if loaded.preprocessing is not None:
        files[PREPROCESSOR] = as_json(preprocessor_config(loaded.preprocessing))
    if (writing := generation_config(loaded)) is not None:
        files[GENERATION] = as_json(writing)
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"{folder} is a file; a model is saved as a folder")
    with replacing_folder(folder) as aside:
        write_tensors(aside / SINGLE, weights)
        write_files(aside, files)
        shutil.copymode(aside / CONFIG, aside / SINGLE)  # safetensors makes its files private


def rounded(weights: Mapping[str, Tensor], kind: str) -> dict[str, Tensor]:
    """Weights in half precision; refused if one is too large for it."""
    dtype = PRECISIONS[kind]
    for name, weight in weights.items():
        largest = float(weight.detach().abs().max()) if weight.numel() else 0.0
        if largest > torch.finfo(dtype).max:
            raise BadInput(
                f"{name} has a weight of {largest:.3g}, and {kind} ends at {torch.finfo(dtype).max:.3g}: "
                f"export as bfloat16 or float32"
            )
    return {name: weight.to(dtype) for name, weight in weights.items()}


def sentences_of(loaded: Loaded) -> dict[str, str]:
    """The files of sentence-transformers, of a model that came with some."""
    if isinstance(loaded.sentences, UnreadSentences):
        raise BadInput(f"its sentence-transformers files would be lost: {loaded.sentences.why}")
    return sentence_files(loaded.sentences, getattr(loaded.config, "width", 0))


def in_their_terms(loaded: Loaded) -> tuple[dict[str, Any], Mapping[str, Tensor]]:
    """Config and weights as Hugging Face has them; a model it cannot describe is refused."""
    file, c = family(loaded.architecture), loaded.config
    if not hasattr(file, "names"):
        fault = f"{loaded.architecture} has no Hugging Face counterpart to be saved as"
        raise BadInput(f"{fault}: heedful.load reads the folder it came from")
    classifies = isinstance(loaded.model, DecoderClassifier)
    if loaded.unlike:
        raise BadInput(
            f"{loaded.unlike}, as no model of Hugging Face does: heedful.load reads the run's own folder"
        )
    try:
        weights: Mapping[str, Tensor] = dict(loaded.model.named_parameters())
        if classifies:
            c, weights = classifying.as_theirs(loaded.architecture, c, weights)
        elif hasattr(file, "as_theirs"):
            c, weights = file.as_theirs(c, weights)
        config = file.write_config(c)
        table = file.names(c)
        if classifies:
            table = classifying.names(table)
            config["architectures"] = [classifying.class_name(config["architectures"][0])]
            config["num_labels"] = len(weights["linear.weight"])
        weights = table.to_theirs(weights)
        back = file.read_config(config, weights.keys())
    except (KeyError, StopIteration) as error:  # a weight or a choice that has no name over there
        why = "".join(f": {part}" for part in error.args)
        raise BadInput(f"Hugging Face has no such {loaded.architecture}{why}") from None
    for f in fields(c):
        if getattr(back, f.name) != getattr(c, f.name):
            raise BadInput(
                f"Hugging Face has no {loaded.architecture} whose {f.name} is {getattr(c, f.name)!r}"
            )
    if loaded.labels:
        config.pop("num_labels", None)
        config["id2label"] = {str(number): label for number, label in enumerate(loaded.labels)}
        config["label2id"] = {label: number for number, label in enumerate(loaded.labels)}
    config |= problem_config(loaded.problem)
    dtype = next(iter(weights.values())).dtype
    config["dtype"] = str(dtype).removeprefix("torch.")
    weights = {**weights, **{name: fixed.make().to(dtype) for name, fixed in table.fixed.items()}}
    # What a family says goes first: RoBERTa counts from its padding.
    return token_ids(loaded) | config, weights
