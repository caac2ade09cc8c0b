"""Pieces: tokens as people read them. Byte letters become text, and a space is shown only where it says
something.

The cat sat      "The" "Ġcat" "Ġsat"         →  The  cat  sat unbelievable     "un" "believ" "able"        →
un  ##believ  ##able        (## goes on with a word, as in BERT) a  b             "a" "Ġ" "Ġb"
→  a  ␣  b
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer

GLUE = "##"
SPACE = "␣"
LONGEST = 20  # characters of a label
UNSPACED = "\u2e80"  # from here on, scripts are written without spaces between words (Chinese, Japanese)
BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")  # what sentencepiece calls a byte that it has no piece for


def labels(tokenizer: Tokenizer | None, ids: Sequence[int]) -> list[str]:
    """A readable label for each token; without a tokenizer, its number."""
    if tokenizer is None:
        return [str(number) for number in ids]
    tokens = [tokenizer.id_to_token(number) for number in ids]
    special = {number for number, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    pieces = said(repr(tokenizer.decoder), ["" if token is None else token for token in tokens])
    ordinary = [piece for number, piece in zip(ids, pieces, strict=True) if number not in special]
    whole_words = any(len(piece) > 1 for piece in ordinary)  # of single characters, all go on
    found, before = [], ""
    for number, token, piece in zip(ids, tokens, pieces, strict=True):
        if token is None:  # a row of the model's table that no token has
            found.append(f"#{number}")
        elif number in special:
            found.append(token)
        else:
            found.append(label(piece, before if whole_words else ""))
        before = "" if number in special else piece
    return found


def said(decoder: str, tokens: Sequence[str]) -> list[str]:
    """The text of each token, the space before a word included, by the way its tokenizer joins tokens."""
    if "ByteLevel" in decoder:
        return [text_of(bytes(byte_letters().get(c, 63) for c in token)) for token in tokens]
    if decoder.startswith("WordPiece"):
        return [token[2:] if token.startswith("##") else f" {token}" for token in tokens]
    if decoder.startswith("BPEDecoder"):
        begins = [True, *(token.endswith("</w>") for token in tokens)]
        return [
            " " * first + token.removesuffix("</w>") for first, token in zip(begins, tokens, strict=False)
        ]
    return [from_sentencepiece(token) if "▁" in decoder else token for token in tokens]


def from_sentencepiece(token: str) -> str:
    byte = BYTE.fullmatch(token)
    return text_of(bytes([int(byte[1], 16)])) if byte else token.replace("▁", " ")


@cache
def byte_letters() -> dict[str, int]:
    """GPT-2's letters for bytes: printable ones stand for themselves, the others have letters from 256 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


def text_of(data: bytes) -> str:
    """UTF-8 as text; bytes that are only a part of a character as <c3>."""
    return "".join(
        f"<{ord(c) - 0xDC00:02x}>" if 0xDC80 <= ord(c) <= 0xDCFF else c
        for c in data.decode("utf-8", errors="surrogateescape")
    )


def label(piece: str, before: str) -> str:
    """A piece without the space that begins a word, and with a mark if it continues the word before."""
    begins = piece.startswith(" ") and bool(piece.strip())
    shown = "".join(map(visible, piece[1:] if begins else piece))
    if before and piece and joins(before[-1]) and joins(piece[0]):
        shown = GLUE + shown
    return shown if len(shown) <= LONGEST else f"{shown[: LONGEST - 1]}…"


def joins(character: str) -> bool:
    """Whether two such characters in a row belong to one word."""
    return character.isalnum() and character < UNSPACED


def visible(character: str) -> str:
    if character == " ":
        return SPACE
    return character if character.isprintable() else character.encode("unicode_escape").decode()
