"""GraphStep: a step on a GPU as one captured graph, so that a token costs one launch however many kernels it
takes.

A `GraphRunner` is buffers of fixed size and the graphs that work on them. The prompt is read straight into
its buffers (`prefill.py`). Where it cannot be, `DecoderStep` reads it, and with the first single token its
cache moves into a runner. Runners are kept and lent out again, since capturing takes longer than writing a
sentence.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from ..decode.step import CHUNK, DecoderStep, Step, chunk_of, read_source
from ..models.base.shells import Encoder
from ..parts.cache import GrowingCache, KeysValues, check_rows
from ..parts.multihead import MultiHeadAttention
from ..parts.positions.base import check_length
from .gpu_beam import extended, suits
from .gpu_decoder import GPUDecoder, StepBuffers
from .kernels.beam import Beams
from .kernels.choose import ChosenTokens, take_likeliest
from .prefill import MOST, Prefill, can_prefill, padded_length

if TYPE_CHECKING:
    from ..decode.beam import Rules, Searches
    from ..decode.prefix_tree import PrefixTree

Given = TypeVar("Given")

MULTIPLE = 64  # tokens: runners come in multiples of it, so that few are needed
KEPT = 8  # runners that wait to be borrowed again


def rounded(rows: int) -> int:
    """How many rows the runner for so many has: a power of two, or half as much again."""
    power = 1 << (rows - 1).bit_length()
    return power * 3 // 4 if rows <= power * 3 // 4 and power > 2 else power


@cache
def side_stream(device: torch.device) -> torch.cuda.Stream:
    """Where steps run before they are captured: one for all, since each stream has its own scratch memory."""
    return torch.cuda.Stream(device)


class GraphRunner:
    """Buffers for some texts, and the graphs that give each its next token."""

    def __init__(self, gpu: GPUDecoder, rows: int, slots: int, source: tuple[int, int] | None) -> None:
        """source: how many sources there are, and how long."""
        decoder = gpu.decoder
        weight = decoder.inputs.tokens.weight.detach()
        self.gpu, self.rows, self.slots, self.source = gpu, rows, slots, source
        self.spare = slots - 1  # where rows go on that nobody uses
        self.tokens_R = torch.zeros(rows, dtype=torch.long, device=weight.device)
        own = torch.arange(rows, dtype=torch.int32, device=weight.device)[:, None]
        self.own_RS = own.repeat(1, slots)
        self.past = new_buffers(decoder.attentions(), rows, slots, weight)
        self.sources = None if source is None else new_buffers(decoder.crosses(), *source, weight)
        self.prompts_RS = torch.zeros(rows, slots, dtype=torch.long, device=weight.device)
        self.source_BS = None if source is None else self.prompts_RS.new_zeros(source)
        lengths_R, sources_R = torch.zeros(2, rows, dtype=torch.long, device=weight.device)
        lengths_B = torch.zeros(source[0] if source else 1, dtype=torch.long, device=weight.device)
        past, sources = pairs(self.past), pairs(self.sources)
        heads = max(layer.heads for layer in decoder.attentions())
        ended_RH = torch.zeros(rows, heads, dtype=torch.int32, device=weight.device)
        origin_RS = self.own_RS.clone()
        self.buffers = StepBuffers(lengths_R, past, origin_RS, sources, sources_R, lengths_B, ended_RH)
        self.chosen = ChosenTokens.room(CHUNK, rows, weight.device)
        self.beams: dict[tuple, Beams] = {}
        self.graphs: dict[object, tuple[Callable[[], None], object]] = {}
        self.seen: set[object] = set()  # what has run once, outside of a graph
        self.pool: Any = None  # memory that the graphs share: only one of them runs at a time

    def score(self) -> Tensor:
        """Scores after the tokens, which become part of the past."""
        scores_RV = self.gpu(self.tokens_R, self.buffers)
        self.buffers.lengths_R.add_(1).clamp_(max=self.spare)
        return scores_RV

    def take_likeliest(self) -> None:
        """Put the most likely next tokens in the place of the tokens."""
        scores_RV = self.gpu(self.tokens_R, self.buffers)
        take_likeliest(scores_RV, self.tokens_R, self.buffers.lengths_R, self.spare, self.chosen)

    def run(self, name: object, step: Callable[[], Given], changing: Sequence[Tensor] = ()) -> Given:
        """Run a step, as a graph where there is a GPU. changing: what else it changes that it reads.

        Its result is overwritten when the step runs again.
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
        """The same for a step that changes nothing it reads: as a graph from the second time on.

        Most sizes never come up again, so the first time it runs outside of a graph.
        """
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
        mine = (self.tokens_R, self.buffers.lengths_R, self.buffers.origin_RS, self.chosen.counts_R)
        changing = (*changing, *mine)
        kept = [tensor.clone() for tensor in changing]
        side = side_stream(self.tokens_R.device)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            step()
        torch.cuda.current_stream().wait_stream(side)
        for tensor, before in zip(changing, kept, strict=True):
            tensor.copy_(before)

    def captured(self, step: Callable[[], Given]) -> tuple[Callable[[], None], Given]:
        """A step as a graph, and the tensors that hold its result."""
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
        elsewhere = stream != torch.cuda.default_stream()  # graphs that run at once share no scratch memory
        with torch.cuda.graph(graph, pool=self.pool, stream=stream if elsewhere else None):
            result = step()
        self.pool = graph.pool()
        return graph.replay, result


