"""GraphStep: a step on a GPU as one captured graph, so that a token costs one launch however many kernels it takes.

The prompt is read as ever, by `DecoderStep`. With the first single token, what was remembered moves into a `Lane`:
buffers of fixed size and the graph that works on them. Lanes are kept and lent out again, since capturing takes longer
than writing a sentence.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..kernels.beam import Beams
from ..kernels.choose import Choices, take_likeliest
from ..parts.attention import MultiHeadAttention
from ..parts.cache import GrowingCache, KeysValues, check_rows
from .lowered import Lowered, Room
from .step import AHEAD, DecoderStep, Step

if TYPE_CHECKING:
    from .beam import BeamSettings, Searches, Tree

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

        def buffers(layers: Sequence[MultiHeadAttention], B: int, S: int) -> list[KeysValues]:
            shapes = [(B, layer.kv_heads, S, layer.key_width) for layer in layers]
            return [(weight.new_zeros(shape), weight.new_zeros(shape)) for shape in shapes]

        keys_values, sources = buffers(decoder.attentions(), rows, slots), []
        if source is not None:
            sources = buffers(decoder.crosses(), *source)
        lengths_R, sources_R = torch.zeros(2, rows, dtype=torch.long, device=weight.device)
        lengths_B = torch.zeros(source[0] if source else 1, dtype=torch.long, device=weight.device)
        self.room = Room(lengths_R, keys_values, self.own_RS.clone(), sources, sources_R, lengths_B)
        self.chosen = Choices.room(AHEAD, rows, weight.device)
        self.scores_RV = torch.empty(0)
        self.beams: dict[tuple, Beams] = {}
        self.graphs: dict[object, Callable[[], None]] = {}

    def score(self) -> None:
        """Scores after the tokens; and the tokens are part of the past."""
        self.scores_RV = self.lowered(self.tokens_R, self.room)
        self.room.lengths_R.add_(1).clamp_(max=self.spare)

    def take_likeliest(self) -> None:
        """The likeliest tokens after the tokens, in their place."""
        scores_RV = self.lowered(self.tokens_R, self.room)
        take_likeliest(scores_RV, self.tokens_R, self.room.lengths_R, self.spare, self.chosen)

    def run(self, name: object, step: Callable[[], None], changing: Sequence[Tensor] = ()) -> None:
        """A step, as a graph where there is a GPU. changing: what else it changes that it reads."""
        if not self.tokens_R.is_cuda:
            return step()
        if name not in self.graphs:
            self.graphs[name] = self.captured(step, changing)
        self.graphs[name]()

    def captured(self, step: Callable[[], None], changing: Sequence[Tensor]) -> Callable[[], None]:
        """A step as a graph. Once outside of it first, and undone: kernels are compiled at their first call."""
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
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        return graph.replay


class Lanes:
    """A decoder's lanes: the last few that were given back can be borrowed again."""

    def __init__(self, lowered: Lowered) -> None:
        self.lowered = lowered
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


