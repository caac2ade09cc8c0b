"""The log: one line on stderr for each request and each fault, without texts, tokens or keys.

A line is JSON, or plain words on a terminal.
"""

from __future__ import annotations

import contextlib
import json
import logging
import secrets
import sys
import time
import traceback
from collections.abc import AsyncGenerator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

LINE = 4096  # characters of a line
METHODS = ("GET", "HEAD", "POST", "DELETE", "OPTIONS")  # others are words of strangers
FRAMES = 8  # places in the code that a fault names


@dataclass
class RequestRecord:
    """What is known of a request while it is answered."""

    id: str = field(default_factory=lambda: f"req-{secrets.token_hex(8)}")
    begun: float = field(default_factory=time.monotonic)
    status: int = 0  # 499: the client went away
    model: str = ""
    usage: dict[str, int] = field(default_factory=dict)
    opened: list[AsyncGenerator[Any, None]] = field(default_factory=list)  # closed when it is over

    def line(self, route: str, method: str) -> dict[str, Any]:
        """What the log says of it."""
        method = method if method in METHODS else "other"
        found = {"id": self.id, "route": route, "method": method, "status": self.status}
        found |= {"model": self.model} if self.model else {}
        found |= {name: count for name, count in self.usage.items() if isinstance(count, int)}
        return {**found, "seconds": round(time.monotonic() - self.begun, 4)}


RECORD: ContextVar[RequestRecord] = ContextVar("record")


def record() -> RequestRecord:
    """That of the request being answered."""
    found = RECORD.get(None)
    if found is None:
        found = RequestRecord()
        RECORD.set(found)
    return found


def log(**facts: Any) -> None:
    """Write one line. JSON escapes control characters; what is too long is cut, and the line stays JSON."""
    if sys.stderr.isatty():
        write_line(plain(facts)[:LINE])
        return
    facts = {"time": round(time.time(), 3), **facts}
    line = json.dumps(facts)
    if len(line) > LINE:
        short = {
            name: value if isinstance(value, int | float) else str(value)[:80]
            for name, value in facts.items()
        }
        line = json.dumps(short)[:LINE]
    write_line(line)


def write_line(line: str) -> None:
    """Write a line with its end at once, so that nobody reads half of it."""
    with contextlib.suppress(OSError, ValueError):  # nobody reads the log any more
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


def plain(facts: dict[str, Any]) -> str:
    """A line as people read it: "22:04:10 POST /v1/completions 200, lm, 3 + 16 tokens, 0.1 s"."""
    if "notice" in facts:
        words = str(facts["notice"])
    elif "route" in facts:
        words = f"{facts['method']} {facts['route']} {facts['status']}"
        words += f", {facts['model']}" if "model" in facts else ""
        if "prompt_tokens" in facts:
            words += f", {facts['prompt_tokens']} + {facts.get('completion_tokens', 0)} tokens"
        words += f", {facts['seconds']:.2g} s"
    else:
        words = ", ".join(f"{name} {value}" for name, value in facts.items())
    line = f"{time.strftime('%H:%M:%S')} {words}"
    return "".join(letter if letter.isprintable() else "?" for letter in line)


def log_fault(error: BaseException, what: str = "") -> None:
    """Write where the program failed. The message is left out, since it may quote a request."""
    frames = traceback.extract_tb(error.__traceback__)[-FRAMES:]
    where = [f"{frame.filename.rpartition('site-packages/')[2]}:{frame.lineno}" for frame in frames]
    log(fault=type(error).__name__, what=what[:200], where=where)


class LogLines(logging.Handler):
    """What uvicorn and asyncio have to say, in the same form."""

    def emit(self, given: logging.LogRecord) -> None:
        what = str(given.msg).partition("\n")[0]  # without its values: they may quote a request
        if given.exc_info and given.exc_info[1] is not None:
            log_fault(given.exc_info[1], what)
        else:
            log(notice=what[:200], level=given.levelname.lower())


def log_as_lines() -> None:
    """Let the libraries write lines of ours. What they warn of is in the lines of the requests already."""
    for name in ("uvicorn", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [LogLines(logging.ERROR)], False
