"""What has been written: the prompt and the tokens after it, as filters read it and as the caller gets it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..errors import BadInput


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
    for news in streamed:
        for token in news:
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
class Passage:
    """A few tokens more in every row that still writes: how many differs, for a row stops at its end."""

    rows: list[int]
    tokens: list[list[int]]  # of each of these rows
    log_probabilities: list[list[float]]
    over: list[bool]  # nothing follows in this row
    ended: list[bool]  # because its last token is the end of sentence

    def by_token(self) -> Iterator[list[Token]]:
        """The same as a stream hands it over: first the first token of every row, then the second."""
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


def gathered(passages: Iterable[Passage], rows: int) -> list[Hypothesis]:
    """What was written in each row, passage by passage."""
    tokens: list[list[int]] = [[] for _ in range(rows)]
    log_p: list[list[float]] = [[] for _ in range(rows)]
    ended = [False] * rows
    for passage in passages:
        for r, row in enumerate(passage.rows):
            tokens[row] += passage.tokens[r]
            log_p[row] += passage.log_probabilities[r]
            ended[row] = passage.ended[r]
    return [Hypothesis(*row) for row in zip(tokens, map(sum, log_p), log_p, ended, strict=True)]


@dataclass(frozen=True)
class Written:
    """Everything that stands before the token to be chosen. Padding (-1) comes first, so all rows end together."""

    tokens_BT: Tensor
    counts_B: Tensor  # how many of the tokens are new, the others being the prompt
    rows_B: Tensor  # the row of the original batch that each row belongs to
    batch: int  # rows in the original batch

    @classmethod
    def prompts(cls, prompts_BT: Tensor, lengths_B: Tensor) -> Written:
        """Before the first token."""
        B, device = len(prompts_BT), prompts_BT.device
        counts_B = torch.zeros(B, dtype=torch.long, device=device)
        return cls(pushed_right(prompts_BT, lengths_B), counts_B, torch.arange(B, device=device), B)

    def then(self, tokens_B: Tensor) -> Written:
        """One token more in every row."""
        tokens_BT = torch.cat([self.tokens_BT, tokens_B[:, None]], -1)
        return Written(tokens_BT, self.counts_B + 1, self.rows_B, self.batch)

    def select(self, rows: Tensor) -> Written:
        """Row b becomes what row rows[b] was."""
        return Written(self.tokens_BT[rows], self.counts_B[rows], self.rows_B[rows], self.batch)


def pushed_right(tokens_BT: Tensor, lengths_B: Tensor) -> Tensor:
    """Rows padded at the end, padded (with -1) at the beginning instead."""
    T = tokens_BT.shape[1]
    from_BT = torch.arange(T, device=tokens_BT.device) - (T - lengths_B[:, None])
    return torch.where(from_BT >= 0, tokens_BT.gather(1, from_BT.clamp(min=0)), -1)


def pad(rows: Sequence[Sequence[int]], device: torch.device | str | None = None) -> tuple[Tensor, Tensor]:
    """Prompts of unequal length as tokens [B, T] and lengths [B]."""
    T = max(map(len, rows), default=0)
    tokens_BT = torch.tensor([[*row, *[0] * (T - len(row))] for row in rows], dtype=torch.long, device=device)
    return tokens_BT.view(len(rows), T), torch.tensor([len(row) for row in rows], device=device)


def checked_lengths(prompts_BT: Tensor, lengths_B: Tensor | None) -> Tensor | None:
    """The lengths if rows differ in theirs, None if all are full; a row without any token is refused."""
    B, T = prompts_BT.shape
    lengths = [T] * B if lengths_B is None else lengths_B.tolist()
    if len(lengths) != B:
        raise BadInput(f"there are {B} prompts but {len(lengths)} lengths: give one for each")
    for row, length in enumerate(lengths):
        if not 1 <= length <= T:
            what = "is empty" if length < 1 else f"has a length of {length} in a table of {T}"
            raise BadInput(f"prompt {row} {what}: give at least one token, such as the beginning of sentence")
    return None if all(length == T for length in lengths) else lengths_B


Ends = int | Collection[int] | None


def ends_of(eos: Ends) -> list[int]:
    """The tokens that end a sentence: none, one or several."""
    return [] if eos is None else [eos] if isinstance(eos, int) else sorted(set(eos))


def limits_of(longest: int | Sequence[int], rows: int) -> list[int]:
    """How many tokens each row may write at most."""
    limits = [longest] * rows if isinstance(longest, int) else list(longest)
    if len(limits) != rows:
        raise BadInput(
            f"there are {rows} prompts but {len(limits)} greatest lengths: give one for all, or one each"
        )
    if any(limit < 1 for limit in limits):
        raise BadInput(f"the greatest length is {min(limits)}: at least one token must be allowed")
    return limits