class GraphStep(Step):
    """The step of a decoder that has been lowered. The scores it gives are overwritten by those it gives next."""

    def __init__(self, lanes: Lanes, inner: DecoderStep, room: int) -> None:
        """inner: a fresh step of the same decoder, to read the prompt. room: tokens of a row, prompt included."""
        self.lanes, self.inner, self.least = lanes, inner, room
        self.lane: Lane | None = None
        self.rows, self.used = 0, 0  # rows in use, and slots at most
        self.shared = False  # rows share their past, as the table of origins says
        self.release: Callable[[], object] = lambda: None

    @property
    def ahead(self) -> int:
        return self.inner.ahead

    def __call__(self, tokens_BT: Tensor, lengths_B: Tensor | None = None) -> Tensor:
        self.leave()
        return self.inner(tokens_BT, lengths_B)

    def last(self, tokens_BT: Tensor, lengths_B: Tensor | None = None) -> Tensor:
        if tokens_BT.shape[1] != 1 or lengths_B is not None or not self.begun:
            self.leave()
            return self.inner.last(tokens_BT, lengths_B)
        lane = self.with_room()
        self.feed(lane, tokens_BT[:, 0])
        lane.run("score", lane.score)
        self.used += 1
        return lane.scores_RV[: self.rows]

    def likeliest(self, tokens_B: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor] | None:
        if not self.begun:
            return None
        assert count <= AHEAD, "there is no room to write down more"
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
    def begun(self) -> bool:
        return self.lane is not None or self.inner.cache.size > 0

    def extend(
        self,
        searches: Searches,
        tree: Tree,
        ends: Tensor,
        n: int,
        run: int,
        settings: BeamSettings,
        siblings: bool,
    ) -> tuple[Searches, Tensor, Tensor] | None:
        from .beam_graph import extended, suits

        if not self.begun or not suits(settings, searches):
            return None
        return extended(self, searches, tree, ends, n, run, settings, siblings)

    def feed(self, lane: Lane, tokens_B: Tensor) -> None:
        check_rows(len(tokens_B), self.rows, "the step")
        lane.tokens_R[: self.rows] = tokens_B

    # Where things are.

    def with_room(self, count: int = 1) -> Lane:
        """The lane, with so many free slots in every row."""
        if self.lane is None:
            self.enter()
        assert self.lane is not None
        longest = self.inner.decoder.inputs.position.longest
        room = self.lane.spare if longest is None else min(self.lane.spare, longest)
        if self.used + count > room:  # rows may be shorter than they could be: look
            self.used = int(self.lane.room.lengths_R[: self.rows].max())
            self.inner.check_size(self.used + count)
        if self.used + count > self.lane.spare:
            rows = torch.arange(self.rows, device=self.lane.tokens_R.device)
            self.move(rows, max(2 * self.lane.spare, self.used + count))
        return self.lane

    def enter(self) -> None:
        """From the cache of the inner step into a lane."""
        inner, cache = self.inner, self.inner.cache
        lengths_B = cache.lengths()
        self.rows, self.used = len(lengths_B), cache.size
        source = None
        if inner.source_BSD is not None:
            source = inner.source_BSD.shape[0], inner.source_BSD.shape[1]
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
        assert (
            room.sources_R is not None and room.source_lengths_B is not None and inner.source_BSD is not None
        )
        B, S, _ = inner.source_BSD.shape
        for (keys, values), layer in zip(room.sources, inner.cache.layers, strict=True):
            assert layer.source_kv is not None
            keys[:B, :, :S], values[:B, :, :S] = layer.source_kv
        room.sources_R[: self.rows] = torch.arange(B, device=room.sources_R.device)
        positions = inner.source_positions
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

    def move(self, rows: Tensor, slots: int) -> None:
        """Into a lane of so many slots, or within this one: row b is what row rows[b] was, with a past of its own."""
        old = self.lane
        assert old is not None and old.room.origin_RS is not None
        lengths_B, used = old.room.lengths_R[rows], self.used
        cells = old.room.origin_RS[rows, :used].long() if self.shared else rows[:, None].expand(-1, used)
        at = torch.arange(used, device=rows.device)
        kept = [
            tuple(x.transpose(1, 2)[cells, at] for x in kv) for kv in old.room.keys_values
        ]  # [B, used, G, K]
        sources = old.room.sources, old.room.sources_R, old.room.source_lengths_B
        sources_B = None if old.room.sources_R is None else old.room.sources_R[rows]
        same = rounded(len(rows)) == old.rows and slots == old.spare
        if same:
            lane = old
        else:
            release, self.release = self.release, lambda: None  # not to be lent out before it is read
            lane = self.take(len(rows), slots, old.source)
            for (keys, values), (old_keys, old_values) in zip(lane.room.sources, sources[0], strict=True):
                keys.copy_(old_keys)
                values.copy_(old_values)
            assert lane.room.source_lengths_B is not None and sources[2] is not None
            lane.room.source_lengths_B.copy_(sources[2])
            release()
        for (keys, values), (k, v) in zip(lane.room.keys_values, kept, strict=True):
            keys[: len(rows), :, :used] = k.transpose(1, 2)
            values[: len(rows), :, :used] = v.transpose(1, 2)
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

    def leave(self) -> None:
        """Back into the inner step, for more than one token at a time."""
        if self.lane is None:
            return
        self.move(torch.arange(self.rows, device=self.lane.tokens_R.device), self.lane.spare)
        room, cache = self.lane.room, GrowingCache(len(self.lane.room.keys_values))
        lengths_B = room.lengths_R[: self.rows].clone()
        slots_S = torch.arange(self.used, device=lengths_B.device)
        cache.k_pos = torch.where(slots_S < lengths_B[:, None], slots_S, -1)
        there_B1S1 = (cache.k_pos >= 0)[:, None, :, None]  # elsewhere another text may have left NaN
        for layer, kv in zip(cache.layers, room.keys_values, strict=True):
            keys, values = (torch.where(there_B1S1, x[: self.rows, :, : self.used], 0) for x in kv)
            layer.kv = keys, values
        self.inner.fed = self.used
        self.inner.adopt(cache, None if room.sources_R is None else room.sources_R[: self.rows])
        self.release()
        self.lane, self.release = None, lambda: None
