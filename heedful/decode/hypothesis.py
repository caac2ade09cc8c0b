"""Hypothesis: what a search gives back. Token and Chunk: the same while it is being written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class Hypothesis:
    """One answer. `log_probabilities` are the model's own, of each token, before any filter or temperature.

    `score` is what the search ranks by: the sum of these, or for beam search that over the length penalty.
    """

    tokens: list[int]  # the end of sentence included, if it was reached
    score: float
    log_probabilities: list[float]
    ended: bool  # False: cut off at the greatest length

    @property
    def words(self) -> list[int]:
        """The tokens without the end of sentence."""
        return self.tokens[:-1] if self.ended else self.tokens


class Token(NamedTuple):
    """A token just written, and in which row."""

    row: int
    token: int
    log_probability: float
    last: bool  # nothing follows in this row
    ended: bool  # because this is the end of sentence


def hypotheses(streamed: Iterable[Sequence[Token]], rows: int) -> list[Hypothesis]:
    """What a stream wrote in each row, once it has run dry."""
    written: list[list[Token]] = [[] for _ in range(rows)]
    for tokens in streamed:
        for token in tokens:
            written[token.row].append(token)
    return [
        Hypothesis(
            [t.token for t in row],
            sum(t.log_probability for t in row),
            [t.log_probability for t in row],
            bool(row) and row[-1].ended,
        )
        for row in written
    ]


@dataclass(frozen=True)
class Chunk:
    """A few tokens more in every row that is still being written.

    Rows stop at their ends, so they differ in length.
    """

    rows: list[int]
    tokens: list[list[int]]  # of each of these rows
    log_probabilities: list[list[float]]
    over: list[bool]  # nothing follows in this row
    ended: list[bool]  # because its last token is the end of sentence

    def by_token(self) -> Iterator[list[Token]]:
        """The first token of every row, then the second, and so on."""
        lengths = [len(row) for row in self.tokens]
        for n in range(max(lengths, default=0)):
            yield [
                Token(
                    row,
                    self.tokens[r][n],
                    self.log_probabilities[r][n],
                    self.over[r] and n == lengths[r] - 1,
                    self.ended[r] and n == lengths[r] - 1,
                )
                for r, row in enumerate(self.rows)
                if n < lengths[r]
            ]


def join_chunks(chunks: Iterable[Chunk], rows: int) -> list[Hypothesis]:
    """What was written in each row, chunk by chunk."""
    tokens: list[list[int]] = [[] for _ in range(rows)]
    log_p: list[list[float]] = [[] for _ in range(rows)]
    ended = [False] * rows
    for chunk in chunks:
        for r, row in enumerate(chunk.rows):
            tokens[row] += chunk.tokens[r]
            log_p[row] += chunk.log_probabilities[r]
            ended[row] = chunk.ended[r]
    return [Hypothesis(*row) for row in zip(tokens, map(sum, log_p), log_p, ended, strict=True)]
