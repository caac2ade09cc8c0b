"""GraphStep: a step on a GPU as one captured graph, so that a token costs one launch however many kernels it takes.

A `Lane` is buffers of fixed size and the graphs that work on them. The prompt is read straight onto one (`reading.py`).
Where it cannot be, `DecoderStep` reads it as ever, and with the first single token what it remembers moves into a lane.
Lanes are kept and lent out again, since capturing takes longer than writing a sentence.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from ..decode.step import CHUNK, DecoderStep, Step, chunk_of, read_source
from ..models.base.shells import Encoder
from ..parts.cache import GrowingCache, KeysValues, check_rows
from ..parts.multihead import MultiHeadAttention
from ..parts.positions.base import check_length
from .gpu_decoder import Lowered, Room
from .kernels.beam import Beams
from .kernels.choose import Choices, take_likeliest
from .prefill import MOST, Reader, readable, rounded_length

if TYPE_CHECKING:
    from ..decode.beam_state import PrefixTree, Rules, Searches

Given = TypeVar("Given")

ROOM = 64  # tokens: lanes come in multiples of it, so that few are needed
KEPT = 8  # lanes that wait to be borrowed again


def rounded(rows: int) -> int:
    """Rows of the lane for so many: a power of two, or half as much again."""
    power = 1 << (rows - 1).bit_length()
    return power * 3 // 4 if rows <= power * 3 // 4 and power > 2 else power


class Lane:
    """Rows and room enough for some texts, and the graph that gives each its next token."""

    def __init__(self, lowered: Lowered, rows: int, slots: int, source: tuple[int, int] | None) -> None:
        """source: how many sources there are, and how long."""
        decoder = lowered.decoder
        weight = decoder.inputs.tokens.weight.detach()
        self.lowered, self.rows, self.slots, self.source = lowered, rows, slots, source
        self.spare = slots - 1  # where rows go on that nobody uses
        self.tokens_R = torch.zeros(rows, dtype=torch.long, device=weight.device)
        own = torch.arange(rows, dtype=torch.int32, device=weight.device)[:, None]
        self.own_RS = own.repeat(1, slots)
        self.past = buffers(decoder.attentions(), rows, slots, weight)
        self.sources = None if source is None else buffers(decoder.crosses(), *source, weight)
        self.prompts_RS = torch.zeros(rows, slots, dtype=torch.long, device=weight.device)
        self.source_BS = None if source is None else self.prompts_RS.new_zeros(source)
        lengths_R, sources_R = torch.zeros(2, rows, dtype=torch.long, device=weight.device)
        lengths_B = torch.zeros(source[0] if source else 1, dtype=torch.long, device=weight.device)
        self.room = Room(
            lengths_R, pairs(self.past), self.own_RS.clone(), pairs(self.sources), sources_R, lengths_B
        )  # fmt: skip
        self.chosen = Choices.room(CHUNK, rows, weight.device)
        self.beams: dict[tuple, Beams] = {}
        self.graphs: dict[object, tuple[Callable[[], None], object]] = {}
        self.seen: set[object] = set()  # what has run once, outside of a graph
        self.pool: Any = None  # memory that the graphs share: only one of them runs at a time

    def score(self) -> Tensor:
        """Scores after the tokens; and the tokens are part of the past."""
        scores_RV = self.lowered(self.tokens_R, self.room)
        self.room.lengths_R.add_(1).clamp_(max=self.spare)
        return scores_RV

    def take_likeliest(self) -> None:
        """The likeliest tokens after the tokens, in their place."""
        scores_RV = self.lowered(self.tokens_R, self.room)
        take_likeliest(scores_RV, self.tokens_R, self.room.lengths_R, self.spare, self.chosen)

    def run(self, name: object, step: Callable[[], Given], changing: Sequence[Tensor] = ()) -> Given:
        """A step, as a graph where there is a GPU. changing: what else it changes that it reads.

        What it gives back is written over when it runs again.
        """
        if not self.tokens_R.is_cuda:
            return step()
        if name not in self.graphs:
            self.once_outside(step, changing)
            self.graphs[name] = self.captured(step)
        replay, result = self.graphs[name]
        replay()
        return result  # type: ignore[return-value]

    def read(self, name: object, step: Callable[[], Given]) -> Given:
        """The same for a step that changes nothing it reads: as a graph from the second time on. The first is the one
        outside of it, and most sizes never come up again."""
        if not self.tokens_R.is_cuda:
            return step()
        if name not in self.seen:
            self.seen.add(name)
            return step()
        if name not in self.graphs:
            self.graphs[name] = self.captured(step)
        return self.run(name, step)

    def once_outside(self, step: Callable[[], object], changing: Sequence[Tensor]) -> None:
        """Run a step, and undo it: kernels are compiled at their first call."""
        assert self.room.origin_RS is not None
        changing = (
            *changing, self.tokens_R, self.room.lengths_R, self.room.origin_RS, self.chosen.counts_R,
        )  # fmt: skip
        kept = [tensor.clone() for tensor in changing]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            step()
        torch.cuda.current_stream().wait_stream(side)
        for tensor, before in zip(changing, kept, strict=True):
            tensor.copy_(before)

    def captured(self, step: Callable[[], Given]) -> tuple[Callable[[], None], Given]:
        """A step as a graph, and where it leaves what it gives back."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool):
            result = step()
        self.pool = graph.pool()
        return graph.replay, result


