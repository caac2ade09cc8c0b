"""Load and save: a folder is a model.

`load` reads a run of heedful's own, a GGUF file, a CTranslate2 folder, or a Hugging Face folder of a family heedful knows:
config.json, safetensors (one file or shards) and the tokenizer beside them. Everything is checked against the config before any weight is read, and
nothing is returned half-loaded. `save` writes such a folder, which Hugging Face's own classes read.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..errors import BadInput
from ..files import inside, naming, present, read_json, replacing_folder, short
from ..models import MODEL_TYPES, family, nearest
from ..models.base import classifying
from ..models.base.heads import DecoderClassifier
from ..models.base.skeleton import skeleton
from ..models.hf.folder import read_labels
from ..models.hf.names import Table
from ..parts.lora import merge
from .adapters import base_of, put_base, read_lora, with_adapters
from .hf.beside import (
    GENERATION,
    as_json,
    generation_config,
    read_generation,
    reads_special_tokens_as_text,
    token_ids,
    tokenizer_files,
    write_files,
)
from .hf.tokenizer import TARGET_TOKENIZER, guarded, read_target, read_tokenizer, read_whole
from .hf.weights import FLOATS, SINGLE, Stored, find_weights, read_tensors, write_tensors
from .run_folder import CONFIG, LABELS, RECIPE, check_written, is_run, refuse_stages, runs_inside

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
    target_tokenizer: Tokenizer | None = None  # what the model writes, if that has a vocabulary of its own
    labels: tuple[str, ...] = ()  # what a classifier tells apart, by their numbers
    generation: dict[str, Any] = field(default_factory=dict)  # how to write, as a Hugging Face folder says
    unlike: str = ""  # what a run does with the model that its weights do not tell


VOUCHER = "model.json"
SPECIAL = ("pad", "bos", "eos", "decoder_start")
ROUNDED = 0.01  # how far a table that was stored in fewer bits may be off
FEWEST = 8  # tensors in a layer, of any family


def load(
    folder: str | os.PathLike[str],
    device: str | torch.device = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Loaded:
    """The model of a folder, ready for use (in evaluation mode)."""
    folder = Path(folder)
    if is_run(folder):
        return load_run(folder, device, dtype)
    from . import peft  # which build on what is here
    from .ctranslate2 import read as from_ctranslate2
    from .gguf import read as from_gguf

    for foreign in (from_gguf, from_ctranslate2, peft):
        if foreign.is_one(folder):
            return foreign.read(folder, device, dtype)
    with naming(folder):
        architecture, config, special, stored = read_description(folder)
        tokenizer = read_tokenizer(folder, tokens_of(config))
        target = read_target(folder, config.target_vocab) if hasattr(config, "target_vocab") else None
        if tokenizer is not None and reads_special_tokens_as_text(folder):
            tokenizer.encode_special_tokens = True
        said = read_json(inside(folder, CONFIG))
        labels, generation = label_names(said.get("id2label")), read_generation(folder, said)
        table = family(architecture).names(config)
        with naming(folder / CONFIG):
            if classifying.is_classifier(architecture, said):
                config, table = classifying.config_of(config), classifying.names(table)
                model = classifying.without_bias(sized(architecture, config, read_labels(said)))
            else:
                model = sized(architecture, config)
        plan = check_weights(folder, table, parameters(model), stored)
        check_copies(table, plan, stored)
        check_fixed(table, stored)
    model = with_room(model.to(dtype), device)
    fill(model, table, plan)
    return Loaded(architecture, config, model.eval(), tokenizer, special, target, labels, generation)


def label_names(theirs: Any) -> tuple[str, ...]:
    """What a config calls its labels, {number: name}; their numbers, where two have one name."""
    names = theirs if isinstance(theirs, dict) else {}
    labels = tuple(str(names.get(str(number), number)) for number in range(len(names)))
    return labels if len(set(labels)) == len(labels) else tuple(map(str, range(len(labels))))


def with_room(model: nn.Module, device: str | torch.device) -> nn.Module:
    """A model without numbers given memory for them. torch's own `to_empty` would import its symbolic mathematics."""
    made: dict[int, nn.Parameter] = {}  # a weight used twice stays one
    for module in model.modules():
        for name, weight in module._parameters.items():
            if weight is not None:
                if id(weight) not in made:
                    made[id(weight)] = nn.Parameter(
                        torch.empty(weight.shape, dtype=weight.dtype, device=device)
                    )
                setattr(module, name, made[id(weight)])  # a recurrent kernel of torch keeps a list of its own
        if isinstance(module, nn.RNNBase):
            module.flatten_parameters()  # side by side, as the kernels of a GPU want them
    return model


