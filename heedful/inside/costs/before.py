"""Stacks from before the Transformer: recurrent, attentive and convolutional. Recurrence is computed in
fp32."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ...parts.attention import Additive, Bilinear
from ...parts.before.attentive_decoders import Attentive, Searching
from ...parts.before.both_ways import ProjectedLSTM, TwoDirections
from ...parts.before.convolution import ConvolutionDecoder, ConvolutionEncoder, NormedLinear
from ...parts.before.lookup import Lookup
from ...parts.before.recurrent import (
    BidirectionalStack,
    BothWays,
    CandidateGRU,
    LastStates,
    Recurrence,
    RecurrentStack,
)
from .counted import count, vectors
from .part import FULL, Part, alike, product, whole
from .tally import Tally, rule_for

# Stacks.


def recurrent(tally: Tally, stack: Any, T: int, S: int) -> list[Part]:
    return alike([recurrence(tally, block, T) for block in stack.blocks])


def searching(tally: Tally, stack: Searching, T: int, S: int) -> list[Part]:
    """Bahdanau's decoder: a recurrence, the lookup, the first state, and the maxout readout."""
    rows, block = tally.batch * T, list[Any](stack.blocks)[0]
    layers = (stack.from_state, stack.from_word, stack.from_context)
    readout = [tally.dense("", layer, rows) for layer in layers]
    found = stack.from_context.in_features
    return [
        recurrence(tally, block, T),
        lookup(tally, stack.cross.layer, T, S, block.width, found),
        replace(tally.dense("start", stack.start, tally.batch), detail=""),
        replace(whole("maxout", readout), parts=()),
    ]


def attentive(tally: Tally, stack: Attentive, T: int, S: int) -> list[Part]:
    """Luong's decoder: recurrences, the lookup, the first state, and the combined vector."""
    width = stack.combine.out_features
    return [
        *recurrent(tally, stack, T, S),
        lookup(tally, stack.cross.layer, T, S, width, stack.combine.in_features - width),
        replace(tally.dense("start", stack.start, tally.batch), detail=""),
        tally.dense("combined", stack.combine, tally.batch * T),
    ]


def convolutional(tally: Tally, stack: Any, T: int, S: int) -> list[Part]:
    rows, blocks = tally.batch * T, [convolution(tally, block, T, S) for block in stack.blocks]
    enter = tally.dense("enter", stack.enter, rows)
    return [enter, *alike(blocks), tally.dense("leave", stack.leave, rows)]


STACKS: dict[type, Callable[..., list[Part]]] = {
    BidirectionalStack: recurrent,
    LastStates: recurrent,
    RecurrentStack: recurrent,
    TwoDirections: recurrent,
    Searching: searching,
    Attentive: attentive,
    ConvolutionEncoder: convolutional,
    ConvolutionDecoder: convolutional,
}

# Blocks of a recurrence: two products a token. The input, the gates and the states are kept.


def recurrence(tally: Tally, block: Any, T: int) -> Part:
    rule = rule_for(RECURRENCES, block)
    if rule is not None:
        return rule(tally, block, T)
    return count(tally, "block", block, lambda meta: meta(vectors(tally.batch, T, block.inputs)))


def both_ways(tally: Tally, block: BothWays, T: int) -> Part:
    ways = [recurrence(tally, way, T) for way in (block.from_left, block.from_right)]
    return replace(whole("block", ways, f"bidirectional, {block.width // 2:,} wide each"), parts=())


def candidate_gru(tally: Tally, block: CandidateGRU, T: int) -> Part:
    rows = tally.batch * T
    layers = [tally.dense("", layer, rows) for layer in block.children()]
    gates = FULL * rows * 4 * block.width
    return replace(whole("block", layers, f"{block.width:,} wide", gates), parts=())


def projected_lstm(tally: Tally, block: ProjectedLSTM, T: int) -> Part:
    rows, matrices = tally.batch * T, sum(w.numel() for w in block.parameters() if w.ndim == 2)
    kept = FULL * rows * (block.inputs + 6 * block.cells + block.width)
    detail = f"{block.cells:,} cells, {block.width:,} wide"
    weights, formula = tally.weights(block.parameters()), product(2, rows, matrices)
    return Part("block", detail, weights, 2 * rows * matrices, kept, formula=formula)


def plain_recurrence(tally: Tally, block: Recurrence, T: int) -> Part:
    rows, (inward, onward, *_) = tally.batch * T, block.weights
    flops = 2 * rows * (inward.numel() + onward.numel())
    kept = FULL * rows * (block.inputs + inward.shape[0] + block.state_width)
    formula = f"{product(2, rows)} × ({inward.numel():,} + {onward.numel():,})"
    weights = tally.weights(block.parameters())
    return Part("block", f"{block.width:,} wide", weights, flops, kept, formula=formula)


RECURRENCES: dict[type, Callable[..., Part]] = {
    BothWays: both_ways,
    CandidateGRU: candidate_gru,
    ProjectedLSTM: projected_lstm,
    Recurrence: plain_recurrence,
}

# Convolutions, and looking up a source.


def convolution(tally: Tally, block: Any, T: int, S: int) -> Part:
    rows, window = tally.batch * T, block.window
    detail = f"{window.kernel} words, {window.width:,} wide"
    parts = [replace(tally.dense("window", window.linear, rows), detail=detail)]
    parts += [tally.dense("skip", block.skip, rows)] if isinstance(block.skip, NormedLinear) else []
    if block.cross is not None:
        width, out = block.cross.query.out_features, block.cross.out
        parts += [tally.dense("query", block.cross.query, rows)]
        parts += [lookup(tally, block.cross.lookup.layer, T, S, width, width)]
        parts += [tally.dense("out", out, rows)] if isinstance(out, NormedLinear) else []
    gate = FULL * rows * 2 * window.width + tally.dropout(window.dropout, rows * window.inputs)
    return whole("block", parts, kept=gate)


def lookup(tally: Tally, layer: Lookup, T: int, S: int, query: int, value: int) -> Part:
    """T queries, S keys: their scores and the weighted values; the keys are prepared once."""
    B, score, alone = tally.batch, layer.score, 0
    pairs, kept = 2 * B * T * S * value, FULL * B * T * S
    if isinstance(score, Additive):
        hidden = score.key.out_features
        alone = 2 * B * (T * score.query.weight.numel() + S * score.key.weight.numel())
        pairs += 2 * B * T * S * hidden
        kept += FULL * B * T * S * hidden
    elif isinstance(score, Bilinear):
        alone = 2 * B * T * score.W.numel()
        pairs += 2 * B * T * S * score.W.shape[1]
    else:  # a dot product, perhaps scaled
        pairs += 2 * B * T * S * query
    weights, per_pair = tally.weights(layer.parameters()), pairs // (B * T * S)
    formula = product(B, T, S, per_pair) + (f" + {alone:,}" if alone else "")
    name, flops = type(score).__name__.lower(), pairs + alone
    return Part("lookup", name, weights, flops, kept, pairs=pairs, formula=formula)
