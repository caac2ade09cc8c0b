"""A lane: keys and values of rows that come and go, in buffers of fixed size, stepped by one CUDA graph.

Each row has a place and its own length. A step writes one token in every row of the first few places; what
it costs depends on how many, so rows stand as far in front as they can, and there is a graph for each of a
few sizes. Tokens are chosen on the device: the most likely, or one drawn after temperature, top-k and others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from ..decode.filters import Context, left_padded
from ..decode.sampling import draw
from ..decode.scores import argmax, log_probability
from ..decode.streaming import HostCopy, to_device
from ..parts.cache import GrowingCache
from .cuda_graph import GraphRunner
from .gpu_decoder import GPUDecoder, StepBuffers
from .kernels.choose import ChosenTokens, take_likeliest
from .row_choice import DRAWN, HEIGHT, NEUTRAL, Cut

FEWEST_SLOTS = 256  # of a row


def step_size(rows: int) -> int:
    """How many places a step for so many rows has: 1, 4, 8, 16, 32 and so on."""
    return 1 if rows == 1 else max(4, 1 << (rows - 1).bit_length())


def lane_size(rows: int) -> int:
    """How many places a lane for so many rows has: 8, 64, 128 and so on, so that it seldom grows."""
    return 8 if rows <= 8 else max(64, step_size(rows))


def power(size: int, least: int) -> int:
    """The next power of two, from `least` on."""
    return max(least, 1 << (size - 1).bit_length())


class Lane:
    """Rows in buffers of fixed size. Nothing here waits for the device."""

    def __init__(self, gpu: GPUDecoder, rows: int, slots: int, source_slots: int = 0) -> None:
        """source_slots: how long a source may be; 0 without an encoder."""
        self.gpu, self.rows, self.slots, self.source_slots = gpu, rows, slots, source_slots
        self.runner = GraphRunner(gpu, rows, slots, (rows, source_slots) if source_slots else None)
        device = self.runner.tokens_R.device
        # The newest token of each row, the tokens before it, whether anybody reads it, the source's tokens.
        self.columns_4R = torch.zeros(4, rows, dtype=torch.long, device=device)
        self.columns_4R[3] = 1
        self.tokens_R, self.lengths_R, self.used_R, source_lengths_R = self.columns_4R
        self.chosen_3R = torch.zeros(3, rows, dtype=torch.float64, device=device)
        self.how_6R = torch.tensor(NEUTRAL, dtype=torch.float64, device=device)[:, None].repeat(1, rows)
        self.varied = False  # some row has had filters or dice
        self.history_RS = self.runner.prompts_RS  # tokens of rows whose filters look at them
        self.buffers = replace(
            self.runner.buffers,
            lengths_R=self.lengths_R,
            sources_R=torch.arange(rows, device=device),
            source_lengths_B=source_lengths_R,
        )

    @property
    def bytes(self) -> int:
        """Memory of keys and values."""
        sources = self.runner.sources
        return self.runner.past.nbytes + (0 if sources is None else sources.nbytes)

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.rows, self.slots, self.source_slots

    @property
    def device(self) -> torch.device:
        return self.used_R.device

    @property
    def room(self) -> int:
        """Tokens that a row can have: the last slot is for rows that nobody reads."""
        return self.slots - 1

    # A step.

    def step(self, rows: int, kinds: frozenset[str] = frozenset(), k: int = 0) -> Tensor:
        """A token more in each of the first rows; scores [rows, V] until the next step.

        kinds: which filters there are among them, and whether any row draws. k: of top-k, at most.
        """
        changing = self.columns_4R, self.chosen_3R
        return self.runner.run((rows, kinds, k), lambda: self.advance(rows, kinds, k), changing)

    def advance(self, rows: int, kinds: frozenset[str], k: int) -> Tensor:
        """What a step does on the device. The length of a row that nobody reads stays 0."""
        tokens_R, lengths_R = self.tokens_R[:rows], self.lengths_R[:rows]
        scores_RV = self.gpu(tokens_R, first_rows(self.buffers, rows))
        if not kinds:
            counts_R = self.runner.chosen.counts_R[:rows]
            chosen_31R = self.chosen_3R[:, None, :rows]
            chosen = ChosenTokens(chosen_31R[0], chosen_31R[1], chosen_31R[2], counts_R)
            take_likeliest(scores_RV, tokens_R, lengths_R, self.room, chosen)
            counts_R.zero_()
        else:
            allowed_RV = Cut(self.how_6R[:, :rows, None], kinds, k)(scores_RV)
            drawn_R = draw(allowed_RV.double().softmax(-1), self.how_6R[HEIGHT, :rows])
            chosen_R = torch.where(self.how_6R[DRAWN, :rows] > 0, drawn_R, argmax(allowed_RV))
            log_p_R = log_probability(scores_RV, chosen_R)
            for into, new_R in zip(self.chosen_3R, (chosen_R, log_p_R, allowed_RV.amax(-1)), strict=True):
                into[:rows] = new_R
            tokens_R.copy_(chosen_R)
            lengths_R.add_(1).clamp_(max=self.room)
        lengths_R.mul_(self.used_R[:rows])
        return scores_RV

    def choose(self, places_N: Tensor, tokens_N: Tensor, log_p_N: Tensor, best_N: Tensor) -> None:
        """Let these be the newest tokens of rows, with their log-probabilities and scores."""
        self.tokens_R.index_copy_(0, places_N, tokens_N)
        chosen_3N = torch.stack([x.double() for x in (tokens_N, log_p_N, best_N)])
        self.chosen_3R.index_copy_(1, places_N, chosen_3N)

    def chosen(self) -> HostCopy:
        """The newest tokens, their log-probabilities and scores, [3, rows], on their way to the host."""
        return HostCopy(self.chosen_3R if self.chosen_3R.is_cuda else self.chosen_3R.clone())

    # How rows choose.

    def set_how(self, places_N: Tensor, how: Sequence[Sequence[float]]) -> None:
        """The numbers of rows' temperature, top-k and the like."""
        how_N6 = torch.tensor(how, dtype=torch.float64)
        self.how_6R.index_copy_(1, places_N, to_device(how_N6, self.device).T)
        self.varied = True

    def set_heights(self, heights: Sequence[float]) -> None:
        """What the dice of the first rows show."""
        heights_R = to_device(torch.tensor(heights, dtype=torch.float64), self.device)
        self.how_6R[HEIGHT, : len(heights)] = heights_R

    # What rows have written, for filters.

    def context(self, places_N: Tensor, prompts_N: Tensor, longest: int) -> Context:
        """The tokens of rows. prompts: how many of them are the prompt. longest: tokens of the longest row.

        To its filters every row is the only one of its batch.
        """
        lengths_N = self.lengths_R[places_N]
        tokens_NT = left_padded(self.history_RS[places_N, :longest], lengths_N)
        return Context(tokens_NT, lengths_N - prompts_N, torch.zeros_like(lengths_N), 1)

    def remember(self, places_N: Tensor, tokens_N: Tensor) -> None:
        """Add the newest tokens of rows to what their filters look at."""
        self.history_RS[places_N, self.lengths_R[places_N]] = tokens_N

    # Rows come and go.

    def put(self, places_N: Tensor, columns_4N: Tensor, past: Tensor, sources: Tensor | None) -> None:
        """Copy rows in. past and sources: their keys and values, [layers, 2, N, heads, tokens, width]."""
        T, own = past.shape[4], self.runner.past
        own[..., :T, :].index_copy_(2, places_N, past.to(own.dtype))
        if sources is not None and self.runner.sources is not None:
            S, own = sources.shape[4], self.runner.sources
            own[..., :S, :].index_copy_(2, places_N, sources.to(own.dtype))
        self.columns_4R.index_copy_(1, places_N, columns_4N)

    def free(self, places: Sequence[int]) -> None:
        """Nobody reads these rows any more."""
        self.used_R.index_fill_(0, to_device(torch.tensor(places), self.device), 0)

    def move(self, place: int, to: int, size: int) -> None:
        """Let a row of so many tokens stand elsewhere."""
        runner = self.runner
        runner.past[:, :, to, :, :size] = runner.past[:, :, place, :, :size]
        if runner.sources is not None:
            runner.sources[:, :, to] = runner.sources[:, :, place]
        for columns in (self.columns_4R, self.how_6R):
            columns[:, to] = columns[:, place]
        self.history_RS[to, :size] = self.history_RS[place, :size]

    def grown(self, rows: int, slots: int, source_slots: int) -> Lane:
        """A lane with the same rows and at least so much room; this one, if it has it."""
        shape = max(rows, self.rows), max(slots, self.slots), max(source_slots, self.source_slots)
        if shape == self.shape:
            return self
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)  # its graphs are about to go
        other = Lane(self.gpu, *shape)
        other.runner.past[:, :, : self.rows, :, : self.slots] = self.runner.past
        other.history_RS[: self.rows, : self.slots] = self.history_RS
        if self.runner.sources is not None and other.runner.sources is not None:
            other.runner.sources[:, :, : self.rows, :, : self.source_slots] = self.runner.sources
        other.varied = self.varied
        other.columns_4R[:, : self.rows], other.how_6R[:, : self.rows] = self.columns_4R, self.how_6R
        return other


def first_rows(buffers: StepBuffers, rows: int) -> StepBuffers:
    """The buffers of the first rows alone. A source is named by its place, so all of them stay."""
    return replace(
        buffers,
        lengths_R=buffers.lengths_R[:rows],
        keys_values=[(k[:rows], v[:rows]) for k, v in buffers.keys_values],
        origin_RS=buffers.origin_RS[:rows],
        sources_R=buffers.sources_R[:rows],
    )


def keys_values(cache: GrowingCache) -> tuple[Tensor, Tensor | None]:
    """The keys and values of a cache as `Lane.put` takes them: of its own tokens, and of its sources."""
    own = [torch.stack(layer.kv) for layer in cache.layers if layer.kv is not None]
    sources = [torch.stack(layer.source_kv) for layer in cache.layers if layer.source_kv is not None]
    return torch.stack(own), torch.stack(sources) if sources else None
