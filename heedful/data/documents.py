"""Documents: running text of files and folders, in pieces of bounded size."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NoReturn

from ..errors import BadInput
from ..files import one_line
from .lines import is_dataset, judged_lines
from .report import Fault, Report
from .tables import Row, checked, objects
from .text_file import BYTES, Checksum, Section, TextFile, judge, open_text

PIECE = 1 << 16  # bytes of a text without line ends before it is cut elsewhere
DOCUMENT = 4_000_000  # a book may stand in one line of JSON


def read_texts(path: str | Path, *, column: str = "text", report: Report | None = None) -> Iterator[str]:
    r"""Read all documents of a file or a folder as one text, in pieces that end at line ends.

    Args:
        path: A text file, a folder of them, JSON lines (.jsonl), or a Hugging Face data set ("hf:NAME").
        column: The key of the text in JSON lines, or its column in a data set.
        report: Where bad lines are counted, or refused. None: they are dropped.

    Yields:
        Pieces of about 64 KiB. Together they are the text.

    Example:
        >>> _ = Path("book.txt").write_text("One day.\nThe next day.\n")
        >>> "".join(read_texts("book.txt"))
        'One day.\nThe next day.\n'
    """
    return joined(read_documents(path, column=column, report=report))


def joined(documents: Iterable[Iterable[str]]) -> Iterator[str]:
    """Documents as one text: a line end stands between them, if there was none."""
    held = ""
    for document in documents:
        if held and not held.endswith("\n"):
            held += "\n"
        for piece in document:
            if held:
                yield held
            held = piece
    if held:
        yield held


def read_documents(
    path: str | Path, *, column: str = "text", report: Report | None = None
) -> Iterator[Iterator[str]]:
    r"""Read documents one after the other: each file is one, and each object of JSON lines.

    Args:
        path: A text file, a folder of them, JSON lines (.jsonl), or a Hugging Face data set ("hf:NAME").
        column: The key of the text in JSON lines, or its column in a data set.
        report: Where bad lines are counted, or refused. None: they are dropped.

    Yields:
        An iterator over the pieces of each document.

    Example:
        >>> _ = Path("two.jsonl").write_text('{"text": "One day."}\n{"text": "Night."}\n')
        >>> ["".join(pieces) for pieces in read_documents("two.jsonl")]
        ['One day.', 'Night.']
    """
    report = report or Report()
    if is_dataset(path):
        named = str(path) if "#" in str(path) else f"{path}#{column}"
        lines = judged_lines(named, DOCUMENT)
        yield from row_documents(named, lines, lambda line: checked([column], [line]), report)
        return
    for file in text_files(path):
        yield from section_documents(Section.whole(file), column, report)


def section_documents(
    section: Section, column: str, report: Report, checksum: Checksum | None = None
) -> Iterator[Iterator[str]]:
    """The documents of a section, each in pieces; its lines are counted from 1."""
    path = section.path
    if has_rows(path):
        read = objects(path, [column], first=section.start == 0)
        yield from row_documents(path, judged_lines(section, DOCUMENT, checksum), read, report)
    else:
        yield read_pieces(section, report, checksum)


def has_rows(path: str | Path) -> bool:
    """Whether every line of a file is a document of its own, by its name."""
    return str(path).removesuffix(".gz").endswith(".jsonl")


def row_documents(
    path: str, lines: Iterable[str | Fault], read: Callable[[str], Row | Fault], report: Report
) -> Iterator[Iterator[str]]:
    """Every row is a document; one that says nothing is none, which is no fault."""
    for number, line in enumerate(lines, 1):
        row = line if isinstance(line, Fault) else read(line)
        if not isinstance(row, Fault):
            yield in_pieces(row[0])
        elif row.kind != "empty":
            report.bad(path, number, row)


def in_pieces(text: str) -> Iterator[str]:
    """A text in pieces of bounded size, cut after a line end, or before a space, or anywhere."""
    at = 0
    while len(text) - at > PIECE:
        end = text.rfind("\n", at, at + PIECE) + 1 or text.rfind(" ", at + 1, at + PIECE)
        end = end if end > at else at + PIECE
        yield text[at:end]
        at = end
    if at < len(text):
        yield text[at:]


def text_files(path: str | Path) -> Iterator[Path]:
    """The file itself, or the files of a folder and of those in it by name, except hidden ones."""
    path = Path(path)
    if not os.path.isdir(path):  # never an error
        yield path
        return
    found = False
    for folder, folders, names in os.walk(path, onerror=refuse):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(name for name in names if not name.startswith(".")):
            found = True
            yield Path(folder, name)
    if not found:
        raise BadInput(one_line(f"{path} holds no text file"))


def refuse(error: OSError) -> NoReturn:
    raise BadInput(one_line(f"{error.filename} cannot be read: {error.strerror}"))


def read_pieces(section: Section, report: Report, checksum: Checksum | None = None) -> Iterator[str]:
    """A section's text in pieces of about 64 KiB, and at most about 128 where there are no line ends."""
    with open_text(section, checksum) as file:
        path, line = Path(section.path), 1
        for block in blocks(file):
            if text := decoded(path, line, block, report):
                yield text
            line += block.count(b"\n")


def blocks(file: TextFile) -> Iterator[bytes]:
    """Bytes up to the last line end; in a very long line, up to a space or at least a whole character."""
    rest = b""
    while chunk := file.read():
        rest += chunk
        end = rest.rfind(b"\n") + 1
        if not end and len(rest) > PIECE:
            end = max(rest.rfind(b" "), 0) or start_of_last_character(rest)
        if end:
            yield rest[:end]
            rest = rest[end:]
    if rest:
        yield rest


def start_of_last_character(data: bytes) -> int:
    """Where to cut so that neither a character nor CR LF is cut in two."""
    ends = range(len(data) - 1, len(data) - 1 - BYTES, -1)
    return next((at for at in ends if data[at] & 0xC0 != 0x80), ends[0])


def decoded(path: Path, line: int, block: bytes, report: Report) -> str:
    """The text of whole lines; if a bad one is among them, of the others."""
    try:
        text = block.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" not in text:
        return text.replace("\r\n", "\n")
    good = []
    raws = block.split(b"\n")
    for number, raw in enumerate(raws, line):
        kept = judge(raw, len(raw))
        if isinstance(kept, Fault):
            report.bad(path, number, kept)
        else:
            good.append(kept + "\n" if number < line + len(raws) - 1 else kept)
    return "".join(good)
