"""Stop strings: an answer ends before the one that is complete first, wherever tokens begin and end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import BadInput

if TYPE_CHECKING:
    from .wording import Wording


def first_stop(text: str, stops: Sequence[str]) -> int | None:
    """Where the stop string begins that is complete first, or None. If two are, the longer one counts."""
    found = [(place + len(stop), place) for stop in stops if (place := text.find(stop)) >= 0]
    return min(found)[1] if found else None


def begun(text: str, stops: Sequence[str]) -> int:
    """How many characters at the end of a text may be the beginning of a stop string."""
    longest = min(len(text), max(map(len, stops), default=1) - 1)
    ends = (n for n in range(longest, 0, -1) if any(stop.startswith(text[-n:]) for stop in stops))
    return next(ends, 0)


@dataclass(frozen=True)
class StopStrings:
    """Strings that end an answer, and how its tokens become text."""

    words: Wording
    strings: tuple[str, ...]

    def __post_init__(self) -> None:
        if not all(self.strings):
            raise BadInput("an empty stop string would end every answer at once: leave it out")

    @property
    def tokens(self) -> list[int]:
        """Stop strings that are special tokens, which no text shows."""
        known = [self.words.writes.token_to_id(string) for string in self.strings]
        return [token for token in known if token is not None and not self.words.decoded([token])]

    def cut(self, text: str) -> str | None:
        """The text before the first stop string; None if it has none."""
        place = first_stop(text, self.strings)
        return None if place is None else text[:place]
