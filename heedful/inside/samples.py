"""Samples to measure a model by: texts as its tokens, with what the model is to predict in them.

A decoder predicts the next token, an encoder-decoder the tokens of the target, and a masked language model
its blanks. A classifier predicts a label. A model without any of these is measured by its output vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from ..data.pieces import GLUE, SPACE, labels
from ..data.trees import Parsed, words_of_pieces
from ..data.vocab import SPECIALS
from ..errors import BadInput
from ..interop.loaded import Loaded
from ..models.base.shells import Decoder, DecoderClassifier, EncoderDecoder, WithHeads
from ..tasks.alignment import Links, token_links, word_of_token
from ..tasks.image_classify import HEADS as IMAGE_HEADS
from ..tasks.mlm import Marks
from ..train.loss import NOTHING
from .look.inputs import is_own, tokens_of
from .patterns import AttentionGrid


@dataclass(frozen=True, eq=False)
class Sample:
    """One text, or one image, as the model gets it."""

    text: str
    ids: list[int]  # what the encoder, or a decoder alone, reads
    answers: list[int] = field(default_factory=list)  # what each place predicts, or NOTHING
    fed: list[int] = field(default_factory=list)  # the same tokens with blanks, if there are any
    written: list[int] = field(default_factory=list)  # what the decoder of a pair reads
    target: str = ""
    segments: list[int] = field(default_factory=list)
    label: int = NOTHING
    image_CHW: Tensor | None = None
    gold: frozenset[tuple[int, int]] | None = None  # links between words of source and target
    tree: Parsed | None = None  # the text with the dependencies of its words

    @property
    def size(self) -> int:
        """Tokens of its longer side."""
        return max(len(self.ids), len(self.written))


@dataclass(frozen=True, eq=False)
class Samples:
    """Several of them, and in words what they are."""

    samples: list[Sample]
    source: str  # such as "held-out pairs of runs/demo"
    unit: str = "texts"  # what a sample is, in the plural

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def described(self) -> str:
        return f"{len(self)} {self.unit} ({self.source})"


# What a model predicts


def objective_of(model: nn.Module, samples: Sequence[Sample]) -> str:
    """next, target, blank or label, as the model predicts them; vectors if it predicts nothing here."""
    if isinstance(model, EncoderDecoder):
        return "target"
    if isinstance(model, Decoder):
        return "next"
    if all(each.label != NOTHING for each in samples):
        return "label"
    blanks = any(answer != NOTHING for each in samples for answer in each.answers)
    return "blank" if blanks and isinstance(model, WithHeads) else "vectors"


UNITS = {
    "next": "nats per token",
    "target": "nats per token of the target",
    "blank": "nats per blank",
    "label": "nats per label",
    "vectors": "relative change of the output vectors",
}


def label_head(model: WithHeads) -> str:
    """The head that predicts labels."""
    names = ("classify", *IMAGE_HEADS.values())
    return next(name for name in names if name in model.heads)


# Tokens


class TokenKinds:
    """Which tokens of a model are special or punctuation, and which are ordinary words."""

    def __init__(self, loaded: Loaded) -> None:
        self.loaded = loaded
        self.read, self.written = loaded.tokenizer, loaded.target_tokenizer or loaded.tokenizer

    def special(self, tokenizer: Any) -> set[int]:
        """Numbers of special tokens."""
        added = tokenizer.get_added_tokens_decoder()
        found = {number for number, token in added.items() if token.special}
        return found | set(range(len(SPECIALS))) if is_own(tokenizer) else found

    @cached_property
    def special_read(self) -> set[int]:
        return set() if self.read is None else self.special(self.read)

    @cached_property
    def special_written(self) -> set[int]:
        return set() if self.written is None else self.special(self.written)

    def marks(self, ids: Sequence[int], written: bool) -> Tensor:
        """Which of these tokens are special or punctuation."""
        special = self.special_written if written else self.special_read
        shown = labels(self.written if written else self.read, ids)
        plain = [text.replace(GLUE, "").replace(SPACE, "") for text in shown]
        return torch.tensor(
            [
                number in special or not any(c.isalnum() for c in text)
                for number, text in zip(ids, plain, strict=True)
            ]
        )

    def ordinary(self, rows: int) -> list[int]:
        """Numbers of the tokens that are not special, among the rows of the model's table."""
        return [number for number in range(rows) if number not in self.special_read]


