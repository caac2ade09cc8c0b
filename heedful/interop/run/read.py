"""A run of heedful's own, read back: its config, its labels, and its best weights with adapters merged."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ...errors import BadInput
from ...files import inside, naming, present, read_json, short
from ...models import family
from ...models.base.shells import DecoderClassifier
from ...parts.lora import merge
from ..hf.read import check_tensor
from ..hf.tokenizer import TARGET_TOKENIZER, guarded, read_tokenizer, read_whole
from ..hf.weights import SINGLE, find_weights, read_tensors
from ..loaded import SPECIAL, Load, Loaded, parameters, sized, some, tokens_of, with_room
from ..run_folder import CONFIG, LABELS, RECIPE, check_written, is_run
from .adapters import base_of, put_base, read_lora, with_adapters

if TYPE_CHECKING:
    from tokenizers import Tokenizer


VOUCHER = "model.json"


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
    """The labels that a run was trained with, in the order of their ids; none if it has none."""
    if not present(folder / LABELS):
        return ()
    labels = tuple(read_json(inside(folder, LABELS), 1 << 24))
    if len(labels) != count:
        told = f"{folder / LABELS} names {len(labels)} labels, and the model tells {count} apart"
        raise BadInput(f"{told}: put back its own")
    return labels


is_one = is_run


def read(folder: Path, device: str | torch.device, dtype: torch.dtype, load: Load) -> Loaded:
    """The best model of a run; its names are ours already. What adapters have learned is merged.

    load: reads the model that adapters stand beside, which may be of any format.
    """
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
    """How a run that classifies by a decoder reads a text, if no tokenizer can do the same; or ""."""
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
    """Check the weights against model.json's SHA-256 (there are two while the weights are being replaced)."""
    path = folder / VOUCHER
    if not present(path):
        return  # the weights alone can be taken elsewhere
    said = read_json(inside(folder, VOUCHER))
    entries = [entry for entry in (said, said.get("before")) if isinstance(entry, dict)]
    with open(inside(folder, SINGLE), "rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found not in [entry.get("sha256") for entry in entries]:
        told = f"the one has the SHA-256 {found}, and the other speaks of {short(said.get('sha256'))}"
        raise BadInput(f"{folder / SINGLE} is damaged, or {path} is: {told}; put back a copy of both")
