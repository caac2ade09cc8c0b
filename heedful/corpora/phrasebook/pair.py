"""A sentence and its translation, and the words of either."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Pair:
    """A sentence and its translation; the numbers count `words(source)` and `words(target)`."""

    source: str
    target: str
    alignment: tuple[tuple[int, int], ...]  # source word, target word
    heads: tuple[int, ...]  # of each source word, in the manner of Universal Dependencies; -1 is the root
    tags: tuple[str, ...]  # of each source word, its part of speech, as the treebank English-EWT has it
    mood: str  # of the main clause: statement, question
    tense: str  # of the main clause: present, past, future
    number: str  # of the main clause's subject: singular, plural


TOKEN = re.compile(r"aujourd['’]hui|o['’]clock|['’]s\b|[\w-]+['’](?!s\b)|[\w-]+|[^\w\s]", re.IGNORECASE)


def words(text: str) -> list[str]:
    """The words of a sentence in either language; clitics, `'s` and punctuation stand alone."""
    return TOKEN.findall(text)
