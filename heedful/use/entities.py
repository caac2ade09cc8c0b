"""Entities: what an imported token classifier says of a text, joined as transformers' pipeline joins it.

Labels B-PER and I-PER begin and continue an entity; neighboring tokens of one kind become one entity
(aggregation_strategy="simple"). Labels of another form are the tags of words, each its first token's.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from ..decode.prompts import pad
from ..parts.places import Lengths
from .batches import finite, in_batches
from .results import Entities, Entity, Tagged
from .texts import Tokenized, usable
from .wording import encoded, judged, refuse_long, tokenized, unknown_ids

if TYPE_CHECKING:
    from .model import Model

OUTSIDE = "O"  # the label of what is no entity
SPECIAL = -1  # the "word" of a token that the tokenizer put there


class LabeledToken(NamedTuple):
    """A token of the text with its most likely label."""

    label: str
    probability: float
    start: int
    end: int
    word: int

    @property
    def kind(self) -> str:
        """The label without its B- or I-."""
        return self.label[2:] if self.label.startswith(("B-", "I-")) else self.label


def encode(model: Model, texts: list[str]) -> list[Tokenized]:
    """Texts with their tokens; `segments` has the number of the word of each token."""
    refuse_long(texts)
    tokenizer = model.wording.reads
    rows = []
    for text, one in zip(texts, encoded(tokenizer, texts, True), strict=True):
        row = tokenized(text, one, unknown_ids(tokenizer), spans=True)
        # A tokenizer that knows no words has each token for one.
        words = [n if word is None else word for n, word in enumerate(one.word_ids)]
        marks = zip(words, one.special_tokens_mask, strict=True)
        row.segments.extend(SPECIAL if special else word for word, special in marks)
        rows.append(row)
    return judged(rows, model.model)


def labeled_tokens(model: Model, rows: list[Tokenized], batch: int) -> list[list[LabeledToken]]:
    """The tokens of each text with their labels."""
    usable(rows)
    network: Any = model.model
    names = names_of(model)

    def do(some: list[int]) -> list[list[LabeledToken]]:
        tokens_BT, lengths_B = pad([rows[i].ids for i in some], model.device)
        hidden_BTD = network.encoder(tokens_BT, Lengths(lengths_B))
        scores_BTL = network.heads["tag"](hidden_BTD, network.encoder.inputs).float()
        found = []
        for i, scores_TL in zip(some, scores_BTL, strict=True):
            shares_TL = finite(scores_TL[: len(rows[i].ids)], model.folder).softmax(-1)
            best = shares_TL.max(-1)
            places = zip(best.indices.tolist(), best.values.tolist(), rows[i].spans, strict=True)
            found.append(
                [
                    LabeledToken(names[number], share, *span, word)
                    for (number, share, span), word in zip(places, rows[i].segments, strict=True)
                    if word != SPECIAL
                ]
            )
        return found

    return in_batches([row.ids for row in rows], batch, do)


def names_of(model: Model) -> tuple[str, ...]:
    return model.loaded.labels or tuple(map(str, range(model.config.labels)))


def entities_or_tags(model: Model, rows: list[Tokenized], batch: int) -> list[Tagged | Entities]:
    """The entities of each text, or the tags of its words where labels name no entities."""
    join = entities if any(name.startswith(("B-", "I-")) for name in names_of(model)) else tagged_words
    found = labeled_tokens(model, rows, batch)
    return [join(row.text, tokens) for row, tokens in zip(rows, found, strict=True)]


def entities(text: str, tokens: list[LabeledToken]) -> Entities:
    """Neighbors of one kind joined, up to the next that begins anew; what is outside is left out."""
    return Entities(entity_of(text, group) for group in groups(tokens) if group[0].kind != OUTSIDE)


def groups(tokens: list[LabeledToken]) -> Iterator[list[LabeledToken]]:
    group: list[LabeledToken] = []
    for token in tokens:
        if group and (token.kind != group[-1].kind or token.label.startswith("B-")):
            yield group
            group = []
        group.append(token)
    if group:
        yield group


def entity_of(text: str, group: list[LabeledToken]) -> Entity:
    start, end = group[0].start, group[-1].end
    share = fmean(token.probability for token in group)
    return Entity(text[start:end].strip(), group[0].kind, share, start, end)


def tagged_words(text: str, tokens: list[LabeledToken]) -> Tagged:
    """The words of a text, each with the label of its first token."""
    words = [list(group) for _, group in groupby(tokens, key=lambda token: token.word)]
    return Tagged(
        [text[group[0].start : group[-1].end].strip() for group in words],
        [group[0].label for group in words],
        [group[0].probability for group in words],
    )
