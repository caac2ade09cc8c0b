"""Lines of stdin to lines of stdout, for commands that answer texts.

Memory stays constant: lines are read in chunks, and a chunk ends as soon as no more input is at hand, so that
whoever types is answered at once. Within a chunk, texts of like length are done together. Line N of the
output answers line N of the input. torch is imported once the options have been checked.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, BinaryIO, Generic, Self, TypeVar

from ...data.report import Fault
from ...data.text_file import BOM, BYTES, FOREIGN, GZIP, judge
from ...decode.options import batch_for, check_batch
from ...errors import BadInput
from ...files import one_line
from ...use.texts import LONGEST, Tokenized
from .options import LineOptions, WeightOptions

if TYPE_CHECKING:
    from ...use.model import Model

CHUNK = 8  # batches: enough texts of like length come together
READ = 1 << 16  # bytes read at a time
NAMED = 10  # bad lines that are named; the others are counted
LONG = 50  # characters of a word in a sentence
PATIENCE, PACE = 3.0, 0.5  # seconds before the first word about progress, and between words
# A model may write anything, and a terminal obeys some of it: colors, cursor, clipboard.
CONTROLS = {n: "\ufffd" for n in (*range(32), *range(127, 160)) if chr(n) not in "\n\t"}

R = TypeVar("R")
Line = str | Fault


Streamer = Callable[[Tokenized, int], Iterator[str]]  # of a text and its number


class LineCommand(ABC, Generic[R]):
    """What a command does with texts, and how it prints what comes of it."""

    what: str  # the method of a model
    nothing = ""  # the answer to an empty line
    most = LONGEST  # characters of a line
    end = "\n"  # what stands after an answer

    def line_of(self, words: tuple[str, ...]) -> str:
        """The words of the command line as a line of stdin."""
        return " ".join(words)

    def read(self, line: str) -> Line:
        """What stands on a line, as it is given to the model."""
        return line

    def read_all(self, model: Model, lines: list[Line]) -> list[Line]:
        """The same of several lines, some of which are faults."""
        return [line if isinstance(line, Fault) else self.read(line) for line in lines]

    @abstractmethod
    def encode(self, model: Model, texts: list[str]) -> list[Tokenized]:
        """Texts with their tokens, made once, and with what is wrong with them."""

    @abstractmethod
    def do(self, model: Model, rows: list[Tokenized], numbers: list[int]) -> list[R]:
        """A result for each text; numbers are those of their lines, from 0."""

    @abstractmethod
    def plain(self, result: R) -> str:
        """A result as lines of text."""

    @abstractmethod
    def known(self, result: R | None) -> dict[str, Any]:
        """A result, or that of an empty line, as a part of a JSON object."""

    def is_text(self, result: R) -> bool:
        """Whether a result is one text and no more, which may be shown with its line ends."""
        return True

    def streamer(self, model: Model) -> Streamer | None:
        """What shows an answer piece by piece while it is written; None: it is shown once it is done."""
        return None


def answer_lines(given: LineOptions, work: LineCommand[Any]) -> None:
    """Read, answer and print until there is no more."""
    from ...use.load import load

    check_batch(given.batch)
    utf8_out()
    typing = not given.text and sys.stdin is not None and sys.stdin.isatty()
    how: dict[str, Any] = {"weights": given.weights} if isinstance(given, WeightOptions) else {}
    model = load(given.run, given.device, **how)
    model.check_can(work.what)
    show = Printer(given, work, model, raw=bool(given.text) or typing)
    if given.text:
        show.chunk([judge(work.line_of(given.text).encode(errors="surrogateescape"), work.most)])
        return show.end()
    if typing:
        print("one text a line; Ctrl-D ends", file=sys.stderr, flush=True)
    with LineProgress() as progress:
        stdin = sys.stdin.buffer if sys.stdin is not None else None
        for chunk, size in chunks(stdin, CHUNK * batch_for(given.batch, model.device.type), work.most):
            show.chunk(chunk)
            progress.tell(len(chunk), size)
    show.end()


class Printer:
    """Answers on stdout, faults on stderr."""

    def __init__(self, given: LineOptions, work: LineCommand[Any], model: Model, raw: bool) -> None:
        self.given, self.work, self.model = given, work, model
        self.raw = raw  # a person waits for one text: show it as it comes, with its line ends
        self.lines = self.bad = self.noted = 0
        self.unknown = UnknownWords()

    def chunk(self, lines: list[Line]) -> None:
        """Answer some lines, in their order."""
        start, self.lines = self.lines, self.lines + len(lines)
        lines, rows = self.judged(self.work.read_all(self.model, lines), start)
        unknown = self.unknown.count(rows)
        if self.raw and len(lines) == 1 and rows and (pieces := self.live()) is not None:
            return self.stream(pieces, *rows.popitem())
        done = self.work.do(self.model, list(rows.values()), list(rows)) if rows else []
        results = dict(zip(rows, done, strict=True))
        write(
            "".join(
                self.shown(n, line, results.get(n), unknown.get(n, 0)) for n, line in enumerate(lines, start)
            )
        )

    def judged(self, lines: list[Line], start: int) -> tuple[list[Line], dict[int, Tokenized]]:
        """The lines, with a fault (which is named) for each that the model cannot use; and their tokens."""
        texts = {n: line for n, line in enumerate(lines) if isinstance(line, str) and line.strip()}
        rows = (
            dict(zip(texts, self.work.encode(self.model, list(texts.values())), strict=True)) if texts else {}
        )
        found = list(lines)
        for n, row in rows.items():
            if row.fault:
                found[n] = Fault("unusable", f"the text {row.fault}")
        for number, line in enumerate(found, start + 1):
            if isinstance(line, Fault):
                self.refuse(number, line)
        for n, row in rows.items():
            if row.note:
                self.warn(start + n + 1, f"the text {row.note}")
        return found, {start + n: row for n, row in rows.items() if not row.fault}

    def refuse(self, number: int, fault: Fault) -> None:
        """Name a bad line; or stop there, if so asked."""
        told = one_line(fault.why if self.given.text else f"line {number}: {fault.why}")
        if self.given.bad_lines == "refuse" or self.given.text:
            raise BadInput(told)
        self.bad += 1
        if self.bad <= NAMED:
            print(f"{told}; answered by an empty line", file=sys.stderr, flush=True)

    def warn(self, number: int, note: str) -> None:
        """Say what of a line is not read."""
        self.noted += 1
        if self.noted <= NAMED:
            told = note if self.given.text else f"line {number}: {note}"
            print(one_line(f"warning: {told}"), file=sys.stderr, flush=True)

    def end(self) -> None:
        if self.bad > NAMED:
            print(f"{self.bad:,} bad lines of {self.lines:,} in all", file=sys.stderr)
        if self.noted > NAMED:
            print(f"{self.noted:,} lines of {self.lines:,} are read in part", file=sys.stderr)
        if told := self.unknown.sentence(self.lines, alone=bool(self.given.text)):
            print(one_line(told), file=sys.stderr)

    def shown(self, number: int, line: Line, result: Any, unknown: int) -> str:
        """A line of output, or the several that n-best has."""
        if self.given.json:
            found = self.object(number, line, result, unknown)
            return json.dumps(found, ensure_ascii=False, allow_nan=False) + "\n"
        if result is None:
            return self.work.nothing + self.work.end
        if self.raw and isinstance(result, str) and self.work.is_text(result):
            return f"{result}\n"
        return self.work.plain(result) + self.work.end

    def object(self, number: int, line: Line, result: Any, unknown: int) -> dict[str, Any]:
        if isinstance(line, Fault):
            return {"line": number + 1, "error": one_line(line.why)}
        return {"line": number + 1, "input": line, "unknown": unknown, **self.work.known(result)}

    def live(self) -> Streamer | None:
        """What lets the answer be seen while it is written, on a terminal."""
        shown = not self.given.json and sys.stdout.isatty()
        return self.work.streamer(self.model) if shown else None

    def stream(self, pieces: Streamer, number: int, row: Tokenized) -> None:
        try:
            for piece in pieces(row, number):
                write(piece)
        finally:
            write("\n")


class UnknownWords:
    """Words that the model does not know, in all the lines of a call."""

    def __init__(self) -> None:
        self.tokens = self.lines = self.line = 0
        self.first = ""

    def count(self, rows: dict[int, Tokenized]) -> dict[int, int]:
        """How many are in each of some texts, by their numbers."""
        for number, row in rows.items():
            if row.unknown and not self.tokens:
                self.line, self.first = number + 1, row.unknown[0]
            self.tokens, self.lines = self.tokens + len(row.unknown), self.lines + bool(row.unknown)
        return {number: len(row.unknown) for number, row in rows.items()}

    def sentence(self, lines: int, alone: bool) -> str | None:
        """What a person should know of them, once; alone: there was one text, and no lines."""
        if not self.tokens:
            return None
        one = self.tokens == 1
        tokens = f"{self.tokens:,} {'token' if one else 'tokens'}"
        among = "" if alone else f" in {self.lines:,} of {lines:,} {'line' if lines == 1 else 'lines'}"
        where = "" if alone else f" in line {self.line:,}"
        word = f'"{self.first[:LONG]}"' if one else f'the first is "{self.first[:LONG]}"'
        return f"warning: {tokens}{among} {'is' if one else 'are'} unknown to the model ({word}{where})"


def write(text: str) -> None:
    """At once: what was answered is out, whatever happens next."""
    sys.stdout.write(text.translate(CONTROLS) if sys.stdout.isatty() else text)
    sys.stdout.flush()


def utf8_out() -> None:
    """Files and pipes are UTF-8, as the input is; a terminal says itself what it can show."""
    if sys.stdout is not None and not sys.stdout.isatty() and hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(encoding="utf-8")


# Reading


def chunks(file: BinaryIO | None, most: int, longest: int = LONGEST) -> Iterator[tuple[list[Line], int]]:
    """Lines in lists of at most so many, with their bytes; none waits for input that is not there yet."""
    for some in lines_at_hand(file, longest):
        waiting = iter(some)
        while raws := list(islice(waiting, most)):
            yield [judge(raw, longest) for raw in raws], sum(len(raw) + 1 for raw in raws)


def lines_at_hand(file: BinaryIO | None, longest: int = LONGEST) -> Iterator[list[bytes]]:
    """The lines that can be read without waiting, again and again; a line that is too long is cut."""
    rest, first, most = b"", True, BYTES * longest + 2  # one more than allowed, and perhaps a CR
    while data := read_at_hand(file):
        if first:
            refuse_foreign(data)
            data, first = data.removeprefix(BOM), False
        *lines, rest = (rest + data).split(b"\n")
        rest = rest[:most]
        if lines:
            yield lines
    if rest:
        yield [rest]


def read_at_hand(file: BinaryIO | None) -> bytes:
    """What has come in, at least a byte; none at the end. Of much, a bounded part."""
    if file is None:
        return b""
    data = read(file)
    while data and len(data) < READ and is_ready(file) and (more := read(file)):
        data += more
    return data


def read(file: BinaryIO) -> bytes:
    try:
        return file.read1(READ)  # type: ignore[attr-defined]
    except OSError as error:
        raise BadInput(f"stdin cannot be read: {error.strerror}") from None


def is_ready(file: BinaryIO) -> bool:
    """Whether more can be read at once; where nobody can tell, it is said to be not."""
    with contextlib.suppress(OSError, ValueError):
        return bool(select.select([file], [], [], 0)[0])
    return False


def refuse_foreign(data: bytes) -> None:
    told = FOREIGN | {GZIP: "compressed by gzip: unpack it first, by zcat FILE |"}
    for start, what in told.items():
        if data.startswith(start):
            raise BadInput(f"stdin is {what}")


# Progress


class LineProgress:
    """How many lines are done, on a terminal, if stdout goes elsewhere and it takes long."""

    def __init__(self) -> None:
        shown = sys.stdout is not None and sys.stdout.isatty()
        self.seen = sys.stderr is not None and sys.stderr.isatty() and not shown
        self.began = time.monotonic()
        self.due = self.began + PATIENCE
        self.size = input_size()
        self.told = False
        self.lines = self.bytes = 0

    def tell(self, lines: int, size: int) -> None:
        """So many more lines, of so many bytes, were answered."""
        self.lines, self.bytes = self.lines + lines, self.bytes + size
        now = time.monotonic()
        if not self.seen or now < self.due:
            return
        self.due, self.told = now + PACE, True
        pace = self.lines / (now - self.began)
        far = f", {min(1.0, self.bytes / self.size):.0%} of the input" if self.size else ""
        told = f"{self.lines:,} lines, {pace:,.1f} a second{far}"
        print(f"\r{told}\x1b[K", end="", file=sys.stderr, flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.told:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def input_size() -> int:
    """Bytes of stdin, if it is a file."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return os.fstat(sys.stdin.fileno()).st_size
    return 0
