"""Names of image files, for commands that are given files: words of the call, or lines of stdin."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from .options import LineOptions


def batches_of_names(given: LineOptions) -> Iterator[list[str]]:
    """Names of files, a batch at a time."""
    names = list(given.text)
    if not names:
        lines = sys.stdin if sys.stdin is not None else ()
        for line in lines:
            names.append(line.rstrip("\r\n"))
            if len(names) == given.rows:
                yield names
                names = []
    for start in range(0, len(names), given.rows):
        yield names[start : start + given.rows]