def grids(kinds: TokenKinds, sample: Sample, pair: bool) -> dict[str, AttentionGrid]:
    """One sample as each kind of attention sees it."""
    if sample.image_CHW is not None:
        none = torch.zeros(len(sample.ids), dtype=torch.bool)
        places = torch.tensor(sample.ids)
        return {"self": AttentionGrid("self", places, places, none, none, words=False)}
    ids, marks = torch.tensor(sample.ids), kinds.marks(sample.ids, False)
    parents_TS = parents(kinds.loaded, sample)
    if not pair:
        return {"self": AttentionGrid("self", ids, ids, marks, marks, parents_TS=parents_TS)}
    read, answers = torch.tensor(sample.written), torch.tensor(sample.answers)
    read_marks, answer_marks = (kinds.marks(side, True) for side in (sample.written, sample.answers))
    return {
        "cross": AttentionGrid(
            "cross", answers, ids, answer_marks, marks, gold_TS=gold_table(kinds.loaded, sample)
        ),
        "self": AttentionGrid("self", read, read, read_marks, read_marks),
        "encoder": AttentionGrid("encoder", ids, ids, marks, marks, parents_TS=parents_TS),
    }


def word_places(loaded: Loaded, sample: Sample) -> tuple[list[int], list[int]]:
    """The word of each token of the source and of the target."""
    written = loaded.target_tokenizer or loaded.tokenizer
    assert loaded.tokenizer is not None and written is not None
    return word_of_token(loaded.tokenizer, sample.text), word_of_token(written, sample.target)


def gold_table(loaded: Loaded, sample: Sample) -> Tensor | None:
    """The cells [T, S] of cross-attention that the reference alignment links."""
    if sample.gold is None:
        return None
    cells_TS = torch.zeros(len(sample.answers), len(sample.ids), dtype=torch.bool)
    links: Links = set(sample.gold)
    for t, s in token_links(links, *word_places(loaded, sample)):
        cells_TS[t, s] = True
    return cells_TS


def parents(loaded: Loaded, sample: Sample) -> Tensor | None:
    """The cells [T, T] that lead from each word's tokens to those of the word it depends on."""
    if sample.tree is None:
        return None
    word_T = torch.tensor(words_of_tokens(loaded, sample.tree, len(sample.ids)))
    heads = torch.tensor([*sample.tree.heads, -2])  # the last is for tokens that belong to no word
    return (heads[word_T][:, None] == word_T) & (word_T >= 0)


def words_of_tokens(loaded: Loaded, text: Parsed, size: int) -> list[int]:
    """The word of each token that the model reads; -1 for special tokens."""
    assert loaded.tokenizer is not None
    own = is_own(loaded.tokenizer)
    encoding = loaded.tokenizer.encode(str(text), add_special_tokens=not own)
    special = [bool(mark) for mark in encoding.special_tokens_mask]
    spans = [span for span, mark in zip(encoding.offsets, special, strict=True) if not mark]
    words = iter(words_of_pieces(text, spans))
    found = [-1 if mark else next(words) for mark in special]
    before = 1 if own and isinstance(loaded.model, WithHeads | DecoderClassifier) else 0
    found = [-1] * before + found
    return [*found, *[-1] * (size - len(found))][:size]


# From a text to a sample


def read_ids(loaded: Loaded, text: str, longest: int) -> list[int]:
    """The tokens of a text, cut to `longest`, or to the places that the model has."""
    ids = tokens_of(loaded, text)
    if not ids:
        raise BadInput("a text has no tokens: leave out empty lines")
    return ids if len(ids) <= longest else [*ids[: longest - 1], ids[-1]]


def next_sample(text: str, ids: list[int], tree: Parsed | None = None) -> Sample:
    """A text whose every token but the first is to be predicted."""
    return Sample(text, ids[:-1], ids[1:], tree=tree)


def blank_sample(
    text: str, ids: list[int], marks: Marks | None, number: int, tree: Parsed | None = None
) -> Sample:
    """A text with blanks, always the same ones; none if the model does not fill in blanks."""
    import numpy as np

    from ..tasks.mlm import BLANK, HELD_OUT, blanks

    if marks is None:
        return Sample(text, ids, tree=tree)
    fed, chosen = blanks(np.array(ids), marks, 0, HELD_OUT, number, BLANK)
    answers = [NOTHING] * len(ids)
    for place in chosen.tolist():
        answers[place] = ids[place]
    return Sample(text, ids, answers, fed.tolist(), tree=tree)


def marks_in(loaded: Loaded) -> Marks | None:
    """The tokens that blanks are made with; None if the model does not fill in blanks."""
    import numpy as np

    model, tokenizer = loaded.model, loaded.tokenizer
    if tokenizer is None or not isinstance(model, WithHeads) or "masked_lm" not in model.heads:
        return None
    known = [tokenizer.token_to_id(name) for name in ("[MASK]", "<mask>")]
    mask = next((number for number in known if number is not None), None)
    if mask is None:
        return None
    rows = model.encoder.inputs.tokens.weight.shape[0]
    ordinary = np.zeros(rows, bool)
    words = TokenKinds(loaded).ordinary(min(rows, tokenizer.get_vocab_size()))
    ordinary[words] = True
    return Marks(-1, -1, mask, ordinary, np.flatnonzero(ordinary))
