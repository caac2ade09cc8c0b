"""Watching: look at the attention of a real model while it works.

    with watch(model) as trace:
        model(tokens)
    trace["stack.blocks.0.attention.layer"].weights[0]      # [B, H, T, S]

While watched, each attention computes openly, by the formula; when not, nothing of this is in its path.
A compiled model runs eagerly while watched: hooks added to compiled code would silently not fire.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor, nn

from .attention import MultiHeadAttention

KINDS = ("weights", "scores", "q", "k", "v")


@dataclass
class Record:
    """What one attention did, call by call (one call a step during generation)."""

    weights: list[Tensor] = field(default_factory=list)
    scores: list[Tensor] = field(default_factory=list)  # before bias, mask and softmax
    q: list[Tensor] = field(default_factory=list)
    k: list[Tensor] = field(default_factory=list)
    v: list[Tensor] = field(default_factory=list)


class Trace(dict[str, Record]):
    """Records by module path."""

    def weights(self) -> dict[str, Tensor]:
        """The last call's attention weights of every attention that was called."""
        return {path: record.weights[-1] for path, record in self.items() if record.weights}


@contextmanager
def watch(model: nn.Module, also: Sequence[str] = ()) -> Iterator[Trace]:
    """Record the attention weights of `model`, and what `also` names among "scores", "q", "k" and "v"."""
    for kind in also:
        if kind not in KINDS:
            raise ValueError(f'watch can record {", ".join(KINDS)}, not "{kind}"')
    wanted = {"weights", *also}
    model = getattr(model, "_orig_mod", model)  # what torch.compile wraps
    layers = {path: m for path, m in model.named_modules() if isinstance(m, MultiHeadAttention)}
    if not layers:
        raise ValueError(f"there is no attention to watch in {type(model).__name__}")
    trace = Trace({path: Record() for path in layers})

    def keep(record: Record, **tensors: Tensor) -> None:
        for kind in wanted:
            getattr(record, kind).append(tensors[kind].detach())

    stance = torch.compiler.set_stance("force_eager")
    try:
        for path, layer in layers.items():
            layer.attend = partial(layer.openly, record=partial(keep, trace[path]))  # type: ignore[method-assign]
        with stance:
            yield trace
    finally:
        for layer in layers.values():
            layer.__dict__.pop("attend", None)
