"""Read a Hugging Face folder of a known family: config.json, safetensors (one file or shards), the tokenizer.

Everything is checked against the config before any weight is read, and nothing is returned half-loaded.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import BadInput
from ...files import inside, naming, present, read_json, short
from ...models import family, kind_of, model_types, nearest
from ...models.base import classifying
from ...models.base.skeleton import skeleton, with_room
from ...models.hf.folder import in_own_names, read_labels
from ...models.hf.names import Fixed, Table
from ...parts.positions.absolute import PRECISIONS
from ..loaded import SPECIAL, Loaded, some, tokens_of
from ..run_folder import CONFIG, RECIPE, check_written, refuse_stages, runs_inside
from .chat_files import read_chat
from .generation_settings import read_generation
from .image_processor import read_preprocessing
from .languages import read_languages
from .problem import read_problem
from .sentences import find_sentences
from .token_settings import reads_special_tokens_as_text
from .tokenizer import read_target, read_tokenizer
from .unread import refusal
from .weights import Stored, check_tensor, find_weights, read_tensors

ROUNDED = 1e-6  # how far a stored table may be off what is computed
FEWEST = 6  # tensors in a layer, of any family


def read(folder: Path, device: str | torch.device, dtype: torch.dtype) -> Loaded:
    """The model of a folder, ready for use."""
    with naming(folder):
        architecture, config, special, stored = read_description(folder)
        tokenizer = read_tokenizer(folder, tokens_of(config))
        target = read_target(folder, config.target_vocab) if hasattr(config, "target_vocab") else None
        if tokenizer is not None and reads_special_tokens_as_text(folder):
            tokenizer.encode_special_tokens = True
        languages = read_languages(folder, tokenizer)
        said = read_json(inside(folder, CONFIG))
        labels, generation = label_names(said.get("id2label")), read_generation(folder, said)
        chat = read_chat(folder)
        problem = read_problem(folder, said)
        sentences = find_sentences(folder)
        pictures = None
        if hasattr(config, "channels"):
            pictures = read_preprocessing(folder, said["model_type"], config.channels)
        table = family(architecture).names(config)
        with naming(folder / CONFIG):
            if classifying.is_classifier(architecture, said, stored.keys()):
                config, table = classifying.config_of(config), classifying.names(table)
                model = classifying.without_bias(skeleton(architecture, config, read_labels(said)))
            else:
                model = skeleton(architecture, config)
        plan = check_weights(folder, table, dict(model.named_parameters()), stored)
        check_copies(table, plan, stored)
        check_fixed(table, stored)
    model = with_room(model.to(dtype), device)
    fill(model, table, plan)
    return Loaded(
        architecture,
        config,
        model.eval(),
        tokenizer,
        special,
        target,
        labels,
        generation,
        chat=chat,
        problem=problem,
        sentences=sentences,
        preprocessing=pictures,
        languages=languages,
    )


def label_names(theirs: Any) -> tuple[str, ...]:
    """The names of labels in a config, {id: name}; their ids, where two share a name."""
    names = theirs if isinstance(theirs, dict) else {}
    labels = tuple(str(names.get(str(number), number)) for number in range(len(names)))
    return labels if len(set(labels)) == len(labels) else tuple(map(str, range(len(labels))))


def read_description(folder: Path) -> tuple[str, Any, dict[str, int], dict[str, Stored]]:
    """What the folder says it is, before anything is built: architecture, config, special ids, tensors."""
    if not folder.is_dir():
        raise BadInput(f"{folder} is not a folder; a model is a folder with a {CONFIG} and its weights")
    if present(folder / RECIPE):
        check_written(folder)
    if not present(folder / CONFIG):
        refuse_stages(folder)
        fault = f"{folder / CONFIG} is missing: a model is a folder with a {CONFIG} and its weights"
        raise BadInput(fault + runs_inside(folder))
    path = inside(folder, CONFIG)
    theirs = read_json(path)
    architecture = find_architecture(path, theirs)
    stored = find_weights(folder)
    with naming(path):
        check_direction(architecture, theirs)
        theirs = in_own_names(theirs, getattr(family(architecture), "COMMON_NAMES", {}))
        config = family(architecture).read_config(theirs, held(architecture, stored))
        config = as_rounded(architecture, config, stored)
        layers = getattr(config, "own_layers", config.layers) + getattr(config, "decoder_layers", 0)
        if layers * FEWEST > len(stored):
            raise BadInput(f"{layers} layers are declared, but the weights have only {len(stored)} tensors")
        refuse_both_ways(architecture, config, theirs)
    numbers = {name: theirs.get(f"{name}_token_id") for name in SPECIAL}
    known = range(tokens_of(config) or 0)  # some configs write -1 for "none"
    special = {name: number for name, number in numbers.items() if type(number) is int and number in known}
    return architecture, config, special, stored


def held(architecture: str, stored: Mapping[str, Stored]) -> Collection[str]:
    """The names of the weights that a folder holds, without repetitions of another where the weights
    themselves say what is tied (T5)."""
    pairs = getattr(family(architecture), "TIED", {})
    repeats = {copy for copy, original in pairs.items() if are_equal(stored, copy, original)}
    return stored.keys() - repeats


def are_equal(stored: Mapping[str, Stored], a: str, b: str) -> bool:
    """Whether both weights are there, and equal."""
    if a not in stored or b not in stored or stored[a].shape != stored[b].shape:
        return False
    (_, one), (_, other) = read_tensors({"a": stored[a], "b": stored[b]})
    return torch.equal(one, other)


def refuse_both_ways(architecture: str, config: Any, theirs: Mapping[str, Any]) -> None:
    """Refuse a decoder whose tokens see those after them (`is_causal`) if our config cannot say so."""
    other = theirs.get("is_causal", True) is not True
    if other and kind_of(architecture) == "Decoder" and not hasattr(config, "causal"):
        said = short(theirs["is_causal"])
        raise BadInput(f"is_causal is {said}; heedful reads a {architecture} only without it, as causal")


def find_architecture(path: Path, theirs: dict[str, Any]) -> str:
    """Which of our files builds the model that a config describes."""
    kind, known = theirs.get("model_type"), model_types()
    if kind is None:
        raise BadInput(f"{path} has no model_type{nearest('', known)}")
    if not isinstance(kind, str) or kind not in known:
        raise BadInput(f"{path}: {refusal(kind, known)}")
    return known[kind]


def check_direction(architecture: str, theirs: dict[str, Any]) -> None:
    """Refuse is_causal where it turns the attention of an encoder or an encoder-decoder around.

    A decoder's file reads it.
    """
    direction = theirs.get("is_causal")
    if kind_of(architecture) in ("WithHeads", "PictureEncoder") and direction not in (None, False):
        raise BadInput(f"is_causal is {short(direction)}; heedful implements only False for an encoder")
    if kind_of(architecture) == "EncoderDecoder" and direction is not None:
        raise BadInput(
            f"is_causal is {short(direction)}; heedful implements encoder-decoders without this setting"
        )


def check_weights(
    folder: Path, table: Table, ours: Mapping[str, Tensor], stored: Mapping[str, Stored]
) -> dict[str, Stored]:
    """Compare what is stored with what the config needs: {their name: where it is}, or a full error."""
    needed = {name: tuple(tensor.shape) for name, tensor in table.to_theirs(ours).items()}
    copies = copies_of(table, needed)
    plan: dict[str, Stored] = {}
    extra = []
    for name, tensor in stored.items():
        full = table.today(name)
        spelled = None if full is None else table.spelled(full)
        if spelled in plan:
            raise BadInput(f"{folder} holds {plan[spelled].name} and {name}, which are one weight: drop one")
        if spelled in needed:
            plan[spelled] = tensor
        elif full is not None and full not in copies:
            extra.append(name)
    for copy, original in copies.items():  # a file may keep only the copy
        if original not in plan and copy in stored:
            plan[original] = stored[copy]
    missing = [name for name in needed if name not in plan and name not in table.zeros]
    if missing:
        raise BadInput(f"{folder} lacks {some(missing)}, which its {CONFIG} calls for")
    if extra:
        raise BadInput(f"{folder} holds {some(extra)}, which its {CONFIG} does not describe")
    for name, tensor in plan.items():
        check_tensor(tensor, needed[name])
    for copy, original in copies.items():
        if copy in stored:
            check_tensor(stored[copy], needed[original])
    return plan


def copies_of(table: Table, needed: Collection[str]) -> dict[str, str]:
    """{copy: original} of the tied weights this model has."""
    spelled = {copy: table.spelled(original) for copy, original in (table.copies or {}).items()}
    return {copy: original for copy, original in spelled.items() if original in needed}


def check_copies(table: Table, plan: Mapping[str, Stored], stored: Mapping[str, Stored]) -> None:
    """A stored copy of a tied weight must be one: otherwise the config is wrong about the tie."""
    for copy, original in copies_of(table, plan).items():
        if copy in stored and plan[original] != stored[copy]:
            (_, a), (_, b) = read_tensors({"copy": stored[copy], "original": plan[original]})
            if not torch.equal(a, b):
                raise BadInput(
                    f"{stored[copy].path}: {copy} differs from {original}, though {CONFIG} ties them: "
                    f"set tie_word_embeddings to false there, or drop one of the two"
                )


def check_fixed(table: Table, stored: Mapping[str, Stored]) -> None:
    """What was never learned must be what the config makes it, or the model is another one."""
    for name, fixed in table.fixed.items():
        if name in stored:
            check_tensor(stored[name], fixed.shape)
            if not distance(stored[name], fixed) <= ROUNDED:  # not a number is neither
                fault = f"{stored[name].path}: {name} is not what {CONFIG} makes it (sinusoids)"
                raise BadInput(f"{fault}, and heedful computes it: this is another model")


def distance(tensor: Stored, fixed: Fixed) -> float:
    """By how much a stored tensor differs from what it is to be."""
    ((_, found),) = read_tensors({"": tensor})
    return (found.float() - fixed.make()).abs().max().item()


def as_rounded(architecture: str, config: Any, stored: Mapping[str, Stored]) -> Any:
    """The config with sinusoids as exact as the table of them that a file holds, if it holds one.

    A model that was saved in half precision computes with the rounded table.
    """
    if not hasattr(config, "sinusoid_precision"):
        return config
    for name, fixed in family(architecture).names(config).fixed.items():
        if name in stored and stored[name].shape == fixed.shape:
            ways = [replace(config, sinusoid_precision=precision) for precision in PRECISIONS]
            return min(ways, key=lambda c: distance(stored[name], family(architecture).names(c).fixed[name]))
    return config


def fill(model: nn.Module, table: Table, plan: Mapping[str, Stored]) -> None:
    """Copy the stored tensors into the model, one at a time."""
    ours = dict(model.named_parameters())
    with torch.no_grad():
        for rule in table.rules:
            if rule.theirs in table.zeros and rule.theirs not in plan:
                ours[rule.ours[0]].zero_()
        for name, tensor in read_tensors(plan):
            for part, value in table.to_ours({name: tensor}).items():
                ours[part].copy_(value)
