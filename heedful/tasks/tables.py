"""Tables: what tasks share that learn a vocabulary from the texts of their rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..data.vocab import Vocab, read_vocab, train_vocab
from ..files import write_text
from .recipe import Recipe


def own_vocabulary(recipe: Recipe, folder: Path, texts: Iterator[str]) -> Vocab:
    """The vocabulary in the run's folder; if there is none yet, one that is learned from the texts."""
    tokenizer, d = folder / "tokenizer.json", recipe.data
    if tokenizer.is_file():
        return read_vocab(tokenizer)
    vocab = train_vocab(d.vocab, texts, d.vocab_size, d.lower)
    write_text(tokenizer, vocab.to_json())
    return vocab
