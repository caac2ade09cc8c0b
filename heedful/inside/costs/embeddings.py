"""Inputs: embeddings of tokens, patches or spelled words, with what is added to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ...models.albert import NarrowInputs
from ...models.ernie import TaskInputs
from ...models.opt import WidenedInputs
from ...models.vit import PatchInputs
from ...parts.before.characters import CharacterCNN, Spelled
from ...parts.embeddings import Inputs
from .counted import count, ids, run
from .part import FULL, Part, product, whole
from .positions import input_position
from .tally import Tally, rule_for


def embeddings(tally: Tally, inputs: Any, T: int) -> tuple[Part, int]:
    """What the first block reads of T tokens, and how wide it is; inputs without a rule are run."""
    rule = rule_for(RULES, inputs)
    if rule is not None:
        parts, width, outer = rule(tally, inputs, T)
        return whole("embeddings", parts, kept=tally.dropout(inputs.dropout, tally.batch * T * width)), outer

    def use(meta: Any) -> Any:
        return meta(ids(tally.batch, T), ids(T))

    return count(tally, "embeddings", inputs, use), run(inputs, use)[2].shape[-1]


Embedded = tuple[
    list[Part], int, int
]  # parts, the width that dropout sees, the width that the first block reads


def tokens(tally: Tally, inputs: Inputs, T: int) -> Embedded:
    """A table of tokens, positions, perhaps segments and tasks; ALBERT's are widened at the end."""
    rows, width = tally.batch * T, inputs.tokens.weight.shape[1]
    parts = [tally.table("tokens", inputs.tokens.weight)]
    if isinstance(inputs, WidenedInputs):
        widen = tally.linear("projection", inputs.widen, rows)
        parts.append(replace(widen, kept=tally.number * rows * width))
        width = inputs.widen.out_features
    parts += [
        input_position(tally, inputs.position, T, width),
    ]
    if inputs.segments is not None:
        parts.append(tally.table("segments", inputs.segments.weight))
    if isinstance(inputs, TaskInputs):
        parts.append(tally.table("tasks", inputs.tasks.weight))
    width += inputs.position.added_width
    parts.append(tally.norm(inputs.norm, rows, width))
    if not isinstance(inputs, NarrowInputs):
        return parts, width, width
    widen = tally.linear("projection", inputs.widen, rows)
    return [*parts, replace(widen, kept=tally.number * rows * width)], width, inputs.widen.out_features


def patches(tally: Tally, inputs: PatchInputs, T: int) -> Embedded:
    """Patches of a picture, and the tokens that stand before them."""
    named = {"class token": inputs.class_token, "distillation token": inputs.distillation_token}
    first = {name: token for name, token in named.items() if token is not None}
    read, width = tally.batch * (T - len(first)), inputs.embedding.out_features
    made = tally.linear("patches", inputs.embedding, read)
    parts = [
        replace(made, kept=tally.number * read * inputs.embedding.in_features),
        *(Part(name, parameters=tally.weights([token])) for name, token in first.items()),
        input_position(tally, inputs.position, T, width),
    ]
    return parts, width, width


def spelled(tally: Tally, inputs: Spelled, T: int) -> Embedded:
    width = inputs.words.projection.out_features
    return [letters(tally, inputs.words, inputs.letters, tally.batch * T)], width, width


def letters(tally: Tally, words: CharacterCNN, letters: int, rows: int) -> Part:
    """Convolutions over letters, as if every word were as long as can be, and occurred once."""
    letter_width = words.letters.embedding_dim
    parts = [tally.table("letters", words.letters.weight)]
    for size, filters in enumerate(list[Any](words.convolutions), 1):
        places = rows * (letters - size + 1)
        flops, kept = 2 * places * filters.weight.numel(), FULL * places * filters.out_channels
        detail = f"{filters.out_channels:,} of width {size}"
        weights, formula = tally.weights(filters.parameters()), product(2, places, filters.weight.numel())
        parts.append(Part("filters", detail, weights, flops, kept, formula=formula))
    for highway in list[Any](words.highways):
        width = highway.gate.in_features
        linears = [tally.linear("", linear, rows) for linear in (highway.change, highway.gate)]
        part = whole("highway", linears, f"{width:,} wide", tally.number * 4 * rows * width)
        parts.append(replace(part, parts=()))
    projection = tally.linear("projection", words.projection, rows)
    parts.append(replace(projection, kept=tally.number * rows * words.projection.in_features))
    return whole("characters", parts, f"{letters} letters", FULL * rows * letters * letter_width)


RULES: dict[type, Callable[..., Embedded]] = {Inputs: tokens, PatchInputs: patches, Spelled: spelled}
