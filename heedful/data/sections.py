"""Where long texts are cut: files into sections of whole lines, and sections into parts of about one size.

Every part is read alone, by whatever process has time for it. Where the cuts are follows from the files only,
so that any number of processes makes the same of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import BadInput
from ..files import naming, one_line
from .documents import has_rows, section_documents, text_files
from .progress import FileProgress
from .report import Fault, Report
from .text_file import CHUNK, Checksum, Section, is_zipped, refuse_irregular
from .workers import at_once, cores

PART = 1 << 26  # bytes of a file
MOST_PARTS = 4096  # of a text: larger ones have larger parts


# Cutting


def parts_of(path: str | Path, apart: bool) -> list[list[Section]]:
    """The parts of a file or folder, in its order. apart: a file that is one document is not cut."""
    files = [(file, size_of(file)) for file in text_files(path)]
    size = max(PART, sum(there for _, there in files) // MOST_PARTS)
    found: list[list[Section]] = []
    part: list[Section] = []
    for file, there in files:
        for section in sections_of(file, there, size, whole=apart and not has_rows(file)):
            part.append(section)
            if sum_of(part) >= size:
                found.append(part)
                part = []
    return [*found, part] if part else found


def size_of(path: Path) -> int:
    with naming(path):
        refuse_irregular(path)
        return path.stat().st_size


def sum_of(sections: Sequence[Section]) -> int:
    return sum(section.bytes for section in sections)


def sections_of(path: Path, there: int, size: int, whole: bool) -> Iterator[Section]:
    """A file in sections of about `size` bytes, cut after line ends; gzip cannot be cut."""
    start = 0
    if there > size and not whole:
        with naming(path), path.open("rb") as file:
            places = [] if is_zipped(file) else range(size, there - size // 2, size)
            for place in places:
                if place <= start:
                    continue
                file.seek(place)
                stop = place
                while chunk := file.read(CHUNK):
                    end = chunk.find(b"\n")
                    stop += len(chunk) if end < 0 else end + 1
                    if end >= 0:
                        break
                if start < stop < there:
                    yield Section(str(path), start, stop)
                    start = stop
    yield Section(str(path), start, there)


# Reading through


@dataclass(frozen=True)
class Surveyed:
    """What one part holds."""

    sections: list[Section]
    sha256: str
    characters: int
    said: bool  # whether any of them is no white space
    report: Report  # of bad lines; those of the first section are counted from where it begins
    lines: tuple[int, int]  # of the first section, and of the last


@dataclass(frozen=True)
class Surveyor:
    """Reads parts of a text through, without keeping any of it."""

    column: str

    def __call__(self, sections: list[Section]) -> Surveyed:
        report, characters, said = Report(), 0, False
        whole, lines = hashlib.sha256(), []
        for section in sections:
            checksum = Checksum()
            for document in section_documents(section, self.column, report, checksum):
                for piece in document:
                    characters += len(piece)
                    said = said or not piece.isspace()
            add_section(whole, section, checksum)
            lines.append(checksum.lines)
        return Surveyed(sections, whole.hexdigest(), characters, said, report, (lines[0], lines[-1]))


def survey(
    path: str | Path, column: str, apart: bool, say: Callable[[str], None], processes: int | None = None
) -> list[Surveyed]:
    """What every part of a text holds, in order."""
    parts = parts_of(path, apart)
    found: dict[int, Surveyed] = {}
    progress = FileProgress("reading", sum(map(sum_of, parts)), say)
    for number, surveyed in at_once(Surveyor(column), parts, processes or cores()):
        found[number] = surveyed
        progress.add(sum_of(parts[number]))
    return [found[number] for number in range(len(parts))]


def add_section(whole: hashlib._Hash, section: Section, checksum: Checksum) -> None:
    """The hash of a part grows by a section, whatever its file is called."""
    kind = f"{section.start == 0} {has_rows(section.path)} {checksum.bytes}\n"
    whole.update(kind.encode() + checksum.sha256.digest())


def merged(parts: Sequence[Surveyed], policy: str) -> Report:
    """The bad lines of all parts, by their numbers in their files; "refuse" stops at the first one."""
    found, before = Report(), 0
    for part in parts:
        first = part.sections[0]
        before = before if first.start else 0  # lines of its file in the parts before
        shifted = shift(part.report, first.path, before)
        if policy == "refuse" and shifted.counts:
            kind, (path, line, why) = min(
                ((kind, places[0]) for kind, places in shifted.firsts.items()),
                key=lambda item: (order(part.sections, item[1][0]), item[1][1]),
            )
            Report("refuse").bad(path, line, Fault(kind, why))
        found.add(shifted)
        before = part.lines[1] + (before if len(part.sections) == 1 else 0)
    return found


def order(sections: Sequence[Section], path: str) -> int:
    return next(i for i, section in enumerate(sections) if section.path == path)


def shift(report: Report, path: str, lines: int) -> Report:
    """The same report, with the places in one file so many lines further on."""
    firsts = {
        kind: [(file, line + lines if file == path else line, why) for file, line, why in places]
        for kind, places in report.firsts.items()
    }
    return Report(report.policy, report.unit, report.counts, firsts)


# Of what a shard is made


@dataclass(frozen=True)
class Stretch:
    """The text of some sections from one character to another."""

    sections: list[Section]
    sha256: str
    column: str
    start: int
    stop: int
    more: bool  # whether text follows: then a line end stands behind the last document

    @property
    def bytes(self) -> int:
        """About how many it has in its files."""
        return sum_of(self.sections)

    @property
    def facts(self) -> dict[str, object]:
        """What its tokens depend on: not the names of files, nor when they were written."""
        return {"text": self.sha256, "characters": [self.start, self.stop], "more": self.more}

    def read(self) -> Iterator[Iterator[str]]:
        """Its documents, each in pieces. The text must be what was surveyed, or none of it counts."""
        yield from between(self._documents(), self.start, self.stop)

    def _documents(self) -> Iterator[Iterator[str]]:
        whole = hashlib.sha256()
        for section in self.sections:
            checksum = Checksum()
            yield from section_documents(section, self.column, Report(), checksum)
            add_section(whole, section, checksum)
        if whole.hexdigest() != self.sha256:
            names = " or ".join(dict.fromkeys(section.path for section in self.sections[:3]))
            changed = f"{names} changed while it was read"
            raise BadInput(one_line(f"{changed}: start again once nobody writes to it"))


def between(documents: Iterable[Iterator[str]], start: int, stop: int) -> Iterator[Iterator[str]]:
    """What lies between two characters; all is read, and a document that a cut goes through is in part."""
    at = 0

    def part(document: Iterator[str]) -> Iterator[str]:
        nonlocal at
        for piece in document:
            first, last = (min(max(place - at, 0), len(piece)) for place in (start, stop))
            at += len(piece)
            if first < last:
                yield piece[first:last]

    for document in documents:
        if at >= stop:
            for _ in document:
                pass
        else:
            yield part(document)


def stretches(parts: Sequence[Surveyed], column: str, start: int, stop: int) -> list[Stretch]:
    """The text from one character to another, part by part."""
    found: list[Stretch] = []
    at = 0
    for part in parts:
        first, last = (min(max(place - at, 0), part.characters) for place in (start, stop))
        at += part.characters
        if first < last:
            found.append(Stretch(part.sections, part.sha256, column, first, last, False))
    after = [begins_document(later.sections[0]) for later in found[1:]]
    return [replace(one, more=more) for one, more in zip(found, [*after, False], strict=False)]


def begins_document(section: Section) -> bool:
    return section.start == 0 or has_rows(section.path)
