"""Spelling: a text through a tokenizer, down to its pieces, bytes and merges. Needs no torch.

`spell` gives what the library `tokenizers` gives, and beside it every step, replayed in Python. The replay is
compared with the library on each text: where they differ, the steps are left out and `why` says so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..data.pieces import byte_letters, labels
from ..data.vocab import no_panic
from ..errors import BadInput
from .spelling_html import spelling_html
from .tokenizer_steps import CannotReplay, Replay, TokenizerStep, replay_of

if TYPE_CHECKING:
    from tokenizers import Tokenizer

ONE_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
MOST = 20_000  # characters of one text
SPACE = "▁"  # how sentencepiece writes a space
REPLACED = "\x00"  # stands for whatever is no added token


@dataclass(frozen=True)
class TokenPiece:
    """One token of a text.

    Attributes:
        id: Its number.
        token: The token as the vocabulary spells it.
        text: The token as people read it.
        start: Its first character in the text.
        end: One past its last character.
        bytes: The bytes that it stands for.
        whole: False if it is only a part of a character.
        unknown: Whether it stands for something unknown.
        added: Whether it was found in the text before the tokenizer cut it.
        word: Number of its word in `Spelling.words`.

    Example:
        >>> piece = heedful.load("runs/demo").spell("The cat sleeps.").pieces[1]
        >>> piece.token, piece.start, piece.end, piece.unknown
        (' cat', 3, 7, False)
    """

    id: int
    token: str
    text: str
    start: int
    end: int
    bytes: list[int]
    whole: bool
    unknown: bool = False
    added: bool = False
    word: int | None = None


@dataclass(frozen=True)
class WordSteps:
    """How a tokenizer came to the tokens of one word.

    Attributes:
        text: The string that its model reads.
        start: Its first character in the text.
        end: One past its last character.
        steps: The steps, each with the pieces after it.

    Example:
        >>> heedful.load("runs/demo").spell("The cat").words[1].text
        ' cat'
    """

    text: str
    start: int
    end: int
    steps: list[TokenizerStep]


@dataclass(frozen=True)
class Spelling:
    """A text and its tokens, as `Model.spell` finds them: colored pieces in a notebook.

    Attributes:
        text: The text.
        kind: BPE, WordPiece, Unigram or WordLevel.
        pieces: The tokens.
        words: How the tokens of each word came about.
        why: Why there are no steps, if there are none.
        decoded: The text that the tokens give back.

    Example:
        >>> spelling = heedful.load("runs/demo").spell("The cat sleeps.")
        >>> [piece.text for piece in spelling.pieces], spelling.round_trip
        (['The', 'cat', 'sleeps', '.'], True)
        >>> spelling.offsets, len(spelling.ids), spelling.merges
        ([(0, 3), (3, 7), (7, 14), (14, 15)], 4, [])
        >>> spelling.as_text().splitlines()[-1]
        'WordLevel: 4 tokens, 3 words, 15 characters, 15 bytes, 0 unknown'
    """

    text: str
    kind: str
    pieces: list[TokenPiece]
    words: list[WordSteps] = field(default_factory=list)
    why: str | None = None
    decoded: str = ""

    @property
    def ids(self) -> list[int]:
        """The numbers of the tokens."""
        return [piece.id for piece in self.pieces]

    @property
    def bytes(self) -> list[bytes]:
        return [bytes(piece.bytes) for piece in self.pieces]

    @property
    def offsets(self) -> list[tuple[int, int]]:
        """(first character, one past the last) of each token."""
        return [(piece.start, piece.end) for piece in self.pieces]

    @property
    def merges(self) -> list[tuple[int, TokenizerStep]]:
        """Every step of every word in order, with the number of its word."""
        return [(n, step) for n, word in enumerate(self.words) for step in word.steps if step.made]

    @property
    def round_trip(self) -> bool:
        """Whether the tokens give back exactly the text."""
        return self.decoded == self.text

    def as_json(self) -> dict[str, Any]:
        """Everything, for JSON."""
        shown = {"text": self.text, "kind": self.kind, "round_trip": self.round_trip, "why": self.why}
        shown["decoded"] = self.decoded
        return shown | {name: [asdict(one) for one in getattr(self, name)] for name in ("pieces", "words")}

    def shown(self, piece: TokenPiece) -> str:
        """A piece as it is read; of an unknown one, also what it stands for."""
        label = piece.text or piece.token
        return f"{self.text[piece.start : piece.end].strip()} → {label}" if piece.unknown else label

    def summary(self) -> str:
        """The counts in one line."""
        counts = [
            (len(self.pieces), "tokens"),
            (len(self.text.split()), "words"),
            (len(self.text), "characters"),
            (len(self.text.encode(errors="replace")), "bytes"),
            (sum(piece.unknown for piece in self.pieces), "unknown"),
        ]
        told = ", ".join(f"{count:,} {name}" for count, name in counts)
        return f"{self.kind}: {told}{'' if self.round_trip else '; the tokens do not give back the text'}"

    def as_text(self, merges: bool = False, color: bool = False, clean: Callable[[str], str] = str) -> str:
        """Pieces in boxes, their numbers, and the counts.

        Args:
            merges: Also show every step of the tokenizer.
            color: Color the boxes.
            clean: What a terminal is shown of a text.

        Returns:
            The lines.
        """
        boxes = " ".join(boxed(place, clean(self.shown(one)), color) for place, one in enumerate(self.pieces))
        lines = [boxes, " ".join(str(number) for number in self.ids)]
        for piece in self.pieces:
            if not piece.whole:
                lines.append(f"{piece.id} is a part of a character: bytes {bytes(piece.bytes).hex(' ')}")
        lines.append(self.summary())
        if merges and self.why is not None:
            lines.append(f"the steps are not shown: {self.why}")
        if merges and self.why is None:
            lines += [clean(line) for word in self.words for line in steps_of(word)]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """For notebooks: colored pieces with their numbers, and the steps."""
        steps = [line for word in self.words for line in steps_of(word)]
        return spelling_html(self.pieces, [self.shown(one) for one in self.pieces], self.summary(), steps)


def boxed(place: int, text: str, color: bool) -> str:
    """A piece for a terminal: on a background of its own, or in brackets."""
    return f"\x1b[7;3{1 + place % 6}m{text}\x1b[0m" if color else f"[{text}]"


def steps_of(word: WordSteps) -> Iterator[str]:
    """The steps of a word, a line each."""
    for n, step in enumerate(word.steps):
        note = ""
        if step.rank is not None:
            note = f"  merge {step.rank}: {step.left} + {step.right}"
        elif step.score is not None:
            note = f"  {step.made} {step.score:.2f}"
        elif step.made:
            note = f"  {step.made}"
        yield f"{word.text if n == 0 else '':<12} {' | '.join(step.pieces)}{note}".rstrip()


# Through the tokenizer


def spell(tokenizer: Tokenizer, text: str) -> Spelling:
    """A text through a tokenizer: its pieces, and how they came about. Nothing is put around the text.

    Args:
        tokenizer: Of the library `tokenizers`, such as `model.tokenizer`.
        text: One string.

    Returns:
        A `Spelling`, which a notebook shows as colored boxes.

    Example:
        >>> spelling = spell(heedful.load("runs/demo").tokenizer, "The cat eats.")
        >>> [piece.text for piece in spelling.pieces], spelling.round_trip
        (['The', 'cat', 'eats', '.'], True)
    """
    return TextSpeller(tokenizer).spell(text)


class TextSpeller:
    """Spells texts; what a tokenizer.json says is read once."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.model = json.loads(tokenizer.to_str())["model"]
        self.kind = str(self.model.get("type"))
        self.in_bytes = "ByteLevel" in repr(tokenizer.pre_tokenizer) or "ByteLevel" in repr(tokenizer.decoder)

    @cached_property
    def replay(self) -> Replay:
        return replay_of(self.model)

    @cached_property
    def finder(self) -> Tokenizer:
        """The same tokenizer, for which all but the added tokens is alike: it finds where those stand."""
        from tokenizers import Tokenizer, models

        made = Tokenizer(models.WordLevel({REPLACED: 0}, unk_token=REPLACED))
        for part in ("normalizer", "pre_tokenizer"):
            if getattr(self.tokenizer, part) is not None:
                setattr(made, part, getattr(self.tokenizer, part))
        for token in self.tokenizer.get_added_tokens_decoder().values():
            (made.add_special_tokens if token.special else made.add_tokens)([token])
        made.encode_special_tokens = self.tokenizer.encode_special_tokens
        return made

    def spell(self, text: str) -> Spelling:
        """A text, its tokens and their steps."""
        if len(text) > MOST:
            raise BadInput(f"the text has {len(text):,} characters; at most {MOST:,} are spelled: cut it")
        with no_panic("a text cannot be tokenized (has it half a character?)"):
            encoding = self.tokenizer.encode(text, add_special_tokens=False)
            decoded = self.tokenizer.decode(encoding.ids, skip_special_tokens=False)
            words, owners, why = self.replayed(text, encoding.ids)
        pieces = self.pieces(text, encoding, owners)
        return Spelling(text, self.kind, pieces, words, why, decoded)

    def pieces(self, text: str, encoding: Any, owners: list[int | None]) -> list[TokenPiece]:
        """The tokens of an encoding, as they are read and in bytes."""
        shown, unknown = labels(self.tokenizer, encoding.ids), self.unknown
        added = self.tokenizer.get_added_tokens_decoder()
        found = []
        rows = zip(encoding.ids, encoding.tokens, encoding.offsets, shown, owners, strict=True)
        for number, token, (start, end), label, word in rows:
            is_added = number in added and (word is None)
            raw = self.bytes_of(token, text[start:end], is_added)
            is_unknown = number == unknown and not is_added
            piece = TokenPiece(
                number, token, label, start, end, list(raw), is_text(raw), is_unknown, is_added, word
            )
            found.append(piece)
        return found

    @cached_property
    def unknown(self) -> int | None:
        """The number of whatever the vocabulary does not know."""
        if self.kind == "Unigram":
            return self.model.get("unk_id")
        name = self.model.get("unk_token")
        return None if name is None else self.tokenizer.token_to_id(name)

    def bytes_of(self, token: str, text: str, added: bool) -> bytes:
        """The bytes that a token stands for: those that it spells, or those of its text."""
        if not added and (found := ONE_BYTE.fullmatch(token)):
            return bytes.fromhex(found[1])
        table = byte_letters()
        if not added and self.in_bytes and set(token) <= table.keys():
            return bytes(table[letter] for letter in token)
        if not added and token == SPACE:  # the library gives it the place of the letter that follows
            return b" "
        return text.encode(errors="replace")

    # The replay

    def replayed(self, text: str, ids: list[int]) -> tuple[list[WordSteps], list[int | None], str | None]:
        """Words with their steps, the word of each token, and why there are none, if there are none."""
        nothing: list[int | None] = [None] * len(ids)
        try:
            words: list[WordSteps] = []
            made: list[int] = []
            owners: list[int | None] = []
            for part, (start, end) in self.cut(text):
                if isinstance(part, int):  # an added token
                    made.append(part)
                    owners.append(None)
                    continue
                tokens, steps = self.replay(part)
                made += tokens
                owners += [len(words)] * len(tokens)
                words.append(WordSteps(part, start, end, steps))
        except CannotReplay as error:
            return [], nothing, str(error)
        except KeyError as error:
            return [], nothing, f"its vocabulary lacks {error}"
        if made != ids:
            return [], nothing, "a replay gives other tokens than the library, so it would not be true"
        return words, owners, None

    def number_of(self, found: int) -> int:
        """The number of an added token, by the one that the finder gave it."""
        number = self.tokenizer.token_to_id(str(self.finder.id_to_token(found)))
        if number is None:
            raise CannotReplay("an added token has no number")
        return number

    def cut(self, text: str) -> Iterator[tuple[str | int, tuple[int, int]]]:
        """The words that the model reads, and between them the numbers of added tokens, with their places."""
        from tokenizers import PreTokenizedString

        found = self.finder.encode(text, add_special_tokens=False)
        added: list[tuple[str | int, tuple[int, int]]] = [
            (self.number_of(number), place)
            for number, place in zip(found.ids, found.offsets, strict=True)
            if number
        ]
        spans = between([place for _, place in added], len(text))
        whole = PreTokenizedString(text)
        whole.split(lambda _, piece: [piece[a:b] for a, b in spans if a < b])
        if not text or not any(a < b for a, b in spans):
            yield from added
            return
        if self.tokenizer.normalizer is not None:
            whole.normalize(self.tokenizer.normalizer.normalize)
        if self.tokenizer.pre_tokenizer is not None:
            self.tokenizer.pre_tokenizer.pre_tokenize(whole)
        words = [(word, place) for word, place, _ in whole.get_splits("original", "char") if word]
        yield from sorted([*words, *added], key=lambda one: one[1])


def between(places: list[tuple[int, int]], length: int) -> list[tuple[int, int]]:
    """The stretches of a text that lie outside some places."""
    edges = [0, *(edge for place in places for edge in place), length]
    return list(zip(edges[::2], edges[1::2], strict=True))


def is_text(raw: bytes) -> bool:
    """Whether bytes are whole characters."""
    try:
        raw.decode()
        return True
    except UnicodeDecodeError:
        return False
