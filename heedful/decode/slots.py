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
from ..parts.slots import SlotCache, room_for
from .choices import alternatives, chosen
from .filters import Filter
from .prompts import pad
from .sampling import Dice
from .step import DecoderStep, step_of


@dataclass(eq=False)
class Row:
    """One text to write."""

    prompt: list[int]
    longest: int  # tokens to write at most
    ends: frozenset[int] = frozenset()
    source: list[int] | None = None  # what an encoder reads
    filters: Sequence[Filter] = ()
    seed: int | None = None  # of sampling; None: the most likely token
    top: int = 0  # most likely tokens to report with each token
    written: int = field(default=0, init=False)
    newest: int = field(default=-1, init=False)  # the last token written, which is fed next
    text: Tensor | None = field(default=None, init=False)  # the prompt and room for the rest, for filters
    dice: Dice | None = field(default=None, init=False)

    def begin(self) -> None:
        """Before the first token."""
        self.written, self.dice = 0, None
        if self.seed is not None:
            self.dice = Dice([self.seed], torch.device("cpu"))
        if self.filters:
            self.text = torch.tensor(self.prompt + [-1] * self.longest)

    def write(self, token: int) -> None:
        """One token more."""
        if self.text is not None:
            self.text[len(self.prompt) + self.written] = token
        self.written, self.newest = self.written + 1, token


class News(NamedTuple):
    """What happened in a row: a new token, or a fault that ended it."""

    row: Row
    token: int = -1
    log_probability: float = 0.0
    top: tuple[tuple[int, float], ...] = ()  # the most likely tokens with their log-probabilities
    ended: bool = False  # this is an end of sentence
    last: bool = True  # nothing follows
    fault: str = ""
    cause: Exception | None = None  # of the fault, if an error was raised


class Slots:
    """A model that writes many texts at once.

    prefill: tokens of prompts read between two steps, by default `prefill_for(model)`. most_bytes: of the
    memory of keys and values; texts for which there is no room wait. A fault ends the texts that it
    concerns, and no others.
    """

    def __init__(
        self, model: Decoder | EncoderDecoder, prefill: int | None = None, most_bytes: int | None = None
    ) -> None:
        if not fits(model):
            raise BadInput("rows join a batch where the cache is keys and values, and this model has another")
        self.model, self.decoder = model, decoder_of(model)
        self.prefill, self.most_bytes = prefill or prefill_for(model), most_bytes
        self.past_only = all(mask.past_only for mask in self.decoder.masks)
        self.cache = SlotCache(len(self.decoder.stack.blocks))
        self.token_bytes, self.source_token_bytes = token_bytes(self.decoder)
        self.rows: list[Row] = []
        self.waiting: list[Row] = []  # in the order in which they came
        self.reading: dict[Row, PartlyRead] = {}  # those of them whose prompts are longer than `prefill`
        self.refused: list[News] = []
        self.shortest_first = False  # whose turn it is to be read

    @property
    def busy(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.rows or self.waiting or self.refused)

    @property
    def bytes(self) -> int:
        """Memory of keys and values."""
        return self.cache.bytes

    def warm_up(self, rows: int) -> None:
        """Do what takes long at the first text, for so many rows: nothing here."""

    def add(self, rows: Sequence[Row]) -> None:
        """Let texts wait for their turn. Of one that cannot be written, the next turn says why."""
        for row in rows:
            try:
                self.check(row)
                self.waiting.append(row)
            except BadInput as error:
                self.refused.append(failed(row, error))

    def remove(self, row: Row) -> None:
        """Forget a text, wherever it is; one that is not here is not missed."""
        self.refused = [news for news in self.refused if news.row is not row]
        self.reading.pop(row, None)
        if row in self.waiting:
            self.waiting.remove(row)
        if row in self.rows:
            self.leave(self.rows.index(row))

    @torch.no_grad()
    def turn(self) -> list[News]:
        """Read some tokens of waiting prompts, and write a token in every row."""
        refused, self.refused = self.refused, []
        try:
            written = self.write()
        except Exception as error:  # noqa: BLE001  a model may fail in any way
            written = [failed(row, error) for row in self.empty()]
        return [*refused, *written, *self.read()]

    def empty(self) -> list[Row]:
        """Drop all rows that are being written, and their memory."""
        rows, self.rows = self.rows, []
        self.cache = SlotCache(len(self.decoder.stack.blocks))
        return rows

    # Prompts.

    def check(self, row: Row) -> None:
        """Refuse a text that cannot be written, before it disturbs others."""
        table, vocab = self.decoder.inputs.position.longest, len(self.decoder.inputs.tokens.weight)
        if not row.prompt or row.source == []:
            raise BadInput("a prompt is empty: give at least one token, such as the beginning of sentence")
        if row.longest < 1:
            raise BadInput(f"the greatest length is {row.longest}: at least one token must be allowed")
        if not 0 <= min(row.prompt) <= max(row.prompt) < vocab:
            wrong = next(token for token in row.prompt if not 0 <= token < vocab)
            raise BadInput(f"token {wrong} does not exist in a vocabulary of {vocab}")
        if table is not None and final_length(row) > table:
            raise BadInput(
                f"a prompt of {len(row.prompt)} tokens and {row.longest} more do not fit its {table} "
                "positions: shorten one of them"
            )
        if self.most_bytes is not None and self.bytes_for([row]) > self.most_bytes:
            raise BadInput(
                f"a prompt of {len(row.prompt)} tokens and {row.longest} more need {self.bytes_for([row])} "
                f"bytes of keys and values, and {self.most_bytes} are allowed: shorten one of them"
            )

    def bytes_for(self, rows: Sequence[Row]) -> int:
        """The memory of keys and values once all of these texts are written to their greatest lengths."""
        sources = [len(row.source) for row in rows if row.source is not None]
        R, S = room_for(len(rows), max(map(final_length, rows), default=0))
        R_source, S_source = room_for(len(sources), max(sources, default=0))
        return R * S * self.token_bytes + R_source * S_source * self.source_token_bytes

    def read(self) -> list[News]:
        """Read at most `prefill` tokens of prompts; those that are done join, with their first token."""
        some = self.next_prompts()
        try:
            return self.read_some(some) if some else []
        except Exception as error:  # noqa: BLE001
            for row in some:
                self.remove(row)
            if len(some) == 1:
                return [failed(some[0], error)]
            return [news for row in some for news in self.read_alone(row)]

    def read_alone(self, row: Row) -> list[News]:
        """Read a prompt that could not be read together with others."""
        try:
            return self.read_whole([row])
        except Exception as error:  # noqa: BLE001
            self.remove(row)
            return [failed(row, error)]

    def read_some(self, some: list[Row]) -> list[News]:
        """Read prompts whole, or one a little further."""
        if not self.is_long(some[0]):
            read = {*some}
            self.waiting = [row for row in self.waiting if row not in read]
            return self.read_whole(some)
        (row,) = some
        part = self.reading[row] = self.reading.get(row) or PartlyRead(row, step_for(self.model, some))
        scores_1V = part.read(self.prefill)
        if scores_1V is None:
            return []
        self.waiting.remove(row)
        del self.reading[row]
        return self.join(some, part.step, scores_1V)

    def next_prompts(self) -> list[Row]:
        """Texts that are read in this turn: those with least left to read, then the one that came first.

        The two take turns, so that a long prompt neither holds up others nor is held up by them.
        """
        ready = self.with_room()
        self.shortest_first = not self.shortest_first
        ready = sorted(ready, key=self.left) if self.shortest_first else ready
        if not ready or self.is_long(ready[0]):
            return ready[:1]
        some, longest = {ready[0]}, self.left(ready[0])
        for row in ready[1:]:
            longer = max(longest, self.left(row))
            if longer * (len(some) + 1) <= self.prefill and not self.is_long(row):
                some.add(row)
                longest = longer
        return [row for row in self.waiting if row in some]

    def with_room(self) -> list[Row]:
        """Waiting texts for which there is memory beside those that are being written, first come first."""
        if self.most_bytes is None:
            return self.waiting
        some: list[Row] = []
        for row in self.waiting:
            if self.bytes_for([*self.rows, *some, row]) > self.most_bytes:
                break
            some.append(row)
        return some

    def left(self, row: Row) -> int:
        """Tokens of a text that are still to be read."""
        if row in self.reading:
            return len(row.prompt) - self.reading[row].done
        return max(len(row.prompt), len(row.source or ()))

    def is_long(self, row: Row) -> bool:
        """Whether a text is read a part at a time: not where its tokens see those that follow."""
        return row in self.reading or self.past_only and self.left(row) > self.prefill

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
        self.rows += some
        for row in some:
            row.begin()
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
            row.write(token)
            ended = token in row.ends
            last = ended or row.written >= row.longest
            news.append(News(row, token, log_p, top, ended, last) if fault is None else failed(row, fault))
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


