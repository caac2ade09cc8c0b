"""Slots on a GPU: rows that join and leave a batch that is stepped by CUDA graphs (`lane`).

Prompts are read while the others are written (`prompt_reader`), and their keys and values are copied to a
free place of the lane. The host looks at tokens one step late: when it is told what a step wrote, the device
is at work on the next one, and what that one writes in a row which is over by then is thrown away.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..decode.choices import fault_of
from ..decode.filters import Context
from ..decode.prompts import pad
from ..decode.scores import NEVER, precise
from ..decode.slots import News, Row, Slots, failed, final_length
from ..decode.step import DecoderStep
from ..decode.streaming import HostCopy, to_device
from ..parts.cache import GrowingCache
from .lane import FEWEST_SLOTS, Lane, keys_values, lane_size, power, step_size
from .prompt_reader import PromptReader, ReadPrompts
from .row_choice import K, RowChoice, TokenChooser

if TYPE_CHECKING:
    from .decoding import FastModel

PREFILL = 2048  # tokens of prompts that are read between two steps
PATIENCE = 8  # steps for which a prompt may wait for others, to be read with them
SWEEP = 16  # steps after which places that are free are told so: until then they cost what a row costs
new_tuple = tuple.__new__  # at half the cost of `News(...)`
MANY_SLOTS = 1024  # a longer lane is given up when nobody is in it


@dataclass(eq=False)
class Seat:
    """A row that has a place in the lane."""

    chooser: TokenChooser
    place: int
    offset: int  # its tokens, prompt included, less the steps that all rows have been given

    @property
    def row(self) -> Row:
        return self.chooser.row


@dataclass(frozen=True)
class Sent:
    """Tokens on their way to the host: of which rows, and where each of these stands."""

    rows: Sequence[Row]
    places: Sequence[int]
    chosen: HostCopy
    top: HostCopy | None  # the most likely tokens of some rows
    top_rows: Sequence[Row]
    wrong: Mapping[Row, Exception]  # rows whose filters have failed


class LaneRows:
    """The rows of a lane, and what does not change as long as nobody joins or leaves."""

    def __init__(self, seats: Sequence[Seat], device: torch.device) -> None:
        self.rows, self.places = [seat.chooser.row for seat in seats], [seat.place for seat in seats]
        self.size = step_size(1 + max(self.places))
        self.offset = max([seat.offset for seat in seats])
        varied = [seat for seat in seats if not seat.chooser.plain]
        common = [seat for seat in varied if not seat.chooser.first]
        special = [seat for seat in varied if seat.chooser.first]
        self.kinds = frozenset().union(*(seat.chooser.kinds for seat in common))
        self.k = power(max(int(seat.chooser.how[K]) for seat in common), 16) if "TopK" in self.kinds else 0
        self.drawing = [seat for seat in common if seat.chooser.rolls is not None]
        self.special = SpecialRows(special, device) if special else None
        self.top = [seat for seat, row in zip(seats, self.rows, strict=True) if row.top]


class SpecialRows:
    """Rows whose filters look at what was written before: their tokens are chosen outside of the graph."""

    def __init__(self, seats: Sequence[Seat], device: torch.device) -> None:
        self.choice = RowChoice([seat.chooser for seat in seats], device)
        places = [[seat.place, len(seat.row.prompt)] for seat in seats]
        self.places_N, self.prompts_N = to_device(torch.tensor(places), device).T

    def choose(self, lane: Lane, scores_NV: Tensor, longest: int) -> dict[Row, Exception]:
        """Choose their next tokens; what failed comes back. longest: tokens of the longest."""

        def context(some_M: Tensor | None) -> Context:
            if some_M is None:
                return lane.context(self.places_N, self.prompts_N, longest)
            return lane.context(self.places_N[some_M], self.prompts_N[some_M], longest)

        *chosen, wrong = self.choice(scores_NV, context)
        lane.choose(self.places_N, *chosen)
        if self.choice.groups:
            lane.remember(self.places_N, chosen[0])
        return {self.choice.choosers[n].row: error for n, error in wrong.items()}


class GPUSlots(Slots):
    """Slots for a model with decoding kernels. News come one turn late."""

    def __init__(self, fast: FastModel, prefill: int = PREFILL, most_bytes: int | None = None) -> None:
        assert fast.runners is not None
        super().__init__(fast.model, prefill, most_bytes)
        self.gpu, self.reader = fast.runners.gpu, PromptReader(fast.runners.gpu, fast.runners.encoder)
        self.waited = 0  # turns since prompts might have been read
        self.steps = 0  # that the device was given
        self.unfinished: set[Row] = set()  # rows that are being read or written
        self.empty()

    @property
    def busy(self) -> bool:
        return bool(self.unfinished or self.waiting or self.refused)

    @property
    def bytes(self) -> int:
        return 0 if self.lane is None else self.lane.bytes

    @torch.no_grad()
    def warm_up(self, rows: int) -> None:
        """Compile kernels and capture graphs, by writing short texts in all numbers of rows."""
        source = [0] * 9 if self.reader.runners.encoder is not None else None
        sizes = sorted({min(step_size(n), rows) for n in range(rows, 0, -1)}, reverse=True)
        for size in [*sizes, *sizes]:  # prompts are read by graphs from the second time on
            self.add([Row([0] * (9 if source is None else 1), 2, source=source) for _ in range(size)])
            while self.busy:
                self.turn()

    def remove(self, row: Row) -> None:
        if row in self.unfinished:
            self.unfinished.remove(row)
            if row in self.seats:
                self.leave_seat(self.seats[row])
        else:
            super().remove(row)

    def empty(self) -> list[Row]:
        rows, self.unfinished = list(self.unfinished), set()
        self.lane: Lane | None = None
        self.arriving: ReadPrompts | None = None  # prompts that the device is reading
        self.seats: dict[Row, Seat] = {}
        self.batch: LaneRows | None = None  # of these; None: make it anew
        self.free: list[int] = []  # places, as a heap
        self.due: dict[int, list[Seat]] = defaultdict(list)  # whose last token a step writes
        self.sent: list[Sent] = []
        return rows

    # Memory.

    def bytes_for(self, rows: Sequence[Row]) -> int:
        return self.size_of(*lane_shape(rows, final_length))

    def with_room(self) -> list[Row]:
        if self.most_bytes is None:
            return self.waiting
        some: list[Row] = []
        longest = max(map(final_length, self.unfinished), default=0)
        source = max((len(row.source or ()) for row in self.unfinished), default=0)
        for rows, row in enumerate(self.waiting, len(self.unfinished) + 1):
            longest, source = max(longest, final_length(row)), max(source, len(row.source or ()))
            shape = shape_for(rows, longest, source)
            if self.lane is not None and self.seats:
                shape = larger(shape, self.lane.shape)
            if self.size_of(*shape) > self.most_bytes:
                break
            some.append(row)
        return some

    def size_of(self, rows: int, slots: int, source_slots: int) -> int:
        """The memory of a lane's keys and values."""
        return rows * (slots * self.token_bytes + source_slots * self.source_token_bytes)

    # Prompts.

    def read(self) -> list[News]:
        arriving = self.arriving
        if arriving is not None:
            if self.seats and not arriving.ready:
                return []
            return self.arrive(arriving)  # others next time: the host must not keep the device waiting
        if self.waiting and not self.reading and self.better_later():
            return []
        news = super().read()
        if self.arriving is not None and not self.seats:
            news += self.arrive(self.arriving)
        return news

    def better_later(self) -> bool:
        """Whether a few prompts should wait for others: reading one takes as long as reading several."""
        tokens = sum(len(row.prompt) + len(row.source or ()) for row in self.waiting)
        soon = 16 * len(self.waiting) >= len(self.seats) or tokens >= self.prefill or self.waited >= PATIENCE
        self.waited = 0 if soon else self.waited + 1
        return not soon

    def read_whole(self, some: list[Row]) -> list[News]:
        self.arriving = self.reader.read(some)
        if self.arriving is None:
            return super().read_whole(some)
        self.unfinished.update(some)
        return []

    def arrive(self, read: ReadPrompts) -> list[News]:
        """Let rows join whose prompts the device has read."""
        self.arriving = None
        try:
            with self.reader.handing_over(read):
                self.sit_down(read.rows, read.past, read.sources, read.scores_NV, read.chosen_3N)
        except Exception as error:  # noqa: BLE001  no memory for them, for example
            rows = [row for row in read.rows if row in self.unfinished]
            self.unfinished.difference_update(rows)
            return [failed(row, error) for row in rows]
        for row in read.rows:
            if row not in self.unfinished and row in self.seats:  # it was removed meanwhile
                self.leave_seat(self.seats[row])
        return []

    def join(self, some: list[Row], step: DecoderStep, scores_BV: Tensor) -> list[News]:
        assert isinstance(step.cache, GrowingCache)
        self.unfinished.update(some)
        self.sit_down(some, *keys_values(step.cache), scores_BV, None)
        return []

    def sit_down(
        self,
        some: Sequence[Row],
        past: Tensor,
        sources: Tensor | None,
        scores_NV: Tensor,
        chosen_3N: Tensor | None,
    ) -> None:
        """Give rows whose prompts were read a place, and choose their first tokens.

        chosen: the most likely ones, if they are known.
        """
        lane = self.lane_for(some)
        lengths, sizes = [len(row.prompt) for row in some], [len(row.source or ()) for row in some]
        choosers, places = [TokenChooser(row) for row in some], [heapq.heappop(self.free) for _ in some]
        seats = [
            Seat(one, place, length + 1 - self.steps)
            for one, place, length in zip(choosers, places, lengths, strict=True)
        ]
        given = [places, [0] * len(some), lengths, [1] * len(some), [max(1, size) for size in sizes]]
        places_N, *_ = columns_5N = to_device(torch.tensor(given), self.device)
        if chosen_3N is not None:
            columns_5N[1] = chosen_3N[0]
            lane.chosen_3R.index_copy_(1, places_N, chosen_3N)
        own = past[:, :, : len(some), :, : max(lengths)]
        lane.put(
            places_N,
            columns_5N[1:],
            own,
            None if sources is None else sources[:, :, : len(some), :, : max(sizes)],
        )
        plain, wrong = all(one.plain for one in choosers), {}
        if lane.varied or not plain:
            lane.set_how(places_N, [one.how for one in choosers])
        if not plain or chosen_3N is None:
            prompts_NT = pad([row.prompt for row in some])[0]
            lane.history_RS[:, : max(lengths)].index_copy_(0, places_N, to_device(prompts_NT, self.device))
            wrong = SpecialRows(seats, self.device).choose(lane, scores_NV, max(lengths))
        top = [n for n, row in enumerate(some) if row.top]
        self.send(some, places, [seats[n] for n in top], scores_NV, top, wrong)
        for seat in seats:
            self.seats[seat.row], seat.row.written = seat, 0
            if seat.row.longest == 1:
                self.leave_seat(seat)
            else:
                self.due[self.steps + seat.row.longest - 2].append(seat)
        self.batch = None

    def lane_for(self, some: Sequence[Row]) -> Lane:
        """The lane, with a free place for each of these rows, and room for what they begin with."""
        _, slots, source_slots = lane_shape(some, lambda row: len(row.prompt) + 1)
        shape = lane_size(len(self.seats) + len(some)), slots, source_slots
        if self.lane is not None and not self.seats and self.most_bytes is not None:
            fits = self.size_of(*larger(shape, self.lane.shape)) <= self.most_bytes
            self.lane = self.lane if fits else None
        before = 0 if self.lane is None else self.lane.rows
        self.free = self.free if self.lane is not None else []
        self.lane = Lane(self.gpu, *shape) if self.lane is None else self.lane.grown(*shape)
        for place in range(before, self.lane.rows):
            heapq.heappush(self.free, place)
        return self.lane

    # Tokens.

    def write(self) -> list[News]:
        """Give the device the next step, and report what was written in the one before."""
        arrived, self.sent = self.sent, []
        if self.seats:
            self.step()
        return [news for sent in arrived for news in self.report(sent)]

    def step(self) -> None:
        """One token more in every row that has a place."""
        assert self.lane is not None
        if self.batch is None:
            self.close_up()
            self.batch = LaneRows(list(self.seats.values()), self.device)
        batch, wrong = self.batch, {}
        longest = batch.offset + self.steps
        if longest > self.lane.room:
            self.lane = self.lane.grown(0, power(longest + 2, FEWEST_SLOTS), 0)
        if not self.steps % SWEEP and self.free:
            self.lane.free(self.free)
        if batch.drawing:
            heights = [0.0] * batch.size
            for seat in batch.drawing:
                heights[seat.place] = seat.chooser.roll()
            self.lane.set_heights(heights)
        scores_RV = self.lane.step(batch.size, batch.kinds, batch.k)
        if batch.special is not None:
            wrong = batch.special.choose(self.lane, scores_RV[batch.special.places_N], longest)
        self.send(batch.rows, batch.places, batch.top, scores_RV, [seat.place for seat in batch.top], wrong)
        for seat in self.due.pop(self.steps, ()):
            if self.seats.get(seat.row) is seat:
                self.leave_seat(seat)
        self.steps += 1

    def close_up(self) -> None:
        """Let rows move to the front where that makes a step smaller."""
        assert self.lane is not None
        size = step_size(len(self.seats))
        far = [seat for seat in self.seats.values() if seat.place >= size]
        for seat in far:
            to = heapq.heappop(self.free)
            self.lane.move(seat.place, to, seat.offset + self.steps)
            heapq.heappush(self.free, seat.place)
            seat.place = to

    def send(
        self,
        rows: Sequence[Row],
        places: Sequence[int],
        top: Sequence[Seat],
        scores_NV: Tensor,
        at: Sequence[int],
        wrong: Mapping[Row, Exception],
    ) -> None:
        """Let what was chosen come to the host. top: rows whose most likely tokens come too, `at` these."""
        assert self.lane is not None
        likeliest = None
        if top:
            k = min(max(seat.row.top for seat in top), scores_NV.shape[1])
            log_p_MV = precise(scores_NV[to_device(torch.tensor(at), self.device)]).log_softmax(-1)
            values_MK, tokens_MK = log_p_MV.topk(k)
            likeliest = HostCopy(tokens_MK, values_MK)
        top_rows = [seat.row for seat in top]
        self.sent.append(Sent(rows, places, self.lane.chosen(), likeliest, top_rows, wrong))

    def leave_seat(self, seat: Seat) -> None:
        """Take a row out of the lane."""
        assert self.lane is not None
        del self.seats[seat.row]
        self.batch = None
        heapq.heappush(self.free, seat.place)
        if not self.seats and self.lane.slots > MANY_SLOTS:
            self.lane, self.free = None, []

    def report(self, sent: Sent) -> list[News]:
        """What was written in rows that are not over."""
        tokens, log_ps, bests = sent.chosen.wait()[0].tolist()
        tops = {} if sent.top is None else likeliest_of(sent.top, sent.top_rows)
        news, unfinished, wrong = list[News](), self.unfinished, sent.wrong
        for row, place in zip(sent.rows, sent.places, strict=True):
            if row not in unfinished:
                continue
            if wrong or not bests[place] > NEVER:
                fault = wrong.get(row) or fault_of(bests[place])
                if fault is not None:
                    news.append(failed(row, fault))
                    self.remove(row)
                    continue
            token, written = int(tokens[place]), row.written + 1
            row.written, ended = written, token in row.ends
            last, top = ended or written >= row.longest, tops.get(row, ())
            news.append(new_tuple(News, (row, token, log_ps[place], top, ended, last, "", None)))
            if last:
                self.remove(row)
        return news


Shape = tuple[int, int, int]  # rows, slots, slots of sources


def larger(one: Shape, other: Shape) -> Shape:
    return max(one[0], other[0]), max(one[1], other[1]), max(one[2], other[2])


def lane_shape(rows: Sequence[Row], length: Callable[[Row], int]) -> Shape:
    """The shape of a lane for rows of these lengths."""
    return shape_for(len(rows), max(map(length, rows)), max(len(row.source or ()) for row in rows))


def shape_for(rows: int, longest: int, source: int) -> Shape:
    """The shape of a lane for so many rows, of which the longest has so many tokens, and its source."""
    return lane_size(rows), power(longest + 2, FEWEST_SLOTS), power(source, 64) if source else 0


def likeliest_of(top: HostCopy, rows: Sequence[Row]) -> dict[Row, tuple[tuple[int, float], ...]]:
    """The most likely tokens that each row wants to know, with their log-probabilities."""
    tokens, values = (column.tolist() for column in top.wait())
    return {
        row: tuple((int(token), value) for token, value in zip(*pair, strict=True))[: row.top]
        for row, *pair in zip(rows, tokens, values, strict=True)
    }
