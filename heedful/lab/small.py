"""Small models of heedful's parts, and the few things that parts refuse on principle, such as no residual."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..models.base.shells import Decoder, Encoder
from ..parts.blocks import Block, Stack
from ..parts.embeddings import Inputs, TokenEmbedding, Untied
from ..parts.layers import FeedForward, LayerNorm, PreNorm
from ..parts.masks import Mask, causal, full
from ..parts.multihead import MultiHeadAttention, join_heads, split_heads
from ..parts.positions.base import Position


def small_block(width: int, heads: int, position: Position | None = None, dropout: float = 0.0) -> Block:
    """Attention and a feed-forward layer, both in a pre-norm residual."""
    attention = MultiHeadAttention(width, heads, position=position)
    return Block(
        PreNorm(attention, LayerNorm(width), dropout),
        PreNorm(FeedForward(width, 4 * width), LayerNorm(width), dropout),
    )


def small_stack(
    layers: int, width: int, heads: int, position: Position | None = None, dropout: float = 0.0
) -> Stack:
    return Stack([small_block(width, heads, position, dropout) for _ in range(layers)], LayerNorm(width))


def small_encoder(
    vocab: int,
    width: int,
    heads: int,
    layers: int,
    input_position: Position | None = None,
    score_position: Position | None = None,
    mask: Mask | None = None,
) -> Encoder:
    """Tokens to vectors. input_position: added to embeddings; score_position: changes scores."""
    inputs = Inputs(TokenEmbedding(vocab, width), input_position)
    return Encoder(inputs, small_stack(layers, width, heads, score_position), (mask or full(),))


def small_decoder(
    vocab: int,
    width: int,
    heads: int,
    layers: int,
    position: Position | None = None,
    mask: Mask | None = None,
) -> Decoder:
    """Tokens to scores of the token after each."""
    inputs = Inputs(TokenEmbedding(vocab, width), position)
    stack = small_stack(layers, width, heads)
    return Decoder(inputs, stack, Untied(width, vocab), (mask or causal(),))


def attended(layer: MultiHeadAttention, x_BTD: Tensor, kernel: Callable[..., Tensor]) -> Tensor:
    """The layer by a kernel of choice: all scores written out, or never in memory."""
    q, k, v = (split_heads(f(x_BTD), layer.heads) for f in (layer.query, layer.key, layer.value))
    return layer.out(join_heads(kernel(q, k, v)))


class JoinedBlocks(nn.Module):
    """Several blocks as one, so that recomputation keeps the input of the first of them only."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x_BTD: Tensor, *given: object) -> Tensor:
        for block in self.blocks:
            x_BTD = block(x_BTD, *given)
        return x_BTD


# Chains of dependent operations, read from the graph that autograd records.


def next_nodes(node: Any) -> list[Any]:
    return [child for child, _ in node.next_functions if child is not None]


def longest_chain(out: Tensor, names: Sequence[str]) -> int:
    """The most operations of these names, one of which waits for the next, behind a tensor.

    Names are those of autograd without "Backward0": Tanh, Softmax.
    """
    longest: dict[Any, int] = {}
    for node in reversed(in_order(out.grad_fn)):
        longest[node] = counts(node, names) + max((longest[child] for child in next_nodes(node)), default=0)
    return longest[out.grad_fn]


def in_order(first: Any) -> list[Any]:
    """All nodes behind one, each before those that it needs."""
    needed: dict[Any, int] = {first: 0}
    queue = deque([first])
    while queue:
        for child in next_nodes(queue.popleft()):
            if child not in needed:
                needed[child] = 0
                queue.append(child)
            needed[child] += 1
    order, ready = [], [first]
    while ready:
        order.append(ready.pop())
        for child in next_nodes(order[-1]):
            needed[child] -= 1
            if not needed[child]:
                ready.append(child)
    return order


def shortest_chain(out: Tensor, start: Tensor, names: Sequence[str]) -> int:
    """The fewest operations of these names on a way from a leaf to a tensor; -1 if there is no way."""
    best: dict[Any, int] = {out.grad_fn: counts(out.grad_fn, names)}
    found = -1
    for node in in_order(out.grad_fn):
        if getattr(node, "variable", None) is start:
            found = best[node]
        for child in next_nodes(node):
            reached = best[node] + counts(child, names)
            best[child] = min(best.get(child, reached), reached)
    return found


def counts(node: Any, names: Sequence[str]) -> int:
    return int(type(node).__name__.removesuffix("Backward0") in names)


def largest_difference(one: Tensor, other: Tensor) -> float:
    return float((one - other).abs().max())


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
