"""Capturing: passes of a model with one input, watched, and what they leave."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from contextvars import Context
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import BadInput
from ..interop.loaded import Loaded
from ..models.base.shells import WithHeads
from ..parts.watch import Records, watch
from .hooks import Hook, hooked
from .look.layers import kinds_of, paths_of
from .model_inputs import ModelInput, forward, labels_of
from .score_parts import input_hooks, position_share, refuse_place, refuse_score
from .stacks import stacks_of
from .sublayer import plain, projections_of, residual_of, sublayer_hooks, sublayer_of
from .trace_parts import Kind, LayerAttention, LayerDetail

QKV = ("q", "k", "v")


@dataclass(frozen=True)
class TraceSource:
    """A model and its input, for passes that capture."""

    loaded: Loaded
    given: ModelInput
    editing: Callable[[], AbstractContextManager[None]] = nullcontext  # the edits that hold during a pass

    def again(self) -> dict[str, Tensor]:
        """The outputs of the same pass."""
        return Context().run(capture, self, {}).outputs

    def detail(self, which: str, layer: int) -> LayerDetail:
        """The exact inside of one layer's attention, by one more pass with all layers watched.

        Nothing that holds at this moment counts, but the edits of the trace itself.
        """
        return Context().run(self.capture_detail, which, layer)

    def capture_detail(self, which: str, layer: int) -> LayerDetail:
        model = self.loaded.model
        path = paths_of(model, which)[layer]
        attention: Any = model.get_submodule(path)
        caught: dict[str, Tensor] = {}
        blocked = hasattr(attention, "out")
        residual = residual_of(model, path, self.loaded.architecture) if blocked else None
        hooks = [] if residual is None else sublayer_hooks(residual, attention, caught)
        if layer == 1:
            hooks += input_hooks(model, attention, caught)

        def keep(at: str, kind: str, x: Tensor) -> Tensor | None:
            return plain(x) if at == path else None

        with (
            self.editing(),
            hooked(hooks),
            watch(model, ("scores", "bias", "q", "k", "v"), keep=keep) as records,
        ):
            forward(model, self.given)
        record = records[path]
        (weights,), (scores,), (q,), (k,), (v,) = (
            some[-1:] for some in (record.weights, record.scores, record.q, record.k, record.v)
        )
        dot = attention.score.as_dot(q.to(device_of(model)), k.to(device_of(model)))
        dots = scores if dot is None else plain(dot[0] @ dot[1].mT)
        bias = record.bias[-1].expand_as(scores)[0] if record.bias else None
        sublayer = None if residual is None else sublayer_of(residual, caught)
        added = None
        if sublayer is not None and attention.position.uses_values:
            joined_HTL = sublayer.heads_TX.unflatten(-1, (attention.heads, -1)).transpose(0, 1)
            added = joined_HTL - (weights @ v)[0]
        projections = []
        if sublayer is not None:
            inputs = sublayer.normed_TD, sublayer.source_SD
            heads, slots = range(1, attention.heads + 1), scores.shape[-1]
            projections = [projections_of(attention, head, *inputs, slots) for head in heads]
        scale = 1.0 if dot is None else dot[2]
        found = LayerDetail(weights[0], dots[0], scores[0], scale, bias, added, sublayer, projections)
        try:
            if residual is None or sublayer is None or dot is None:
                raise BadInput("this model has no blocks in which queries and keys are made of embeddings")
            refuse_place(which, layer)
            refuse_score(dot[:2], (q, k))
            with self.editing():
                share = position_share(
                    model, attention, residual, caught.get("inputs_TD"), sublayer, projections
                )
        except BadInput as why:
            return replace(found, no_parts=str(why))
        return replace(found, q_position_HTK=share.q_HTK, k_position_HSK=share.k_HSK, no_parts="")


@dataclass(frozen=True)
class Captured:
    """What one watched pass leaves."""

    attention: dict[tuple[str, int], LayerAttention]
    streams: dict[tuple[str, int], Tensor]
    masks: dict[tuple[str, int], Tensor]  # bool [1 or H, T, S]; layers with the same one share it
    columns: dict[tuple[str, int], list[int]]  # whose column is whose, where keys are fewer than tokens
    outputs: dict[str, Tensor]


def capture(source: TraceSource, kinds: dict[str, Kind]) -> Captured:
    """One watched pass: the attention of some kinds, the residual streams, and the outputs."""
    model = source.loaded.model
    streams: dict[tuple[str, int], Tensor] = {}
    paths = {path: (which, n) for which in kinds for n, path in paths_of(model, which).items()}

    def keep(at: str, kind: str, x: Tensor) -> Tensor | None:
        if at not in paths:
            return None
        kept = x[0].to("cpu", torch.float16) if kind == "weights" else x[0].cpu()
        return kept if kind in ("weights", "allowed") else plain(kept)

    hooks = stream_hooks(model, streams) if kinds else []
    with source.editing(), hooked(hooks), watch(model, ("allowed", *QKV), keep=keep) as records:
        outputs = {name: plain(x) for name, x in forward(model, source.given).items()}
    attention = {key: attention_of(records, path) for path, key in paths.items()}
    masks: dict[tuple[str, int], Tensor] = {}
    columns = {}
    for path, key in paths.items():
        mask = records[path].allowed[-1]
        masks[key] = next((known for known in masks.values() if torch.equal(known, mask)), mask.clone())
        if len(kinds[key[0]].across) != mask.shape[-1]:
            columns[key] = torch.atleast_2d(records[path].k_pos[-1])[0].tolist()
    return Captured(attention, streams, masks, columns, outputs)


def attention_of(records: Records, path: str) -> LayerAttention:
    record = records[path]
    return LayerAttention(record.weights[-1], record.q[-1], record.k[-1], record.v[-1])


def stream_hooks(model: nn.Module, streams: dict[tuple[str, int], Tensor]) -> list[Hook]:
    """Hooks that catch the residual stream before the first block and after each."""
    hooks = []
    for name, stack in stacks_of(model).items():
        for number, block in enumerate(stack.blocks, 1):

            def after(_: Any, y: Tensor, key: tuple[str, int] = (name, number)) -> None:
                streams[key] = plain(y[0])

            def before(args: tuple[Any, ...], key: tuple[str, int] = (name, 0)) -> None:
                streams[key] = plain(args[0][0])

            hooks.append(Hook(block, before if number == 1 else None, after))
    return hooks


def trace_kinds(loaded: Loaded, given: ModelInput) -> dict[str, Kind]:
    """The kinds of attention of a model with this input. An encoder alone has one, "self"."""
    names, model = kinds_of(loaded.model), loaded.model
    if isinstance(model, WithHeads):
        names = ("self",)
    found = {}
    for which in names:
        paths = paths_of(model, which)
        heads: Any = model.get_submodule(paths[1])
        found[which] = Kind(*labels_of(loaded, given, which), len(paths), heads.heads)
    return found


def device_of(model: nn.Module) -> torch.device:
    return next(model.parameters()).device
