"""The layers of a block: attention of every kind, feed-forward layers, experts; then blocks and stacks of
them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from ...parts.attention import Dot, ScaledDot
from ...parts.blocks import Block, Stack
from ...parts.disentangled import ConvolvedBlock
from ...parts.experts import Experts
from ...parts.layers import Branch, FeedForward, GatedFeedForward, PostNorm, PreNorm
from ...parts.long.compressed import RATE, CompressedAttention, CompressedInput
from ...parts.long.linear import CHUNK, KernelAttention
from ...parts.long.windowed_cache import Remembering
from ...parts.masks import full
from ...parts.multihead import MultiHeadAttention
from ...parts.positions.base import Position
from ...parts.view import View
from .before import STACKS
from .counted import count, vectors
from .operations import AttentionProducts, MatrixProduct, Operations, VectorPass
from .part import FULL, Part, alike, count_idle, product, whole
from .positions import counted_scores, score_position
from .tally import Tally, activation_rule, rule_for


def layer_cost(tally: Tally, layer: nn.Module, T: int, S: int, width: int) -> Part:
    """A layer of a block, with T queries of `width` and S keys; a layer without a rule is run."""
    rule = rule_for(RULES, layer)
    if rule is not None:
        return rule(tally, layer, T, S)
    x_BTD, source = vectors(tally.batch, T, width), () if S == T else (None, vectors(tally.batch, S, width))
    return count(tally, "layer", layer, lambda meta: meta(x_BTD, *source))


def attention(tally: Tally, layer: MultiHeadAttention, T: int, S: int) -> Part:
    """T queries, S keys: four projections, T x S scores, T x S weighted values."""
    B, H, G, K, V = tally.batch, layer.heads, layer.kv_heads, layer.key_width, layer.value_width
    Q = layer.query.out_features // H
    projections = [
        tally.linear("query", layer.query, B * T),
        tally.linear("key", layer.key, B * S),
        tally.linear("value", layer.value, B * S),
        tally.linear("out", layer.out, B * T),
        tally.norm(layer.query_norm, B * T * H, Q),
        tally.norm(layer.key_norm, B * S * G, K),
        Part("score", parameters=tally.weights(layer.score.parameters())),
    ]
    numbers = B * T * (layer.query.in_features + H * Q + H * V) + B * S * G * (K + V)
    beside = score_position(layer, B, T, S) if isinstance(layer.score, Dot | ScaledDot) else None
    if beside is None:
        kept, products = counted_scores(tally, layer, T, S)
        pairs, formula = products, ""
    else:
        more, extra, of_pairs = beside
        kept, pairs = tally.number * more + FULL * B * H * T, 2 * B * H * T * S * (K + V)
        formula = f"{product(2, B, H, T, S)} × ({K} + {V})" + (f" + {extra:,}" if extra else "")
        products, pairs = pairs + extra, pairs + of_pairs
    part = whole("attention", projections, kept=tally.number * numbers + kept)
    groups = f", {G} for keys" if G != H else ""
    *taken, given = [run for run in part.operations if isinstance(run, MatrixProduct)]
    normed = [run for run in part.operations if not isinstance(run, MatrixProduct)]
    runs = (*joined(taken), *normed, AttentionProducts(B * H, T, S, (K + V) // 2), given)
    part = replace(part, detail=f"{H} heads{groups}, {K} wide", parts=(), operations=runs)
    return multiplied(part, products, pairs, formula)


def joined(products: Sequence[MatrixProduct]) -> Operations:
    """Products of the same vectors as one, as they are trained: queries, keys and values."""
    outer = Counter[tuple[int, int]]()
    for run in products:
        outer[run.rows, run.inner] += run.outer
    return tuple(MatrixProduct(*sizes, wide) for sizes, wide in outer.items())


def multiplied(part: Part, products: int, pairs: int, formula: str) -> Part:
    """A layer with the products between its queries and keys."""
    told = f"{part.formula} + {formula}" if part.formula and formula else ""
    return replace(part, flops=part.flops + products, pairs=pairs, formula=told)


def windowed(tally: Tally, layer: Any, T: int, S: int) -> Part:
    """Attention with a cache of its own: the cache changes nothing in training."""
    return attention(tally, layer.inner, T, S)


def compressed(tally: Tally, layer: CompressedAttention, T: int, S: int) -> Part:
    """T queries, a third as many keys, and the convolutions that make them so few."""
    inner, B, slots = layer.inner, tally.batch, T // RATE
    H, K, V, S = inner.heads, inner.key_width, inner.value_width, 1 + slots
    before = isinstance(layer, CompressedInput)  # then keys and values are made of what is compressed
    linears = [
        tally.linear("query", inner.query, B * T),
        tally.linear("key", inner.key, B * (S if before else T)),
        tally.linear("value", inner.value, B * (S if before else T)),
        tally.linear("out", inner.out, B * T),
        *(tally.linear("compress", convolution, B * slots) for convolution in layer.convolutions),
    ]
    numbers = B * T * (inner.query.in_features + H * K + H * V) + B * S * inner.kv_heads * (K + V)
    numbers += sum(B * slots * convolution.in_features for convolution in layer.convolutions)
    part = whole("attention", linears, kept=tally.number * numbers + FULL * B * H * T)
    detail = f"{H} heads, {K} wide, compressed {RATE} to 1"
    pairs, formula = 2 * B * H * T * S * (K + V), f"{product(2, B, H, T, S)} × ({K} + {V})"
    runs = (*part.operations, AttentionProducts(B * H, T, S, (K + V) // 2, of_source=True))
    return multiplied(replace(part, detail=detail, parts=(), operations=runs), pairs, pairs, formula)


def running_sums(tally: Tally, layer: KernelAttention, T: int, S: int) -> Part:
    """Linear attention: weights within chunks, a matrix for each chunk before."""
    inner, B = layer.inner, tally.batch
    H, K, V, N = inner.heads, inner.key_width, inner.value_width + 1, -(-T // CHUNK) * CHUNK
    names = ("query", "key", "value", "out")
    linears = [tally.linear(name, getattr(inner, name), B * T) for name in names]
    products = 2 * B * H * N * (2 * K * V + CHUNK * (K + V))
    numbers = B * T * (inner.query.in_features + H * (K + V))
    kept = tally.number * numbers + FULL * B * H * (N * (2 * K + 2 * V + CHUNK) + N // CHUNK * K * V)
    part = whole("attention", linears, kept=kept)
    detail = f"{H} heads, {K} wide, running sums"
    formula = f"{product(2, B, H, N)} × ({product(2, K, V)} + {CHUNK} × ({K} + {V}))"
    return multiplied(replace(part, detail=detail, parts=()), products, 0, formula)


def feed_forward(tally: Tally, layer: Any, T: int, S: int) -> Part:
    """The same matrices at every position."""
    return feed_forward_rows(tally, layer, tally.batch * T)


def feed_forward_rows(tally: Tally, layer: FeedForward | GatedFeedForward, rows: int) -> Part:
    """A feed-forward layer over so many vectors; what the activation keeps depends on which it is."""
    gated = isinstance(layer, GatedFeedForward)
    linears = [tally.linear(name, m, rows) for name, m in layer.named_children() if isinstance(m, nn.Linear)]
    name, beside, result = activation_rule(layer.activation)
    width, hidden = layer.up.in_features, layer.up.out_features
    # Beside what the activation keeps: the input of `down`, and of the product where there is a gate.
    copies = beside + 1 + (2 if gated else result and layer.dropout.p > 0)
    kept = tally.number * rows * (width + copies * hidden) + tally.dropout(layer.dropout, rows * hidden)
    part = whole("feed-forward", linears, kept=kept)
    detail = f"{width:,} to {hidden:,}, {'gated ' if gated else ''}{name}"
    middle = VectorPass("gated activation" if gated else "activation", rows, hidden)
    runs = (*part.operations, middle, *tally.dropped(layer.dropout, rows, hidden))
    return replace(part, detail=detail, parts=(), operations=runs)


def experts(tally: Tally, layer: Experts, T: int, S: int) -> Part:
    """A gate, and for every token as many feed-forward layers as it is sent to; without the noise of
    training."""
    rows, E, K = tally.batch * T, len(layer.experts), layer.gate.chosen
    width = layer.gate.weight.shape[0]
    weights = tally.weights(layer.gate.parameters())
    gate = Part("gate", "", weights, 2 * rows * width * E, formula=product(2, rows, width, E))
    first, *others = [feed_forward_rows(tally, expert, rows * K) for expert in list[Any](layer.experts)]
    parameters = first.parameters + sum(other.parameters for other in others)
    # Beside what the experts keep: the gate's scores and shares, and each expert's output, to be weighted.
    kept = first.kept + FULL * rows * (width + 2 * E) + tally.number * rows * K * width
    detail = f"{K} of {E}, {first.detail}".rpartition(",")[0]
    both = whole("experts", [gate, first], detail)
    both = replace(both, parameters=gate.parameters + parameters, kept=kept, parts=())
    return replace(both, idle=count_idle(layer))


RULES: dict[type, Callable[..., Part]] = {
    MultiHeadAttention: attention,
    FeedForward: feed_forward,
    GatedFeedForward: feed_forward,
    Experts: experts,
    CompressedAttention: compressed,
    KernelAttention: running_sums,
    Remembering: windowed,
}

# Blocks and stacks.


def stack_parts(tally: Tally, stack: nn.Module, T: int, S: int, width: int) -> list[Part]:
    """The parts of a stack that reads T vectors of `width` and S of a source; a stack without a rule is
    run."""
    if isinstance(stack, Stack):
        return transformer_stack(tally, stack, T, S, width)
    rule = rule_for(STACKS, stack)
    if rule is not None:
        return rule(tally, stack, T, S)
    x_BTD, view, *source = given(tally, T, S, width)
    return [count(tally, "stack", stack, lambda meta: meta(x_BTD, [view], *source))]


def given(tally: Tally, T: int, S: int, width: int) -> list[Any]:
    """What a block is called with: vectors and their view, and those of the source if there is one."""
    x_BTD, view = vectors(tally.batch, T, width), View(full(), T, T, "meta")
    source = [vectors(tally.batch, S, width), View(full(), T, S, "meta")] if S else []
    return [x_BTD, view, *source]


def transformer_stack(tally: Tally, stack: Stack, T: int, S: int, width: int) -> list[Part]:
    """Equal blocks as one part. What blocks share (T5's distances) stands beside them, counted once."""
    tables = [p for m in stack.modules() if isinstance(m, Position) for p in m.parameters()]
    distances = Part("distances", "added to the scores" if tables else "", tally.weights(tables))
    blocks = alike([block_cost(tally, block, T, S, width) for block in stack.blocks])
    last = tally.norm(stack.norm, tally.batch * T, width)
    # Every block's cross-attention keeps the same thing: the encoder's output, once for all of them.
    cross = getattr(getattr(stack.blocks[0], "cross", None), "layer", None)
    read = cross.key.in_features if isinstance(cross, MultiHeadAttention) else 0
    source = Part("source", kept=tally.number * tally.batch * S * read)
    return [distances, *blocks, source, replace(last, name="final norm")]


def block_cost(tally: Tally, block: Any, T: int, S: int, width: int) -> Part:
    if not isinstance(block, Block):
        x_BTD, view, *source = given(tally, T, S, width)
        return count(tally, "block", block, lambda meta: meta(x_BTD, view, *source))
    names = {"attention": block.attention, "cross-attention": block.cross, "feed-forward": block.feed_forward}
    parts, norms = [], []
    for name, residual in names.items():
        if residual is None:
            continue
        if not isinstance(residual, PreNorm | PostNorm | Branch):
            part = layer_cost(tally, residual, T, S if name == "cross-attention" else T, width)
            parts.append(replace(part, name=name))
            continue
        part = layer_cost(tally, residual.layer, T, S if name == "cross-attention" else T, width)
        if name == "cross-attention":
            part = replace(part, operations=tuple(map(reads_source, part.operations)))
        norms.append(tally.norm(residual.norm, tally.batch * T, width))
        dropout = tally.dropout(residual.dropout, tally.batch * T * width)
        runs = (*part.operations, *tally.dropped(residual.dropout, tally.batch * T, width))
        parts.append(replace(part, name=name, kept=part.kept + dropout, operations=runs))
    if isinstance(block, ConvolvedBlock):
        parts.append(neighbors(tally, block, T))
        norms.append(tally.norm(block.norm, tally.batch * T, width))
    return whole("block", [*parts, replace(whole("norms", norms), parts=())])


def reads_source(run: Any) -> Any:
    """An operation of a layer that reads a source."""
    return replace(run, of_source=True) if isinstance(run, AttentionProducts) else run


def neighbors(tally: Tally, block: ConvolvedBlock, T: int) -> Part:
    """A convolution over the tokens that a block reads."""
    layer, rows = block.convolution, tally.batch * T
    _, beside, result = activation_rule(block.activation)
    kept = tally.number * rows * layer.in_channels * (1 + beside + result)
    kept += tally.dropout(block.dropout, rows * layer.out_channels)
    flops, detail = 2 * rows * layer.weight.numel(), f"{layer.kernel_size[0]} wide"
    formula = product(2, rows, layer.weight.numel())
    return Part("convolution", detail, tally.weights(layer.parameters()), flops, kept, formula=formula)
