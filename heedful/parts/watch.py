"""Watching: look at the attention of a real model while it works, and change it.

    with watch(model) as records:
        model(tokens)
    records["stack.blocks.0.attention.layer"].weights[0]      # [B, H, T, S]

A watch belongs to the thread that began it: others may use the same model meanwhile and notice nothing.
Modules stay as they are. Each attention asks whether this thread watches it, and if so computes by the
formula. Compiled code does not ask: while somebody watches, it runs eagerly. An `Editor` changes weights
before anybody records them (heedful/inside/edits.py).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from .positions.base import index_of
from .view import View

KINDS = ("weights", "scores", "bias", "allowed", "q", "k", "v")

Change = Callable[
    [str, Tensor], Tensor
]  # a module path and its attention weights to the weights to use instead
Keep = Callable[[str, str, Tensor], Tensor | None]  # a module path, a kind and a tensor to what is kept of it


class Watchable(nn.Module):
    """An attention that can be watched: it hands its weights to `observe`."""

    heads: int
    score: Any
    position: Any


@dataclass
class Record:
    """What one attention did, call by call (one call a step during generation).

    Attributes:
        weights: Attention weights [B, H, T, S] of each call.
        scores: Scaled scores before bias and mask, if they were requested.
        bias: What the position scheme added, if it was requested.
        allowed: Which keys each query may see, if it was requested.
        q: Queries, if they were requested.
        k: Keys, if they were requested.
        v: Values, if they were requested.
        k_pos: Positions of the keys, where they are not in order.

    Example:
        >>> len(Record().weights)
        0
    """

    weights: list[Tensor] = field(default_factory=list)
    scores: list[Tensor] = field(default_factory=list)  # before bias, mask and softmax
    bias: list[Tensor] = field(default_factory=list)  # what positions add to scores; empty where they do not
    allowed: list[Tensor] = field(default_factory=list)  # which keys a query may see, [1 or B, 1 or H, T, S]
    q: list[Tensor] = field(default_factory=list)
    k: list[Tensor] = field(default_factory=list)
    v: list[Tensor] = field(default_factory=list)
    k_pos: list[Tensor] = field(default_factory=list)  # whose column is whose; -1 for an empty cache slot


class Records(dict[str, Record]):
    """What the attentions of a model did, as a dictionary: {module path: `Record`}.

    Example:
        >>> Records().weights()
        {}
    """

    def weights(self) -> dict[str, Tensor]:
        """The last call's attention weights of every attention that was called.

        Returns:
            {module path: weights [B, H, T, S]}.
        """
        return {path: record.weights[-1] for path, record in self.items() if record.weights}


@dataclass(frozen=True)
class Watcher:
    """One `watch`: what it watches, what it records, and how it changes the weights."""

    paths: dict[nn.Module, str]
    wanted: set[str]
    change: Change | None
    records: Records
    keep: Keep | None = None

    def record(self, layer: nn.Module, view: View, tensors: dict[str, Tensor | None]) -> None:
        path = self.paths[layer]
        record = self.records[path]
        for kind in self.wanted:
            tensor = tensors.get(kind) if kind != "allowed" else allowed_by(view, tensors["weights"])
            if tensor is None:
                continue
            kept: Tensor | None = tensor.detach()
            kept = kept if self.keep is None or kept is None else self.keep(path, kind, kept)
            if kept is not None:
                getattr(record, kind).append(kept.clone() if kind in "kv" else kept)  # a cache may write on
        record.k_pos.append(index_of(view.k_pos))


def allowed_by(view: View, weights_BHTS: Tensor | None) -> Tensor:
    """What a view lets each head see, with all its queries and keys."""
    assert weights_BHTS is not None
    H, T, S = weights_BHTS.shape[1:]
    allowed = view.allowed(H)
    return allowed.expand(*allowed.shape[:-2], T, S)


class Editor(Protocol):
    """Whoever changes what attentions do, in one thread."""

    def edits(self, layer: nn.Module) -> bool:
        """Whether it changes the weights of a layer."""

    def edited(self, layer: nn.Module, view: View, weights_BHTS: Tensor) -> Tensor:
        """The weights to use instead."""


WATCHERS: ContextVar[tuple[Watcher, ...]] = ContextVar("watchers", default=())  # the innermost last
EDITORS: ContextVar[tuple[Editor, ...]] = ContextVar("editors", default=())  # the innermost last


def watchers_of(layer: nn.Module) -> list[Watcher]:
    """Whoever watches a layer in this thread, the innermost watch first."""
    return [watcher for watcher in reversed(WATCHERS.get()) if layer in watcher.paths]


def is_watched(layer: nn.Module) -> bool:
    """Whether this thread watches a layer, or edits its weights: then it must go through `layer.attend`, and
    by no faster way."""
    if torch.compiler.is_compiling():
        return False
    if WATCHERS.get() and watchers_of(layer):
        return True
    return any(editor.edits(layer) for editor in EDITORS.get())


def is_edited() -> bool:
    """Whether this thread edits a model: then only the model's own modules will do."""
    return not torch.compiler.is_compiling() and bool(EDITORS.get())


