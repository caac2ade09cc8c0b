"""The lines of the user's files, and of two files in step; of a Hugging Face data set, its rows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import NoReturn

from ..errors import BadInput
from ..files import one_line
from .report import Fault, Report, fault_of
from .text_file import BYTES, Checksum, Section, judge, open_text, raw_lines

LINE = 10_000  # characters
TABLE_LINE = 100_000  # an article to summarize stands in one cell


def is_dataset(path: str | Path) -> bool:
    """Whether this is no file but the name of a Hugging Face data set (see datasets.py)."""
    return str(path).startswith("hf:")


def read_lines(path: str | Path, *, limit: int = LINE, report: Report | None = None) -> Iterator[str]:
    r"""Read the good lines of a text file, one at a time.

    Args:
        path: The file, plain or gzip, or the name of a Hugging Face data set ("hf:NAME").
        limit: Characters of a line, at most.
        report: Where bad lines are counted, or refused. None: they are dropped.

    Yields:
        The lines, without their ends.

    Example:
        >>> _ = Path("a.en").write_text("the cat\n\nthe dog\n")
        >>> report = Report()
        >>> list(read_lines("a.en", report=report)), report.sentence()
        (['the cat', '', 'the dog'], 'no line dropped')
    """
    report = report or Report()
    for number, line in enumerate(judged_lines(path, limit), 1):
        if isinstance(line, Fault):
            report.bad(path, number, line)
        else:
            yield line


def judged_lines(
    path: str | Path | Section, limit: int, checksum: Checksum | None = None
) -> Iterator[str | Fault]:
    """Every line or what is wrong with it, so that files can be read in step; of a data set, every row."""
    if not isinstance(path, Section) and is_dataset(path):
        from .datasets import judged_rows

        yield from judged_rows(str(path), limit)
        return
    with open_text(path, checksum) as file:
        for raw in raw_lines(file, BYTES * limit):
            yield judge(raw, limit)


def read_parallel(
    source: str | Path, target: str | Path, *, limit: int = LINE, report: Report | None = None
) -> Iterator[tuple[str, str]]:
    r"""Read two files in step: line N of one belongs to line N of the other.

    A pair with a bad or empty side is dropped.

    Args:
        source: The file of sources.
        target: The file of targets, with as many lines.
        limit: Characters of a line, at most.
        report: Where bad lines are counted, or refused. None: they are dropped.

    Yields:
        (source, target) of each good pair.

    Raises:
        BadInput: One file has more lines than the other.

    Example:
        >>> _ = Path("a.en").write_text("the cat\n\nthe dog\n")
        >>> _ = Path("a.fr").write_text("le chat\nrien\nle chien\n")
        >>> report = Report()
        >>> list(read_parallel("a.en", "a.fr", report=report))
        [('the cat', 'le chat'), ('the dog', 'le chien')]
        >>> report.sentence()
        '1 line dropped: 1 empty (a.en:2)'
    """
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


def refuse_unequal(source: str | Path, target: str | Path, sources: int, targets: int) -> NoReturn:
    pairing = "line N of one must belong to line N of the other"
    raise BadInput(one_line(f"{source} has {sources} lines and {target} has {targets}: {pairing}"))


def hash_of(texts: Sequence[object]) -> str:
    """SHA-256 of some texts, to tell later whether they are still the same."""
    return hashlib.sha256(repr(texts).encode()).hexdigest()
