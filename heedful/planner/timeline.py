"""The timeline of a step on several GPUs: what is computed, and what is sent meanwhile.

A GPU computes one block after the other. Beside it, a second line sends: the weights of a block are gathered
while the block before it is computed, and gradients are summed up while the backward pass goes on. Both lines
wait for each other where they must. What sharing a product takes (tensor parallelism) nothing hides.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace

from .memory import FULL, GATHERED, HALF
from .shardings import Sharding
from .training_step import ComputeTime, TimedSection

BUCKET = 25 * 2**20  # bytes of gradients that DDP sends at once
AHEAD = 2  # blocks whose weights are there at a time: the one that is computed and the next


@dataclass(frozen=True)
class StepTime:
    """Seconds of a step by what they are for.

    Attributes:
        compute: Computing.
        communication: Sending that no computation hides.
        waiting: Waiting for GPUs that have more rows.

    Example:
        >>> StepTime(compute=0.5, communication=0.25, waiting=0.0).total
        0.75
    """

    compute: float
    communication: float
    waiting: float

    @property
    def total(self) -> float:
        """All seconds together."""
        return self.compute + self.communication + self.waiting


@dataclass(frozen=True)
class Exchange:
    """What a sharding sends: seconds by parameters."""

    gather: Callable[[float], float]  # weights
    scatter: Callable[[float], float]  # gradients, summed up
    add: Callable[[float], float]  # gradients of GPUs that hold the same shards
    share: Callable[[float], float]  # numbers of vectors, between GPUs that share products


def exchange_of(sharding: Sharding) -> Exchange:
    """The exchanges of a sharding: gradients in fp32, vectors in bf16."""
    tensor, shards, copies = sharding.tensor, sharding.shard_group, sharding.copy_group
    return Exchange(
        gather=lambda n: shards.all_gather(GATHERED * n / tensor),
        scatter=lambda n: shards.reduce_scatter(FULL * n / tensor),
        add=lambda n: copies.all_reduce(FULL * n / sharding.shards),
        share=lambda n: sharding.tensor_group.all_reduce(HALF * n),
    )


def step_time(
    sharding: Sharding, compute: ComputeTime, micro_batches: int, checkpointing: bool, share: float
) -> StepTime:
    """Seconds of a whole step. share: rows of a GPU on average, over rows of the GPU that has the most."""
    exchange = exchange_of(sharding)
    sections = [with_sharing(section, exchange, checkpointing) for section in compute.sections]
    update = compute.update * sharding.tensor / sharding.shards
    once = compute.forward + compute.backward + checkpointing * compute.recomputed()
    if sharding.gathers:
        spent = (micro_batches - 1) * with_shards(sections, exchange, last=False)
        spent += with_shards(sections, exchange, last=True)
    else:
        spent = with_copies(sections, exchange, micro_batches)
    waiting = (1 - share) * micro_batches * once
    return StepTime(micro_batches * once + update - waiting, max(0.0, spent - micro_batches * once), waiting)


def with_sharing(section: TimedSection, exchange: Exchange, checkpointing: bool) -> TimedSection:
    """A section as it is on GPUs that share products, and with what activation checkpointing repeats.

    A block sums up vectors after each of its layers, and their gradients before each; the rest sums up the
    embedding and the gradient of what the head reads.
    """
    shared = section.layers * exchange.share(section.vectors)
    forward = section.forward + shared
    again = forward if checkpointing and section.is_block else 0.0
    return replace(section, forward=forward, backward=section.backward + shared + again)


def with_copies(sections: list[TimedSection], exchange: Exchange, micro_batches: int) -> float:
    """DDP: gradients are summed up in the last backward pass, in buckets, as soon as a bucket is full."""
    blocks, outside = sections[:-1], sections[-1]
    once = sum(section.forward + section.backward for section in sections)
    computed = (micro_batches - 1) * once + sum(section.forward for section in sections) + outside.backward
    sent, bucket = 0.0, 0.0
    for section in reversed(blocks):
        computed, bucket = computed + section.backward, bucket + section.parameters
        if FULL * bucket >= BUCKET:
            sent, bucket = max(sent, computed) + exchange.add(bucket), 0.0
    return max(computed, max(sent, computed) + exchange.add(bucket + outside.parameters))


def with_shards(sections: list[TimedSection], exchange: Exchange, last: bool) -> float:
    """FSDP: weights are gathered forwards and backwards, gradients summed up and scattered. What is not in
    blocks is gathered at the beginning and stays. last: the micro-batch after which copies of shards add up.
    """

    def reduce(n: float) -> float:
        return exchange.scatter(n) + (exchange.add(n) if last else 0.0)

    blocks, outside = sections[:-1], sections[-1]
    sent = computed = exchange.gather(outside.parameters)
    ended = [0.0] * AHEAD
    for block in blocks:
        sent = max(sent, ended[-AHEAD]) + exchange.gather(block.parameters)
        computed = max(sent, computed) + block.forward
        ended.append(computed)
    sent = max(sent, computed) + sum(exchange.gather(block.parameters) for block in blocks[-1:])
    gathered, computed = sent, computed + outside.forward + outside.backward
    for block, after in itertools.zip_longest(blocks[::-1], blocks[-2::-1]):
        began = max(gathered, computed)
        if after is not None:
            gathered = sent = max(sent, began) + exchange.gather(after.parameters)
        computed = began + block.backward
        sent = max(sent, computed) + reduce(block.parameters)
    return max(sent, computed) + reduce(outside.parameters)
