"""A sentence and its translation, and the words of either."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Pair:
    """An English sentence and its French translation, with labels. Numbers count the words of `words`.

    Attributes:
        source: The English sentence.
        target: The French sentence.
        alignment: (source word, target word) of every link.
        heads: Head of each source word, as in Universal Dependencies; -1 is the root.
        tags: Part of speech of each source word, as in the treebank English-EWT.
        mood: Mood of the main clause: statement or question.
        tense: Tense of the main clause: present, past or future.
        number: Number of its subject: singular or plural.

    Example:
        >>> from heedful.corpora import phrasebook
        >>> pair = next(phrasebook.pairs(seed=1))
        >>> words(pair.source)[:3], pair.tags[:3], pair.tense
        (['The', 'man', 'does'], ('DET', 'NOUN', 'AUX'), 'present')
    """

    source: str
    target: str
    alignment: tuple[tuple[int, int], ...]
    heads: tuple[int, ...]
    tags: tuple[str, ...]
    mood: str
    tense: str
    number: str


TOKEN = re.compile(r"aujourd['’]hui|o['’]clock|['’]s\b|[\w-]+['’](?!s\b)|[\w-]+|[^\w\s]", re.IGNORECASE)


def words(text: str) -> list[str]:
    """The words of a sentence in either language. Clitics, `'s` and punctuation stand alone.

    Args:
        text: The sentence.

    Returns:
        The words.

    Example:
        >>> words("The dog's bone is old.")
        ['The', 'dog', "'s", 'bone', 'is', 'old', '.']
    """
    return TOKEN.findall(text)
