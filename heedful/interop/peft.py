"""Adapters as Hugging Face's PEFT keeps them: adapter_config.json and adapter_model.safetensors beside a model that lies
elsewhere. `write` makes such a folder of a run of LoRA, `read` puts one together with its model; neither needs the package.

    theirs   base_model.model.bert.encoder.layer.0.attention.self.query.lora_A.weight     [rank, in], and lora_B [out, rank]
    ours     encoder.stack.blocks.0.attention.layer.query.A                               and B

Where several of our layers are one of theirs (GPT-2's c_attn is query, key and value), their adapters stand side by side in
one of higher rank: A = [A_q; A_v], B has B_q and B_v in its corners and zeros elsewhere.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import BadInput
from ..files import inside, naming, one_line, present, read_json, short
from ..models import family
from ..models.base.skeleton import config_with_head
from ..models.hf.names import Rule, Table, fill, match
from ..parts.lora import Lora
from .adapters import ADAPTER, ADAPTER_WEIGHTS, base_of, chain_of, is_peft, peft_base, put_base, read_lora
from .hf.weights import FLOATS, SINGLE, Stored, headers, read_tensors, write_tensors
from .load import Loaded, by, describe_run, labels_of_run, load, parameters, sized, with_room
from .run_folder import is_run

BEFORE = "base_model.model."  # what all their names begin with
HEADS = {"classify": "SEQ_CLS", "tag": "TOKEN_CLS", "span": "QUESTION_ANS"}  # and what PEFT calls their tasks
LARGEST = 1 << 16  # rank


# Out


def write(run: Path, folder: Path) -> None:
    """The adapters of a run, into an existing folder; refused if they, or a new head, have no place in that format."""
    lora = read_lora(run) if is_run(run) else None
    if lora is None:
        raise BadInput(one_line(f"{run} is no run of train.tune=lora: it has no adapters to save alone"))
    architecture, config = describe_run(run)
    file = family(architecture)
    if not hasattr(file, "names"):
        raise BadInput(
            f"{architecture} has no Hugging Face counterpart whose layers adapters could stand beside"
        )
    if labels_of_run(run):
        raise BadInput(
            one_line(f"{run} is a decoder that classifies, whose head has a bias that theirs has not: its adapters stay here")
        )  # fmt: skip
    learned = {name: tensor.clone() for name, tensor in read_tensors(headers(inside(run, SINGLE)))}
    table: Table = file.names(config)
    made = Written(lora)
    try:
        made.adapters(table, learned, shapes_of(architecture, config))
        made.heads(table, {name: t for name, t in learned.items() if not name.endswith((".A", ".B"))})
    except KeyError as error:
        raise BadInput(f"what {run} has learned has no name over there: {error.args[0]}") from None
    task = next((HEADS[head] for head in HEADS if head in heads_in(config)), None)
    if not heads_in(config):
        task = "SEQ_2_SEQ_LM" if hasattr(config, "decoder_layers") else "CAUSAL_LM"
    said = made.config(str(base_of(run)), task)
    write_tensors(folder / ADAPTER_WEIGHTS, made.tensors)
    (folder / ADAPTER).write_text(json.dumps(said, indent=2) + "\n", encoding="utf-8")


def heads_in(config: Any) -> tuple[str, ...]:
    """What is read off an encoder; of other models the word means something else."""
    heads = getattr(config, "heads", ())
    return heads if isinstance(heads, tuple) else ()


def shapes_of(architecture: str, config: Any) -> dict[str, tuple[int, ...]]:
    """The shape of every weight of a model, by our names."""
    return {name: tuple(weight.shape) for name, weight in parameters(sized(architecture, config)).items()}


class Written:
    """What goes into the two files."""

    def __init__(self, lora: Lora) -> None:
        self.lora = lora
        self.tensors: dict[str, Tensor] = {}
        self.modules: list[str] = []  # that have an adapter
        self.ranks: dict[str, int] = {}  # of those whose rank is another
        self.saved: list[str] = []  # modules that are kept whole
        self.turned = False  # theirs are [in, out]

    def adapters(
        self, table: Table, learned: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]]
    ) -> None:
        """Every pair of thin matrices under their names."""
        left = {name.removesuffix(".A") for name in learned if name.endswith(".A")}
        for rule, numbers in rules_of(table, {f"{path}.weight" for path in left}):
            ours = [name.removesuffix(".weight") for name in fill(rule.ours, numbers)]
            theirs = table.spelled(fill((rule.theirs,), numbers)[0]).removesuffix(".weight")
            sizes = [shapes[f"{path}.weight"] for path in ours]
            A_RD, B_XR = side_by_side([pair_of(learned, path) for path in ours], sizes)
            self.turned = is_turned(rule, sizes)
            self.tensors[f"{BEFORE}{theirs}.lora_A.weight"] = A_RD
            self.tensors[f"{BEFORE}{theirs}.lora_B.weight"] = B_XR
            self.modules.append(theirs)
            if len(A_RD) != self.lora.rank:
                self.ranks[theirs] = len(A_RD)
            left -= set(ours)
        if left:
            raise KeyError(f"{min(left)} has no name over there")

    def heads(self, table: Table, learned: Mapping[str, Tensor]) -> None:
        """What was learned anew and is kept whole."""
        for name, tensor in table.to_theirs(learned).items() if learned else ():
            module, _, part = name.rpartition(".")
            if part not in ("weight", "bias") or module == "cls.predictions":
                raise KeyError(f"{name} belongs to a layer that cannot be kept whole")
            self.tensors[BEFORE + name] = tensor
            self.saved += [module] if module not in self.saved else []

    def config(self, base: str, task: str | None) -> dict[str, Any]:
        scale = self.lora.scale
        return {
            "peft_type": "LORA",
            "task_type": task,
            "base_model_name_or_path": base,
            "r": self.lora.rank,
            "lora_alpha": self.lora.alpha,
            "lora_dropout": self.lora.dropout,
            "target_modules": self.modules,
            "modules_to_save": self.saved or None,
            "rank_pattern": self.ranks,
            "alpha_pattern": {name: scale * rank for name, rank in self.ranks.items()},
            "fan_in_fan_out": self.turned,
            "bias": "none",
            "inference_mode": True,
        }


def pair_of(learned: Mapping[str, Tensor], path: str) -> tuple[Tensor, Tensor] | None:
    return (learned[f"{path}.A"], learned[f"{path}.B"]) if f"{path}.A" in learned else None


def side_by_side(
    pairs: list[tuple[Tensor, Tensor] | None], sizes: list[tuple[int, ...]]
) -> tuple[Tensor, Tensor]:
    """One adapter for several layers that read the same vectors: (A, B) of all of them."""
    there = [pair for pair in pairs if pair is not None]
    A_RD = torch.cat([A for A, _ in there])
    B_XR = torch.zeros(sum(size[0] for size in sizes), len(A_RD), dtype=there[0][1].dtype)
    row = column = 0
    for pair, size in zip(pairs, sizes, strict=True):
        if pair is not None:
            B_XR[row : row + size[0], column : column + len(pair[0])] = pair[1]
            column += len(pair[0])
        row += size[0]
    return A_RD, B_XR


def rules_of(table: Table, names: set[str]) -> Iterator[tuple[Rule, tuple[str, ...]]]:
    """(rule, the numbers of a layer) for each of their weights that is made of one of ours."""
    seen = set()
    for name in sorted(names):
        for place, rule in enumerate(table.rules):
            numbers = next((n for part in rule.ours if (n := match(part, name)) is not None), None)
            if numbers is not None and (place, numbers) not in seen:
                seen.add((place, numbers))
                yield rule, numbers


# In

is_one = is_peft  # as every format has it


def read(folder: Path, device: str | torch.device, dtype: torch.dtype, base: Path | None = None) -> Loaded:
    """The model that adapters stand beside, with what they have learned merged into it.

    base: where it lies, if not where the adapters say.
    """
    with naming(folder):
        said = read_json(inside(folder, ADAPTER))
        check_kind(said)
        stored = find_stored(folder)
        lies = peft_base(folder) if base is None else base
        if not lies.is_dir():
            raise BadInput(
                f"{folder} stands beside {short(str(lies))}, which is no folder here: heedful.load takes its place as base"
            )
        if folder.resolve() in [each.resolve() for each in chain_of(lies)]:
            raise BadInput(
                f"{folder} stands beside itself: heedful.load takes the place of its model as base"
            )
    there = load(lies, device, dtype)
    with naming(folder):
        file = family(there.architecture)
        if not hasattr(file, "names") or not hasattr(there.model, "named_parameters"):
            raise BadInput(
                f"{there.architecture} has no Hugging Face counterpart whose layers these could be"
            )
        heads = {n: t for n, t in stored.items() if ".lora_" not in n}
        config, model = there.config, there.model
        if heads:
            config = with_learned_head(there.architecture, config, said, heads)
            model = with_room(sized(there.architecture, config).to(dtype), device).eval()
        table = file.names(config)
        if heads:
            check_heads(table, parameters(sized(there.architecture, config)), heads)
            learned = table.to_ours({theirs_of(n): value.clone() for n, value in read_tensors(heads)})
            put_base(model, there.model, set(learned))
            put(model, learned)
        add(model, table, said, {n: t for n, t in stored.items() if n not in heads})
    named = (
        there.labels if not heads or len(there.labels) == config.labels else ()
    )  # of the head that was there
    return replace(there, config=config, model=model, labels=named)


def check_kind(said: dict[str, Any]) -> None:
    """Refuse what is not LoRA as the paper has it."""
    if said.get("peft_type") != "LORA":
        raise BadInput(f"it holds adapters of the kind {short(said.get('peft_type'))}, and only LORA is read")
    for name in (
        "use_dora",
        "megatron_config",
        "layer_replication",
        "alora_invocation_tokens",
        "trainable_token_indices",
    ):
        if said.get(name):
            raise BadInput(f"its {name} is {short(said[name])}, which is more than LoRA: it is not read")
    if said.get("bias", "none") != "none":
        raise BadInput(f"it has learned biases (bias is {short(said['bias'])}), which is not read")


def find_stored(folder: Path) -> dict[str, Stored]:
    """Every tensor by its name; none is read yet."""
    if not present(folder / ADAPTER_WEIGHTS) and present(folder / "adapter_model.bin"):
        raise BadInput(
            f"{folder / 'adapter_model.bin'} is a pickle, which can run code when it is read: save it as {ADAPTER_WEIGHTS}"
        )
    stored = headers(inside(folder, ADAPTER_WEIGHTS))
    for name, tensor in stored.items():
        if not name.startswith(BEFORE) or tensor.dtype not in FLOATS:
            raise BadInput(
                f"{folder / ADAPTER_WEIGHTS} holds {short(name)} as {tensor.dtype}, which is no part of an adapter"
            )
    return stored


def theirs_of(name: str) -> str:
    return name.removeprefix(BEFORE)


def with_learned_head(
    architecture: str, config: Any, said: dict[str, Any], heads: Mapping[str, Stored]
) -> Any:
    """The config of the model with the head that was learned beside the adapters."""
    head = next((head for head, task in HEADS.items() if task == said.get("task_type")), None)
    if head is None or not isinstance(getattr(config, "heads", None), tuple):
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
    weights = parameters(model)
    with torch.no_grad():
        for name, value in learned.items():
            weights[name].copy_(value)


def add(model: nn.Module, table: Table, said: dict[str, Any], stored: Mapping[str, Stored]) -> None:
    """What adapters have learned, added to the layers that they stand beside."""
    tensors = {name: value.clone() for name, value in read_tensors(stored)}
    weights = parameters(model)
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
        raise BadInput(f"it holds {short(min(tensors))}, which is more than LoRA: it is not read")


def names_beside(
    table: Table, module: str, shape: tuple[int, int], weights: Mapping[str, Tensor]
) -> list[str]:
    """The weights of ours that an adapter stands beside, one below the other. shape: of the product of its matrices, which
    is held against theirs before it is made: two thin matrices of a small file may have a product of any size."""
    full = table.today(f"{module}.weight") or ""
    rules = [(rule, numbers) for rule in table.rules if (numbers := match(rule.theirs, full)) is not None]
    names = [name for rule, numbers in rules for name in fill(rule.ours, numbers)]
    if not rules or any(name not in weights or weights[name].ndim != 2 for name in names):
        raise BadInput(f"the model has no layer {short(module)} that an adapter could stand beside")
    sizes = [tuple(weights[name].shape) for name in names]
    if shape != (sum(size[0] for size in sizes), sizes[0][1]):
        raise BadInput(f"the adapter of {short(module)} does not fit the layer that it stands beside")
    is_turned(rules[0][0], sizes)  # or refused: PEFT keeps A and B the same way round
    return names


def is_turned(rule: Rule, sizes: list[tuple[int, ...]]) -> bool:
    """Whether theirs is kept [in, out]. Otherwise it must be ours, one below the other; another order is refused."""
    ours = torch.arange(sum(math.prod(size) for size in sizes)).view(-1, sizes[0][1])
    theirs = rule.join(ours.split([size[0] for size in sizes]))
    if theirs.shape == ours.shape and torch.equal(theirs, ours):
        return False
    if theirs.T.shape == ours.shape and torch.equal(theirs.T, ours):
        return True
    raise BadInput(f"{rule.ours[0]} is in another order over there, which adapters of theirs cannot follow")


def scale_of(said: dict[str, Any], module: str, rank: int) -> float:
    """alpha / rank, or alpha / sqrt(rank) (rsLoRA). Patterns may name layers that have numbers of their own."""
    alpha = by_pattern(said.get("alpha_pattern"), module, said.get("lora_alpha"))
    expected = by_pattern(said.get("rank_pattern"), module, said.get("r"))
    if type(expected) is not int or expected != rank or rank > LARGEST:
        raise BadInput(f"{short(module)} has the rank {rank}, and {ADAPTER} says {short(expected)}")
    if type(alpha) not in (int, float) or not math.isfinite(alpha):
        raise BadInput(f"the alpha of {short(module)} is {short(alpha)}, which is no number")
    return alpha / (math.sqrt(rank) if said.get("use_rslora") else rank)


def by_pattern(patterns: Any, module: str, otherwise: Any) -> Any:
    """What a table of names says of a layer. PEFT's are regular expressions; here only plain ends of names are known."""
    for name, value in (patterns or {}).items() if isinstance(patterns, dict) else ():
        if not name.replace("_", "").replace(".", "").isalnum():
            raise BadInput(f"a pattern {short(name)} is not read: only plain names of layers are")
        if module == name or module.endswith(f".{name}"):
            return value
    return otherwise
