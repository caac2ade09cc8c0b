"""What the tests of the phrasebook share."""

from heedful.corpora.phrasebook import SPLITS, split
from heedful.corpora.phrasebook.pair import Pair, words


def everything() -> list[Pair]:
    return [pair for name in SPLITS for pair in split(name)]


def lower(text: str) -> list[str]:
    return words(text.lower())