def buffers(layers: Sequence[MultiHeadAttention], rows: int, slots: int, weight: Tensor) -> Tensor:
    """Room for keys and values of all layers, [L, 2, R, G, S, K]: in one piece, they move in one go."""
    return weight.new_zeros(len(layers), 2, rows, layers[0].kv_heads, slots, layers[0].key_width)


def pairs(whole: Tensor | None) -> list[KeysValues]:
    return [] if whole is None else [(whole[i, 0], whole[i, 1]) for i in range(len(whole))]


class Lanes:
    """A decoder's lanes: the last few that were given back can be borrowed again."""

    def __init__(self, lowered: Lowered, encoder: Encoder | None = None) -> None:
        """encoder: what reads the sources of a decoder that has them."""
        self.lowered, self.encoder = lowered, encoder
        self.reader = Reader(lowered, encoder) if readable(lowered.decoder, encoder) else None
        self.free: list[Lane] = []

    def borrow(self, rows: int, slots: int, source: tuple[int, int] | None) -> Lane:
        """A lane with at least so much room."""
        slots = -(-(slots + 1) // ROOM) * ROOM  # and one to spare
        if source is not None:
            source = rounded(source[0]), -(-source[1] // ROOM) * ROOM
        key = rounded(rows), slots, source
        for lane in self.free:
            if (lane.rows, lane.slots, lane.source) == key:
                self.free = [other for other in self.free if other is not lane]
                return lane
        return Lane(self.lowered, *key)

    def give_back(self, lane: Lane) -> None:
        self.free = [*self.free, lane][-KEPT:]

    def step(
        self, room: int, source_BS: Tensor | None = None, source_lengths_B: Tensor | None = None
    ) -> GraphStep:
        """A fresh step. room: tokens of a row, prompt included. source: what the encoder is to read."""
        return GraphStep(self, room, source_BS, source_lengths_B)


class GraphStep(Step):
    """The step of a decoder that has been lowered. The scores it gives are overwritten by those it gives next."""

    def __init__(
        self,
        lanes: Lanes,
        room: int,
        source_BS: Tensor | None = None,
        source_lengths_B: Tensor | None = None,
    ) -> None:
        """room: tokens of a row, prompt included. source: what the encoder is to read."""
        self.lanes, self.least = lanes, room
        self.source_BS, self.source_lengths_B = source_BS, source_lengths_B
        self.decoder = lanes.lowered.decoder
        self.lane: Lane | None = None
        self.rows, self.used = 0, 0  # rows in use, and slots at most
        self.shared = False  # rows share their past, as the table of origins says
        self.release: Callable[[], object] = lambda: None

    @cached_property
    def inner(self) -> DecoderStep:
        """The same without a lane, for what cannot be done on one. It reads the source in its own way."""
        if self.source_BS is None or self.lanes.encoder is None:
            return DecoderStep(self.decoder)
        with torch.no_grad():
            source = read_source(self.lanes.encoder, self.source_BS, self.source_lengths_B)
        return DecoderStep(self.decoder, source)

    @property
    def chunk(self) -> int:
        return chunk_of(self.decoder)

    @property
    def tokens_left(self) -> int | None:
        longest = self.decoder.inputs.position.longest
        if longest is None or self.lane is None:
            return longest if "inner" not in self.__dict__ else self.inner.tokens_left
        return longest - self.used

    def __call__(self, tokens_BT: Tensor, lengths_B: Tensor | None = None) -> Tensor:
        self.leave()
        return self.inner(tokens_BT, lengths_B)

    def last(self, tokens_BT: Tensor, lengths_B: Tensor | None = None) -> Tensor:
        reader = self.lanes.reader
        if self.fresh and reader is not None and reader.suits(tokens_BT, self.source_BS):
            return self.read(reader, tokens_BT, lengths_B)
        if tokens_BT.shape[1] != 1 or lengths_B is not None or not self.begun:
            self.leave()
            return self.inner.last(tokens_BT, lengths_B)
        lane = self.with_room()
        self.feed(lane, tokens_BT[:, 0])
        scores_RV = lane.run("score", lane.score)
        self.used += 1
        return scores_RV[: self.rows]

    @torch.no_grad()
    def read(self, reader: Reader, tokens_BT: Tensor, lengths_B: Tensor | None) -> Tensor:
        """The prompts, and their sources, onto a lane."""
        B, T = tokens_BT.shape
        S = 0 if self.source_BS is None else self.source_BS.shape[1]
        lane = self.take(B, max(self.least, T + 1), (B, S) if S else None)
        lane.prompts_RS[:B, :T] = tokens_BT
        lane.room.lengths_R.zero_()
        lane.room.lengths_R[:B] = T if lengths_B is None else lengths_B
        if self.source_BS is not None:
            assert lane.source_BS is not None and lane.room.source_lengths_B is not None
            lane.source_BS[:B, :S] = self.source_BS
            lane.room.source_lengths_B.fill_(1)  # whatever nobody reads, it is a number
            lane.room.source_lengths_B[:B] = S if self.source_lengths_B is None else self.source_lengths_B
        self.rows, self.used, self.shared = B, T, False
        size = rounded_length(T)
        if lane.rows * max(size, 0 if lane.source is None else lane.source[1]) > MOST:
            return reader(lane, T)[:B]
        return lane.read(("read", size), lambda: reader(lane, size))[:B]

    def greedy_tokens(self, tokens_B: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor] | None:
        if not self.begun:
            return None
        assert count <= CHUNK, "there is no room to write down more"
        lane = self.with_room(count)
        self.feed(lane, tokens_B)
        lane.chosen.counts_R.zero_()
        for _ in range(count):
            lane.run("likeliest", lane.take_likeliest)
        self.used += count
        chosen = lane.chosen
        tokens_NB, log_p_NB, best_NB = (
            x[:count, : self.rows].clone() for x in (chosen.tokens_NR, chosen.log_p_NR, chosen.best_NR)
        )
        return tokens_NB, log_p_NB, best_NB

    @property
    def fresh(self) -> bool:
        """Nothing has been fed, and no row has changed its place."""
        return self.lane is None and "inner" not in self.__dict__

    @property
    def begun(self) -> bool:
        return self.lane is not None or not self.fresh and self.inner.cache.size > 0

    def extend_searches(
        self, searches: Searches, tree: PrefixTree, rules: Rules, n: int, run: int
    ) -> Searches | None:
        from .gpu_beam import extended, suits

        if not self.begun or not suits(rules.settings, searches):
            return None
        return extended(self, searches, tree, rules, n, run)

    def feed(self, lane: Lane, tokens_B: Tensor) -> None:
        check_rows(len(tokens_B), self.rows, "the step")
        lane.tokens_R[: self.rows] = tokens_B

    # Where things are.

    def with_room(self, count: int = 1) -> Lane:
        """The lane, with so many free slots in every row."""
        if self.lane is None:
            self.enter()
        assert self.lane is not None
        longest = self.decoder.inputs.position.longest
        room = self.lane.spare if longest is None else min(self.lane.spare, longest)
        if self.used + count > room:  # rows may be shorter than they could be: look
            self.used = int(self.lane.room.lengths_R[: self.rows].max())
            check_length(self.used + count, self.decoder.inputs.position)
        if self.used + count > self.lane.spare:
            rows = torch.arange(self.rows, device=self.lane.tokens_R.device)
            self.move(rows, max(2 * self.lane.spare, self.used + count))
        return self.lane

    @torch.no_grad()
    def enter(self) -> None:
        """From the cache of the inner step into a lane."""
        inner, cache = self.inner, self.inner.cache
        lengths_B = cache.lengths()
        self.rows, self.used = len(lengths_B), cache.size
        source = None
        if inner.source is not None:
            source = inner.source.vectors_BSD.shape[0], inner.source.vectors_BSD.shape[1]
        lane = self.take(self.rows, max(self.least, self.used + 1), source)
        places_BS = torch.arange(self.used, device=lengths_B.device) if cache.k_pos is None else cache.k_pos
        at_B1S1 = torch.where(places_BS >= 0, places_BS, lane.spare).expand(self.rows, -1)[:, None, :, None]
        for (keys, values), layer in zip(lane.room.keys_values, cache.layers, strict=True):
            assert layer.kv is not None
            for into, kept in zip((keys, values), layer.kv, strict=True):
                into[: self.rows].scatter_(2, at_B1S1.expand_as(kept), kept.to(into.dtype))  # autocast's
        self.used = min(self.used, int(lengths_B.max()))
        self.set_rows(lane, lengths_B)
        if source is not None:
            self.read_source(lane)
        inner.cache = inner.decoder.growing_cache()  # its memory is not needed twice

    def read_source(self, lane: Lane) -> None:
        """Keys and values of the sources, and who reads which."""
        inner, room = self.inner, lane.room
        assert room.sources_R is not None and room.source_lengths_B is not None and inner.source is not None
        B, S, _ = inner.source.vectors_BSD.shape
        for (keys, values), layer in zip(room.sources, inner.cache.layers, strict=True):
            assert layer.source_kv is not None
            keys[:B, :, :S], values[:B, :, :S] = layer.source_kv
        room.sources_R[: self.rows] = torch.arange(B, device=room.sources_R.device)
        positions = inner.source.positions
        room.source_lengths_B[:B] = S if positions is None else (positions >= 0).sum(-1)

    def take(self, rows: int, slots: int, source: tuple[int, int] | None) -> Lane:
        self.release()
        lane = self.lanes.borrow(rows, slots, source)
        self.lane, self.release = lane, weakref.finalize(self, self.lanes.give_back, lane)
        return lane

    def set_rows(self, lane: Lane, lengths_B: Tensor) -> None:
        """Each row has a past of its own; rows nobody uses have none."""
        lane.room.lengths_R.zero_()
        lane.room.lengths_R[: len(lengths_B)] = lengths_B
        assert lane.room.origin_RS is not None
        lane.room.origin_RS.copy_(lane.own_RS)
        self.rows, self.shared = len(lengths_B), False

    # Rows change places.

    def reorder(self, rows: Tensor, siblings: bool = False) -> None:
        if not self.begun:
            return self.inner.reorder(rows)
        if self.lane is None:
            self.enter()
        assert self.lane is not None
        if siblings and len(rows) == self.rows:
            self.trade(rows)
        else:
            self.move(rows, self.lane.spare)

    def trade(self, rows: Tensor) -> None:
        """Rows of the same length take over each other's past: it stays where it is, and the table says where."""
        assert self.lane is not None
        origin_RS, own_RS = self.lane.room.origin_RS, self.lane.own_RS
        assert origin_RS is not None
        R = self.rows
        past_RS = torch.arange(self.lane.slots, device=rows.device) < self.lane.room.lengths_R[:R, None]
        origin_RS[:R] = torch.where(past_RS, origin_RS[rows], own_RS[:R])
        self.shared = True

    @torch.no_grad()
    def move(self, rows: Tensor, slots: int) -> None:
        """Into a lane of so many slots, or within this one: row b is what row rows[b] was, with a past of its own."""
        old = self.lane
        assert old is not None and old.room.origin_RS is not None
        lengths_B, past = old.room.lengths_R[rows], old.past[..., : self.used, :]
        if self.shared:
            cells_BS = old.room.origin_RS[rows, : self.used].long()
            at_S = torch.arange(self.used, device=rows.device)
            kept = past.transpose(3, 4)[:, :, cells_BS, at_S].transpose(3, 4)
        else:
            kept = past.index_select(2, rows)
        sources_B = None if old.sources is None or old.room.sources_R is None else old.room.sources_R[rows]
        if rounded(len(rows)) == old.rows and slots == old.spare:
            lane = old
        else:
            release, self.release = self.release, lambda: None  # not to be lent out before it is read
            lane = self.take(len(rows), slots, old.source)
            if lane.sources is not None and old.sources is not None:
                assert lane.room.source_lengths_B is not None and old.room.source_lengths_B is not None
                lane.sources.copy_(old.sources)
                lane.room.source_lengths_B.copy_(old.room.source_lengths_B)
            release()
        lane.past[:, :, : len(rows), :, : self.used] = kept
        if sources_B is not None:
            assert lane.room.sources_R is not None
            lane.room.sources_R[: len(rows)] = sources_B
        self.set_rows(lane, lengths_B)

    def rewind(self, lengths_B: Tensor) -> None:
        if self.lane is None:
            self.inner.rewind(lengths_B)
        else:
            if self.shared:  # what one row writes anew may be another's past
                self.move(torch.arange(self.rows, device=lengths_B.device), self.lane.spare)
            lengths_R = self.lane.room.lengths_R[: self.rows]
            lengths_R.copy_(torch.minimum(lengths_R, lengths_B))

    @torch.no_grad()
    def leave(self) -> None:
        """Back into the inner step, for more than one token at a time."""
        if self.lane is None:
            return
        if self.shared:
            self.move(torch.arange(self.rows, device=self.lane.tokens_R.device), self.lane.spare)
        lane, room, cache = self.lane, self.lane.room, self.decoder.growing_cache()
        lengths_B = room.lengths_R[: self.rows].clone()
        slots_S = torch.arange(self.used, device=lengths_B.device)
        cache.k_pos = torch.where(slots_S < lengths_B[:, None], slots_S, -1)
        there_B1S1 = (cache.k_pos >= 0)[:, None, :, None]  # elsewhere another text may have left NaN
        kept = torch.where(there_B1S1, lane.past[:, :, : self.rows, :, : self.used], 0)
        for layer, kv in zip(cache.layers, pairs(kept), strict=True):
            layer.kv = kv
        self.inner.fed = self.used
        self.inner.adopt(cache, None if lane.sources is None else self.sources_of(lane, cache))
        self.release()
        self.lane, self.release = None, lambda: None

    def sources_of(self, lane: Lane, cache: GrowingCache) -> Tensor:
        """Which source each row has; their keys and values go into the cache."""
        assert lane.room.sources_R is not None and lane.sources is not None
        assert self.inner.source is not None
        rows = lane.room.sources_R[: self.rows].clone()
        S = self.inner.source.vectors_BSD.shape[1]
        for layer, kv in zip(cache.layers, pairs(lane.sources[:, :, rows, :, :S]), strict=True):
            layer.source_kv = kv
        return rows
