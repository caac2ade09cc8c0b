"""A spelling for notebooks: colored pieces with their numbers, and the steps that made them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from ..parts.notebooks import both, framed

if TYPE_CHECKING:
    from .spelling import TokenPiece

# Blue, yellow, green, violet, red and teal, for light and for dark pages.
HUES = (("#cfe3fa", "#1d3f66"), ("#f8e4bd", "#57400f"), ("#cdeed3", "#1d4d28"),
        ("#ead5f7", "#4a2563"), ("#f9d3d3", "#652222"), ("#c9eeea", "#164b46"))  # fmt: skip
PAPER, INK = ("#ffffff", "#16181d"), ("#222222", "#e8eaee")
MOST_STEPS = 400  # lines


def spelling_html(
    pieces: Sequence[TokenPiece], words: Sequence[str], summary: str, steps: Iterable[str]
) -> str:
    """Pieces, each with the words that are shown for it; the counts; and the steps, folded away."""
    cells = "".join(box(n, one, said) for n, (one, said) in enumerate(zip(pieces, words, strict=True)))
    frame = f"{colored(PAPER, INK)};padding:8px;font-family:sans-serif;font-size:13px"
    lines = list(steps)
    folded = ""
    if lines:
        left = len(lines) - MOST_STEPS
        more = f"\n({left} more lines)" if left > 0 else ""
        shown = escape(printable("\n".join(lines[:MOST_STEPS]) + more))
        folded = (
            f'<details><summary>steps</summary><pre style="{colored(PAPER, INK)}">{shown}</pre></details>'
        )
    told = f"<div>{escape(summary)}</div>"
    return framed(f'<div style="{frame}"><div style="line-height:2.6">{cells}</div>{told}{folded}</div>')


def box(place: int, piece: TokenPiece, shown: str) -> str:
    """A piece as a colored box; what it is shows where the mouse rests."""
    known = f"{piece.token} · {piece.id} · bytes {bytes(piece.bytes).hex(' ')}"
    edge = "" if piece.whole else ";outline:1px dashed"
    style = f"{colored(HUES[place % len(HUES)], INK)};border-radius:3px;padding:2px 3px;margin:1px"
    style += f"{edge};display:inline-block;line-height:1.2"
    number = f'<span style="display:block;font-size:10px;line-height:1.1">{piece.id}</span>'
    title = escape(printable(known))
    return f'<span title="{title}" style="{style}">{escape(printable(shown))}{number}</span>'


def colored(paper: tuple[str, str], ink: tuple[str, str]) -> str:
    """Colors for both themes, after those for browsers that know one only."""
    return f"background:{paper[0]};background:{both(*paper)};color:{ink[0]};color:{both(*ink)}"


def printable(text: str) -> str:
    """A text without what cannot be printed, but with its line breaks."""
    return "".join(c if c.isprintable() or c == "\n" else "�" for c in text)
