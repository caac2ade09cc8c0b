"""A process that renders chat templates and is kept: the next conversation does not wait for it to start.

One line of JSON goes in, one comes out (chat_child.py). A process that breaks a limit, says too much or takes
too long is ended, and the next conversation gets another one.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import Any

from ...errors import BadInput
from ...files import MEGABYTE
from ..packages import needed
from . import chat_child

WRITTEN = 600_000  # characters of one conversation: as many as a text may have
SECONDS, PATIENCE = 0.7, 20.0  # of the processor's time; and of anybody's, should it not even start
MEMORY = 48 * MEGABYTE  # beyond what the process has before it looks at the template
ANSWER = 8 * MEGABYTE  # bytes of one answer
READ = 1 << 16  # bytes at a time


class TemplateProcess:
    """Renders conversations by one template. Threads that share it take turns."""

    def __init__(self, template: str, tokens: dict[str, str]) -> None:
        """tokens: those that the template may name, such as bos_token."""
        self.template, self.tokens = template, tokens
        self.turn = threading.Lock()
        self.process: subprocess.Popen[bytes] | None = None
        self.ending: weakref.finalize[Any, Any] | None = None
        self.owner = 0  # the process that started it: one that was forked starts its own

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.template, self.tokens)  # so does a copy

    def render(self, messages: list[dict[str, Any]], answer: bool) -> dict[str, Any]:
        """{"text": ...} or {"refused": why} of a conversation, or {"error": why} of the template."""
        request = json.dumps({"messages": messages, "answer": answer}).encode("ascii") + b"\n"
        with self.turn:
            try:
                process, first = self.running()
                said = meaning(process, exchange(process, first + request))
            except BaseException:  # Ctrl-C too: what it says later must answer nobody else
                self.close()
                raise
            if "error" in said:
                self.close()
            return said

    def running(self) -> tuple[subprocess.Popen[bytes], bytes]:
        """The process, and what it must be given first if it is new."""
        if self.process is not None and self.owner == os.getpid() and self.process.poll() is None:
            return self.process, b""
        self.close()
        self.process, self.owner = started(), os.getpid()
        self.ending = weakref.finalize(self, end, self.process, self.owner)
        said = {
            "path": [place for place in sys.path if place],
            "template": self.template,
            "given": self.tokens,
            "limits": {"seconds": SECONDS, "memory": MEMORY},
            "longest": WRITTEN,
        }
        return self.process, json.dumps(said).encode("ascii") + b"\n"

    def close(self) -> None:
        """End the process, if there is one."""
        if self.ending is not None:
            self.ending()
        self.process = self.ending = None


def started() -> subprocess.Popen[bytes]:
    """A process without our environment, in a session of its own: Ctrl-C at a terminal does not reach it."""
    needed("jinja2", "chat")
    try:
        import resource  # noqa: F401
    except ImportError:
        raise BadInput("chat templates are not rendered on a system that cannot limit a process") from None
    process = subprocess.Popen(
        [sys.executable, "-I", str(Path(chat_child.__file__))],
        env={},
        cwd="/",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        bufsize=0,
    )
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        os.set_blocking(pipe.fileno(), False)
    return process


def end(process: subprocess.Popen[bytes], owner: int) -> None:
    """End a process and wait for it, so that no zombie stays. A fork of its owner only lets go of it."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    if owner == os.getpid():
        process.kill()
        process.wait()


def exchange(process: subprocess.Popen[bytes], data: bytes) -> bytes | None:
    """What a process says to this, up to the end of a line or of all; None if it takes too long."""
    assert process.stdin is not None and process.stdout is not None
    deadline, found, left = time.monotonic() + PATIENCE, bytearray(), memoryview(data)
    with selectors.DefaultSelector() as ready:
        ready.register(process.stdout, selectors.EVENT_READ)
        ready.register(process.stdin, selectors.EVENT_WRITE)
        while not found.endswith(b"\n") and len(found) <= ANSWER:
            if not (some := ready.select(max(0.0, deadline - time.monotonic()))):
                return None
            for key, _ in some:
                if key.fileobj is process.stdin:
                    with contextlib.suppress(BrokenPipeError):  # it has ended, as its output will tell
                        left = left[os.write(key.fd, left[:READ]) :]
                        if left:
                            continue
                    ready.unregister(process.stdin)
                elif more := os.read(key.fd, READ):
                    found += more
                else:
                    return bytes(found)
    return bytes(found)


def meaning(process: subprocess.Popen[bytes], said: bytes | None) -> dict[str, Any]:
    """An answer as an object; whatever is none is an error."""
    if said is None:
        return {"error": f"was not done after {PATIENCE:.0f} seconds"}
    if not said.endswith(b"\n") and len(said) <= ANSWER and process.wait() != 0:
        limit = f"more than {SECONDS} seconds of work or {MEMORY // MEGABYTE} megabytes of memory"
        return {"error": f"was stopped: it takes {limit}"}
    try:
        found = json.loads(said)
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {"error": "gave no answer"}
