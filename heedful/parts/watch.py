"""Watching: look at the attention of a real model while it works.

    with watch(model) as trace:
        model(tokens)
    trace["stack.blocks.0.attention.layer"].weights[0]      # [B, H, T, S]

While watched, each attention computes openly, by the formula; when not, nothing of this is in its path.
A compiled model runs eagerly while watched: hooks added to compiled code would silently not fire.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor, nn

from .before.lookup import Lookup
from .multihead import MultiHeadAttention
from .positions.base import index_of
from .view import View

KINDS = ("weights", "scores", "q", "k", "v")
WATCHED = (MultiHeadAttention, Lookup)


@dataclass
class Record:
    """What one attention did, call by call (one call a step during generation)."""

    weights: list[Tensor] = field(default_factory=list)
    scores: list[Tensor] = field(default_factory=list)  # before bias, mask and softmax
    q: list[Tensor] = field(default_factory=list)
    k: list[Tensor] = field(default_factory=list)
    v: list[Tensor] = field(default_factory=list)
    k_pos: list[Tensor] = field(default_factory=list)  # whose column is whose; -1 for an empty cache slot


class Trace(dict[str, Record]):
    """Records by module path."""

    def weights(self) -> dict[str, Tensor]:
        """The last call's attention weights of every attention that was called."""
        return {path: record.weights[-1] for path, record in self.items() if record.weights}


def eagerly() -> AbstractContextManager[object]:
    """Run compiled code as it was written. Where nothing was compiled, spare the compiler's import."""
    return torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()


def is_watched(layer: MultiHeadAttention) -> bool:
    """Whether someone looks at this attention: it must then go through `layer.attend`, whatever else would be quicker."""
    return "attend" in layer.__dict__


@contextmanager
def watch(model: nn.Module, also: str | Sequence[str] = ()) -> Iterator[Trace]:
    """Record the attention weights of `model`, and what `also` names among "scores", "q", "k" and "v"."""
    also = (also,) if isinstance(also, str) else also
    for kind in also:
        if kind not in KINDS:
            raise ValueError(f'watch can record {", ".join(KINDS)}, not "{kind}"')
    wanted = {"weights", *also}
    model = getattr(model, "_orig_mod", model)  # what torch.compile wraps
    layers = {path: m for path, m in model.named_modules() if isinstance(m, WATCHED)}
    if not layers:
        raise ValueError(f"there is no attention to watch in {type(model).__name__}")
    trace = Trace({path: Record() for path in layers})

    outer = {path: layer.__dict__.get("attend") for path, layer in layers.items()}  # a watch around this one

    def keep(path: str, view: View, **tensors: Tensor) -> None:
        for kind in wanted:
            kept = tensors[kind].detach()
            getattr(trace[path], kind).append(kept.clone() if kind in "kv" else kept)  # a cache may write on
        trace[path].k_pos.append(index_of(view.k_pos))
        if (around := outer[path]) is not None:
            around.keywords["record"](view, **tensors)

    try:
        for path, layer in layers.items():
            layer.__dict__["attend"] = partial(layer.attend_recorded, record=partial(keep, path))
        with eagerly():
            yield trace
    finally:
        for path, layer in layers.items():
            layer.__dict__.pop("attend", None)
            if outer[path] is not None:
                layer.__dict__["attend"] = outer[path]