def observe(
    layer: nn.Module, view: View, weights_BHTS: Tensor, record: bool = True, **others: Tensor | None
) -> Tensor:
    """The attention weights to use, as whoever edits or watches changes them; recorded with `others`.

    record: False for calls that shall not be seen, because they will be made again.
    """
    if not is_watched(layer):
        return weights_BHTS
    for editor in EDITORS.get():
        if editor.edits(layer):
            weights_BHTS = editor.edited(layer, view, weights_BHTS)
    for watcher in watchers_of(layer):
        if watcher.change is not None:
            weights_BHTS = watcher.change(watcher.paths[layer], weights_BHTS)
        if record:
            watcher.record(layer, view, {"weights": weights_BHTS, **others})
    return weights_BHTS


@contextmanager
def watch(
    model: nn.Module,
    also: str | Sequence[str] = (),
    change: Change | None = None,
    keep: Keep | None = None,
) -> Iterator[Records]:
    """Record the attention weights of a model within a `with` block, and what `also` names.

    Args:
        model: The network, such as `heedful.load("runs/demo").model`.
        also: Among "scores", "bias", "allowed" (which keys a query may see), "q", "k" and "v".
        change: Given a module path and the weights [B, H, T, S] of one call, returns the weights that are
            used instead, and recorded.
        keep: Given a module path, a kind and a tensor, returns what is recorded of the tensor, or None for
            nothing.

    Yields:
        `Records`: by module path, what each attention did.

    Example:
        >>> model = heedful.load("runs/lm").model
        >>> with torch.no_grad(), heedful.watch(model) as records:
        ...     scores = model(torch.tensor([[5, 7, 9]]))
        >>> [tuple(weights.shape) for weights in records.weights().values()]
        [(1, 4, 3, 3), (1, 4, 3, 3)]
    """
    also = (also,) if isinstance(also, str) else also
    for kind in also:
        if kind not in KINDS:
            raise ValueError(f'watch can record {", ".join(KINDS)}, not "{kind}"')
    model = getattr(model, "_orig_mod", model)  # what torch.compile wraps
    paths: dict[nn.Module, str] = {m: path for path, m in model.named_modules() if isinstance(m, Watchable)}
    if not paths:
        raise ValueError(f"there is no attention to watch in {type(model).__name__}")
    records = Records({path: Record() for path in paths.values()})
    watcher = Watcher(paths, {"weights", *also}, change, records, keep)
    WATCHERS.set((*WATCHERS.get(), watcher))
    try:
        with eagerly():
            yield records
    finally:
        WATCHERS.set(tuple(one for one in WATCHERS.get() if one is not watcher))


class Eager:
    """How many ask compiled code to run eagerly.

    torch has one stance for all threads: the last one restores it.
    """

    def __init__(self) -> None:
        self.lock, self.count = Lock(), 0
        self.stance: Any = None

    def begin(self) -> None:
        with self.lock:
            self.count += 1
            if self.stance is None and "torch._dynamo" in sys.modules:  # else nothing is compiled
                self.stance = torch.compiler.set_stance("force_eager")

    def end(self) -> None:
        with self.lock:
            self.count -= 1
            if not self.count and self.stance is not None:
                self.stance.__exit__(None, None, None)
                self.stance = None


EAGER = Eager()


@contextmanager
def eagerly() -> Iterator[None]:
    """Run compiled code as it was written."""
    EAGER.begin()
    try:
        yield
    finally:
        EAGER.end()
