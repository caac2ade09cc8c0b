"""How far long work on files has come, in lines now and then."""

from __future__ import annotations

import time
from collections.abc import Callable

FIRST, NEXT = 3.0, 10.0  # seconds before the first line, and between lines


class FileProgress:
    """Says how many bytes are done, how fast, and how long the rest takes."""

    def __init__(self, doing: str, total: int, say: Callable[[str], None]) -> None:
        self.doing, self.total, self.say = doing, total, say
        self.done, self.began = 0, time.monotonic()
        self.due = self.began + FIRST

    def begin(self, how: str = "") -> None:
        """A first line, where the work is known to take long."""
        self.say(f"{self.doing} {size(self.total)}{how}")

    def add(self, count: int) -> None:
        """So many bytes more are done."""
        self.done += count
        now = time.monotonic()
        if now >= self.due and self.done < self.total:
            self.due = now + NEXT
            rate = self.done / (now - self.began)
            left = (self.total - self.done) / max(rate, 1.0)
            far = f"{size(self.done)} of {size(self.total)}"
            self.say(f"{self.doing}: {far}, {size(rate)} a second, about {left:.0f} s left")


def size(count: float) -> str:
    """Bytes as people read them."""
    for unit, least in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= least:
            return f"{count / least:.3g} {unit}"
    return f"{count:.0f} bytes"
