"""Positions and masks for static/positions.js: what depends on settings alone is computed here."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ...parts.masks import AllOf, Causal, Full, Mask, Window
from ...parts.positions import absolute, relative, rotary
from ...parts.positions.base import NoPosition, Position, UpTo

if TYPE_CHECKING:
    from .parts import Description

Entry = dict[str, Any]
Refusal = Callable[[object], Exception]


def describe_position(to: Description, m: Position, refusal: Refusal) -> Entry:
    """What a scheme adds and where, with the longest text that it knows."""
    if type(m) not in SCHEMES:
        raise refusal(f"the position scheme {type(m).__name__}")
    if isinstance(m, absolute.Sinusoidal) and m.precision != torch.float32:
        raise refusal(f"a table of sinusoids in {str(m.precision).removeprefix('torch.')}")
    name, make = SCHEMES[type(m)]
    return {"part": name, "longest": m.longest} | make(to, m)


def learned(to: Description, m: Any) -> Entry:
    return {"table": to.tensor(m.table), "offset": getattr(m, "offset", 0)}


def sinusoidal(to: Description, m: absolute.Sinusoidal) -> Entry:
    w = absolute.frequencies(m.width, m.kind, m.base).tolist()
    return {"frequencies": w, "interleaved": m.layout == "interleaved", "offset": m.offset}


def turning(to: Description, m: Any) -> Entry:
    """Rotary positions, however they are scaled: by how much each pair turns, and what multiplies it."""
    inner = m.rotary if isinstance(m, rotary.PartialRotary) else m
    return {
        "frequencies": inner.frequencies().tolist(),
        "interleaved": inner.layout == "interleaved",
        "magnitude": inner.stretch.magnitude if isinstance(inner, rotary.StretchedRotary) else 1.0,
    }


def buckets(to: Description, m: relative.T5Buckets) -> Entry:
    """The bucket of every distance from -N to N; farther ones have the last."""
    distances = torch.arange(-m.farthest, m.farthest + 1)
    found = relative.t5_bucket(distances, m.buckets, m.farthest, m.both_ways)
    return {"table": to.tensor(m.table), "buckets": found.tolist()}


def shaw(to: Description, m: relative.Shaw) -> Entry:
    tables = {"keys": to.tensor(m.keys_HRK), "values": to.tensor(m.values_HRL)}
    return tables | {"clip": m.clip, "heads": len(m.keys_HRK)}


def none(to: Description, m: Any) -> Entry:
    return {}


SCHEMES: dict[type, tuple[str, Callable[[Any, Any], Entry]]] = {
    NoPosition: ("NoPosition", none),
    UpTo: ("NoPosition", none),
    absolute.Learned: ("Learned", learned),
    absolute.LearnedAfter: ("Learned", learned),
    absolute.Sinusoidal: ("Sinusoidal", sinusoidal),
    absolute.Concatenated: ("Concatenated", lambda to, m: {"encoding": sinusoidal(to, m.encoding)}),
    rotary.Rotary: ("Rotary", turning),
    rotary.StretchedRotary: ("Rotary", turning),
    rotary.PartialRotary: ("Rotary", turning),
    relative.ALiBi: ("ALiBi", lambda to, m: {"slopes": relative.alibi_slopes(m.heads)}),
    relative.T5Buckets: ("T5Buckets", buckets),
    relative.Shaw: ("Shaw", shaw),
}


def describe_mask(mask: Mask, refusal: Refusal) -> Entry:
    """Which keys a query sees: those before it or all, and how far away."""
    rules = mask.masks if isinstance(mask, AllOf) else (mask,)
    past, reach = False, None
    for rule in rules:
        if rule == Causal():
            past = True
        elif isinstance(rule, Window):
            reach = rule.width if reach is None else min(reach, rule.width)
        elif rule != Full():
            raise refusal(f"the mask {rule!r}")
    return {"past": past, "window": reach}
