"""A recurrent network on top of ELMo: it reads [x_k ; ELMo_k] of each word (Peters et al. 2018).

x_k is an embedding that the task learns. The language models are frozen; how their layers are mixed is
learned. Where a mix also stands beside the network's output, [h_k ; ELMo'_k], it is learned separately.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar, Self

import torch
from torch import Tensor, nn

from ..parts.before.characters import numbers_of
from ..parts.before.mix import ScalarMix
from ..parts.before.recurrent import LSTM, BidirectionalStack, BothWays
from ..parts.embeddings import Inputs, TokenEmbedding
from ..parts.masks import full
from ..parts.places import IN_ORDER, Places
from ..parts.view import View
from .base.fields import RATE, SIZE, Labels, PredictionHeads
from .base.heads import Classify, MaxOverTokens, Tag
from .base.initialize import normal_
from .base.shells import WithHeads
from .elmo import ElmoConfig, initialize, language_models


@dataclass(frozen=True)
class ElmoReaderConfig(ElmoConfig):
    """The sizes of the language models, and those of the network that reads them."""

    brought: ClassVar[frozenset[str]] = frozenset(field.name for field in fields(ElmoConfig))  # by the elmo

    reader_layers: Annotated[int, SIZE, "layers of the network that reads ELMo"] = 2
    reader_width: Annotated[
        int, SIZE, "width of each direction of that network, and of its own word vectors"
    ] = 256
    reader_dropout: Annotated[float, RATE, "dropout rate of the network that reads ELMo"] = 0.2
    mix_dropout: Annotated[float, RATE, "dropout rate of ELMo's vectors"] = 0.5
    mix_norm: Annotated[bool, "a norm of each ELMo layer before they are mixed"] = False
    at_output: Annotated[bool, "append a second ELMo mix to the network's output"] = False
    prediction_heads: PredictionHeads = ("tag",)
    labels: Labels = 17


PRESETS = {"elmo-tagger": ElmoReaderConfig(vocab=30000)}  # words of the task; the softmax is left behind


class Frozen(nn.Module):
    """A model that is used and not trained: no gradients, and never in training mode."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model.requires_grad_(False)

    def train(self, mode: bool = True) -> Self:
        return super().train(False)

    def forward(self, *given: Any) -> Tensor:
        with torch.no_grad():
            return self.model(*given)


class Featured(nn.Module):
    """An encoder over [x_k ; ELMo_k], called like any other."""

    def __init__(
        self,
        inputs: Inputs,
        features: Frozen,
        mix: ScalarMix,
        stack: BidirectionalStack,
        output: ScalarMix | None = None,
        dropout: float = 0.0,
    ) -> None:
        """inputs: the task's own vectors. output: a mix of its own that stands beside what the stack says."""
        super().__init__()
        self.inputs, self.features, self.mix, self.stack, self.output = inputs, features, mix, stack, output
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tensor, places: Places = IN_ORDER, segments_BT: Tensor | None = None) -> Tensor:
        """Vectors [B, T, D], zeros in the padding. There are no segments here: a text is read by itself."""
        numbers_BT = numbers_of(tokens)
        B, T = numbers_BT.shape
        places.check_rows(B)
        positions, (masks, _) = places.positions(T), places.apart([full()], T)
        view = View(masks[0], T, T, tokens.device, positions, positions)
        layers_BTX = self.features(tokens, places)
        x_BTD = self.inputs(numbers_BT, view.q_pos)
        mixed_BTD = self.dropout(self.mix(layers_BTX)).to(x_BTD.dtype)
        h_BTD = self.stack(torch.cat([x_BTD, mixed_BTD], -1), [view])
        if self.output is None:
            return h_BTD
        return torch.cat([h_BTD, self.dropout(self.output(layers_BTX)).to(h_BTD.dtype)], -1)


VectorReader = WithHeads  # a kind of its own: it needs an elmo to read


def build(config: ElmoReaderConfig) -> VectorReader:
    """The network with fresh weights; those of the language models are to be put in its place."""
    c = config
    ins = [c.reader_width + 2 * c.width, *[2 * c.reader_width] * (c.reader_layers - 1)]
    stack = BidirectionalStack(
        [BothWays(LSTM(i, c.reader_width), LSTM(i, c.reader_width)) for i in ins], c.reader_dropout
    )
    encoder = Featured(
        Inputs(TokenEmbedding(c.vocab, c.reader_width), dropout=c.reader_dropout),
        Frozen(language_models(c)),
        ScalarMix(1 + c.layers, c.mix_norm),
        stack,
        ScalarMix(1 + c.layers, c.mix_norm) if c.at_output else None,
        c.mix_dropout,
    )
    model = WithHeads(encoder, build_heads(c))  # type: ignore[arg-type]
    initialize(model)
    normal_(model.heads, std=0.02)
    return model


def build_heads(c: ElmoReaderConfig) -> dict[str, nn.Module]:
    width = 2 * c.reader_width + (2 * c.width if c.at_output else 0)
    known: dict[str, Callable[[], nn.Module]] = {
        "tag": lambda: Tag(width, c.labels, c.reader_dropout),
        "classify": lambda: Classify(MaxOverTokens(), width, c.labels, c.reader_dropout),
    }
    for head in c.prediction_heads:
        if head not in known:
            raise ValueError(f'there is no head "{head}" beside ELMo; there are {", ".join(known)}')
    return {head: known[head]() for head in c.prediction_heads}


def mix_penalty(model: nn.Module) -> Tensor | float:
    """The sum of |w|^2 over all mixes of a model; 0.0 where there are none."""
    return sum((module.penalty() for module in model.modules() if isinstance(module, ScalarMix)), 0.0)
