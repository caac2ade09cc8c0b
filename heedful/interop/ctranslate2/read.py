"""Read a CTranslate2 folder (model.bin and its vocabularies); the weights become fp32 again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ...errors import BadInput
from ...files import inside, naming, present, read_json, short
from ...models.base.skeleton import skeleton, with_room
from ...models.transformer import TransformerConfig
from ..binary import mapped
from ..hf.chat_files import read_chat
from ..loaded import Loaded, by, some
from ..run_folder import CONFIG
from .config import SPECIFICATIONS
from .file import EXTENDED, Variable, Variables, read_variables
from .layout import names
from .vocabulary import MODEL, VOCABULARIES, read_vocabularies, special_ids, tokenizers

# What changes nothing of a model's numbers.
IGNORED = (
    "alignment_layer",
    "alignment_heads",
    "multi_query_attention",
    "alibi_use_positive_positions",
    "scale_alibi",
)


def is_one(path: Path) -> bool:
    """Whether a folder is CTranslate2's."""
    endings = [name.replace(".json", ending) for name in VOCABULARIES for ending in (".json", ".txt")]
    with naming(path):
        return (path / MODEL).is_file() and any(present(path / name) for name in endings)


def read(path: Path, device: str | torch.device = "cpu", dtype: torch.dtype = torch.float32) -> Loaded:
    """The model of a folder, ready for use."""
    with naming(path):
        said = read_json(inside(path, CONFIG)) if present(path / CONFIG) else {}
        file = inside(path, MODEL)
        with mapped(file) as data, naming(file):
            kind, variables = read_variables(data)
            if kind not in SPECIFICATIONS:
                raise BadInput(f"{file} is a {short(kind)}; heedful reads {', '.join(SPECIFICATIONS)}")
            architecture, config = SPECIFICATIONS[kind](variables, said)
            zero = kind == "TransformerSpec" and bool(
                variables.setting("decoder/start_from_zero_embedding", 0)
            )
            if zero:
                config = with_start(variables, config)
            model = skeleton(architecture, config)
            plan = check(variables, names(model), dict(model.named_parameters()))
            vocabulary = read_vocabularies(path, config, zero)
            tokenizer, target = tokenizers(path, config, vocabulary, said)
            chat = read_chat(path)
            model = with_room(model.to(dtype), device)
            with torch.no_grad():
                for theirs, ours in plan.items():
                    value = variables.tensor(theirs)
                    parts = [model.get_parameter(name) for name in ours]
                    for part, piece in zip(parts, value.split([len(part) for part in parts]), strict=True):
                        part.copy_(piece)
    special = special_ids(said, vocabulary[-1], zero, encodes=kind == "TransformerEncoderSpec")
    return Loaded(architecture, config, model.eval(), tokenizer, special, target, chat=chat)


def with_start(variables: Variables, config: TransformerConfig) -> TransformerConfig:
    """Add a token with a vector of zeros, which a decoder starts from and never generates."""
    if not config.share_embeddings:
        raise BadInput(
            f"{variables.path} starts from zeros and has two vocabularies, which heedful does not read"
        )
    variables.extra = 1
    if not config.output_bias:
        rows = variables.get("decoder/projection/weight").shape[0]
        nothing = Variable(torch.float32, (rows,), memoryview(bytes(4 * rows)))
        variables.found["decoder/projection/bias"] = nothing
    return replace(config, vocab=config.vocab + 1, target_vocab=config.vocab + 1, output_bias=True)


def check(variables: Variables, table: dict[str, tuple[str, ...]], ours: Any) -> dict[str, tuple[str, ...]]:
    """Hold every variable against the model, before memory is taken: {theirs: ours}."""
    shapes = {name: tuple(weight.shape) for name, weight in ours.items()}
    where = variables.path
    plan = {}
    for theirs, parts in table.items():
        known = [part for part in parts if part in shapes]  # a tied weight is filled once
        stored = variables.get(theirs)
        extra = variables.extra if theirs in EXTENDED else 0
        if not known:
            continue
        needed = (sum(shapes[part][0] for part in parts) - extra, *shapes[parts[0]][1:])
        if stored.shape != needed:
            raise BadInput(f"{where}: {theirs} is {by(stored.shape)}, where {by(needed)} is due")
        if stored.dtype in (torch.int8, torch.int16):
            variables.asked.add(variables.others.get(theirs, theirs) + "_scale")
            variables.get(variables.others.get(theirs, theirs) + "_scale")
        elif not stored.dtype.is_floating_point:
            raise BadInput(f"{where}: {theirs} is stored as {stored.dtype}")
        plan[theirs] = parts
    asked = variables.asked | {variables.others.get(name, name) for name in variables.asked}
    left = [name for name in variables.found if name not in asked and name.rpartition("/")[2] not in IGNORED]
    if left:
        raise BadInput(f"{where} holds {some(sorted(left))}, which heedful does not use")
    return plan
