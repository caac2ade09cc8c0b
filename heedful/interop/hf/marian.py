"""Marian's tokenizer: the pieces of a SentencePiece file, the numbers of another file.

It gives the token ids of `transformers`, which are those of the sentencepiece package.
"""

from __future__ import annotations

import json
import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ...errors import BadInput
from ...files import short
from .charsmap import Cleaner
from .pipelines import END, SPACE, around
from .sentencepiece import NORMAL, UNIGRAM, USER, Pieces, read_pieces
from .token_settings import TokenizerSettings

if TYPE_CHECKING:
    from tokenizers import AddedToken, Tokenizer

# The one character that sentencepiece keeps from NFKC, and one that no text has.
TILDE, NEVER = "～", "\ufdd0"


@dataclass
class Encoded:
    """A text in token ids, as the library's `Encoding`."""

    ids: list[int]
    tokens: list[str]
    offsets: list[tuple[int, int]]
    special_tokens_mask: list[int]

    def __len__(self) -> int:
        return len(self.ids)


class Marian:
    """Marian's tokenizer: texts are cut by source.spm (or target.spm), and the pieces looked up in a
    vocabulary that both sides share.

    Even a piece that the file does not know is looked up, and one that is not found becomes the unknown
    token. No tokenizer of the library does that, or cleans texts as SentencePiece does. So this one cleans
    them itself, cuts by one of the library (`cuts`), and looks up the pieces. For everything else, decoding
    and saving included, another stands in (`shown`). It differs only in characters that the other side alone
    knows, and in marks upon marks.
    """

    def __init__(
        self,
        raw: bytes,
        clean: Cleaner,
        cuts: Tokenizer,
        shown: Tokenizer,
        numbers: dict[str, int],
        unknown: str,
        special: list[AddedToken],
    ) -> None:
        """raw: the file. special: tokens that are found before anything is cut."""
        self.raw, self.clean, self.cuts, self.shown = raw, clean, cuts, shown
        self.numbers, self.unknown = numbers, numbers[unknown]
        self.special = {token.content: token for token in special}
        names = sorted(self.special, key=len, reverse=True)
        self.marks = re.compile("|".join(map(re.escape, names)) or r"(?!)")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.shown, name)

    @property
    def encode_special_tokens(self) -> bool:
        return self.shown.encode_special_tokens

    @encode_special_tokens.setter
    def encode_special_tokens(self, value: bool) -> None:
        self.shown.encode_special_tokens = value

    def encode(self, sequence: str, pair: str | None = None, add_special_tokens: bool = True) -> Encoded:
        """A text, or two of them one after the other, and </s>."""
        found = Encoded([], [], [], [])
        for text in (sequence, pair):
            if text is not None:
                self.add(found, text)
        if add_special_tokens:
            put(found, END, self.numbers[END], (0, 0), 1)
        return found

    def encode_batch(self, input: list[Any], add_special_tokens: bool = True) -> list[Encoded]:
        pairs = [(one, None) if isinstance(one, str) else one for one in input]
        return [self.encode(text, pair, add_special_tokens) for text, pair in pairs]

    def add(self, found: Encoded, text: str) -> None:
        """The pieces of a text, and the special tokens that it spells."""
        at = 0
        for mark in () if self.encode_special_tokens else self.marks.finditer(text):
            token, start = self.special[mark[0]], mark.start()
            self.cut(found, text[at:start].rstrip() if token.lstrip else text[at:start], at)
            put(found, mark[0], self.numbers[mark[0]], mark.span(), 0)
            at = mark.end()
            if token.rstrip:
                at += len(text[at:]) - len(text[at:].lstrip())
        self.cut(found, text[at:], at)

    def cut(self, found: Encoded, text: str, at: int) -> None:
        """The pieces of a part, after the language to translate into if it begins with one: >>fra<<."""
        end = text.find("<<") + 2 if text.startswith(">>") and "<<" in text else 0
        if end:
            put(found, text[:end], self.numbers.get(text[:end], self.unknown), (at, at + end), 0)
        clean, places = self.clean(text[end:])
        pieces = self.cuts.encode(clean)
        for token, (start, stop) in zip(pieces.tokens, pieces.offsets, strict=True):
            place = (at + end + places[start], at + end + places[stop])
            put(found, token, self.numbers.get(token, self.unknown), place, 0)


def put(found: Encoded, token: str, number: int, place: tuple[int, int], special: int) -> None:
    found.ids.append(number)
    found.tokens.append(token)
    found.offsets.append(place)
    found.special_tokens_mask.append(special)


