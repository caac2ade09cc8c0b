"""Show how a tokenizer cuts texts, merge by merge if wanted.

Prints the pieces of each text, their numbers, and the bytes of pieces that are no whole character. Without
TEXT, it reads lines of stdin. --data counts the tokens of a whole file instead. Reads no weights.

Examples: heedful tokenize runs/demo "Their small cat was fast."; heedful tokenize ./gpt2 --merges "lowest";
heedful tokenize runs/demo --data valid.en; heedful tokenize runs/demo --json < in.en
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ..data.report import Fault
from ..errors import BadInput
from ..files import one_line
from .shared.lines import CONTROLS, chunks, utf8_out
from .shared.options import Positional, arg
from .shared.terminal import say, track

if TYPE_CHECKING:
    from ..inside.spelling import Spelling
    from ..inside.token_statistics import TokenStatistics


@dataclass(frozen=True, kw_only=True)
class TokenizeOptions:
    """The options of `heedful tokenize`."""

    run: Annotated[str, Positional, arg("RUN")]
    """The folder of a run, or a Hugging Face folder."""

    text: Annotated[tuple[str, ...], Positional, arg("[TEXT ...]", "the lines of stdin")] = ()
    """One text, in one word or several; what begins with a dash goes through stdin."""

    merges: bool = False
    """Show every step of each word: the merges of BPE, the matches of WordPiece, the scores of unigram."""

    data: Annotated[str | None, arg("FILE", "none")] = None
    """Count the tokens of all lines of this file: tokens per word, unknown tokens, the rarest."""

    target: bool = False
    """Use the tokenizer of what the model writes, if it has one of its own."""

    json: bool = False
    """Print one JSON object for each text, or for the file."""


def tokenize(given: TokenizeOptions) -> None:
    """Print what the tokenizer makes of texts, or of a file."""
    from ..inside.spelling import TextSpeller
    from ..interop.folder_tokenizer import tokenizer_of

    if given.data is not None and (given.text or given.merges):
        raise BadInput("`data` counts the tokens of a file: leave out TEXT and `merges`, or leave out `data`")
    utf8_out()
    tokenizer = tokenizer_of(Path(given.run), given.target)
    if given.data is not None:
        found = counted(tokenizer, given.data)
        print(json.dumps(found.as_json(), ensure_ascii=False) if given.json else found.as_text())
        return
    speller = TextSpeller(tokenizer)
    for text in [" ".join(given.text)] if given.text else lines_of_stdin():
        print(shown(given, speller.spell(text)), flush=True)


def shown(given: TokenizeOptions, spelling: Spelling) -> str:
    """A text as it is printed."""
    if given.json:
        return json.dumps(spelling.as_json(), ensure_ascii=False)
    colored = sys.stdout.isatty()
    if not colored:
        return spelling.as_text(given.merges)
    return spelling.as_text(given.merges, color=True, clean=lambda text: text.translate(CONTROLS))


def lines_of_stdin() -> Iterator[str]:
    """The lines of stdin; one that is no text is named and left out."""
    number = 0
    for some, _ in chunks(sys.stdin.buffer if sys.stdin is not None else None, 1):
        for line in some:
            number += 1
            if isinstance(line, Fault):
                say(f"line {number}: {line.why}; left out")
            else:
                yield line


def counted(tokenizer: object, file: str) -> TokenStatistics:
    """The statistics of a file, with progress on stderr."""
    from ..data.lines import read_lines
    from ..inside.token_statistics import statistics

    found = None
    for found in track(statistics(tokenizer, read_lines(file)), "counting"):  # type: ignore[arg-type] # noqa: B007
        pass
    if found is None:
        raise BadInput(one_line(f"{file} has no lines to count"))
    return found
