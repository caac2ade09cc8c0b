"""Statistics of a tokenizer over many texts: tokens per word, unknown ones, the rarest. Needs no torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from ..data.pieces import labels
from ..data.vocab import groups, no_panic
from .spelling import TextSpeller

if TYPE_CHECKING:
    from tokenizers import Tokenizer

EVERY = 1000  # texts between two reports
SHOWN = 10  # tokens in a list


@dataclass(frozen=True)
class TokenStatistics:
    """What a tokenizer made of some texts, as `statistics` finds it.

    Attributes:
        lines: Number of texts.
        words: Number of words: what stands between spaces.
        characters: Number of characters.
        bytes: Number of bytes in UTF-8.
        tokens: Number of tokens.
        unknown: Tokens that stand for something unknown.
        vocabulary: Size of the vocabulary.
        counts: How often each token was used.
        tokenizer: The tokenizer.

    Example:
        >>> *_, found = statistics(heedful.load("runs/demo").tokenizer, ["The cat sleeps.", "The dog eats."])
        >>> found.tokens, found.tokens_per_word, found.unknown_share, found.used
        (8, 1.3333333333333333, 0.0, 6)
        >>> found.bytes_per_token, found.commonest(1), len(found.rarest(2))
        (3.5, [('The', 2)], 2)
    """

    lines: int
    words: int
    characters: int
    bytes: int
    tokens: int
    unknown: int
    vocabulary: int
    counts: Counter[int]
    tokenizer: Tokenizer

    @property
    def tokens_per_word(self) -> float:
        """Tokens that a word takes on average (its fertility)."""
        return self.tokens / max(1, self.words)

    @property
    def bytes_per_token(self) -> float:
        """Bytes of text that a token stands for on average."""
        return self.bytes / max(1, self.tokens)

    @property
    def unknown_share(self) -> float:
        """The share of tokens that stand for something unknown."""
        return self.unknown / max(1, self.tokens)

    @property
    def used(self) -> int:
        """Tokens of the vocabulary that occur."""
        return len(self.counts)

    def rarest(self, most: int = SHOWN) -> list[tuple[str, int]]:
        """The tokens that occur least often.

        Args:
            most: How many.

        Returns:
            (token, how often).
        """
        return self.named(sorted(self.counts.items(), key=lambda pair: (pair[1], -pair[0]))[:most])

    def commonest(self, most: int = SHOWN) -> list[tuple[str, int]]:
        """The tokens that occur most often.

        Args:
            most: How many.

        Returns:
            (token, how often).
        """
        return self.named(self.counts.most_common(most))

    def named(self, rows: list[tuple[int, int]]) -> list[tuple[str, int]]:
        return [(labels(self.tokenizer, [number])[0], count) for number, count in rows]

    def as_json(self) -> dict[str, Any]:
        """Everything, for JSON."""
        plain = ("lines", "words", "characters", "bytes", "tokens", "unknown", "vocabulary", "used")
        shares = ("tokens_per_word", "bytes_per_token", "unknown_share")
        found = {name: getattr(self, name) for name in (*plain, *shares)}
        return found | {"rarest": self.rarest(), "commonest": self.commonest()}

    def as_text(self) -> str:
        """A few lines for a terminal."""
        listed = [(name, ", ".join(f"{token} {n:,}" for token, n in some)) for name, some in self.lists()]
        return "\n".join(
            [
                f"{self.lines:,} lines, {self.words:,} words, {self.bytes:,} bytes, {self.tokens:,} tokens",
                f"tokens per word {self.tokens_per_word:.3f}, bytes per token {self.bytes_per_token:.2f}",
                f"unknown tokens {self.unknown:,} ({self.unknown_share:.3%})",
                f"vocabulary {self.vocabulary:,} tokens, of which {self.used:,} occur",
                *(f"{name}: {told}" for name, told in listed if told),
            ]
        )

    def lists(self) -> list[tuple[str, list[tuple[str, int]]]]:
        return [("most frequent", self.commonest()), ("rarest", self.rarest())]


def statistics(tokenizer: Tokenizer, lines: Iterable[str], every: int = EVERY) -> Iterator[TokenStatistics]:
    """What a tokenizer makes of many texts: tokens per word, bytes per token, unknown words.

    Args:
        tokenizer: Of the library `tokenizers`, such as `model.tokenizer`.
        lines: The texts.
        every: Texts after which it says how far it is.

    Yields:
        `TokenStatistics` of the texts so far, and at last of all.

    Example:
        >>> *_, found = statistics(heedful.load("runs/demo").tokenizer, ["The cat eats.", "The zebra eats."])
        >>> found.tokens, found.unknown, found.tokens_per_word
        (8, 1, 1.3333333333333333)
    """
    unknown, counts = TextSpeller(tokenizer).unknown, Counter[int]()
    seen = words = characters = size = 0
    rest = iter(lines)
    while some := list(islice(rest, every)):
        for group in groups(some):
            with no_panic("a text cannot be tokenized (has it half a character?)"):
                for encoding in tokenizer.encode_batch_fast(group, add_special_tokens=False):
                    counts.update(encoding.ids)
        seen += len(some)
        words += sum(len(line.split()) for line in some)
        characters += sum(map(len, some))
        size += sum(len(line.encode()) for line in some)
        total, missing = counts.total(), 0 if unknown is None else counts[unknown]
        known = Counter({token: n for token, n in counts.items() if token != unknown})
        yield TokenStatistics(
            seen, words, characters, size, total, missing, tokenizer.get_vocab_size(), known, tokenizer
        )