def new_buffers(layers: Sequence[MultiHeadAttention], rows: int, slots: int, weight: Tensor) -> Tensor:
    """Buffers for keys and values of all layers in one piece, [L, 2, R, G, S, K]: they move in one go."""
    return weight.new_zeros(len(layers), 2, rows, layers[0].kv_heads, slots, layers[0].key_width)


def pairs(whole: Tensor | None) -> list[KeysValues]:
    return [] if whole is None else [(whole[i, 0], whole[i, 1]) for i in range(len(whole))]


class RunnerPool:
    """The runners of a decoder: the last few that were given back can be borrowed again."""

    def __init__(self, gpu: GPUDecoder, encoder: Encoder | None = None) -> None:
        """encoder: reads the sources of a decoder that has them."""
        self.gpu, self.encoder = gpu, encoder
        self.prefill = Prefill(gpu, encoder) if can_prefill(gpu.decoder, encoder) else None
        self.free: list[GraphRunner] = []

    def borrow(self, rows: int, slots: int, source: tuple[int, int] | None) -> GraphRunner:
        """A runner with at least so much room."""
        slots = -(-(slots + 1) // MULTIPLE) * MULTIPLE  # and one to spare
        if source is not None:
            source = rounded(source[0]), -(-source[1] // MULTIPLE) * MULTIPLE
        key = rounded(rows), slots, source
        for runner in self.free:
            if (runner.rows, runner.slots, runner.source) == key:
                self.free = [other for other in self.free if other is not runner]
                return runner
        return GraphRunner(self.gpu, *key)

    def give_back(self, runner: GraphRunner) -> None:
        self.free = [*self.free, runner][-KEPT:]

    def step(
        self, room: int, source_BS: Tensor | None = None, source_lengths_B: Tensor | None = None
    ) -> GraphStep:
        """A fresh step. room: tokens of a row, prompt included. source: what the encoder is to read."""
        return GraphStep(self, room, source_BS, source_lengths_B)


class GraphStep(Step):
    """The step of a GPU decoder. Its scores are overwritten by those of the next call."""

    def __init__(
        self,
        runners: RunnerPool,
        room: int,
        source_BS: Tensor | None = None,
        source_lengths_B: Tensor | None = None,
    ) -> None:
        """room: tokens of a row, prompt included. source: what the encoder is to read."""
        self.runners, self.least = runners, room
        self.source_BS, self.source_lengths_B = source_BS, source_lengths_B
        self.decoder = runners.gpu.decoder
        self.runner: GraphRunner | None = None
        self.rows, self.used = 0, 0  # rows in use, and slots at most
        self.shared = False  # rows share their past, as the table of origins says
        self.release: Callable[[], object] = lambda: None

    @cached_property
    def inner(self) -> DecoderStep:
        """The plain step, for what a runner cannot do. It reads the source by itself."""
        if self.source_BS is None or self.runners.encoder is None:
            return DecoderStep(self.decoder)
        with torch.no_grad():
            source = read_source(self.runners.encoder, self.source_BS, self.source_lengths_B)
        return DecoderStep(self.decoder, source)

    @property
    def chunk(self) -> int:
        return chunk_of(self.decoder)

    @property
    def tokens_left(self) -> int | None:
        longest = self.decoder.inputs.position.longest
        if longest is None or self.runner is None:
            return longest if "inner" not in self.__dict__ else self.inner.tokens_left
        return longest - self.used

    def __call__(self, tokens_BT: Tensor, lengths_B: Tensor | None = None) -> Tensor:
        self.leave()
        return self.inner(tokens_BT, lengths_B)

    def last(self, tokens_BT: Tensor, lengths_B: Tensor | None = None) -> Tensor:
        prefill = self.runners.prefill
        if self.fresh and prefill is not None and prefill.suits(tokens_BT, self.source_BS):
            return self.read(prefill, tokens_BT, lengths_B)
        if tokens_BT.shape[1] != 1 or lengths_B is not None or not self.begun:
            self.leave()
            return self.inner.last(tokens_BT, lengths_B)
        runner = self.with_room()
        self.feed(runner, tokens_BT[:, 0])
        scores_RV = runner.run("score", runner.score)
        self.used += 1
        return scores_RV[: self.rows]

    @torch.no_grad()
    def read(self, prefill: Prefill, tokens_BT: Tensor, lengths_B: Tensor | None) -> Tensor:
        """Read the prompts and their sources into the buffers of a runner."""
        B, T = tokens_BT.shape
        S = 0 if self.source_BS is None else self.source_BS.shape[1]
        runner = self.take(B, max(self.least, T + 1), (B, S) if S else None)
        runner.prompts_RS[:B, :T] = tokens_BT
        runner.buffers.lengths_R.zero_()
        runner.buffers.lengths_R[:B] = T if lengths_B is None else lengths_B
        if self.source_BS is not None:
            assert runner.source_BS is not None
            runner.source_BS[:B, :S] = self.source_BS
            runner.buffers.source_lengths_B.fill_(1)  # rows in use are set below; the others need some length
            runner.buffers.source_lengths_B[:B] = (
                S if self.source_lengths_B is None else self.source_lengths_B
            )
        self.rows, self.used, self.shared = B, T, False
        size = padded_length(T)
        if runner.rows * max(size, 0 if runner.source is None else runner.source[1]) > MOST:
            return prefill(runner, T)[:B]
        return runner.read(("read", size), lambda: prefill(runner, size))[:B]

    def greedy_tokens(self, tokens_B: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor] | None:
        if not self.begun:
            return None
        assert count <= CHUNK, "there is no room to write down more"
        runner = self.with_room(count)
        self.feed(runner, tokens_B)
        runner.chosen.counts_R.zero_()
        for _ in range(count):
            runner.run("most likely", runner.take_likeliest)
        self.used += count
        chosen = runner.chosen
        tokens_NB, log_p_NB, best_NB = (
            x[:count, : self.rows].clone() for x in (chosen.tokens_NR, chosen.log_p_NR, chosen.best_NR)
        )
        return tokens_NB, log_p_NB, best_NB

    @property
    def fresh(self) -> bool:
        """Nothing has been fed, and no row has changed its place."""
        return self.runner is None and "inner" not in self.__dict__

    @property
    def begun(self) -> bool:
        return self.runner is not None or not self.fresh and self.inner.cache.size > 0

    def extend_searches(
        self, searches: Searches, tree: PrefixTree, rules: Rules, n: int, run: int
    ) -> Searches | None:
        if not self.begun or not suits(rules.settings, searches):
            return None
        return extended(self, searches, tree, rules, n, run)

    def feed(self, runner: GraphRunner, tokens_B: Tensor) -> None:
        check_rows(len(tokens_B), self.rows, "the step")
        runner.tokens_R[: self.rows] = tokens_B

    # Where things are.

    def with_room(self, count: int = 1) -> GraphRunner:
        """The runner, with so many free slots in every row."""
        if self.runner is None:
            self.enter()
        assert self.runner is not None
        longest = self.decoder.inputs.position.longest
        room = self.runner.spare if longest is None else min(self.runner.spare, longest)
        if self.used + count > room:  # rows may be shorter than they could be: look
            self.used = int(self.runner.buffers.lengths_R[: self.rows].max())
            check_length(self.used + count, self.decoder.inputs.position)
        if self.used + count > self.runner.spare:
            rows = torch.arange(self.rows, device=self.runner.tokens_R.device)
            self.move(rows, max(2 * self.runner.spare, self.used + count))
        return self.runner

    @torch.no_grad()
    def enter(self) -> None:
        """Move the cache of the inner step into a runner."""
        inner, cache = self.inner, self.inner.cache
        lengths_B = cache.lengths()
        self.rows, self.used = len(lengths_B), cache.size
        source = None
        if inner.source is not None:
            source = inner.source.vectors_BSD.shape[0], inner.source.vectors_BSD.shape[1]
        runner = self.take(self.rows, max(self.least, self.used + 1), source)
        places_BS = torch.arange(self.used, device=lengths_B.device) if cache.k_pos is None else cache.k_pos
        at_B1S1 = torch.where(places_BS >= 0, places_BS, runner.spare).expand(self.rows, -1)[:, None, :, None]
        for (keys, values), layer in zip(runner.buffers.keys_values, cache.layers, strict=True):
            assert layer.kv is not None
            for into, kept in zip((keys, values), layer.kv, strict=True):
                into[: self.rows].scatter_(2, at_B1S1.expand_as(kept), kept.to(into.dtype))  # autocast's
        self.used = min(self.used, int(lengths_B.max()))
        self.set_rows(runner, lengths_B)
        if source is not None:
            self.read_source(runner)
        inner.cache = inner.decoder.growing_cache()  # its memory is not needed twice

    def read_source(self, runner: GraphRunner) -> None:
        """Copy keys and values of the sources, and which row reads which."""
        inner, buffers = self.inner, runner.buffers
        assert inner.source is not None
        B, S, _ = inner.source.vectors_BSD.shape
        for (keys, values), layer in zip(buffers.sources, inner.cache.layers, strict=True):
            assert layer.source_kv is not None
            keys[:B, :, :S], values[:B, :, :S] = layer.source_kv
        buffers.sources_R[: self.rows] = torch.arange(B, device=buffers.sources_R.device)
        positions = inner.source.positions
        buffers.source_lengths_B[:B] = S if positions is None else (positions >= 0).sum(-1)

    def take(self, rows: int, slots: int, source: tuple[int, int] | None) -> GraphRunner:
        self.release()
        runner = self.runners.borrow(rows, slots, source)
        self.runner, self.release = runner, weakref.finalize(self, self.runners.give_back, runner)
        return runner

    def set_rows(self, runner: GraphRunner, lengths_B: Tensor) -> None:
        """Give each row its own past; rows not in use have none."""
        runner.buffers.lengths_R.zero_()
        runner.buffers.lengths_R[: len(lengths_B)] = lengths_B
        runner.buffers.origin_RS.copy_(runner.own_RS)
        self.rows, self.shared = len(lengths_B), False

    # Rows change places.

    def reorder(self, rows: Tensor, siblings: bool = False) -> None:
        if not self.begun:
            return self.inner.reorder(rows)
        if self.runner is None:
            self.enter()
        assert self.runner is not None
        if siblings and len(rows) == self.rows:
            self.trade(rows)
        else:
            self.move(rows, self.runner.spare)

    def trade(self, rows: Tensor) -> None:
        """Let rows of equal length take over each other's past: it stays where it is; a table says where."""
        assert self.runner is not None
        origin_RS, own_RS = self.runner.buffers.origin_RS, self.runner.own_RS
        R = self.rows
        past_RS = (
            torch.arange(self.runner.slots, device=rows.device) < self.runner.buffers.lengths_R[:R, None]
        )
        origin_RS[:R] = torch.where(past_RS, origin_RS[rows], own_RS[:R])
        self.shared = True

    @torch.no_grad()
    def move(self, rows: Tensor, slots: int) -> None:
        """Make row b what row rows[b] was, with its own past, in this runner or in one of so many slots."""
        old = self.runner
        assert old is not None
        lengths_B, past = old.buffers.lengths_R[rows], old.past[..., : self.used, :]
        if self.shared:
            cells_BS = old.buffers.origin_RS[rows, : self.used].long()
            at_S = torch.arange(self.used, device=rows.device)
            kept = past.transpose(3, 4)[:, :, cells_BS, at_S].transpose(3, 4)
        else:
            kept = past.index_select(2, rows)
        sources_B = None if old.sources is None else old.buffers.sources_R[rows]
        if rounded(len(rows)) == old.rows and slots == old.spare:
            runner = old
        else:
            release, self.release = self.release, lambda: None  # not to be lent out before it is read
            runner = self.take(len(rows), slots, old.source)
            if runner.sources is not None and old.sources is not None:
                runner.sources.copy_(old.sources)
                runner.buffers.source_lengths_B.copy_(old.buffers.source_lengths_B)
            release()
        runner.past[:, :, : len(rows), :, : self.used] = kept
        if sources_B is not None:
            runner.buffers.sources_R[: len(rows)] = sources_B
        self.set_rows(runner, lengths_B)

    def rewind(self, lengths_B: Tensor) -> None:
        if self.runner is None:
            self.inner.rewind(lengths_B)
        else:
            if self.shared:  # what one row writes anew may be another's past
                self.move(torch.arange(self.rows, device=lengths_B.device), self.runner.spare)
            lengths_R = self.runner.buffers.lengths_R[: self.rows]
            lengths_R.copy_(torch.minimum(lengths_R, lengths_B))

    @torch.no_grad()
    def leave(self) -> None:
        """Go back into the inner step, for more than one token at a time."""
        if self.runner is None:
            return
        if self.shared:
            self.move(torch.arange(self.rows, device=self.runner.tokens_R.device), self.runner.spare)
        runner, cache = self.runner, self.decoder.growing_cache()
        lengths_B = runner.buffers.lengths_R[: self.rows].clone()
        slots_S = torch.arange(self.used, device=lengths_B.device)
        cache.k_pos = torch.where(slots_S < lengths_B[:, None], slots_S, -1)
        there_B1S1 = (cache.k_pos >= 0)[:, None, :, None]  # elsewhere another text may have left NaN
        kept = torch.where(there_B1S1, runner.past[:, :, : self.rows, :, : self.used], 0)
        for layer, kv in zip(cache.layers, pairs(kept), strict=True):
            layer.kv = kv
        self.inner.fed = self.used
        self.inner.adopt(cache, None if runner.sources is None else self.sources_of(runner, cache))
        self.release()
        self.runner, self.release = None, lambda: None

    def sources_of(self, runner: GraphRunner, cache: GrowingCache) -> Tensor:
        """Put the sources' keys and values into the cache; which source each row has comes back."""
        assert runner.sources is not None and self.inner.source is not None
        rows = runner.buffers.sources_R[: self.rows].clone()
        S = self.inner.source.vectors_BSD.shape[1]
        for layer, kv in zip(cache.layers, pairs(runner.sources[:, :, rows, :, :S]), strict=True):
            layer.source_kv = kv
        return rows
