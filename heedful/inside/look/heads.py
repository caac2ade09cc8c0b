"""Heads: the attention of one head, what can be measured of it, and which head is the best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...corpora import phrasebook
from ...data.vocab import Vocab
from ...errors import BadInput
from ...files import inside, naming, read_json
from ...interop.loaded import Loaded
from ...tasks.alignment import error_rates
from ...tasks.translate_data import SeparateVocabs
from .inputs import is_own
from .layers import paths_of

TRIED = 40  # sentences with reference alignments, to find the head that aligns best
TRIED_SEED = 7
MEASURE = "the most informative head"


@dataclass(frozen=True, eq=False)
class Head:
    """The attention of one head, or of a layer as a whole.

    Attributes:
        layer: Number of the layer, from 1.
        head: Number of the head, from 1; None for all heads of the layer.
        path: Path of the attention layer in the model.
        weights_TS: Attention weights, a row for each query.
        together: What stands for all heads: "mean", or "all" of them at once.

    Example:
        >>> Head(2, 3, "decoder.stack", torch.eye(2)).name
        'layer 2, head 3'
    """

    layer: int
    head: int | None
    path: str
    weights_TS: Tensor
    together: str = "mean"

    @property
    def name(self) -> str:
        every = "mean of its heads" if self.together == "mean" else "all its heads"
        return f"layer {self.layer}, " + (every if self.head is None else f"head {self.head}")


def information(weights_TS: Tensor) -> float:
    """Mutual information between query position and attended key, in bits: H(mean row) - mean of H(row).

    0 if attention is uniform, or the same for all queries; log2 T if every query attends to a key of its own.
    This is the measure of "best" where no reference alignment exists.
    """
    return float(informations(weights_TS))


def informations(weights_NTS: Tensor, entropy_NT: Tensor | None = None) -> Tensor:
    """The same of each of several tables. entropy: that of their rows, if it is known."""
    rows_NT = entropy(weights_NTS.double()) if entropy_NT is None else entropy_NT
    return entropy(weights_NTS.mean(-2, dtype=torch.float64)) - rows_NT.mean(-1)


def entropy(weights: Tensor) -> Tensor:
    """In bits, over the last axis."""
    return -(weights * weights.clamp(min=1e-30).log2()).sum(-1)


def sharpness(weights_TS: Tensor) -> float:
    """The mean of each query's largest weight: 1 if every query attends to a single key."""
    return float(sharpnesses(weights_TS))


def sharpnesses(weights_NTS: Tensor) -> Tensor:
    """The same of each of several tables."""
    return weights_NTS.amax(-1).mean(-1)


def habits(weights_TS: Tensor) -> dict[str, float]:
    """Shares of self-attention that go to the query itself, to its neighbors and to the first token."""
    return {
        "itself": float(weights_TS.diagonal().mean()),
        "one before": float(weights_TS.diagonal(-1).mean()) if len(weights_TS) > 1 else 0.0,
        "one after": float(weights_TS.diagonal(1).mean()) if len(weights_TS) > 1 else 0.0,
        "the first": float(weights_TS[1:, 0].mean()) if len(weights_TS) > 1 else 1.0,
    }


# Choosing heads.


def choose(heads: list[Head], head: int | str | None, best: Head) -> list[Head]:
    """The heads to show."""
    if head is None:
        return heads
    if head == "best":
        return [best]
    if head == "mean":
        layers = {one.layer: one.path for one in heads}
        return [
            Head(n, None, path, torch.stack([h.weights_TS for h in heads if h.layer == n]).mean(0))
            for n, path in layers.items()
        ]
    found = [one for one in heads if one.head == head]
    if not found:
        most = max(one.head or 0 for one in heads)
        raise BadInput(f'there is no head {head}: give a number from 1 to {most}, "mean" or "best"')
    return found


def find_best(
    loaded: Loaded, heads: list[Head], which: str, gold: Sequence[phrasebook.Pair], layer: int | None
) -> tuple[Head, str]:
    """The head that aligns best in sentences whose alignment is known; else the most informative one."""
    where = "" if layer is None else f" of layer {layer}"
    if which != "cross" or not gold or loaded.tokenizer is None or not is_own(loaded.tokenizer):
        return max(heads, key=lambda head: information(head.weights_TS)), f"{MEASURE}{where}"
    rates = error_rates(loaded.model, vocabs_of(loaded), gold)  # type: ignore[arg-type]
    numbers = [(n, i + 1) for n, size in heads_by_layer(loaded.model).items() for i in range(size)]
    of_head: dict[Any, float] = dict(zip(numbers, rates.tolist(), strict=True))
    best = min(heads, key=lambda head: of_head[head.layer, head.head])
    rate = of_head[best.layer, best.head]
    return best, f"the head that aligns best{where} (error rate {rate:.2f} on {len(gold)} other sentences)"


def heads_by_layer(model: nn.Module) -> dict[int, int]:
    """{layer: how many heads its cross-attention has}."""
    layers: dict[int, Any] = {n: model.get_submodule(path) for n, path in paths_of(model, "cross").items()}
    return {n: layer.heads for n, layer in layers.items()}


def vocabs_of(loaded: Loaded) -> Vocab | SeparateVocabs:
    """The vocabularies of a translator that heedful trained."""
    assert loaded.tokenizer is not None
    read = Vocab.from_json(loaded.tokenizer.to_str())
    if loaded.target_tokenizer is None:
        return read
    return SeparateVocabs(read, Vocab.from_json(loaded.target_tokenizer.to_str()))


def practice(folder: Path) -> list[phrasebook.Pair]:
    """Sentences with reference alignments for the run in a folder; none unless it learned the phrasebook."""
    if not (folder / "recipe.json").is_file():
        return []
    with naming(folder / "recipe.json"):
        data = read_json(inside(folder, "recipe.json")).get("data")
    if not isinstance(data, dict) or data.get("corpus") != "phrasebook":
        return []
    return list(islice(phrasebook.pairs(TRIED_SEED), TRIED))
