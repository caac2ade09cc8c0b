"""Spelling: the vocabulary of a model that reads letters, and the unknown words of a run's training data.

Numbers on disk may stand for unknown words, so a run keeps a list of them beside its data (unknown.json). To
use a run, nobody needs that list: what is unknown in a new text is spelled as it comes.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from ..data.letters import SpelledVocab
from ..data.vocab import Vocab
from ..errors import BadInput
from ..files import MEGABYTE, inside, one_line, read_json, write_json
from ..models.elmo import ElmoConfig

UNKNOWN_WORDS = "unknown.json"
LIMIT = 256 * MEGABYTE
MANY = 1 << 31  # words that numbers on disk may stand for

V = TypeVar("V")


def vocab_as_read(vocab: Vocab, config: object) -> Vocab | SpelledVocab:
    """The vocabulary as a model of this config reads it."""
    if isinstance(config, ElmoConfig) and config.input == "characters":
        return SpelledVocab(vocab, config.max_characters)
    return vocab


def with_unknown(vocab: V, folder: Path) -> V:
    """The vocabulary, and the unknown words of the data in a folder that is there already."""
    if not isinstance(vocab, SpelledVocab):
        return vocab
    words = read_json(inside(folder, UNKNOWN_WORDS), LIMIT).get("words")
    if not isinstance(words, list) or not all(isinstance(word, str) and word for word in words):
        raise BadInput(one_line(f"{folder / UNKNOWN_WORDS} is damaged: start another run"))
    return SpelledVocab(vocab.vocab, vocab.longest, words)  # type: ignore[return-value]


def keep_unknown(vocab: object, folder: Path) -> None:
    """Write the unknown words down; to be done before the numbers that stand for them come to be there."""
    if isinstance(vocab, SpelledVocab):
        write_json(folder / UNKNOWN_WORDS, {"words": list(vocab.unknown)})


def id_limit(vocab: object, size: int) -> int:
    """What numbers of a store are below: so many, or, where unknown words have numbers too, any."""
    return MANY if isinstance(vocab, SpelledVocab) else size
