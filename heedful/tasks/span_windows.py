"""Windows of span prediction: a long context is read in overlapping windows, each beside the question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..data.batch import Tensors
from ..data.questions import Question
from ..data.store import Store
from ..errors import BadInput
from .classify import Layout, special_tokens
from .task import VocabLike, pad

LONGEST_QUESTION = 64  # tokens of a question at most


@dataclass(frozen=True)
class SpanBatch(Tensors):
    """Some windows with their questions, padded at the end."""

    tokens_BT: Tensor
    segments_BT: Tensor
    lengths_B: Tensor
    open_BT: Tensor  # whether an answer may start or end here: in the context, or at [CLS]
    starts_B: Tensor
    ends_B: Tensor  # the last token of the answer; both are 0, [CLS], if it is not here
    ids: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        return len(self.starts_B)


@dataclass(frozen=True)
class TokenizedQuestion:
    """A question and its context in numbers, and the first and the last token of the answer there."""

    question: Sequence[int]
    context: Sequence[int]
    first: int = 0
    last: int = -1


@dataclass(frozen=True)
class WindowLayout:
    """How a context is cut into windows: tokens of a row, and by how many windows overlap (at most half)."""

    longest: int
    overlap: int
    special: int  # tokens of a row that are neither question nor context
    asked: int = LONGEST_QUESTION  # of a question at most

    def room(self, question: int) -> int:
        """Tokens of context in a row beside a question."""
        return self.longest - self.special - min(question, self.asked)

    def starts(self, question: int, context: int) -> list[int]:
        """Where the windows of a context begin: the last one ends where it ends."""
        room = self.room(question)
        step = room - min(self.overlap, room // 2)  # beside a long question there may be little room
        return [0, *range(step, context - room + step, step)] if context > room else [0]


def window_layout(d: Any, context: int, vocab: VocabLike) -> WindowLayout:
    """The windows of a recipe; refused if they have no room beside the longest question."""
    longest = min(d.max_length, context)
    made = WindowLayout(longest, min(d.window_overlap, longest // 2), special_tokens(True, vocab))
    if made.room(LONGEST_QUESTION) < 1:
        raise BadInput(
            f"data.max_length is {d.max_length} and the context {context}: beside a question of up to "
            f"{LONGEST_QUESTION} tokens that leaves "
            f"no room for a text"
        )
    return made


Window = tuple[TokenizedQuestion, int]  # and where it begins in the context


def collate(
    vocab: VocabLike, layout: Layout, rooms: WindowLayout, windows: Sequence[Window], ids: Sequence[int] = ()
) -> SpanBatch:
    """Windows to a batch."""
    rows, open_rows, places = [], [], []
    for asking, start in windows:
        question = asking.question[: rooms.asked]
        part = asking.context[start : start + rooms.room(len(question))]
        row, segments = layout(vocab, question, part)
        before = len(row) - 1 - len(part)
        rows.append((row, segments))
        open_rows.append(np.array([1, *[0] * (before - 1), *[1] * len(part), 0]))
        first, last = asking.first - start, asking.last - start
        here = 0 <= first <= last < len(part)
        places.append((before + first, before + last) if here else (0, 0))
    return SpanBatch(
        pad([row for row, _ in rows], vocab.pad),
        pad([segments for _, segments in rows], 0),
        torch.tensor([len(row) for row, _ in rows]),
        pad(open_rows, 0).bool(),
        torch.tensor([start for start, _ in places]),
        torch.tensor([end for _, end in places]),
        tuple(map(int, ids)),
    )


def tokenized_question(
    question: Sequence[int], context: Sequence[int], places: Sequence[tuple[int, int]], row: Question
) -> TokenizedQuestion:
    """A question in numbers; places: where each token of the context stands in it."""
    text, start = row.answers[0]
    inside = [
        n
        for n, (a, b) in enumerate(trimmed(row.context, places))
        if a < start + len(text) and b > start and b > a
    ]
    return (
        TokenizedQuestion(question, context, inside[0], inside[-1])
        if inside
        else TokenizedQuestion(question, context)
    )


def trimmed(text: str, places: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Where tokens stand without the white space that some carry."""
    found = []
    for a, b in places:
        said = text[a:b]
        found.append((a + len(said) - len(said.lstrip()), b - len(said) + len(said.rstrip())))
    return found


def tokenize_questions(vocab: Any, rows: Sequence[Question]) -> list[TokenizedQuestion]:
    """Questions in numbers."""
    questions = vocab.encode_batch([row.question for row in rows])
    contexts = vocab.encode_batch([row.context for row in rows])
    places = vocab.places([row.context for row in rows])
    return [tokenized_question(*found) for found in zip(questions, contexts, places, rows, strict=True)]


def windows_of(store: Store, rooms: WindowLayout) -> np.ndarray:
    """(question, where the window begins, tokens of the row) of every window."""
    found = []
    for i, (question, context) in enumerate(
        zip(store.lengths("question").tolist(), store.lengths("context").tolist(), strict=True)
    ):
        room, asked = rooms.room(question), min(question, rooms.asked)
        for start in rooms.starts(question, context):
            found.append((i, start, asked + min(room, context - start) + rooms.special))
    return np.array(found)
