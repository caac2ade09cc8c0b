"""Tables: the named columns of tab-separated lines, or of JSON objects, one a line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

from ..errors import BadInput
from ..files import one_line, short
from ..models import nearest
from .lines import TABLE_LINE, is_dataset, judged_lines
from .report import Fault, Report, if_empty, with_nul
from .text_file import open_text

Row = tuple[str, ...]


def read_table(
    path: str | Path, columns: list[str], *, limit: int = TABLE_LINE, report: Report | None = None
) -> Iterator[Row]:
    r"""Read the named columns of a table: tab-separated lines under a header, or JSON objects, one a line.

    Args:
        path: The file, plain or gzip, or the name of a Hugging Face data set ("hf:NAME").
        columns: Names of the columns.
        limit: Characters of a line, at most.
        report: Where bad lines are counted, or refused. None: they are dropped.

    Yields:
        The cells of each good row as texts, in the order of `columns`.

    Raises:
        BadInput: A column is not there; the message names the nearest.

    Example:
        >>> _ = Path("films.tsv").write_text("label\tsentence\ngood\tA fine film.\n")
        >>> list(read_table("films.tsv", ["sentence", "label"]))
        [('A fine film.', 'good')]
    """
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


def objects(path: str | Path, columns: list[str], first: bool = True) -> Callable[[str], Row | Fault]:
    """What reads a line that is a JSON object; the first one of a file must have every column."""

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
