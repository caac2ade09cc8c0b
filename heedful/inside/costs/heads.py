"""Heads: scores for each word of the vocabulary, and everything else that is read off an encoder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import nn

from ...models.base.heads import (
    Classify,
    ClassifyBoth,
    FirstToken,
    MaskedLM,
    MaxOverTokens,
    MeanOverTokens,
    Pooled,
    Span,
    Tag,
)
from ...models.elmo import Neighbors
from ...models.syntax import Arcs, Relations
from ...parts.embeddings import Tied, Untied
from .counted import count, vectors
from .part import FULL, Part, product, whole
from .tally import Tally, activation_rule, rule_for


def vocabulary_head(tally: Tally, head: nn.Module, inputs: Any, T: int, width: int) -> Part:
    """A decoder's head: a score for each word of the vocabulary."""
    rows = tally.batch * T
    if isinstance(head, Untied):
        part = tally.linear("head", head.linear, rows)
    elif isinstance(head, Tied):
        part = tally.tied("head", inputs.tokens.weight, head.bias, rows)
    else:
        x_BTD, pair = vectors(tally.batch, T, width), nn.ModuleList([head, inputs.tokens])
        return count(tally, "head", pair, lambda meta: meta[0](x_BTD, meta[1]))
    width = head.linear.in_features if isinstance(head, Untied) else inputs.tokens.weight.shape[1]
    return replace(part, kept=tally.number * rows * width)


def heads_of_encoder(tally: Tally, heads: nn.ModuleDict, inputs: Any, T: int, width: int) -> Part:
    """All that is read off an encoder. Its output is kept once, if any head multiplies it."""
    found = [encoder_head(tally, name, head, inputs, T, width) for name, head in heads.items()]
    kept = tally.number * tally.batch * T * width if any(part.flops for part in found) else 0
    return whole("heads", found, kept=kept)


def encoder_head(tally: Tally, name: str, head: nn.Module, inputs: Any, T: int, width: int) -> Part:
    """One head; a pooled vector that several of them read is computed by each, as the model does."""
    rule = rule_for(RULES, head)
    if rule is not None:
        return replace(rule(tally, head, inputs, T), name=name)
    x_BTD, pair = vectors(tally.batch, T, width), nn.ModuleList([head, inputs])
    return count(tally, name, pair, lambda meta: meta[0](x_BTD, meta[1]))


def no_weights(tally: Tally, head: nn.Module, inputs: Any, T: int) -> Part:
    return Part("", "no weights")


def pooled(tally: Tally, head: Pooled, inputs: Any, T: int) -> Part:
    B, dense = tally.batch, head.dense
    kept = FULL * B * dense.out_features + tally.dropout(head.dropout, B * dense.in_features)
    return replace(tally.linear("", dense, B), kept=kept)


def classify(tally: Tally, head: Classify, inputs: Any, T: int) -> Part:
    width = head.linear.in_features
    pool = encoder_head(tally, "pool", head.pool, inputs, T, width)
    linear = tally.linear("", head.linear, tally.batch)
    kept = tally.number * tally.batch * width
    return replace(whole("", [pool, linear], linear.detail, kept), parts=())


def classify_both(tally: Tally, head: ClassifyBoth, inputs: Any, T: int) -> Part:
    linears = [tally.linear("", linear, tally.batch) for linear in (head.linear, head.taught)]
    return replace(whole("", linears, "mean of two heads"), parts=())


def neighbors(tally: Tally, head: Neighbors, inputs: Any, T: int) -> Part:
    rows = 2 * tally.batch * T
    part = tally.linear("", head.words.linear, rows)
    return replace(part, kept=tally.dropout(head.dropout, rows * head.width))


def every_token(tally: Tally, head: Any, inputs: Any, T: int) -> Part:
    return tally.linear("", head.linear, tally.batch * T)


def masked_lm(tally: Tally, head: MaskedLM, inputs: Any, T: int) -> Part:
    rows, width = tally.batch * T, head.dense.out_features
    _, beside, result = activation_rule(head.activation)
    parts = [
        tally.linear("dense", head.dense, rows),
        tally.norm(head.norm, rows, width),
        tally.tied("scores", inputs.tokens.weight, head.bias, rows),
    ]
    # A result the activation keeps is the norm's input, which the norm counts, at fp32.
    shared = result and tally.number == FULL
    return whole("", parts, kept=tally.number * rows * width * (beside + 1 + (result and not shared)))


def arcs(tally: Tally, head: Arcs, inputs: Any, T: int) -> Part:
    """Words in two roles, and one matrix between the roles of all pairs."""
    rows, small, parts = tally.batch * T, head.roles.head.out_features, roles(tally, head, T)
    part = whole(
        "", [*parts, tally.linear("between", head.between, rows)], kept=tally.number * 5 * rows * small
    )
    pairs = 2 * rows * T * small
    formula = f"{part.formula} + {product(2, rows, T, small)}"
    return replace(part, flops=part.flops + pairs, pairs=pairs, formula=formula)


def relations(tally: Tally, head: Relations, inputs: Any, T: int) -> Part:
    """Words in two roles, and a matrix for each relation of a word to its head."""
    rows, small, (matrices, K, J) = tally.batch * T, head.roles.head.out_features, head.between_LKJ.shape
    between = Part("between", f"{matrices} x {K} x {J}", tally.weights([head.between_LKJ]))
    part = whole("", [*roles(tally, head, T), between], kept=tally.number * rows * (4 + matrices) * small)
    formula = f"{part.formula} + {product(2, rows, matrices, K, J)}"
    return replace(part, flops=part.flops + 2 * rows * matrices * K * J, formula=formula)


def roles(tally: Tally, head: Any, T: int) -> list[Part]:
    return [tally.linear(name, getattr(head.roles, name), tally.batch * T) for name in ("dependent", "head")]


RULES: dict[type, Callable[..., Part]] = {
    FirstToken: no_weights,
    MeanOverTokens: no_weights,
    MaxOverTokens: no_weights,
    Pooled: pooled,
    Classify: classify,
    ClassifyBoth: classify_both,
    Neighbors: neighbors,
    Tag: every_token,
    Span: every_token,
    MaskedLM: masked_lm,
    Arcs: arcs,
    Relations: relations,
}