def describe_run(folder: Path) -> tuple[str, Any]:
    """Architecture and config of a run."""
    with naming(folder / CONFIG):
        described = read_json(inside(folder, CONFIG))
        architecture, sizes = str(described.get("heedful")), described.get("config")
        kind = type(next(iter(family(architecture).PRESETS.values())))
        known = {f.name for f in fields(kind)}
        if not isinstance(sizes, dict) or sizes.keys() != known:
            raise BadInput(f"the config is not that of a {architecture}")
        return architecture, kind(
            **{name: tuple(v) if isinstance(v, list) else v for name, v in sizes.items()}
        )


def labels_of_run(folder: Path) -> int:
    """How many labels a decoder was taught to tell apart; 0 if it has no such head."""
    labels = read_json(inside(folder, CONFIG)).get("labels", 0)
    if type(labels) is not int or not 0 <= labels < 2**31:
        raise BadInput(f"labels must be a whole number, not {short(labels)}")
    return labels


def labels_in_run(folder: Path, count: int) -> tuple[str, ...]:
    """The labels that a run was taught, in the order of their numbers; none if it was taught none."""
    if not present(folder / LABELS):
        return ()
    labels = tuple(read_json(inside(folder, LABELS), 1 << 24))
    if len(labels) != count:
        raise BadInput(
            f"{folder / LABELS} names {len(labels)} labels, and the model tells {count} apart: put back its own"
        )
    return labels


def load_run(folder: Path, device: str | torch.device, dtype: torch.dtype) -> Loaded:
    """The best model of a run; its names are ours already. What adapters have learned is merged."""
    architecture, config = describe_run(folder)
    lora = read_lora(folder)
    with naming(folder / CONFIG):
        model = sized(architecture, config, labels_of_run(folder))
        model = model if lora is None else with_adapters(model, lora)
    with naming(folder):
        check_written(folder)
        check_hash(folder)
        stored, ours = find_weights(folder), parameters(model)
        kept = ours.keys() if lora is None else {n for n in ours if n in stored or n.endswith((".A", ".B"))}
        different = sorted(stored.keys() ^ kept)
        if different:
            raise BadInput(f"{folder} and its {CONFIG} disagree about {some(different)}")
        for name, tensor in stored.items():
            check_tensor(tensor, tuple(ours[name].shape))
        separate = not getattr(config, "shared", True)
        tokenizer = read_tokenizer(folder, config.vocab if separate else tokens_of(config))
        target = None
        if separate or present(folder / TARGET_TOKENIZER):
            target = read_target_tokenizer(folder, config.target_vocab)
        labels = labels_in_run(folder, labels_of_run(folder) or getattr(config, "labels", 0))
    base = None if lora is None else load(base_of(folder), device, dtype).model
    model = with_room(model.to(dtype), device)
    with torch.no_grad():
        weights = parameters(model)
        for name, value in read_tensors(stored):
            weights[name].copy_(value)
    if base is not None:
        with naming(folder):
            put_base(model, base, set(stored))
        merge(model)
    special: dict[str, int] = {}
    for each in (tokenizer, target):
        if each is not None:
            each.encode_special_tokens = True  # a text that says [EOS] is only a text
    if tokenizer is not None:
        names = {"pad": "[PAD]", "bos": "[BOS]", "eos": "[EOS]", "decoder_start": "[BOS]"}
        numbers = {name: tokenizer.token_to_id(token) for name, token in names.items()}
        special = {name: number for name, number in numbers.items() if number is not None}
        said = read_json(inside(folder, CONFIG))  # of a vocabulary that came with another model
        known = range(tokens_of(config) or 0)
        theirs = {name: said.get(f"{name}_token_id") for name in (*SPECIAL, "sep")}
        special |= {name: n for name, n in theirs.items() if type(n) is int and n in known}
    unlike = reads_otherwise(folder, tokenizer, special) if isinstance(model, DecoderClassifier) else ""
    return Loaded(architecture, config, model.eval(), tokenizer, special, target, labels, unlike=unlike)


