"""Words that are spelled out: a vocabulary whose unknown words stay apart, each by its letters.

Numbers below the vocabulary's size are its tokens. An unknown word gets the next number that is free, so that
whatever keeps and pads numbers need not know of letters; `tokens` then turns numbers into what a model reads,
[number, letter, letter, ...], where every unknown word has the number of the unknown word, and letters of its
own.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from ..errors import BadInput
from ..parts.before.characters import BEGIN, END, NO_LETTER, TEXT_BEGINS, TEXT_ENDS
from .vocab import SPECIALS, Vocab


def spelled(word: str, longest: int) -> list[int]:
    """A word's letters between the marks of its beginning and end; a long word is cut, as ELMo does."""
    try:
        letters = word.encode()
    except UnicodeEncodeError:
        raise BadInput("a word with half a character in it cannot be spelled: is the text UTF-8?") from None
    if not letters:
        raise BadInput("an empty word has no letters: leave it out")
    return filled([BEGIN, *letters[: longest - 2], END], longest)


def filled(letters: list[int], longest: int) -> list[int]:
    return letters + [NO_LETTER] * (longest - len(letters))


class SpelledVocab:
    """A vocabulary whose words are spelled with at most so many letters. Called for the same texts in the
    same order, it gives the same numbers."""

    def __init__(self, vocab: Vocab, longest: int, unknown: Iterable[str] = ()) -> None:
        """unknown: the words that the numbers from the vocabulary's size on stand for already."""
        self.vocab, self.longest = vocab, longest
        self.kind, self.size, self.hash = vocab.kind, vocab.size, vocab.hash
        self.pad, self.bos, self.eos, self.unk = vocab.pad, vocab.bos, vocab.eos, vocab.unk
        self.cls, self.sep, self.mask = vocab.cls, vocab.sep, vocab.mask
        self.unknown: dict[str, int] = {}
        rows = [*self.special(), *(self.known(number) for number in range(len(SPECIALS), vocab.size))]
        self._table = np.array(rows, np.int16)
        self._more: list[list[int]] = []
        for word in unknown:
            self.number(word)

    def special(self) -> list[list[int]]:
        """Letters of special tokens: two stand around a text, and no other stands for a word."""
        of_text = {self.cls: [BEGIN, TEXT_BEGINS, END], self.sep: [BEGIN, TEXT_ENDS, END]}
        return [filled(of_text.get(number, []), self.longest) for number in range(len(SPECIALS))]

    def known(self, number: int) -> list[int]:
        """Letters of a token; white space is a part of it only where there is nothing else."""
        text = self.vocab.decode([number])
        return spelled(text.strip() or text or " ", self.longest)

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        """Numbers of each text, without special tokens."""
        rows = self.vocab.encode_batch(texts)
        some = [i for i, row in enumerate(rows) if self.unk in row]
        for i, places in zip(some, self.vocab.places([texts[i] for i in some]), strict=True):
            rows[i] = [
                self.number(texts[i][a:b]) if number == self.unk else number
                for number, (a, b) in zip(rows[i], places, strict=True)
            ]
        return rows

    def number(self, word: str) -> int:
        """The number of a word that the vocabulary does not know."""
        word = word.strip() or word
        word = word.lower() if self.vocab.lower else word
        if word not in self.unknown:
            self._more.append(spelled(word, self.longest))
            self.unknown[word] = self.size + len(self.unknown)
        return self.unknown[word]

    def tokens(self, numbers_BT: Tensor) -> Tensor:
        """What a model reads, [B, T, 1 + letters]."""
        if self._more:
            self._table, self._more = np.concatenate([self._table, np.array(self._more, np.int16)]), []
        letters_BTC = torch.from_numpy(self._table)[numbers_BT].long()
        known_BT = numbers_BT.masked_fill(numbers_BT >= self.size, self.unk)
        return torch.cat([known_BT[..., None], letters_BTC], -1)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of token numbers; unknown words and special tokens have none."""
        return self.vocab.decode([number for number in ids if number < self.size])


def as_read(vocab: object, numbers_BT: Tensor) -> Tensor:
    """Numbers as a model of this vocabulary reads them: spelled out, or as they are."""
    return vocab.tokens(numbers_BT) if isinstance(vocab, SpelledVocab) else numbers_BT
