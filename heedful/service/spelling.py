"""Tokens as clients are shown them one by one: their text, their bytes, and where each begins."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from ..use.pieces import TextSoFar
from ..use.wording import HALF, Wording

ONE_BYTE = re.compile(r"<0x([0-9A-F]{2})>")  # as SentencePiece names a byte
BESIDE = 8  # tokens before one that decide how it is spelled


class Speller:
    """Spells tokens that follow each other. offset: characters before the first."""

    def __init__(self, wording: Wording, before: Sequence[int] = (), offset: int = 0) -> None:
        self.wording, self.offset = wording, offset
        self.before = list(before[-BESIDE:])
        self.text = TextSoFar(wording, before)

    def entry(self, token: int, log_p: float | None, top: Sequence[tuple[int, float]]) -> dict[str, Any]:
        """The next token as it is sent, with the most likely tokens in its place."""
        text, raw = self.spelled(token)
        others = [(self.spelled(other), value) for other, value in top]
        found = {
            "text": text,
            "bytes": raw,
            "log_probability": log_p,
            "offset": self.offset,
            "top": [[name, value, some] for (name, some), value in others],
        }
        self.offset += len(self.text.add(token)[0])
        self.before = [*self.before, token][-BESIDE:]
        return found

    def spelled(self, token: int) -> tuple[str, list[int] | None]:
        """The text of a token; where it is a part of a character, also its bytes."""
        alone = self.wording.decoded([token])
        if alone and HALF not in alone:
            text = self.wording.text([token], self.before)
            return text if text and HALF not in text else alone, None
        (name,) = self.wording.names([token])
        raw = bytes_of(name)
        if raw is None:
            return alone or name, None
        try:
            return raw.decode(), None  # a special token
        except UnicodeDecodeError:
            return raw.decode("ascii", "backslashreplace"), list(raw)


def bytes_of(name: str) -> bytes | None:
    """The bytes that a token of bytes stands for; None: its name is no spelling of bytes."""
    if found := ONE_BYTE.fullmatch(name):
        return bytes.fromhex(found[1])
    table = byte_letters()
    return bytes(table[letter] for letter in name) if set(name) <= table.keys() else None


@cache
def byte_letters() -> dict[str, int]:
    """{letter: byte} as GPT-2's tokenizer writes bytes: those without a visible letter follow after 255."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {chr(256 + i): byte for i, byte in enumerate(others)}