def reads_otherwise(folder: Path, tokenizer: Tokenizer | None, special: Mapping[str, int]) -> str:
    """What a run that classifies by a decoder does with a text, if no tokenizer can be told to do it."""
    recipe = read_json(inside(folder, RECIPE))
    data = recipe.get("data")
    if isinstance(data, dict) and data.get("both_orders"):
        return f"{folder} reads its pairs in both orders and judges the sum"
    if recipe.get("task") == "choose":
        return f"{folder} judges several choices together"
    if tokenizer is None or (tokenizer.token_to_id("[BOS]") is None and "sep" not in special):
        return f"{folder} reads texts between tokens that its tokenizer does not put there"
    return ""


def read_target_tokenizer(folder: Path, rows: int) -> Tokenizer:
    """Of a run whose source and target have a vocabulary each."""
    path = inside(folder, TARGET_TOKENIZER)
    return guarded(path, rows, lambda: read_whole(path))


def check_hash(folder: Path) -> None:
    """A run's model.json vouches for its weights; while they are being replaced, for the ones before as well."""
    path = folder / VOUCHER
    if not present(path):
        return  # the weights alone can be taken elsewhere
    said = read_json(inside(folder, VOUCHER))
    entries = [entry for entry in (said, said.get("before")) if isinstance(entry, dict)]
    with open(inside(folder, SINGLE), "rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found not in [entry.get("sha256") for entry in entries]:
        raise BadInput(
            f"{folder / SINGLE} is damaged, or {path} is: the one has the SHA-256 {found}, and the other speaks of "
            f"{short(said.get('sha256'))}; put back a copy of both"
        )


def read_description(folder: Path) -> tuple[str, Any, dict[str, int], dict[str, Stored]]:
    """What the folder says it is, before anything is built: architecture, config, special ids, tensors."""
    if not folder.is_dir():
        raise BadInput(f"{folder} is not a folder; a model is a folder with a {CONFIG} and its weights")
    if present(folder / RECIPE):
        check_written(folder)
    if not present(folder / CONFIG):
        refuse_stages(folder)
        told = f"{folder / CONFIG} is missing: a model is a folder with a {CONFIG} and its weights"
        raise BadInput(told + runs_inside(folder))
    path = inside(folder, CONFIG)
    theirs = read_json(path)
    architecture = find_architecture(path, theirs)
    stored = find_weights(folder)
    with naming(path):
        config = family(architecture).read_config(theirs, stored.keys())
        layers = getattr(config, "own_layers", config.layers) + getattr(config, "decoder_layers", 0)
        if layers * FEWEST > len(stored):
            raise BadInput(f"{layers} layers are announced, but the weights have only {len(stored)} tensors")
    numbers = {name: theirs.get(f"{name}_token_id") for name in SPECIAL}
    known = range(tokens_of(config) or 0)  # some configs write -1 for "none"
    special = {name: number for name, number in numbers.items() if type(number) is int and number in known}
    return architecture, config, special, stored


def find_architecture(path: Path, theirs: dict[str, Any]) -> str:
    """Which of our files builds the model that a config describes."""
    kind = theirs.get("model_type")
    if kind is None:
        raise BadInput(f"{path} has no model_type{nearest('', MODEL_TYPES)}")
    if not isinstance(kind, str) or kind not in MODEL_TYPES:
        near = difflib.get_close_matches(str(kind), MODEL_TYPES, n=1, cutoff=0.75)  # mamba is no mbart
        meant = (
            f'; did you mean "{near[0]}"?'
            if near
            else f", which heedful does not read; it reads {', '.join(MODEL_TYPES)}"
        )
        raise BadInput(f"{path}: model_type is {short(kind)}{meant}")
    return MODEL_TYPES[kind]


def tokens_of(config: Any) -> int | None:
    """How many tokens a model knows; None if it reads none (images)."""
    sizes = [getattr(config, name) for name in ("vocab", "target_vocab") if hasattr(config, name)]
    return max(sizes, default=None)


def sized(architecture: str, config: Any, labels: int = 0) -> nn.Module:
    """The model with its shapes but without memory."""
    try:
        return skeleton(architecture, config, labels)
    except RuntimeError:  # a shape whose product has no 64-bit number
        raise BadInput("its sizes are too large for any memory") from None


def parameters(model: nn.Module) -> dict[str, Tensor]:
    """Every weight once, under the first of its names: tied weights stay tied because they are one."""
    return dict(model.named_parameters())


def check_weights(
    folder: Path, table: Table, ours: Mapping[str, Tensor], stored: Mapping[str, Stored]
) -> dict[str, Stored]:
    """Compare what is stored with what the config needs: {their name: where it is}, or an error that says all."""
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
        raise BadInput(f"{folder} holds {some(extra)}, for which its {CONFIG} has no place")
    for name, tensor in plan.items():
        check_tensor(tensor, needed[name])
    for copy, original in copies.items():
        if copy in stored:
            check_tensor(stored[copy], needed[original])
    return plan


def check_tensor(tensor: Stored, shape: tuple[int, ...]) -> None:
    if tensor.shape != shape:
        raise BadInput(
            f"{tensor.path}: {tensor.name} is {by(tensor.shape)}, but {CONFIG} asks for {by(shape)}"
        )
    if tensor.dtype not in FLOATS:
        raise BadInput(
            f"{tensor.path}: {tensor.name} is stored as {tensor.dtype}; heedful reads {', '.join(FLOATS)}"
        )


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
            ((_, found),) = read_tensors({name: stored[name]})
            if not torch.allclose(found.float(), fixed.make(), atol=ROUNDED):
                raise BadInput(
                    f"{stored[name].path}: {name} is not what {CONFIG} makes it (sinusoids), and heedful computes it: "
                    f"this is another model"
                )


def fill(model: nn.Module, table: Table, plan: Mapping[str, Stored]) -> None:
    """Copy the stored tensors into the model, one at a time."""
    ours = parameters(model)
    with torch.no_grad():
        for rule in table.rules:
            if rule.theirs in table.zeros and rule.theirs not in plan:
                ours[rule.ours[0]].zero_()
        for name, tensor in read_tensors(plan):
            for part, value in table.to_ours({name: tensor}).items():
                ours[part].copy_(value)


def save(loaded: Loaded, folder: str | os.PathLike[str]) -> None:
    """Write a model as a Hugging Face folder: config.json, model.safetensors, tokenizer.json and what else they read."""
    config, weights = in_their_terms(loaded)
    files = tokenizer_files(loaded) | {CONFIG: as_json(config)}
    if (writing := generation_config(loaded)) is not None:
        files[GENERATION] = as_json(writing)
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"{folder} is a file; a model is saved as a folder")
    with replacing_folder(folder) as aside:
        write_tensors(aside / SINGLE, weights)
        write_files(aside, files)
        shutil.copymode(aside / CONFIG, aside / SINGLE)  # safetensors makes its files private


def in_their_terms(loaded: Loaded) -> tuple[dict[str, Any], Mapping[str, Tensor]]:
    """Config and weights as Hugging Face has them; a model it cannot describe is refused."""
    file, c = family(loaded.architecture), loaded.config
    if not hasattr(file, "names"):
        told = f"{loaded.architecture} has no Hugging Face counterpart to be saved as"
        raise BadInput(f"{told}: heedful.load reads the folder it came from")
    classifies = isinstance(loaded.model, DecoderClassifier)
    if loaded.unlike:
        raise BadInput(
            f"{loaded.unlike}, as no model of Hugging Face does: heedful.load reads the run's own folder"
        )
    try:
        weights: Mapping[str, Tensor] = parameters(loaded.model)
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
    dtype = next(iter(weights.values())).dtype
    config["dtype"] = str(dtype).removeprefix("torch.")
    weights = {**weights, **{name: fixed.make().to(dtype) for name, fixed in table.fixed.items()}}
    # What a family says goes first: RoBERTa counts from its padding.
    return token_ids(loaded) | config, weights


def some(names: list[str]) -> str:
    """The first few of a list of names."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def by(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "a single number"
