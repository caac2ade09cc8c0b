"""Hooks of one thread: functions that see, or replace, what modules are given and what they return.

Other threads may use the same modules meanwhile: the hooks notice whose call it is, and leave theirs alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from torch import nn

from ..parts.watch import eagerly

Before = Callable[[tuple[Any, ...]], tuple[Any, ...] | None]  # positional arguments to those to use instead
After = Callable[[tuple[Any, ...], Any], Any]  # positional arguments and output to the output to use instead


@dataclass(frozen=True)
class Hook:
    """What to do around the calls of one module. None as an answer changes nothing."""

    module: nn.Module
    before: Before | None = None
    after: After | None = None


SESSIONS: ContextVar[tuple[object, ...]] = ContextVar("hook sessions", default=())


@contextmanager
def hooked(hooks: Sequence[Hook]) -> Iterator[None]:
    """Call hooks around the calls that this thread makes. A hook that comes later acts later."""
    session, handles = object(), []

    def mine(hook: Callable[..., Any], with_output: bool) -> Callable[..., Any]:
        def call(module: nn.Module, *given: Any) -> Any:
            if session not in SESSIONS.get():
                return None
            return hook(*given) if with_output else hook(given[0])

        return call

    SESSIONS.set((*SESSIONS.get(), session))
    try:
        for hook in hooks:
            if hook.before is not None:
                handles.append(hook.module.register_forward_pre_hook(mine(hook.before, False)))
            if hook.after is not None:
                handles.append(hook.module.register_forward_hook(mine(hook.after, True)))
        with eagerly():
            yield
    finally:
        for handle in handles:
            handle.remove()
        SESSIONS.set(tuple(one for one in SESSIONS.get() if one is not session))
