"""Rates: how many seconds an operation takes on one GPU.

A matrix product takes the longer of its arithmetic and its memory traffic. Its output is cut into tiles, and
all processors work on one tile each at a time, so the last round may be nearly empty. Attention is slower for
short texts and narrow heads. Everything else is memory traffic. Each kernel also takes a few microseconds to
start and to end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..inside.costs.operations import AttentionProducts, MatrixProduct
from .machines import Gpu

TILE = 128  # rows and columns of a tile of a matrix product
EMPTIEST = 1.5  # times the arithmetic that tiles may cost: libraries split long sums before they waste more
HALF = 2  # bytes of a number in bf16
START = 4.5e-6  # seconds of a kernel beside its work: its launch in a graph, and the slow start and end
HEAD, TEXT = 64, 500  # width of a head, and visible keys, at which attention reaches half of its best rate
SHORT = 128  # keys that one program of the kernel for short texts holds: it only moves memory
BACKWARD = 2.5  # products of attention's backward pass for each of its forward pass: scores are made again


@dataclass(frozen=True)
class Rates:
    """Seconds of operations on a GPU."""

    gpu: Gpu

    def product(self, rows: int, inner: int, outer: int) -> float:
        """A matrix product in bf16."""
        tiles = math.ceil(rows / TILE) * math.ceil(outer / TILE)
        rounds = math.ceil(tiles / self.gpu.processors) * self.gpu.processors
        padded = tiles * TILE * TILE / (rows * outer)
        flops = 2 * rows * inner * outer * padded * min(rounds / tiles, EMPTIEST)
        traffic = HALF * (rows * inner + inner * outer + rows * outer)
        return max(flops / (self.gpu.peak * self.gpu.products), self.moving(traffic)) + START

    def products_of(self, run: MatrixProduct) -> tuple[float, float]:
        """(forward, backward): the gradients of a product's input and of its weights are two more."""
        back = self.product(run.rows, run.outer, run.inner) + self.product(run.inner, run.rows, run.outer)
        return self.product(run.rows, run.inner, run.outer), back

    def attention(self, run: AttentionProducts, visible: float, short: bool) -> tuple[float, float]:
        """(forward, backward) of a kernel that skips what a mask hides; visible: the share of all pairs.
        short: a kernel for short texts, each program of which holds all scores of a head."""
        traffic = self.moving(HALF * run.numbers)
        if short:
            return traffic + START, BACKWARD * traffic + 2 * START
        seen = visible * run.keys
        best = self.gpu.peak * self.gpu.attention
        rate = best * run.width / (run.width + HEAD) * seen / (seen + TEXT)
        once = max(visible * run.flops / rate, traffic)
        return once + START, BACKWARD * once + 2 * START

    def moving(self, size: float, kernels: int = 0) -> float:
        """Reading or writing so many bytes."""
        return size / (self.gpu.bandwidth * self.gpu.copies) + kernels * START
