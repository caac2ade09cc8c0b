"""Slots: many texts written at once, each of which joins and leaves when it likes.

A `Row` is one text: its prompt, its limits, and how its tokens are chosen. `Slots` reads prompts a few
tokens at a time, so that a long one does not hold up the others, and writes one token in every row at each
step. What a row writes does not depend on the rows beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from ..errors import BadInput, NotFinite
from ..models.base.shells import Decoder, EncoderDecoder, decoder_of
from ..parts.blocks import AttentionStack
from ..parts.cache import GrowingCache
from ..parts.slots import SlotCache
from .filters import Context, Filter
from .prompts import pad
from .sampling import Dice, draw
from .scores import apply, argmax, check_choice, precise, top_indices
from .step import DecoderStep, step_of


@dataclass(eq=False)
class Row:
    """One text to write."""

    prompt: list[int]
    longest: int  # tokens to write at most
    ends: frozenset[int] = frozenset()
    source: list[int] | None = None  # what an encoder reads
    filters: Sequence[Filter] = ()
    seed: int | None = None  # of sampling; None: the likeliest token
    top: int = 0  # likeliest tokens to report with each token
    written: int = field(default=0, init=False)
    newest: int = field(default=-1, init=False)  # the last token written, which is fed next
    context: Context | None = field(default=None, init=False)
    dice: Dice | None = field(default=None, init=False)

    def begin(self, device: torch.device) -> None:
        """Before the first token."""
        prompt_1T = torch.tensor([self.prompt], device=device)
        self.context = Context.prompts(prompt_1T, None) if self.filters else None
        self.dice = None if self.seed is None else Dice([self.seed], torch.device("cpu"))


class News(NamedTuple):
    """What happened in a row: a new token, or a fault that ended it."""

    row: Row
    token: int = -1
    log_probability: float = 0.0
    top: tuple[tuple[int, float], ...] = ()  # the likeliest tokens with their log-probabilities
    ended: bool = False  # this is an end of sentence
    last: bool = True  # nothing follows
    fault: str = ""


class Slots:
    """A model that writes many texts at once. `prefill`: tokens of prompts read between two steps."""

    def __init__(self, model: Decoder | EncoderDecoder, prefill: int = 64) -> None:
        if not fits(model):
            raise BadInput("rows join a batch where the cache is keys and values, and this model has another")
        self.model, self.decoder, self.prefill = model, decoder_of(model), prefill
        self.cache = SlotCache(len(self.decoder.stack.blocks))
        self.rows: list[Row] = []
        self.waiting: list[Row] = []
        self.reading: PartlyRead | None = None  # a prompt longer than `prefill`

    @property
    def busy(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.rows or self.waiting or self.reading)

    def add(self, rows: Sequence[Row]) -> None:
        """Let texts wait for their turn."""
        self.waiting += rows

    def remove(self, row: Row) -> None:
        """Forget a text, wherever it is; one that is not here is not missed."""
        if row in self.waiting:
            self.waiting.remove(row)
        elif self.reading is not None and row is self.reading.row:
            self.reading = None
        elif row in self.rows:
            self.leave(self.rows.index(row))

    @torch.no_grad()
    def turn(self) -> list[News]:
        """Read some tokens of waiting prompts, and write a token in every row."""
        return [*self.write(), *self.read()]

    # Prompts.

    def read(self) -> list[News]:
        """Read at most `prefill` tokens of prompts; those that are done join, with their first token."""
        if self.reading is None and not self.waiting:
            return []
        if self.reading is None:
            some = self.next_prompts()
            if len(some) > 1 or len(some[0].prompt) <= self.prefill:
                return self.read_whole(some)
            self.reading = PartlyRead(some[0], step_for(self.model, some))
        scores_1V = self.reading.read(self.prefill)
        if scores_1V is None:
            return []
        done, self.reading = self.reading, None
        return self.join([done.row], done.step, scores_1V)

    def next_prompts(self) -> list[Row]:
        """As many waiting texts as are read together in one turn, at least one."""
        some: list[Row] = []
        longest = 0
        for row in self.waiting:
            longest = max(longest, len(row.prompt), len(row.source or ()))
            if some and longest * (len(some) + 1) > self.prefill:
                break
            some.append(row)
        del self.waiting[: len(some)]
        return some

    def read_whole(self, some: list[Row]) -> list[News]:
        """Read several prompts together."""
        step = step_for(self.model, some)
        prompts_BT, lengths_B = pad([row.prompt for row in some], self.device)
        same = len({len(row.prompt) for row in some}) == 1
        return self.join(some, step, step.last(prompts_BT, None if same else lengths_B))

    def join(self, some: list[Row], step: DecoderStep, scores_BV: Tensor) -> list[News]:
        """Put rows whose prompts were read into the batch, and choose their first tokens."""
        assert isinstance(step.cache, GrowingCache)
        sources = [len(row.source) for row in some if row.source is not None]
        self.cache.join(step.cache, [len(row.prompt) for row in some], sources)
        first = self.cache.rows - len(some)
        for row in some:
            row.begin(self.device)
        self.rows += some
        return self.choose(scores_BV, list(range(first, self.cache.rows)))

    # Tokens.

    def write(self) -> list[News]:
        """One token more in every row."""
        if not self.rows:
            return []
        tokens_B1 = torch.tensor([row.newest for row in self.rows], device=self.device)[:, None]
        hidden_B1D = self.decoder.hidden(tokens_B1, cache=self.cache, source=self.cache.source())
        scores_BV = self.decoder.head(hidden_B1D, self.decoder.inputs.tokens)[:, 0]
        return self.choose(scores_BV, list(range(len(self.rows))))

    def choose(self, scores_BV: Tensor, places: list[int]) -> list[News]:
        """The next token of the rows at these places; those that are over leave."""
        rows = [self.rows[place] for place in places]
        tokens, faults = chosen(rows, scores_BV)
        tops = alternatives(rows, scores_BV, tokens)
        news = []
        for row, token, (log_p, top), fault in zip(rows, tokens, tops, faults, strict=True):
            row.written, row.newest = row.written + 1, token
            ended = token in row.ends
            last = bool(fault) or ended or row.written >= row.longest
            news.append(News(row, token, log_p, top, ended, last, fault))
        for place, one in sorted(zip(places, news, strict=True), key=lambda pair: -pair[0]):
            if one.last:
                self.leave(place)
        return news

    def leave(self, place: int) -> None:
        """Drop the row at a place; the last one takes it."""
        self.cache.leave(place)
        self.rows[place] = self.rows[-1]
        self.rows.pop()

    @property
    def device(self) -> torch.device:
        return self.decoder.inputs.tokens.weight.device


class PartlyRead:
    """A long prompt, of which the first tokens have been read."""

    def __init__(self, row: Row, step: DecoderStep) -> None:
        self.row, self.step, self.done = row, step, 0

    def read(self, tokens: int) -> Tensor | None:
        """Read so many more; scores [1, V] after the last, once it is reached."""
        some = self.row.prompt[self.done : self.done + tokens]
        self.done += len(some)
        fed_1T = torch.tensor([some], device=self.step.decoder.inputs.tokens.weight.device)
        if self.done == len(self.row.prompt):
            return self.step.last(fed_1T)
        self.step.hidden(fed_1T, None)
        return None


def fits(model: Decoder | EncoderDecoder) -> bool:
    """Whether rows can join: the cache is keys and values, a row of which can be copied."""
    stack = decoder_of(model).stack
    return isinstance(stack, AttentionStack) and type(stack.growing_cache()) is GrowingCache


def step_for(model: Decoder | EncoderDecoder, rows: Sequence[Row]) -> DecoderStep:
    """A step for these rows alone, whose sources are read here."""
    sources = [row.source for row in rows if row.source is not None]
    device = decoder_of(model).inputs.tokens.weight.device
    return step_of(model, *(pad(sources, device) if sources else ()))


# Choices: each row has its own filters and its own dice.


def chosen(rows: Sequence[Row], scores_BV: Tensor) -> tuple[list[int], list[str]]:
    """The next token of each row, and what is wrong with a row, if anything."""
    scores_BV = precise(scores_BV)
    filtered = [place for place, row in enumerate(rows) if row.filters]
    if filtered:
        scores_BV = scores_BV.clone()
        for place in filtered:
            context = rows[place].context
            scores_BV[place] = apply(rows[place].filters, scores_BV[place, None], context)[0]
    best_B, tokens = scores_BV.amax(-1).tolist(), argmax(scores_BV).tolist()
    faults = [fault_of(best) for best in best_B]
    drawn = [place for place, row in enumerate(rows) if row.dice is not None]
    if drawn:
        uniform_B = torch.cat([rows[place].dice.roll()[0] for place in drawn]).to(scores_BV.device)  # type: ignore[union-attr]
        for place, token in zip(drawn, draw(scores_BV[drawn].double().softmax(-1), uniform_B), strict=True):
            tokens[place] = int(token)
    for place in filtered:
        row = rows[place]
        assert row.context is not None
        row.context = row.context.then(torch.tensor([tokens[place]], device=scores_BV.device))
    return tokens, faults


def fault_of(best: float) -> str:
    """What is wrong with scores of which this is the best, or ""."""
    try:
        check_choice([best], [0])
    except (BadInput, NotFinite) as error:
        return str(error)
    return ""


def alternatives(
    rows: Sequence[Row], scores_BV: Tensor, tokens: Sequence[int]
) -> list[tuple[float, tuple[tuple[int, float], ...]]]:
    """The log-probability of each row's token, and the likeliest tokens that the row wants to know."""
    log_p_BV = precise(scores_BV).log_softmax(-1)
    own = log_p_BV[range(len(rows)), tokens].tolist()
    k = max(row.top for row in rows)
    if not k:
        return [(log_p, ()) for log_p in own]
    tokens_BK = top_indices(log_p_BV, min(k, log_p_BV.shape[1]))
    values_BK = log_p_BV.gather(1, tokens_BK)
    pairs = [
        tuple(zip(names, values, strict=True))
        for names, values in zip(tokens_BK.tolist(), values_BK.tolist(), strict=True)
    ]
    return [(log_p, pair[: row.top]) for row, log_p, pair in zip(rows, own, pairs, strict=True)]
