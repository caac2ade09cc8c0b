"""Bad lines: what is wrong with each, counted by kind, and where the first few are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar

from ..errors import BadInput
from ..files import one_line, short

FIRST = 5  # places kept of each kind of bad line


class Fault(NamedTuple):
    """What is wrong with a line: its kind, to be counted, and why, to be read."""

    kind: str
    why: str


@dataclass
class Report:
    """Bad lines, counted by kind, with the first few places of each.

    Args:
        policy: "drop" counts bad lines and goes on; "refuse" stops at the first.
        unit: What a place is called: "line", or "image".
        counts: Bad lines of each kind.
        firsts: (file, line, reason) of the first few of each kind.

    Example:
        >>> report = Report()
        >>> report.bad("a.en", 17, Fault("empty", "the line is empty"))
        >>> report.counts["empty"], report.sentence()
        (1, '1 line dropped: 1 empty (a.en:17)')
    """

    policy: str = "drop"
    unit: str = "line"  # or "image", where a file is one, and has no lines
    counts: Counter[str] = field(default_factory=Counter)
    firsts: dict[str, list[tuple[str, int, str]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.policy not in ("drop", "refuse"):
            raise BadInput(f'bad lines can be met with "drop" or "refuse", not {short(self.policy)}')

    def bad(self, path: str | Path, line: int, fault: Fault) -> None:
        """Count a bad line, or refuse it."""
        if self.policy == "refuse":
            raise BadInput(one_line(f"{path}:{line}: {fault.why}"))
        self.counts[fault.kind] += 1
        places = self.firsts.setdefault(fault.kind, [])
        if len(places) < FIRST:
            places.append((str(path), line, fault.why))

    def add(self, later: Report) -> None:
        """Count what another report has of lines further on."""
        self.counts.update(later.counts)
        for kind, places in later.firsts.items():
            mine = self.firsts.setdefault(kind, [])
            mine += places[: FIRST - len(mine)]

    def sentence(self) -> str:
        """Say what was dropped, in one sentence.

        Returns:
            For example "3 lines dropped: 2 not UTF-8 (first a.en:17), 1 empty (a.de:4)".
        """
        total = self.counts.total()
        if not total:
            return f"no {self.unit} dropped"
        kinds = ", ".join(self._clause(kind, count) for kind, count in self.counts.most_common())
        return one_line(f"{total} {self.unit}{'' if total == 1 else 's'} dropped: {kinds}")

    def _clause(self, kind: str, count: int) -> str:
        path, line, _ = self.firsts[kind][0]
        place = f"{path}:{line}" if line else path
        return f"{count} {kind} ({'first ' if count > 1 else ''}{place})"


Lines = TypeVar("Lines", str, tuple[str, str])


def not_in_vain(texts: Iterable[Lines], where: str, report: Report) -> Iterator[Lines]:
    """The same texts; if none of them says anything, the files are named, and what was dropped of them."""
    said = False
    for text in texts:
        said = said or bool("".join(text).strip())
        yield text
    if not said:
        raise BadInput(no_text(where, report))


def no_text(where: str, report: Report) -> str:
    return one_line(f"there is no text in {where} ({report.sentence()})")


def fault_of(line: str | Fault) -> Fault | None:
    return line if isinstance(line, Fault) else if_empty(line)


def too_long(limit: int) -> Fault:
    return Fault("too long", f"longer than {limit} characters: cut the line")


def with_nul(text: str) -> Fault:
    return Fault("with NUL", f"character {text.index(chr(0)) + 1} is NUL, which no text has")


def if_empty(text: str, what: str = "the line") -> Fault | None:
    return None if text.strip() else Fault("empty", f"{what} is empty")
