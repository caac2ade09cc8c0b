"""Rollout: attention followed through all layers (Abnar and Zuidema 2020).

    seen = rollout_of(heedful.load("runs/demo").loaded, "The small girl eats a red apple.")
    print(seen.text())
    seen.weights_TS                      # how much of each source word has reached each target word

Every layer passes on half of what a token was and half of what it attended to: R = A'_L ... A'_1 with
A' = (A + I) / 2, A being the mean of the layer's heads. Cross-attention passes on half of what a token was,
and half of what the encoder's rollout says about the source words that it attended to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..errors import BadInput
from ..interop.loaded import Loaded
from ..models.base.shells import EncoderDecoder
from .look.attention import run
from .look.drawing import Drawing, Pictured
from .look.heat_maps import heat_map
from .look.inputs import InputTokens, axes, given, reading
from .look.layers import inputs_of, kinds_of, paths_of
from .look.shades import shades


def rollout(layers: Sequence[Tensor]) -> Tensor:
    """[T, T]: how much of each token at the start has reached each token at the end. layers: [H, T, T] each,
    in order."""
    eye = torch.eye(layers[0].shape[-1], dtype=torch.float64)
    found = eye
    for weights_HTT in layers:
        found = (weights_HTT.double().mean(0) + eye) / 2 @ found
    return found


def decoder_rollout(
    selves: Sequence[Tensor], crosses: Sequence[Tensor], encoder_SS: Tensor
) -> tuple[Tensor, Tensor]:
    """How much of each source token [T, S] and of each target token [T, T] has reached each position.

    selves and crosses: the weights [H, T, T] and [H, T, S] of each decoder layer. encoder: the rollout of the
    encoder. The two parts of a row sum to 1.
    """
    T = selves[0].shape[-1]
    eye = torch.eye(T, dtype=torch.float64)
    source_TS, target_TT = torch.zeros(T, encoder_SS.shape[-1], dtype=torch.float64), eye
    for self_HTT, cross_HTS in zip(selves, crosses, strict=True):
        mixed_TT = (self_HTT.double().mean(0) + eye) / 2
        source_TS, target_TT = mixed_TT @ source_TS, mixed_TT @ target_TT
        source_TS = (source_TS + cross_HTS.double().mean(0) @ encoder_SS) / 2
        target_TT = target_TT / 2
    return source_TS, target_TT


@dataclass(frozen=True)
class Rollout(Pictured):
    """How much of each token has reached each position of the last layer, as `Model.rollout` finds it.

    Attributes:
        words: The input as tokens.
        which: "cross", "self" or "encoder" attention.
        down: Positions of the last layer as words.
        across: Tokens of the input as words.
        weights_TS: Shares, a row for each position.

    Example:
        >>> found = heedful.load("runs/lm").rollout("The old king is")
        >>> found.weights_TS.shape, bool((found.rest_T < 1e-5).all())
        (torch.Size([4, 4]), True)
        >>> len(found.text().splitlines()) >= 4
        True
    """

    words: InputTokens
    which: str
    down: list[str]
    across: list[str]
    weights_TS: Tensor = field(repr=False)

    @property
    def rest_T(self) -> Tensor:
        """What came from elsewhere: in cross-attention, the share of the target's own tokens."""
        return (1 - self.weights_TS.sum(-1)).clamp(min=0)

    def picture(self) -> Drawing:
        """A heat map."""
        text = " ".join((self.words.translation or self.words.text).split())
        notes = ["cells: how much of the column's token has reached the row's position in the last layer"]
        if float(self.rest_T.mean()) > 1e-3:
            notes.append(f"the rest, {float(self.rest_T.mean()):.0%} on average, came from {self.elsewhere}")
        title = f"attention rollout through all layers ({self.which})\n{text[:100]}"
        how: dict[str, Any] = {"below": notes, "verb": "has received of"}
        return heat_map(self.weights_TS.tolist(), self.down, self.across, title, **how)

    @property
    def elsewhere(self) -> str:
        return "the target's own tokens" if self.which == "cross" else "the source"

    def text(self, width: int = 100) -> str:
        """Draw the shares for a terminal.

        Args:
            width: Characters of a line.

        Returns:
            The lines.
        """
        found = shades(self.weights_TS.tolist(), self.down, self.across, width)
        if float(self.rest_T.mean()) <= 1e-3:
            return found
        return (
            f"{found}\n\nthe rest of each row, {float(self.rest_T.mean()):.0%} on average: {self.elsewhere}"
        )

    def as_json(self) -> dict[str, Any]:
        """All the numbers."""
        return {
            "text": self.words.text,
            "translation": self.words.translation or None,
            "which": self.which,
            "down": self.down,
            "across": self.across,
            "rollout": self.weights_TS.tolist(),
            "rest": self.rest_T.tolist(),
        }


def rollout_of(loaded: Loaded, text: str, target: str | None = None, *, which: str | None = None) -> Rollout:
    """The rollout of one text through all layers.

    target: of an encoder-decoder, instead of its own greedy translation. which: "cross" (how much of each
    source word has reached each word of the target), "self" or "encoder".
    """
    model = loaded.model
    kinds = kinds_of(model) if inputs_of(model) is not None else ("self",)
    which = which or next(iter(kinds), "self")
    words = given(loaded, text, target)
    if which not in kinds:
        raise BadInput(f"this {loaded.architecture} has no {which}-attention: choose {' or '.join(kinds)}")
    pair = isinstance(model, EncoderDecoder)
    if pair and which != "encoder" and set(kinds) != {"cross", "self", "encoder"}:
        raise BadInput(
            f"a {loaded.architecture} has no self-attention, and a rollout follows attention through all "
            "layers: give a Transformer"
        )
    records = run(model, words, (), reading(loaded, text))

    def layers(kind: str) -> list[Tensor]:
        return [records[path].weights[-1][0].float().cpu() for path in paths_of(model, kind).values()]

    down, across = axes(loaded, words, which)
    if not pair or which == "encoder":
        found = rollout(squares(layers(which), len(down)))
    else:
        encoder_SS = rollout(squares(layers("encoder"), len(words.ids)))
        parts = decoder_rollout(squares(layers("self"), len(words.read)), layers("cross"), encoder_SS)
        found = parts[0] if which == "cross" else parts[1]
    return Rollout(words, which, down, across, found)


def squares(layers: list[Tensor], tokens: int) -> list[Tensor]:
    """The layers, if the keys of each are the tokens themselves."""
    for n, weights_HTS in enumerate(layers):
        if tuple(weights_HTS.shape[1:]) != (tokens, tokens):
            raise BadInput(
                f"layer {n + 1} attends to {weights_HTS.shape[2]} keys, and the text has {tokens} tokens: a "
                "rollout needs layers whose keys are the tokens themselves"
            )
    return layers
