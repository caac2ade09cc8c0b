"""Stop strings: an answer ends before the first of them, wherever tokens begin and end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import BadInput

if TYPE_CHECKING:
    from .search import Request
    from .wording import Wording

MARGIN = 8  # tokens before those that can hold a stop string: enough to see how the text goes on


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
        places = [place for string in self.strings if (place := text.find(string)) >= 0]
        return text[: min(places)] if places else None

    def watch(self, requests: Sequence[Request]) -> Callable[[int, int], bool]:
        """What says of each new token (its row, and the token) whether a stop string is now complete."""
        rows: list[list[int]] = [[] for _ in requests]
        tail = max(len(string.encode()) for string in self.strings) + MARGIN

        def is_stopped(row: int, token: int) -> bool:
            rows[row].append(token)
            before = requests[row].prompt if requests[row].continues else ()
            if len(rows[row]) > tail and self.cut(self.words.decoded(rows[row][-tail:])) is None:
                return False
            return self.cut(self.words.text(rows[row], before)) is not None

        return is_stopped

    def stream(self, pieces: Iterable[str]) -> Iterator[str]:
        """The pieces of a text up to the first stop string; what may begin one is held back."""
        held = ""
        for piece in pieces:
            held += piece
            if (rest := self.cut(held)) is not None:
                if rest:
                    yield rest
                return
            safe = len(held) - self.begun(held)
            if safe:
                yield held[:safe]
            held = held[safe:]
        if held:
            yield held

    def begun(self, text: str) -> int:
        """How many characters at the end of a text are the beginning of a stop string."""
        longest = min(len(text), max(map(len, self.strings)) - 1)
        ends = (n for n in range(longest, 0, -1) if any(s.startswith(text[-n:]) for s in self.strings))
        return next(ends, 0)
