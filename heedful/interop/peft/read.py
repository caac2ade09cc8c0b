"""Read adapters of Hugging Face's PEFT with their base model; the package is not needed.

theirs   base_model.model.bert.encoder.layer.0.attention.self.query.lora_A.weight   [rank, in]; lora_B
ours     encoder.stack.blocks.0.attention.layer.query.A                             [out, rank], and B
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import BadInput
from ...files import inside, naming, present, read_json, short
from ...models import family
from ...models.base.skeleton import config_with_head, skeleton, with_room
from ...models.hf.names import Rule, Table, fill, match
from ..hf.chat_files import read_beside
from ..hf.weights import FLOATS, Stored, headers, read_tensors
from ..loaded import Load, Loaded, by
from ..run.read import ADAPTER, ADAPTER_WEIGHTS, chain_of, is_peft, peft_base, put_base

BEFORE = "base_model.model."  # what all their names begin with
HEADS = {"classify": "SEQ_CLS", "tag": "TOKEN_CLS", "span": "QUESTION_ANS"}  # and what PEFT calls their tasks
LARGEST = 1 << 16  # rank
is_one = is_peft


def read(
    folder: Path, device: str | torch.device, dtype: torch.dtype, load: Load, base: Path | None = None
) -> Loaded:
    """The base model of adapters, with the adapters merged into it.

    load: reads that model, which may be of any format. base: its folder, if it is not where the adapters say.
    """
    with naming(folder):
        said = read_json(inside(folder, ADAPTER))
        check_kind(said)
        stored = find_stored(folder)
        lies = peft_base(folder) if base is None else base
        if not lies.is_dir():
            adapted = f"{folder} adapts {short(str(lies))}, which is not a folder here"
            raise BadInput(f"{adapted}: give its folder to heedful.load as base")
        if folder.resolve() in [each.resolve() for each in chain_of(lies)]:
            raise BadInput(
                f"{folder} names itself as its base: give the folder of its model to heedful.load as base"
            )
    there = load(lies, device, dtype)
    with naming(folder):
        file = family(there.architecture)
        if not hasattr(file, "names") or not hasattr(there.model, "named_parameters"):
            raise BadInput(f"{there.architecture} has no Hugging Face counterpart with such layers")
        heads = {n: t for n, t in stored.items() if ".lora_" not in n}
        config, model = there.config, there.model
        if heads:
            config = with_learned_head(there.architecture, config, said, heads)
            model = with_room(skeleton(there.architecture, config).to(dtype), device).eval()
        table = file.names(config)
        if heads:
            check_heads(table, dict(skeleton(there.architecture, config).named_parameters()), heads)
            learned = table.to_ours({theirs_of(n): value.clone() for n, value in read_tensors(heads)})
            put_base(model, there.model, set(learned))
            put(model, learned)
        add(model, table, said, {n: t for n, t in stored.items() if n not in heads})
    named = (
        there.labels if not heads or len(there.labels) == config.labels else ()
    )  # of the head that was there
    chat = read_beside(folder, lies, there.chat)
    return replace(there, config=config, model=model, labels=named, chat=chat)


def check_kind(said: dict[str, Any]) -> None:
    """Refuse what is not LoRA as the paper has it."""
    if said.get("peft_type") != "LORA":
        raise BadInput(
            f"it holds adapters of the type {short(said.get('peft_type'))}, and heedful reads only LORA"
        )
    for name in (
        "use_dora",
        "megatron_config",
        "layer_replication",
        "alora_invocation_tokens",
        "trainable_token_indices",
    ):
        if said.get(name):
            raise BadInput(
                f"its {name} is {short(said[name])}, which plain LoRA does not have: heedful does not read it"
            )
    if said.get("bias", "none") != "none":
        raise BadInput(f"it has trained biases (bias is {short(said['bias'])}), which heedful does not read")


def find_stored(folder: Path) -> dict[str, Stored]:
    """Every tensor by its name; none is read yet."""
    if not present(folder / ADAPTER_WEIGHTS) and present(folder / "adapter_model.bin"):
        fault = f"{folder / 'adapter_model.bin'} is a pickle, which can run code when it is read"
        raise BadInput(f"{fault}: save it as {ADAPTER_WEIGHTS}")
    stored = headers(inside(folder, ADAPTER_WEIGHTS))
    for name, tensor in stored.items():
        if not name.startswith(BEFORE) or tensor.dtype not in FLOATS:
            fault = f"{folder / ADAPTER_WEIGHTS} holds {short(name)} as {tensor.dtype}"
            raise BadInput(f"{fault}, which is no part of an adapter")
    return stored


def theirs_of(name: str) -> str:
    return name.removeprefix(BEFORE)


def with_learned_head(
    architecture: str, config: Any, said: dict[str, Any], heads: Mapping[str, Stored]
) -> Any:
    """The config of the model with the head that was learned beside the adapters."""
    head = next((head for head, task in HEADS.items() if task == said.get("task_type")), None)
    if head is None or not isinstance(getattr(config, "prediction_heads", None), tuple):
        raise BadInput(
            f"it holds {short(theirs_of(min(heads)))}, which is no part of an adapter of this model"
        )
    rows = [
        tensor.shape[0]
        for name, tensor in heads.items()
        if name.endswith((".classifier.weight", ".out_proj.weight")) and tensor.shape
    ]
    return config_with_head(architecture, config, head, rows[0] if rows else config.labels)


def check_heads(table: Table, ours: Mapping[str, Tensor], heads: Mapping[str, Stored]) -> None:
    """Hold what is kept whole against the model, before it is read."""
    needed = {name: tuple(tensor.shape) for name, tensor in table.to_theirs(ours).items()}
    for name, tensor in heads.items():
        shape = needed.get(table.spelled(table.today(theirs_of(name)) or ""))
        if shape is None:
            raise BadInput(f"it holds {short(theirs_of(name))}, which is no part of an adapter of this model")
        if shape != tensor.shape:
            raise BadInput(f"its {short(theirs_of(name))} is {by(tensor.shape)}, where {by(shape)} is due")


def put(model: nn.Module, learned: Mapping[str, Tensor]) -> None:
    """Weights by our names, which fit, into a model."""
    weights = dict(model.named_parameters())
    with torch.no_grad():
        for name, value in learned.items():
            weights[name].copy_(value)


def add(model: nn.Module, table: Table, said: dict[str, Any], stored: Mapping[str, Stored]) -> None:
    """What adapters have learned, added to their layers."""
    tensors = {name: value.clone() for name, value in read_tensors(stored)}
    weights = dict(model.named_parameters())
    modules = sorted({theirs_of(name).partition(".lora_")[0] for name in tensors})
    for module in modules:
        A_RD, B_XR = (tensors.pop(f"{BEFORE}{module}.lora_{part}.weight", None) for part in "AB")
        if A_RD is None or B_XR is None or A_RD.ndim != 2 or B_XR.ndim != 2 or len(A_RD) != B_XR.shape[1]:
            raise BadInput(f"{short(module)} has no pair of matrices A and B that fit each other")
        names = names_beside(table, module, (len(B_XR), A_RD.shape[1]), weights)
        product_XD = scale_of(said, module, len(A_RD)) * (B_XR.float() @ A_RD.float())
        parts = product_XD.split([len(weights[name]) for name in names])
        with torch.no_grad():
            for name, learned_XD in zip(names, parts, strict=True):
                weights[name].copy_(weights[name].float() + learned_XD.to(weights[name].device))
    if tensors:
        raise BadInput(
            f"it holds {short(min(tensors))}, which plain LoRA does not have: heedful does not read it"
        )


def names_beside(
    table: Table, module: str, shape: tuple[int, int], weights: Mapping[str, Tensor]
) -> list[str]:
    """The weights of ours that an adapter changes, stacked.

    shape: of the product of its matrices. It is checked before the product is computed, for two thin matrices
    of a small file may have a product of any size.
    """
    full = table.today(f"{module}.weight") or ""
    rules = [(rule, numbers) for rule in table.rules if (numbers := match(rule.theirs, full)) is not None]
    names = [name for rule, numbers in rules for name in fill(rule.ours, numbers)]
    if not rules or any(name not in weights or weights[name].ndim != 2 for name in names):
        raise BadInput(f"the model has no layer {short(module)} that an adapter could change")
    sizes = [tuple(weights[name].shape) for name in names]
    if shape != (sum(size[0] for size in sizes), sizes[0][1]):
        raise BadInput(f"the adapter of {short(module)} does not fit its layer")
    is_turned(rules[0][0], sizes)  # or refused: PEFT keeps A and B the same way round
    return names


def scale_of(said: dict[str, Any], module: str, rank: int) -> float:
    """alpha / rank, or alpha / sqrt(rank) (rsLoRA). Patterns may name layers with values of their own."""
    alpha = by_pattern(said.get("alpha_pattern"), module, said.get("lora_alpha"))
    expected = by_pattern(said.get("rank_pattern"), module, said.get("r"))
    if type(expected) is not int or expected != rank or rank > LARGEST:
        raise BadInput(f"{short(module)} has the rank {rank}, and {ADAPTER} says {short(expected)}")
    if type(alpha) not in (int, float) or not math.isfinite(alpha):
        raise BadInput(f"the alpha of {short(module)} is {short(alpha)}, which is not a number")
    return alpha / (math.sqrt(rank) if said.get("use_rslora") else rank)


def by_pattern(patterns: Any, module: str, otherwise: Any) -> Any:
    """A layer's value in a table of patterns, of which only plain ends of names are read."""
    for name, value in (patterns or {}).items() if isinstance(patterns, dict) else ():
        if not name.replace("_", "").replace(".", "").isalnum():
            raise BadInput(f"a pattern {short(name)} is not read: only plain names of layers are")
        if module == name or module.endswith(f".{name}"):
            return value
    return otherwise


def is_turned(rule: Rule, sizes: list[tuple[int, ...]]) -> bool:
    """Whether their weight is [in, out]. Otherwise it must be ours, one below the other; or it is refused."""
    ours = torch.arange(sum(math.prod(size) for size in sizes)).view(-1, sizes[0][1])
    theirs = rule.join(ours.split([size[0] for size in sizes]))
    if theirs.shape == ours.shape and torch.equal(theirs, ours):
        return False
    if theirs.T.shape == ours.shape and torch.equal(theirs.T, ours):
        return True
    raise BadInput(f"{rule.ours[0]} has another order in Hugging Face, which its adapters cannot represent")
