"""Towers of blocks that parts refuse on principle: without skips, without norms, or with other norms.

They reverse short texts: each word must get to the other end of the text, through all blocks.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..models.base.shells import Decoder
from ..parts.blocks import Block, Stack
from ..parts.embeddings import Inputs, TokenEmbedding, Untied
from ..parts.layers import FeedForward, PostNorm, PreNorm
from ..parts.masks import full
from ..parts.multihead import MultiHeadAttention
from ..parts.positions.absolute import Learned
from .toys import ToyBatch, reverse
from .training import Batches, cross_entropy

WIDTH, HEADS, ROWS = 32, 2, 32
HELD_OUT = 128  # rows of test and validation data
ITERATIONS = 12  # of the power method

Wrapper = Callable[[nn.Module, nn.Module], nn.Module]  # of a layer and its norm
NormMaker = Callable[[int], nn.Module]  # of a width


def no_norm(width: int) -> nn.Module:
    return nn.Identity()


def bare_block(wrap: Wrapper = PreNorm, norm: NormMaker = no_norm) -> Block:
    """Attention and a feed-forward layer. wrap: `PreNorm` or `PostNorm`, or `Branch` for no skip."""
    attention, feed_forward = MultiHeadAttention(WIDTH, HEADS), FeedForward(WIDTH, 4 * WIDTH)
    return Block(wrap(attention, norm(WIDTH)), wrap(feed_forward, norm(WIDTH)))


def bare_model(
    blocks: int, length: int, symbols: int, wrap: Wrapper = PreNorm, norm: NormMaker = no_norm
) -> Decoder:
    """Tokens to scores at each place; every place sees every place.

    Positions begin as large random vectors, so that finding the mirror place takes few steps.
    """
    position = Learned(length, WIDTH)
    nn.init.normal_(position.table)
    inputs = Inputs(TokenEmbedding(symbols, WIDTH, math.sqrt(WIDTH)), position)
    last = None if wrap is PostNorm else norm(WIDTH)
    stack = Stack([bare_block(wrap, norm) for _ in range(blocks)], last)
    return Decoder(inputs, stack, Untied(WIDTH, symbols), (full(),))


def reversals(seed: int, length: int, symbols: int) -> Batches:
    """Batches of texts and their mirror images."""

    def batch(step: int) -> ToyBatch:
        return reverse(seed, step, ROWS if step >= 0 else HELD_OUT, length, symbols)

    return batch


# What is measured of them.


def jacobian(layer: nn.Module, x_TD: Tensor) -> Tensor:
    """[TD, TD]: how each number that comes out of a layer depends on each that goes in.

    Each row of the batch is a copy of the text, and gives one row of the matrix.
    """
    x_NTD = x_TD.detach().expand(x_TD.numel(), -1, -1).clone().requires_grad_()
    (rows_NTD,) = torch.autograd.grad(layer(x_NTD).flatten(1).diagonal().sum(), x_NTD)
    return rows_NTD.flatten(1)


def distance_to_mean(x_BTD: Tensor) -> float:
    """How far the words of a text are from being all the same, relative to their size."""
    return float((x_BTD - x_BTD.mean(1, keepdim=True)).norm() / x_BTD.norm())


def direction_like(weight: Tensor) -> Tensor:
    """Random, and as large as the weights, output by output (Li et al. 2018); biases and gains stay."""
    if weight.dim() < 2:
        return torch.zeros_like(weight)
    random = torch.randn_like(weight)
    return random * (weight.norm(dim=-1, keepdim=True) / random.norm(dim=-1, keepdim=True))


@torch.no_grad()
def surface(model: nn.Module, batch: ToyBatch, cells: int) -> Tensor:
    """[cells, cells]: the loss at weights + a one + b other, for a and b from -1 to 1."""
    weights = list(model.parameters())
    middle = [weight.clone() for weight in weights]
    one, other = ([direction_like(weight) for weight in weights] for _ in range(2))
    steps, losses = torch.linspace(-1, 1, cells), torch.empty(cells, cells)
    for i, a in enumerate(steps):
        for j, b in enumerate(steps):
            for weight, start, u, v in zip(weights, middle, one, other, strict=True):
                weight.copy_(start + a * u + b * v)
            losses[i, j] = cross_entropy(model, batch)
    for weight, start in zip(weights, middle, strict=True):
        weight.copy_(start)
    return losses


def largest_curvature(model: nn.Module, batch: ToyBatch) -> float:
    """The size of the largest eigenvalue of the Hessian of the loss, by the power method."""
    model, weights = model.double(), list(model.parameters())
    vector = [torch.randn_like(weight) for weight in weights]
    value = 0.0
    with sdpa_kernel(SDPBackend.MATH):  # the other kernels have no second derivative
        slopes = torch.autograd.grad(cross_entropy(model, batch), weights, create_graph=True)
        for _ in range(ITERATIONS):
            length = math.sqrt(sum(float(v.square().sum()) for v in vector))
            vector = [v / length for v in vector]
            product = torch.autograd.grad(slopes, weights, vector, retain_graph=True)
            value = sum(float((v * p).sum()) for v, p in zip(vector, product, strict=True))
            vector = list(product)
    return abs(value)
