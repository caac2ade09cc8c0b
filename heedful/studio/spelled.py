"""A spelling as the Tokenizer page shows it: pieces with marks, steps with notes, and sentences."""

from __future__ import annotations

from dataclasses import asdict
from itertools import accumulate
from os.path import commonprefix
from typing import Any

from ..inside.spelling import Spelling, TokenPiece
from ..inside.tokenizer_steps import TokenizerStep

SHOWN = 12  # characters of a text that comes back changed


def spelled(spelling: Spelling) -> dict[str, Any]:
    """Everything of a spelling, and beside it what people read."""
    pieces = [asdict(one) | {"shown": visible(one), "told": told(one)} for one in spelling.pieces]
    counts = accumulate(len(one.steps) - 1 for one in spelling.words)
    words = [
        {"last": last, "steps": [{"pieces": step.pieces, "note": note_of(step)} for step in one.steps]}
        for one, last in zip(spelling.words, counts, strict=True)
    ]
    whole = "this vocabulary holds whole words, so there is nothing to merge"
    why = spelling.why or (whole if spelling.kind == "WordLevel" else "")
    own = {"text": spelling.text, "kind": spelling.kind, "why": why, "measures": measures(spelling)}
    return own | {"back": comes_back(spelling), "pieces": pieces, "words": words}


def visible(piece: TokenPiece) -> str:
    """The text of a piece with marks for spaces; the bytes of a part of a character."""
    raw = bytes(piece.bytes)
    return raw.decode().replace(" ", "␣").replace("\n", "↵") if piece.whole else raw.hex(" ")


def told(piece: TokenPiece) -> str:
    """What a piece is, in words."""
    unknown = ", unknown" if piece.unknown else ""
    return f"token {piece.token}, number {piece.id}{unknown}, bytes {bytes(piece.bytes).hex(' ')}"


def note_of(step: TokenizerStep) -> str:
    """What a step joined or took."""
    if step.rank is not None:
        return f"merge {step.rank}: {step.left} + {step.right}"
    if step.score is not None:
        return f"{step.made} has log-probability {step.score:.2f}"
    return f"the longest known piece is {step.made}" if step.made else ""


def measures(spelling: Spelling) -> str:
    """The counts of a text in one line."""
    tokens, words = len(spelling.pieces), len(spelling.text.split())
    unknown = sum(piece.unknown for piece in spelling.pieces) / max(1, tokens)
    return f"{tokens:,} tokens, {tokens / max(1, words):.2f} tokens per word, {unknown:.1%} unknown"


def comes_back(spelling: Spelling) -> str:
    """Whether the tokens give back the text, and where they first do not."""
    if spelling.round_trip:
        return "✓ the tokens give back the text"
    at = len(commonprefix([spelling.text, spelling.decoded]))
    a, b = (one[at : at + SHOWN] for one in (spelling.text, spelling.decoded))
    return f"✗ from character {at + 1} on, “{a}” comes back as “{b}”"
