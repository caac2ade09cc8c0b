"""Text as it comes: tokens one by one, and after each what can be shown, up to a stop string."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .wording import Wording

HALF = "\ufffd"  # what decoding makes of a part of a character
TAIL = 8  # tokens before the first that decide how it is spelled


class TextSoFar:
    """The text of tokens that come one by one. What may become a stop string is kept back."""

    def __init__(self, wording: Wording, prompt: Sequence[int] = (), stop: Sequence[str] = ()) -> None:
        self.wording, self.stop = wording, tuple(stop)
        self.ids = list(prompt[-TAIL:])
        self.start, self.read = 0, len(self.ids)
        self.said = wording.decoded(self.ids)
        self.kept = ""  # text that is not shown yet
        self.stopped = False

    def add(self, token: int, ended: bool = False) -> tuple[str, bool]:
        """The text that can be shown now, and whether a stop string was met. ended: by this token."""
        if not ended:
            self.ids.append(token)
            self.kept += self.fresh()
        else:
            self.kept += self.remaining()
        return self.shown(whole=ended), self.stopped

    def rest(self) -> str:
        """What was kept back, when nothing follows."""
        self.kept += self.remaining()
        return self.shown(whole=True)

    def fresh(self) -> str:
        """Whole characters that the newest token has completed."""
        now = self.wording.decoded(self.ids[self.start :])
        if len(now) <= len(self.said) or now.endswith(HALF):
            return ""
        new = now[len(self.said) :]
        self.start, self.read = self.read, len(self.ids)
        self.said = self.wording.decoded(self.ids[self.start : self.read])
        return new

    def remaining(self) -> str:
        """The rest of the tokens as text, half characters included."""
        now = self.wording.decoded(self.ids[self.start :])
        new = now[len(self.said) :]
        self.said = now
        return new

    def shown(self, whole: bool) -> str:
        """Take from what was kept all that no stop string can begin with."""
        found = [place for place in map(self.kept.find, self.stop) if place >= 0]
        if found:
            self.stopped, shown, self.kept = True, self.kept[: min(found)], ""
            return shown
        back = 0 if whole else max((overlap(self.kept, stop) for stop in self.stop), default=0)
        shown, self.kept = self.kept[: len(self.kept) - back], self.kept[len(self.kept) - back :]
        return shown


def overlap(text: str, stop: str) -> int:
    """How many characters at the end of a text are the beginning of a stop string."""
    most = min(len(text), len(stop) - 1)
    return next((size for size in range(most, 0, -1) if text.endswith(stop[:size])), 0)
