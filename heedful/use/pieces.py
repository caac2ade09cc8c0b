"""Text as it comes: tokens are pushed one by one, and after each there is what can be shown.

No piece ends inside a character, and what may become a stop string is held back. All pieces together are the
text of all tokens, cut before the stop string that is complete first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .stops import begun, first_stop
from .wording import HALF, added

if TYPE_CHECKING:
    from .wording import Wording


class TextSoFar:
    """The text of tokens that come one by one, after a prompt if it goes on in its text."""

    def __init__(self, wording: Wording, prompt: Sequence[int] = (), stop: Sequence[str] = ()) -> None:
        self.wording, self.stop = wording, tuple(stop)
        self.ids, self.said = wording.tail(prompt)
        self.start, self.read = 0, len(self.ids)  # where the tokens begin that `said` is the text of, and end
        self.held = ""  # text that may be the beginning of a stop string
        self.stopped = False

    def add(self, token: int, ended: bool = False) -> tuple[str, bool]:
        """The text that can be shown now, and whether a stop string is complete. ended: by this token."""
        if not ended:
            self.ids.append(token)
        return self.shown(whole=ended), self.stopped

    def rest(self) -> str:
        """What was held back, when nothing follows."""
        return self.shown(whole=True)

    def shown(self, whole: bool) -> str:
        """All that no later token can change. whole: no token follows."""
        if self.stopped:
            return ""
        new = self.newest()
        is_half = new.endswith(HALF) and not whole
        text = self.held + (new.rstrip(HALF) if is_half else new)
        found = first_stop(text, self.stop)
        if found is not None:
            self.stopped = True
            return text[:found]
        if is_half:
            return ""
        if new:
            self.go_on(whole)
        safe = len(text) - (0 if whole else begun(text, self.stop))
        self.held = text[safe:]
        return text[:safe]

    def newest(self) -> str:
        """The text of the tokens that have none yet; its last character may be half."""
        if self.read == len(self.ids):
            return ""
        now = added(self.said, self.wording.decoded(self.ids[self.start :]))
        return self.wording.decoded(self.ids[self.read :]) if now is None else now

    def go_on(self, whole: bool) -> None:
        """The newest tokens have a text: they are what the next ones are read after. whole: none follow."""
        if whole:
            self.start, self.read, self.said = len(self.ids), len(self.ids), ""
            return
        self.start = self.start if self.said.endswith(HALF) else self.read
        self.read = len(self.ids)
        self.said = self.wording.decoded(self.ids[self.start :])
