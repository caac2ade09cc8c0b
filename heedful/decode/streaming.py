"""Streaming: write token by token, and hand each over as it comes. Greedy and sampling differ only in the
choice.

The text comes in chunks (`stream_chunks`), since looking at a token may mean waiting for a device: a plain
`tolist`, or `torch.tensor(..., device="cuda")`, stops the host until the device has done all that it was
given so far, and then the device has nothing to do until the host comes back with more. So several tokens
are written before they are looked at, and while the host looks (`HostCopy`), the device writes the first few
of the next chunk. `stream` hands the same over token by token; `Hypothesis` is a text when it is done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor

from .filters import Context, Filter
from .prompts import Ends, checked
from .scores import NEVER, apply, argmax, check_choice, log_probability, precise, top_tokens
from .step import Step

Choose = Callable[[Tensor, Tensor], Tensor]  # scores [B, V] and the rows they belong to, to tokens [B]
Stop = Callable[[int, int], bool]  # of a row and its new token: whether nothing follows
Choice = tuple[Tensor, ...]  # tokens, their log-probabilities, and their scores; then the most likely tokens
Alternatives = tuple[tuple[int, float], ...]  # the most likely tokens and their log-probabilities, in order


def stream(
    step: Step,
    prompts_BT: Tensor,
    lengths_B: Tensor | None = None,
    *,
    choose: Choose,
    longest: int | Sequence[int],
    eos: Ends = None,
    filters: Sequence[Filter] = (),
    soon: bool = True,
    stop: Stop | None = None,
    top: int = 0,
) -> Iterator[list[Token]]:
    """After each step, the new token of every row that goes on; otherwise as `stream_chunks`."""
    how = {"choose": choose, "longest": longest, "eos": eos, "filters": filters, "soon": soon, "stop": stop}
    for chunk in stream_chunks(step, prompts_BT, lengths_B, **how, top=top):  # type: ignore[arg-type]
        yield from chunk.by_token()


@torch.no_grad()
def stream_chunks(
    step: Step,
    prompts_BT: Tensor,
    lengths_B: Tensor | None = None,
    *,
    choose: Choose,
    longest: int | Sequence[int],
    eos: Ends = None,
    filters: Sequence[Filter] = (),
    soon: bool = False,
    stop: Stop | None = None,
    top: int = 0,
) -> Iterator[Chunk]:
    """A few tokens more of every row that is still being written, again and again.

    A row ends with an end of sentence or after `longest` tokens (one number for all rows, or one each), and
    then costs nothing any more. The step must be fresh: the prompts are fed to it here. A chunk has as many
    tokens as the step writes at once (`step.chunk`), and the first few chunks fewer if somebody waits for
    them (`soon`). What a row wrote after its end is thrown away. stop: says of each token whether its row is
    over. top: how many of the most likely tokens to report with each.
    """
    lengths_B, limits, last = checked(prompts_BT, lengths_B, longest, eos)
    ends, rows, done = frozenset(last), list(range(len(prompts_BT))), 0  # rows still written, tokens in each
    if not rows:
        return
    writer = TokenWriter(step, choose, filters, prompts_BT, lengths_B, top)
    news = writer.read(prompts_BT, lengths_B)
    while True:
        copy, more, N = HostCopy(*news[:3]), HostCopy(*news[3:]) if top else None, len(news[0])
        run, start, done = min(2 * N, step.chunk) if soon else step.chunk, done, done + N
        room = shortest(rows, limits) - done
        lead = 0 if soon and N < step.chunk else step.head_start(run, room, bool(ends))
        parts = [writer.write(lead)] if lead else []
        chunk, doubtful = read_chunk(copy.wait(), rows, start, limits, ends)
        chunk = chunk if more is None else chunk.with_top(*more.wait())
        chunk = chunk if stop is None else chunk.until(stop)
        yield chunk
        check_choice(*doubtful)
        going = [r for r, over in enumerate(chunk.over) if not over]
        if not going:
            return
        if len(going) < len(rows):
            going_R, rows = to_device(torch.tensor(going), prompts_BT.device), [rows[r] for r in going]
            writer.keep(going_R)
            parts = [tuple(x[:, going_R] for x in part) for part in parts]
        rest = min(run, shortest(rows, limits) - done) - lead
        if rest := max(step.fitting(rest), 0 if lead else 1):
            parts.append(writer.write(rest))
        news = parts[0] if len(parts) == 1 else tuple(map(torch.cat, zip(*parts, strict=True)))


def shortest(rows: list[int], limits: list[int]) -> int:
    return min(limits[row] for row in rows)


class TokenWriter:
    """Writes in all rows at once, and keeps all that it needs on the device: nothing here waits for it."""

    def __init__(
        self,
        step: Step,
        choose: Choose,
        filters: Sequence[Filter],
        prompts_BT: Tensor,
        lengths_B: Tensor | None,
        top: int = 0,
    ) -> None:
        self.step, self.choose, self.filters, self.top = step, choose, filters, top
        self.context = Context.prompts(prompts_BT, lengths_B) if filters else None
        self.rows_R = torch.arange(len(prompts_BT), device=prompts_BT.device)
        self.tokens_R = self.rows_R  # the newest, once there are any

    def read(self, prompts_BT: Tensor, lengths_B: Tensor | None) -> Choice:
        """Feed the prompts, and write a token in every row: [1, R] each."""
        return tuple(x[None] for x in self.choose_from(self.step.last(prompts_BT, lengths_B)))

    def write(self, count: int) -> Choice:
        """Feed the newest tokens, and write so many more in every row: [N, R] each."""
        quick = None
        if self.choose is greedy_choice and not self.filters and not self.top:
            quick = self.step.greedy_tokens(self.tokens_R, count)
        if quick is not None:
            self.tokens_R = quick[0][-1]
            return quick
        chosen = [self.choose_from(self.step.last(self.tokens_R[:, None])) for _ in range(count)]
        return tuple(map(torch.stack, zip(*chosen, strict=True)))

    def choose_from(self, scores_RV: Tensor) -> Choice:
        """The next token of every row."""
        allowed_RV = apply(self.filters, scores_RV, self.context)
        self.tokens_R = self.choose(allowed_RV, self.rows_R)
        self.context = None if self.context is None else self.context.then(self.tokens_R)
        chosen = self.tokens_R, log_probability(precise(scores_RV), self.tokens_R), allowed_RV.amax(-1)
        if not self.top:
            return chosen
        log_p_RK, _, tokens_RK = top_tokens(scores_RV, min(self.top, scores_RV.shape[1]))
        return *chosen, tokens_RK, log_p_RK

    def keep(self, some_R: Tensor) -> None:
        """Go on with these rows only."""
        self.step.reorder(some_R)
        self.rows_R, self.tokens_R = self.rows_R[some_R], self.tokens_R[some_R]
        self.context = None if self.context is None else self.context.select(some_R)


def greedy_choice(scores_BV: Tensor, rows_B: Tensor) -> Tensor:
    """The choice that makes a stream greedy: the most likely token."""
    return argmax(scores_BV)


def read_chunk(
    news: Choice, rows: list[int], start: int, limits: list[int], ends: frozenset[int]
) -> tuple[Chunk, tuple[list[float], list[int]]]:
    """What was written in these rows, up to the end of each; `start` tokens came before.

    The chunk stops before the first step without a score. Second, the scores and rows of that step, to be
    refused.
    """
    tokens_NR, log_p_NR, best_NR = news
    N, tokens, log_p = len(tokens_NR), tokens_NR.long().T.tolist(), log_p_NR.T.tolist()
    counts = [
        until_end(mine, min(N, limits[row] - start), ends) for row, mine in zip(rows, tokens, strict=True)
    ]
    sound = N if bool((best_NR > NEVER).all()) else steps_before_a_fault(best_NR.tolist(), counts)
    ended, over = [], []
    for r, count in enumerate(counts):
        ended.append(count <= sound and tokens[r][count - 1] in ends)
        over.append(ended[r] or count <= sound and start + count >= limits[rows[r]])
        if min(count, sound) < N:
            tokens[r], log_p[r] = tokens[r][: min(count, sound)], log_p[r][: min(count, sound)]
    doubtful = [r for r, count in enumerate(counts) if sound < count]
    refused = best_NR[sound].tolist() if doubtful else []
    return (
        Chunk(rows, tokens, log_p, over, ended),
        ([refused[r] for r in doubtful], [rows[r] for r in doubtful]),
    )


def until_end(tokens: list[int], room: int, ends: frozenset[int]) -> int:
    """How many tokens there are up to the first end of sentence, or as many as there is room for."""
    if ends.isdisjoint(tokens):
        return room
    return next((n for n, token in enumerate(tokens[:room], 1) if token in ends), room)


def steps_before_a_fault(best: list[list[float]], counts: list[int]) -> int:
    """How many steps have a score in every row that was still being written."""
    for n, scores in enumerate(best):
        if any(n < count and not score > NEVER for score, count in zip(scores, counts, strict=True)):
            return n
    return len(best)


# What was written.


@dataclass(frozen=True)
class Hypothesis:
    """One answer of a search.

    Attributes:
        tokens: Its tokens, with the end if it has ended.
        log_probabilities: The model's own, of each token, before any filter or temperature.
        score: What the search ranks by: their sum, or for beam search that over the length penalty.
        ended: False if it was cut off at the greatest length.
        top: The most likely tokens at each place, with their log-probabilities, if they were asked for.

    Example:
        >>> from heedful.decode.greedy import greedy
        >>> from heedful.decode.step import step_of
        >>> (found,) = greedy(step_of(heedful.load("runs/lm").model), torch.tensor([[5, 7]]), longest=2)
        >>> len(found.tokens), len(found.log_probabilities)
        (2, 2)
    """

    tokens: list[int]  # the end of sentence included, if it was reached
    score: float
    log_probabilities: list[float]
    ended: bool  # False: cut off at the greatest length
    top: list[Alternatives] = field(default_factory=list)  # at each token, if they were wanted

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
    top: Alternatives = ()


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
            [t.top for t in row if t.top],
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
    top: list[list[Alternatives]] = field(default_factory=list)  # of each row and token, if they are wanted

    def with_top(self, tokens_NRK: Tensor, log_p_NRK: Tensor) -> Chunk:
        """The same with the most likely tokens at each place."""
        pairs = [
            [alternatives(*both) for both in zip(names, log_p, strict=True)]
            for names, log_p in zip(
                tokens_NRK.long().transpose(0, 1).tolist(), log_p_NRK.transpose(0, 1).tolist(), strict=True
            )
        ]
        return replace(self, top=[row[: len(new)] for row, new in zip(pairs, self.tokens, strict=True)])

    def until(self, stop: Stop) -> Chunk:
        """The same up to the token of each row that stops it."""
        tokens, log_p, over, ended, top = [], [], [], [], []
        for r, row in enumerate(self.rows):
            new = self.tokens[r]
            count = next((n for n, token in enumerate(new, 1) if stop(row, token)), None)
            tokens.append(new[:count])
            log_p.append(self.log_probabilities[r][:count])
            over.append(self.over[r] or count is not None)
            ended.append(self.ended[r] and count in (None, len(new)))
            top += [self.top[r][:count]] if self.top else []
        return Chunk(self.rows, tokens, log_p, over, ended, top)

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
                    self.top[r][n] if self.top else (),
                )
                for r, row in enumerate(self.rows)
                if n < lengths[r]
            ]


def alternatives(tokens: list[int], log_probabilities: list[float]) -> Alternatives:
    return tuple(zip(tokens, log_probabilities, strict=True))


def join_chunks(chunks: Iterable[Chunk], rows: int) -> list[Hypothesis]:
    """What was written in each row, chunk by chunk."""
    tokens: list[list[int]] = [[] for _ in range(rows)]
    log_p: list[list[float]] = [[] for _ in range(rows)]
    top: list[list[Alternatives]] = [[] for _ in range(rows)]
    ended = [False] * rows
    for chunk in chunks:
        for r, row in enumerate(chunk.rows):
            tokens[row] += chunk.tokens[r]
            log_p[row] += chunk.log_probabilities[r]
            top[row] += chunk.top[r] if chunk.top else []
            ended[row] = chunk.ended[r]
    return [Hypothesis(*row) for row in zip(tokens, map(sum, log_p), log_p, ended, top, strict=True)]


# Between host and device.


class HostCopy:
    """Tensors of one shape on their way to the host.

    What the device is given to do meanwhile does not delay them.
    """

    def __init__(self, *columns: Tensor) -> None:
        self.columns, self.sent = columns, None
        if columns[0].is_cuda:
            # Each copy takes its time, so all go at once. A float64 holds every token, node and float32
            # exactly.
            if len(columns) == 1:
                self.columns = (columns[0].to("cpu", non_blocking=True),)  # into pinned memory
            else:
                whole = torch.stack([x.double() for x in columns])
                self.columns = whole.to("cpu", non_blocking=True).unbind()
            self.sent = torch.cuda.current_stream(columns[0].device).record_event()

    def wait(self) -> tuple[Tensor, ...]:
        """The tensors, once they are here; integers may come as floats."""
        if self.sent is not None:
            self.sent.synchronize()
        return self.columns


def to_device(x: Tensor, device: torch.device) -> Tensor:
    """A tensor of the host on the device, which copies it when it gets there."""
    return x.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else x.to(device)