def prefill_for(model: Decoder | EncoderDecoder) -> int:
    """Tokens of prompts to read between two steps on a CPU: as many as take two cores about 50 ms.

    Fewer than 32 take longer a token, because weights are read as often as prompts have parts.
    """
    decoder = decoder_of(model)
    weights = sum(weight.numel() for weight in decoder.parameters()) - decoder.inputs.tokens.weight.numel()
    return max(32, min(1024, 16 * round(2**31 / (16 * max(1, weights)))))


def step_for(model: Decoder | EncoderDecoder, rows: Sequence[Row]) -> DecoderStep:
    """A step for these rows alone, whose sources are read here."""
    sources = [row.source for row in rows if row.source is not None]
    device = decoder_of(model).inputs.tokens.weight.device
    return step_of(model, *(pad(sources, device) if sources else ()))


def final_length(row: Row) -> int:
    """Tokens of a row when it is over; the last one is not fed."""
    return len(row.prompt) + row.longest - 1


def token_bytes(decoder: Decoder) -> tuple[int, int]:
    """The memory of the keys and values of one token, and of one token of a source."""
    blocks, size = decoder.stack.blocks, decoder.inputs.tokens.weight.itemsize
    crosses = [block.cross.layer for block in blocks if block.cross is not None]  # type: ignore[union-attr]
    own, sources = (
        sum(layer.kv_heads * (layer.key_width + layer.value_width) for layer in layers)  # type: ignore
        for layers in (decoder.attentions(), crosses)
    )
    return own * size, sources * size


def failed(row: Row, error: Exception) -> News:
    """What there is to say of a row that an error has ended."""
    told = isinstance(error, BadInput | NotFinite)
    return News(row, fault=str(error) if told else f"{type(error).__name__}: {error}", cause=error)
