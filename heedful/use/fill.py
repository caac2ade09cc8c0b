"""Fill: a word for every [MASK] of a text, by an encoder that learned to predict them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, overload

from ..decode.prompts import pad
from ..models.base.shells import Encoder
from ..parts.places import Lengths
from .batches import finite, in_batches
from .results import Filled, Guess
from .texts import Tokenized, check_top, each, usable
from .wording import MASK, judged

if TYPE_CHECKING:
    from .model import Model


def can(model: Model) -> bool:
    """Whether it is an encoder with a head for masked tokens."""
    return model.kind is Encoder and "masked_lm" in model.output_heads


@overload
def fill(  # type: ignore[overload-overlap]
    model: Model, texts: str, *, top: int = 5, batch: int = 32
) -> Filled: ...
@overload
def fill(model: Model, texts: Iterable[str], *, top: int = 5, batch: int = 32) -> list[Filled]: ...
def fill(model: Model, texts: str | Iterable[str], *, top: int = 5, batch: int = 32) -> Filled | list[Filled]:
    """Fill in every [MASK] of texts, each by itself, as if the others stayed blank.

    Args:
        texts: A string, or several.
        top: Words to keep for each blank.
        batch: Texts computed at once.

    Returns:
        A `Filled` for a string, a list for several: the text with the best words; `.blanks` has the others.

    Raises:
        BadInput: The model predicts no masked words, or a text has no [MASK].

    Example:
        >>> filled = heedful.load("runs/mlm").fill("The old king is [MASK] to eat.", top=2)
        >>> filled, filled.blanks[0][0].word
        ('The old king is going to eat.', 'going')
    """
    model.check_can("fill")
    return each(texts, lambda some: filled(model, encode(model, some), top, batch))


def encode(model: Model, texts: list[str]) -> list[Tokenized]:
    """Texts with one token for each blank; a text without a blank is at fault."""
    rows = [model.wording.blanked(text) for text in texts]
    missing = f"has no {MASK} to fill in"
    return judged([row if MASK in row.text else replace(row, fault=missing) for row in rows], model.model)


def filled(model: Model, texts: list[Tokenized], top: int, batch: int) -> list[Filled]:
    """A word for every blank, and the next best."""
    check_top(top)
    rows, mask = [row.ids for row in usable(texts)], model.wording.mask
    network: Any = model.model

    def do(some: list[int]) -> Sequence[list[list[tuple[int, float]]]]:
        tokens_BT, lengths_B = pad([rows[i] for i in some], model.device)
        hidden_BTD = network.encoder(tokens_BT, Lengths(lengths_B))
        found = []
        for hidden_TD, i in zip(hidden_BTD, some, strict=True):
            places = [place for place, token in enumerate(rows[i]) if token == mask]
            scores_NV = network.heads["masked_lm"](hidden_TD[places], network.encoder.inputs)
            shares_NV = finite(scores_NV.float(), model.folder).softmax(-1)
            best = shares_NV.topk(min(top, scores_NV.shape[-1]))
            pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
            found.append([list(zip(*pair, strict=True)) for pair in pairs])
        return found

    guesses = in_batches(rows, batch, do)
    return [put_in(model, row.text, some) for row, some in zip(texts, guesses, strict=True)]


def put_in(model: Model, text: str, guesses: list[list[tuple[int, float]]]) -> Filled:
    """A text with the best words in its blanks."""
    pieces = text.split(MASK)
    blanks = []
    for before, some in zip(pieces, guesses, strict=False):
        spaced = model.wording.carries_spaces and before.endswith(" ")  # then the blank took the space along
        words = [(model.wording.word(number), p) for number, p in some]
        blanks.append([Guess(word.removeprefix(" ") if spaced else word, p) for word, p in words])
    best = [some[0].word.removeprefix("##") for some in blanks]
    whole = "".join(part for pair in zip(pieces, [*best, ""], strict=True) for part in pair)
    return Filled(whole, blanks)
