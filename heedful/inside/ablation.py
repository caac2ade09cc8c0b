"""Ablation: run a model without some of its heads, several sets of heads at once.

The output of a head is replaced, before the output projection W^O, by zeros or by the head's mean output. A
batch is copied once for each set of heads, so that one forward pass measures several sets.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..errors import BadInput
from ..models.base.shells import EncoderDecoder
from ..parts.multihead import MultiHeadAttention
from .hooks import Hook, hooked
from .look.layers import kinds_of, paths_of

BY = ("zero", "mean")  # what a head's output is replaced by


class HeadName(NamedTuple):
    """A head: kind of attention, layer and number, both from 1. It is spelled cross.3.2."""

    kind: str
    layer: int
    head: int

    def __str__(self) -> str:
        return f"{self.kind}.{self.layer}.{self.head}"


def attentions(model: nn.Module) -> dict[tuple[str, int], str]:
    """{(kind, layer): path of the attention}; an encoder alone has self-attention only."""
    kinds = kinds_of(model)
    kinds = kinds if isinstance(model, EncoderDecoder) else kinds[:1]
    return {(kind, layer): path for kind in kinds for layer, path in paths_of(model, kind).items()}


def heads_of(model: nn.Module) -> list[HeadName]:
    """Every head of a model, kind by kind."""
    return [
        HeadName(kind, layer, head + 1)
        for (kind, layer), path in attentions(model).items()
        for head in range(count_of(model.get_submodule(path)))
    ]


def count_of(layer: nn.Module) -> int:
    return int(getattr(layer, "heads"))  # noqa: B009 (nn.Module's attributes have no type)


# Replacing outputs

Means = dict[tuple[str, int], Tensor]  # {(kind, layer): the mean output of its heads [H, L]}


@contextmanager
def without(
    model: nn.Module, removed: Sequence[Collection[HeadName]], means: Means | None = None
) -> Iterator[None]:
    """Run batches of R copies (copy by copy): in copy r, the heads of `removed[r]` do nothing.

    means: what replaces their outputs; zeros unless given.
    """
    hooks = []
    for (kind, layer), path in attentions(model).items():
        module = model.get_submodule(path)
        keep_RH = torch.ones(len(removed), count_of(module))
        for r, names in enumerate(removed):
            for name in names:
                if (name.kind, name.layer) == (kind, layer):
                    keep_RH[r, name.head - 1] = 0
        if not keep_RH.all():
            mean_HL = None if means is None else means[kind, layer]
            hooks.append(changed_output(module, partial(replaced, keep_RH, mean_HL)))
    with hooked(hooks):
        yield


def replaced(keep_RH: Tensor, mean_HL: Tensor | None, x_NTX: Tensor) -> Tensor:
    """Outputs of heads, joined, of R copies of a batch: those where `keep` is 0 become zeros or means."""
    R, H = keep_RH.shape
    keep = keep_RH.to(x_NTX)[:, None, None, :, None]
    x_RBTHL = x_NTX.unflatten(0, (R, -1)).unflatten(-1, (H, -1))
    other = 0 if mean_HL is None else mean_HL.to(x_NTX) * (1 - keep)
    return (x_RBTHL * keep + other).flatten(-2).flatten(0, 1)


def changed_output(layer: nn.Module, change: Callable[[Tensor], Tensor]) -> Hook:
    """Change what the heads of an attention give, joined [B, T, H * L], before W^O where it has one."""
    if isinstance(layer, MultiHeadAttention):
        return Hook(layer.out, lambda args: (change(args[0]), *args[1:]))
    return Hook(layer, None, lambda _, out_B1TL: change(out_B1TL[:, 0])[:, None])  # a lookup has one head


class MeanOutputs:
    """The mean output of every head over the real tokens of several batches."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.sums: dict[tuple[str, int], Tensor] = {}
        self.counts: dict[tuple[str, int], int] = {}

    @contextmanager
    def collecting(self, source_lengths: Sequence[int], lengths: Sequence[int]) -> Iterator[None]:
        """Add what a batch gives. lengths: real tokens of each row, in a pair's encoder and elsewhere."""
        hooks = []
        for place, path in attentions(self.model).items():
            sizes = source_lengths if place[0] == "encoder" else lengths
            module = self.model.get_submodule(path)
            collect = self.collector(place, sizes, isinstance(module, MultiHeadAttention))
            hooks.append(changed_output(module, collect))
        with hooked(hooks):
            yield

    def collector(
        self, place: tuple[str, int], lengths: Sequence[int], whole: bool
    ) -> Callable[[Tensor], Tensor]:
        """whole: each call brings all tokens; else a loop brings them one by one."""
        seen = 0

        def collect(x_BTD: Tensor) -> Tensor:
            nonlocal seen
            at_T = torch.arange(x_BTD.shape[1], device=x_BTD.device) + (0 if whole else seen)
            seen += x_BTD.shape[1]
            real_BT = at_T < torch.tensor(lengths, device=x_BTD.device)[:, None]
            total_D = (x_BTD.double() * real_BT[..., None]).sum((0, 1))
            self.sums[place] = self.sums.get(place, torch.zeros_like(total_D)) + total_D
            self.counts[place] = self.counts.get(place, 0) + int(real_BT.sum())
            return x_BTD

        return collect

    def means(self) -> Means:
        """By kind and layer, [H, L]."""
        found = {}
        for place, path in attentions(self.model).items():
            heads = count_of(self.model.get_submodule(path))
            found[place] = (self.sums[place] / self.counts[place]).float().unflatten(-1, (heads, -1))
        return found


def parse_by(by: str) -> bool:
    """Whether heads are replaced by their means."""
    if by not in BY:
        raise BadInput(f'heads are replaced by {" or ".join(BY)}, not by "{by}"')
    return by == "mean"