def marian(model: Path, numbers: dict[str, int], settings: TokenizerSettings) -> Tokenizer:
    """The tokenizer of one side."""
    from tokenizers import Tokenizer, models

    pieces = read_pieces(model)
    if pieces.model != UNIGRAM:
        raise BadInput(f"{model} is no unigram model, as those of Marian are")
    unknown = settings.name("unk", "<unk>") or "<unk>"
    for token in (unknown, END):
        if token not in numbers:
            raise BadInput(f"the vocabulary beside {model} has no {short(token)}, which Marian needs")
    if sorted(numbers.values()) != list(range(len(numbers))):
        raise BadInput(f"the vocabulary beside {model} does not number its {len(numbers)} tokens from 0 on")
    scores = scored(pieces)
    own = [(name if name in scores else f" {name}", scores.get(name, 0.0)) for name in pieces.names]
    cuts = Tokenizer(models.Unigram(own, pieces.unknown, pieces.byte_fallback))
    shown = around_pieces(pieces, renumbered(numbers, scores, settings, unknown), numbers[unknown])
    names = {"eos": END, "unk": unknown, "pad": "<pad>"}
    special = [token for token in settings.special(names) if token.content in numbers]
    shown.add_special_tokens(special)
    shown.add_tokens([name for name in numbers if is_code(name)])
    around(shown, ["$A", END], ["$A", "$B", END], [(END, numbers[END])])
    more = [token for token in settings.added.values() if token.content in numbers]
    parts = (pieces.path.read_bytes(), Cleaner(pieces), cuts, shown, numbers, unknown, [*more, *special])
    return cast("Tokenizer", Marian(*parts))


def marian_files(reads: Marian, writes: Marian) -> dict[str, str | bytes]:
    """{name of a file: what is in it} of both sides."""
    files: dict[str, str | bytes] = {"source.spm": reads.raw, "target.spm": writes.raw}
    files["vocab.json"] = json.dumps(reads.numbers, ensure_ascii=False)
    if writes.numbers != reads.numbers:
        files["target_vocab.json"] = json.dumps(writes.numbers, ensure_ascii=False)
    return files


def scored(pieces: Pieces) -> dict[str, float]:
    """{piece: score} of those that can be found in a text; a user-defined one wins over any other."""
    best = max((pieces.scores[n] for n in pieces.of_kind(NORMAL)), default=0.0)
    found = {pieces.names[n]: pieces.scores[n] for n in pieces.of_kind(NORMAL)}
    return found | {(name := pieces.names[n]): len(name) * best - 0.1 for n in pieces.of_kind(USER)}


def renumbered(
    numbers: dict[str, int], scores: dict[str, float], settings: TokenizerSettings, unknown: str
) -> list[tuple[str, float]]:
    """[(name, score)] in the order of the ids.

    Those that this side lacks can be decoded, yet are never found in a text: their names here begin with a
    space, which no text has any more when it is cut.
    """
    least = min(scores.values(), default=0.0)
    kept = {unknown, END, settings.name("pad", "<pad>"), *filter(is_code, numbers)}
    names = sorted(numbers, key=numbers.__getitem__)
    return [
        (name if name in scores or name in kept else f" {name}", scores.get(name, least)) for name in names
    ]


def is_code(name: str) -> bool:
    """Whether it is a language to translate into, as >>fra<<."""
    return name.startswith(">>") and name.endswith("<<")


def around_pieces(pieces: Pieces, listed: list[tuple[str, float]], unknown: int) -> Tokenizer:
    """Sentencepiece's own way of cleaning and cutting, with these pieces."""
    from tokenizers import Tokenizer, decoders, models

    tokenizer = Tokenizer(models.Unigram(listed, unknown, pieces.byte_fallback))
    tokenizer.normalizer = as_sentencepiece(pieces)
    words = decoders.Metaspace(prepend_scheme="always" if pieces.dummy_prefix else "never")
    tokenizer.decoder = decoders.Sequence([decoders.Replace(" ", ""), words])
    return tokenizer


def as_sentencepiece(pieces: Pieces) -> Any:
    """The cleaning that the sentencepiece package does, but for marks upon marks in an unusual order.

    Its table maps the longest sequence that it knows. The library looks at characters one by one, and loses a
    mark that follows one it replaces; composing everything first (NFKC, which such tables are made of) loses
    little.
    """
    from tokenizers import Regex, normalizers

    steps: list[Any] = []
    if pieces.charsmap:
        table = normalizers.Precompiled(pieces.charsmap)
        if table.normalize_str("\r") == table.normalize_str("\n"):
            steps = [normalizers.Replace("\r", "\n")]  # or the library takes the two for one character
        different = differing(table)
        if not different:
            steps += [normalizers.NFKC()]
        elif different == [TILDE]:
            steps += [
                normalizers.Replace(TILDE, NEVER),
                normalizers.NFKC(),
                normalizers.Replace(NEVER, TILDE),
            ]
        steps.append(table)
    if pieces.squeezes:
        ends = [normalizers.Replace(Regex(pattern), "") for pattern in (r"\A ", r"(?<![ ▁])[ ▁]+\z")]
        steps += [normalizers.Replace(Regex(r" {2,}"), " "), *ends]
    before = [normalizers.Prepend(SPACE)] if pieces.dummy_prefix else []
    return normalizers.Sequence([*steps, *before, normalizers.Replace(" ", SPACE)])


def differing(table: Any) -> list[str]:
    """Characters that a table treats otherwise than what NFKC makes of them; a few are enough to know."""
    different = []
    for number in COMPATIBLE:
        composed = unicodedata.normalize("NFKC", chr(number))
        if composed != chr(number) and table.normalize_str(chr(number)) != table.normalize_str(composed):
            different.append(chr(number))
            if len(different) > 1:
                break
    return different


COMPATIBLE = (
    *range(0xA0, 0x3400),
    *range(0xF900, 0x10000),
    *range(0x1D400, 0x1D800),
    *range(0x1F100, 0x1F252),
)
