"""The user's files, read line by line in constant memory: every bad line is counted and can be found again.

A line ends with LF or CRLF and nothing else: a text may hold any of Unicode's other line ends, and splitting
there would put two files out of step.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from io import BufferedReader
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple, NoReturn, TypeVar

from ..errors import BadInput
from ..files import naming, one_line, present, short
from ..models import nearest

CHUNK = 1 << 16  # bytes read at a time
PIECE = 1 << 16  # bytes of a text without line ends before it is cut elsewhere
LINE = 10_000  # characters
TABLE_LINE = 100_000  # an article to summarize stands in one cell
DOCUMENT = 4_000_000  # a book may stand in one line of JSON
BYTES = 4  # of the longest character in UTF-8
FIRST = 5  # places kept of each kind of bad line

GZIP, BOM = b"\x1f\x8b", b"\xef\xbb\xbf"
FOREIGN = {
    b"\xff\xfe": "UTF-16 text: convert it with iconv -f utf-16 -t utf-8",
    b"\xfe\xff": "UTF-16 text: convert it with iconv -f utf-16 -t utf-8",
    b"PK\x03\x04": "a zip file: unpack it first",
    b"BZh": "compressed by bzip2: unpack it first, or use gzip",
    b"\xfd7zXZ": "compressed by xz: unpack it first, or use gzip",
    b"\x28\xb5\x2f\xfd": "compressed by zstd: unpack it first, or use gzip",
}


# Bad lines


class Fault(NamedTuple):
    """What is wrong with a line: its kind, to be counted, and why, to be read."""

    kind: str
    why: str


@dataclass
class Report:
    """Bad lines by kind, with the first few places; policy "refuse" stops at the first, "drop" goes on."""

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

    def sentence(self) -> str:
        """For example "3 lines dropped: 2 not UTF-8 (first a.en:17), 1 empty (a.de:4)"."""
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
        raise BadInput(one_line(f"there is no text in {where} ({report.sentence()})"))


def hash_of(texts: Sequence[object]) -> str:
    """SHA-256 of some texts, to tell later whether they are still the same."""
    return hashlib.sha256(repr(texts).encode()).hexdigest()


# Bytes


class TextFile:
    """The bytes of a plain or gzip file, less a byte order mark, and the line they have reached."""

    def __init__(self, path: Path, file: BufferedReader | gzip.GzipFile) -> None:
        self.path, self.line = path, 1
        self._file, self._started = file, False

    def read(self) -> bytes:
        """The next bytes, at most about 64 KiB; none at the end."""
        data = self._read()
        if not self._started:
            self._started = True
            while len(data) <= len(BOM) and (more := self._read()):
                data += more
            self._refuse_foreign(data)
            data = data.removeprefix(BOM)
        self.line += data.count(b"\n")
        return data

    def _read(self) -> bytes:
        # One read of what lies below, so that a fault takes nothing with it that came before.
        try:
            return self._file.read1(CHUNK)
        except EOFError:
            raise BadInput(self._at("the gzip file breaks off here: copy or make it again")) from None
        except (gzip.BadGzipFile, zlib.error) as error:
            raise BadInput(self._at(f"the gzip file is damaged: {error}")) from None
        except OSError as error:
            raise BadInput(self._at(f"cannot be read: {error.strerror}")) from None

    def _at(self, why: str) -> str:
        return one_line(f"{self.path}:{self.line}: {why}")

    def _refuse_foreign(self, data: bytes) -> None:
        for start, what in FOREIGN.items():
            if data.startswith(start):
                raise BadInput(one_line(f"{self.path} is {what}"))


@contextmanager
def open_text(path: str | Path) -> Iterator[TextFile]:
    """A regular file, plain or gzip by its content, whatever its name."""
    path = Path(path)
    with naming(path):
        refuse_irregular(path)
        file = path.open("rb")
    with file:
        zipped = file.peek(len(GZIP)).startswith(GZIP)
        with gzip.GzipFile(fileobj=file) if zipped else nullcontext(file) as content:
            yield TextFile(path, content)


def refuse_irregular(path: Path) -> None:
    """A pipe may never answer, and texts are read more than once."""
    if not path.exists():
        raise BadInput(f"{path} is a link that leads nowhere" if present(path) else f"{path} is missing")
    if path.is_dir():
        raise BadInput(f"{path} is a folder, where a file is expected")
    if not path.is_file():
        raise BadInput(f"{path} is not a regular file: write what it gives into one first")


def is_dataset(path: str | Path) -> bool:
    """Whether this is no file but the name of a Hugging Face data set (see datasets.py)."""
    return str(path).startswith("hf:")


# Lines


def read_lines(path: str | Path, *, limit: int = LINE, report: Report | None = None) -> Iterator[str]:
    """The good lines of a text file, each at most `limit` characters long, without their ends."""
    report = report or Report()
    for number, line in enumerate(judged_lines(path, limit), 1):
        if isinstance(line, Fault):
            report.bad(path, number, line)
        else:
            yield line


def judged_lines(path: str | Path, limit: int) -> Iterator[str | Fault]:
    """Every line or what is wrong with it, so that files can be read in step; of a data set, every row."""
    if is_dataset(path):
        from .datasets import judged_rows

        yield from judged_rows(str(path), limit)
        return
    with open_text(path) as file:
        for raw in raw_lines(file, BYTES * limit):
            yield judge(raw, limit)


def raw_lines(file: TextFile, most: int) -> Iterator[bytes]:
    """Lines without LF; of one that is longer than `most` bytes, enough to see that it is."""
    rest = b""
    while chunk := file.read():
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines
        rest = rest[: most + 2]  # one more than allowed, and perhaps a CR
    if rest:
        yield rest


def judge(raw: bytes, limit: int) -> str | Fault:
    """The text of a line, or what is wrong with it."""
    raw = raw.removesuffix(b"\r")
    if len(raw) > BYTES * limit:
        return too_long(limit)
    try:
        line = raw.decode()
    except UnicodeDecodeError as error:
        return Fault("not UTF-8", f"not UTF-8: byte {error.start + 1} of the line is no part of a character")
    if "\0" in line:
        return with_nul(line)
    return too_long(limit) if len(line) > limit else line


def too_long(limit: int) -> Fault:
    return Fault("too long", f"longer than {limit} characters: cut the line")


def with_nul(text: str) -> Fault:
    return Fault("with NUL", f"character {text.index(chr(0)) + 1} is NUL, which no text has")


def if_empty(text: str, what: str = "the line") -> Fault | None:
    return None if text.strip() else Fault("empty", f"{what} is empty")


# Two files in step


def read_parallel(
    source: str | Path, target: str | Path, *, limit: int = LINE, report: Report | None = None
) -> Iterator[tuple[str, str]]:
    """Pairs of good lines in step; a pair goes if either side is bad or empty, and unequal files are refused."""
    report = report or Report()
    for side in (source, target):
        if is_dataset(side) and "#" not in str(side):
            raise BadInput(one_line(f"{side}: say which column holds the sentences, by #COLUMN at the end"))
    left, right = judged_lines(source, limit), judged_lines(target, limit)
    for number, (a, b) in enumerate(zip_longest(left, right), 1):
        if a is None or b is None:
            longer = number + sum(1 for _ in (right if a is None else left))
            refuse_unequal(source, target, *((number - 1, longer) if a is None else (longer, number - 1)))
        elif fault := fault_of(a):
            report.bad(source, number, fault)
        elif fault := fault_of(b):
            report.bad(target, number, fault)
        else:
            yield str(a), str(b)


def fault_of(line: str | Fault) -> Fault | None:
    return line if isinstance(line, Fault) else if_empty(line)


def refuse_unequal(source: str | Path, target: str | Path, sources: int, targets: int) -> NoReturn:
    pairing = "line N of one must belong to line N of the other"
    raise BadInput(one_line(f"{source} has {sources} lines and {target} has {targets}: {pairing}"))


# Tables


Row = tuple[str, ...]


def read_table(
    path: str | Path, columns: list[str], *, limit: int = TABLE_LINE, report: Report | None = None
) -> Iterator[Row]:
    """The named columns of tab-separated lines under a header, not quoted, or of JSON objects, one a line."""
    report = report or Report()
    lines = enumerate(judged_lines(path, limit), 1)
    read = objects(path, columns) if is_json(path) else cells(path, columns, lines)
    for number, line in lines:
        row = line if isinstance(line, Fault) else read(line)
        if isinstance(row, Fault):
            report.bad(path, number, row)
        else:
            yield row


def is_json(path: str | Path) -> bool:
    """Whether the first thing in a file opens an object. The rows of a data set are objects."""
    if is_dataset(path):
        if "#" in str(path):
            raise BadInput(
                one_line(f"{path}: whole rows are read here: leave out #COLUMN, settings name columns")
            )
        return True
    with open_text(path) as file:
        return file.read().lstrip().startswith(b"{")


def cells(
    path: str | Path, columns: list[str], lines: Iterator[tuple[int, str | Fault]]
) -> Callable[[str], Row | Fault]:
    """What reads a line of cells; the header is taken from `lines`."""
    header = read_header(path, lines)
    places = [place_of(path, column, header) for column in columns]

    def read(line: str) -> Row | Fault:
        found = line.split("\t")
        if len(found) != len(header):
            return Fault(
                "with a wrong number of cells", f"{len(found)} cells stand under {len(header)} columns"
            )
        return checked(columns, [found[place] for place in places])

    return read


def read_header(path: str | Path, lines: Iterator[tuple[int, str | Fault]]) -> list[str]:
    for number, line in lines:
        if isinstance(line, Fault):
            raise BadInput(one_line(f"{path}:{number}: the line that names the columns: {line.why}"))
        return [name.strip() for name in line.split("\t")]
    raise BadInput(one_line(f"{path} is empty: its first line names the columns, or it holds JSON objects"))


def place_of(path: str | Path, column: str, header: list[str]) -> int:
    if header.count(column) > 1:
        raise BadInput(one_line(f'{path}:1: there are {header.count(column)} columns "{column}"'))
    if column not in header:
        hint = nearest(column, header) + ("" if len(header) > 1 else " (columns are separated by tabs)")
        raise BadInput(one_line(f'{path}:1: there is no column "{column}"{hint}'))
    return header.index(column)


def objects(path: str | Path, columns: list[str]) -> Callable[[str], Row | Fault]:
    """What reads a line that is a JSON object; the first one must have every column."""
    first = True

    def read(line: str) -> Row | Fault:
        nonlocal first
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            return Fault("not JSON", "not a JSON object {...}")
        for column in columns:
            if column not in found:
                why = f'there is no "{column}"{nearest(column, found)}'
                if first:
                    raise BadInput(one_line(f"{path}: in its first object {why}"))
                return Fault("without a column", why)
        first = False
        return checked(columns, [found[column] for column in columns])

    return read


def checked(columns: list[str], values: list[object]) -> Row | Fault:
    """The values as texts, a whole number or a truth by its JSON name; or what is wrong with one."""
    texts = []
    for column, value in zip(columns, values, strict=True):
        if not isinstance(value, str | int):
            return Fault("of a wrong type", f'"{column}" is {short(value)}, where a text is expected')
        text = value if isinstance(value, str) else json.dumps(value)
        if fault := fault_in_cell(text, f'"{column}"'):
            return fault
        texts.append(text)
    return tuple(texts)


def fault_in_cell(text: str, what: str) -> Fault | None:
    """JSON can spell what no file of UTF-8 can hold."""
    if "\0" in text:
        return with_nul(text)
    try:
        text.encode()
    except UnicodeEncodeError:
        return Fault("with half a character", f"{what} has a lone surrogate, which is half a character")
    return if_empty(text, what)


# Running text


def read_texts(path: str | Path, *, column: str = "text", report: Report | None = None) -> Iterator[str]:
    """All documents as one text, in pieces cut at line ends; only bad lines are missing."""
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
    """Documents one after the other, each in pieces: a file, or every file of a folder, or, in files that are named
    .jsonl (or .jsonl.gz), what every JSON object has as `column`, or a column of a data set."""
    report = report or Report()
    if is_dataset(path):
        named = str(path) if "#" in str(path) else f"{path}#{column}"
        yield from row_documents(named, lambda line: checked([column], [line]), report)
        return
    for file in text_files(path):
        if file.name.removesuffix(".gz").endswith(".jsonl"):
            yield from row_documents(file, objects(file, [column]), report)
        else:
            yield read_pieces(file, report)


def row_documents(
    path: str | Path, read: Callable[[str], Row | Fault], report: Report
) -> Iterator[Iterator[str]]:
    """Every row is a document; one that says nothing is none, which is no fault."""
    for number, line in enumerate(judged_lines(path, DOCUMENT), 1):
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


def read_pieces(path: Path, report: Report) -> Iterator[str]:
    """A file's text in pieces of about 64 KiB, and at most about 128 where there are no line ends."""
    with open_text(path) as file:
        line = 1
        for block in blocks(file):
            if text := decoded(path, line, block, report):
                yield text
            line += block.count(b"\n")


def blocks(file: TextFile) -> Iterator[bytes]:
    """Bytes up to the last line end read, or, in a very long line, up to a space or at least a whole character."""
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
