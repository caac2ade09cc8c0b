"""Short prompts and their sources, read by graphs of few sizes on a stream of their own.

Reading a few prompts is hundreds of small kernels, of which a GPU can do some while it writes in other rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from ..decode.prompts import pad
from ..decode.slots import Row
from ..decode.streaming import to_device
from ..models.base.shells import Encoder
from .cuda_graph import GraphRunner, RunnerPool
from .gpu_decoder import GPUDecoder
from .kernels.choose import ChosenTokens, take_likeliest
from .lane import power
from .prefill import MOST


@dataclass(frozen=True)
class ReadPrompts:
    """Rows whose prompts are being read, and what will be known of them."""

    rows: Sequence[Row]
    runner: GraphRunner
    scores_NV: Tensor
    chosen_3N: Tensor  # the most likely first tokens, their log-probabilities and scores
    done: torch.cuda.Event | None

    @property
    def ready(self) -> bool:
        """Whether the device has read them."""
        return self.done is None or self.done.query()

    @property
    def past(self) -> Tensor:
        return self.runner.past

    @property
    def sources(self) -> Tensor | None:
        return self.runner.sources


class PromptReader:
    """Reads prompts, some at a time: these must be handed over before the next ones are read."""

    def __init__(self, gpu: GPUDecoder, encoder: Encoder | None) -> None:
        self.runners = RunnerPool(gpu, encoder)  # its own: they are used on another stream
        self.device = gpu.device
        self.stream = torch.cuda.Stream(self.device) if self.device.type == "cuda" else None
        self.handed_over: torch.cuda.Event | None = None

    @torch.no_grad()
    def read(self, rows: Sequence[Row]) -> ReadPrompts | None:
        """Begin to read prompts; None if they must be read in another way."""
        prompts_NT, lengths_N = pad([row.prompt for row in rows])
        sources = [row.source for row in rows if row.source is not None]
        source_NS, source_lengths_N = pad(sources) if sources else (None, None)
        if self.runners.prefill is None or not self.runners.prefill.suits(prompts_NT, source_NS):
            return None
        (N, T), S = prompts_NT.shape, 0 if source_NS is None else source_NS.shape[1]
        R, T_padded, S_padded = reading_size(N), 1 if T == 1 else power(T, 16), power(S, 64) if S else 0
        if R * max(T_padded, S_padded) > MOST:
            return None
        runner = self.runners.borrow(R, T_padded, (R, S_padded) if S else None)
        with nullcontext() if self.stream is None else torch.cuda.stream(self.stream):
            self.wait(new=("read", T_padded) not in runner.graphs)
            self.fill(runner, prompts_NT, lengths_N, source_NS, source_lengths_N)
            scores_RV, chosen_3R = runner.read(("read", T_padded), lambda: self.scores(runner, T_padded))
            done = None if self.stream is None else self.stream.record_event()
        return ReadPrompts(rows, runner, scores_RV[:N], chosen_3R[:, :N], done)

    def wait(self, new: bool) -> None:
        """Until what was read before has been copied; new: until all is done that the device was given."""
        if self.stream is not None and self.handed_over is not None:
            self.stream.wait_event(self.handed_over)
        if self.stream is not None and new:
            self.stream.wait_stream(torch.cuda.default_stream(self.device))

    def fill(
        self,
        runner: GraphRunner,
        prompts_NT: Tensor,
        lengths_N: Tensor,
        source_NS: Tensor | None,
        source_lengths_N: Tensor | None,
    ) -> None:
        """Put tokens and lengths where the graph reads them, with one copy to the device."""
        (N, T), buffers = prompts_NT.shape, runner.buffers
        given = [prompts_NT, lengths_N[:, None]]
        if source_NS is not None and source_lengths_N is not None:
            given += [source_NS, source_lengths_N[:, None]]
        given_NX = to_device(torch.cat(given, 1), self.device)
        runner.prompts_RS[:N, :T] = given_NX[:, :T]
        buffers.lengths_R.zero_()
        buffers.lengths_R[:N] = given_NX[:, T]
        if runner.source_BS is not None:
            runner.source_BS[:N, : given_NX.shape[1] - T - 2] = given_NX[:, T + 1 : -1]
            buffers.source_lengths_B.fill_(1)
            buffers.source_lengths_B[:N] = given_NX[:, -1]

    def scores(self, runner: GraphRunner, T: int) -> tuple[Tensor, Tensor]:
        """Scores after the prompts, and the most likely tokens."""
        assert self.runners.prefill is not None
        scores_RV = self.runners.prefill(runner, T)
        chosen_3R = torch.zeros(3, runner.rows, dtype=torch.float64, device=scores_RV.device)
        tokens_R, nowhere_R, counts_R = torch.zeros(3, runner.rows, dtype=torch.long, device=scores_RV.device)
        chosen = ChosenTokens(chosen_3R[:1], chosen_3R[1:2], chosen_3R[2:], counts_R)
        take_likeliest(scores_RV, tokens_R, nowhere_R, 1, chosen)
        return scores_RV, chosen_3R

    @contextmanager
    def handing_over(self, read: ReadPrompts) -> Iterator[None]:
        """Inside, what was read can be copied on the current stream."""
        if read.done is not None:
            torch.cuda.current_stream(self.device).wait_event(read.done)
        yield
        if read.done is not None:
            self.handed_over = torch.cuda.current_stream(self.device).record_event()
        self.runners.give_back(read.runner)


def reading_size(rows: int) -> int:
    """How many rows are read together for so many: 4, 8, 16 and so on."""
    return power(rows, 4)
