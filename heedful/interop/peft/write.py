"""Write the adapters of a run as PEFT keeps them: adapter_config.json and adapter_model.safetensors.

Where several of our layers are one of theirs (GPT-2's c_attn is query, key and value), their adapters become
one of higher rank: A = [A_q; A_v], and B has B_q and B_v in its corners and zeros elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...errors import BadInput
from ...files import inside, one_line
from ...models import family
from ...models.base.skeleton import skeleton
from ...models.hf.names import Rule, Table, fill, match
from ...parts.lora import Lora
from ..hf.chat_files import chat_files, read_kept
from ..hf.tokenizer_files import write_files
from ..hf.weights import SINGLE, headers, read_tensors, write_tensors
from ..run.read import ADAPTER, ADAPTER_WEIGHTS, base_of, describe_run, labels_of_run, read_lora
from ..run_folder import is_run
from .read import BEFORE, HEADS, is_turned


def write(run: Path, folder: Path) -> None:
    """Write the adapters of a run into an existing folder, or refuse what PEFT has no place for."""
    lora = read_lora(run) if is_run(run) else None
    if lora is None:
        raise BadInput(one_line(f"{run} was not trained with train.tune=lora: it has no adapters to save"))
    architecture, config = describe_run(run)
    file = family(architecture)
    if not hasattr(file, "names"):
        raise BadInput(f"{architecture} has no Hugging Face counterpart for its adapters")
    if labels_of_run(run):
        why = f"{run} is a decoder with a classification head, whose adapters are not written for PEFT"
        raise BadInput(one_line(f"{why}: export the run, which merges them"))
    learned = {name: tensor.clone() for name, tensor in read_tensors(headers(inside(run, SINGLE)))}
    table: Table = file.names(config)
    made = AdapterFiles(lora)
    try:
        made.adapters(table, learned, shapes_of(architecture, config))
        made.heads(table, {name: t for name, t in learned.items() if not name.endswith((".A", ".B"))})
    except KeyError as error:
        raise BadInput(f"a weight of {run} has no name in Hugging Face: {error.args[0]}") from None
    task = next((HEADS[head] for head in HEADS if head in heads_in(config)), None)
    if not heads_in(config):
        task = "SEQ_2_SEQ_LM" if hasattr(config, "decoder_layers") else "CAUSAL_LM"
    said = made.config(str(base_of(run)), task)
    write_tensors(folder / ADAPTER_WEIGHTS, made.tensors)
    (folder / ADAPTER).write_text(json.dumps(said, indent=2) + "\n", encoding="utf-8")
    write_files(folder, chat_files(read_kept(run)))


def heads_in(config: Any) -> tuple[str, ...]:
    """What is read off an encoder; of other models the word means something else."""
    heads = getattr(config, "prediction_heads", ())
    return heads if isinstance(heads, tuple) else ()


def shapes_of(architecture: str, config: Any) -> dict[str, tuple[int, ...]]:
    """The shape of every weight of a model, by our names."""
    return {name: tuple(weight.shape) for name, weight in skeleton(architecture, config).named_parameters()}


class AdapterFiles:
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
            raise KeyError(f"{min(left)} has no name in Hugging Face")

    def heads(self, table: Table, learned: Mapping[str, Tensor]) -> None:
        """What was learned anew and is kept whole."""
        for name, tensor in table.to_theirs(learned).items() if learned else ():
            module, _, part = name.rpartition(".")
            if part not in ("weight", "bias") or module == "cls.predictions":
                raise KeyError(f"{name} belongs to a layer that cannot be stored as a whole")
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
