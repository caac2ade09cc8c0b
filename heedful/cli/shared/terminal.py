"""Printing for people: lines, progress, tables by rich, pictures in letters."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sized
from pathlib import Path
from typing import Any, TypeVar

from ...errors import BadInput
from ...files import one_line, present

T = TypeVar("T")
PATIENCE, QUIET = 3.0, 10.0  # seconds before the first line about progress, and between lines


def say(line: str) -> None:
    """A line on stderr."""
    print(one_line(line), file=sys.stderr, flush=True)


def flat(text: str) -> str:
    """A text on one line: a model may write line ends, which would put the output out of step."""
    return str(text).replace("\r", " ").replace("\n", " ")


def check_free(path: Path) -> None:
    """Refuse to write a file where there is one already, or where there is no folder for it."""
    if present(path):
        raise BadInput(one_line(f"{path} is there already: give another --output, or move it away"))
    if not path.parent.is_dir():
        raise BadInput(one_line(f"{path.parent} is no folder, so {path.name} cannot be written there"))


def show_rich(*things: Any) -> None:
    """Print what rich draws, on stdout, as wide and as colored as stdout is."""
    from rich.console import Console

    console = Console(highlight=False, markup=False)
    with console.capture() as captured:  # printed by us, so that a closed pipe is everyone's same error
        for thing in things:
            console.print(thing)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))


def drawable(text: str) -> str:
    """The same picture in letters, where stdout has no blocks."""
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
        return text
    except UnicodeEncodeError:
        return text.translate(str.maketrans("░▒▓█■·", ".:+##."))


def track(items: Iterable[T], doing: str, unit: str = "batch") -> Iterator[T]:
    """Hand on items one by one; if it takes long, show progress on stderr: a bar, or a line now and then."""
    total = len(items) if isinstance(items, Sized) else None
    if sys.stderr.isatty():
        return with_bar(items, doing, total)
    return with_lines(items, doing, total, unit)


def with_bar(items: Iterable[T], doing: str, total: int | None) -> Iterator[T]:
    from rich.console import Console
    from rich.progress import track as draw

    yield from draw(items, doing, total=total, console=Console(stderr=True), transient=True)


def with_lines(items: Iterable[T], doing: str, total: int | None, unit: str) -> Iterator[T]:
    began = time.monotonic()
    due = began + PATIENCE
    for done, item in enumerate(items):
        now = time.monotonic()
        if now >= due:
            due = now + QUIET
            far = f"part {done}" if total is None else f"{unit} {done} of {total}"
            left = f", about {(now - began) * (total - done) / done:.0f} s left" if total and done else ""
            say(f"{doing}: {far}{left}")
        yield item
