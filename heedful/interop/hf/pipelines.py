"""The tokenizers of families with a SentencePiece model: how texts are normalized and split, and their ends.

Each gives the token ids that `transformers` gives. (The sentencepiece package mostly gives them too. It
differs in rare characters, in spaces at the beginning of a text for LLaMA, and for DeBERTa in all that NFC
leaves as it is.)
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ...errors import BadInput
from ...files import short
from .sentencepiece import BPE, CONTROL, NORMAL, UNIGRAM, USER, Pieces, merges_of, read_pieces
from .token_settings import TokenizerSettings, add_tokens, put_ends

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SPACE = "▁"  # what stands for a space within pieces
TILDE, NEVER = (
    "～",
    "\ufdd0",
)  # the one character that sentencepiece keeps from NFKC, and one that no text has
END = "</s>"
SENTINELS = 100  # T5's <extra_id_0> and so on


# Families whose one file holds all


def t5(pieces: Pieces, settings: TokenizerSettings, rows: int | None) -> Tokenizer:
    """Words cut at spaces; </s> ends a text; a hundred sentinels come last, the highest first."""
    from tokenizers import normalizers

    more = [f"<extra_id_{n}>" for n in reversed(range(settings.count("extra_ids", SENTINELS)))]
    tokenizer = unigram(pieces, [(name, 0.0) for name in more])
    if pieces.charsmap:
        tokenizer.normalizer = normalizers.Precompiled(pieces.charsmap)
    cut_at_spaces(tokenizer)
    names = {"eos": END, "unk": "<unk>", "pad": "<pad>"}
    add_own(tokenizer, pieces)
    add_tokens(tokenizer, settings, names, rows)
    tokenizer.add_special_tokens(more)
    end = need(tokenizer, pieces.path, END)
    around(tokenizer, ["$A", END], ["$A", END, "$B", END], [end])
    return tokenizer


def albert(pieces: Pieces, settings: TokenizerSettings, rows: int | None) -> Tokenizer:
    """Without accents and capitals, unless the folder says otherwise; [CLS] text [SEP]."""
    from tokenizers import normalizers as n

    steps: list[Any] = [n.Replace("``", '"'), n.Replace("''", '"')]
    if not settings.flag("keep_accents", False):
        steps += [n.NFKD(), n.StripAccents()]
    if settings.flag("do_lower_case", True):
        steps.append(n.Lowercase())
    if pieces.charsmap:
        steps.append(n.Precompiled(pieces.charsmap))
    tokenizer = unigram(pieces)
    tokenizer.normalizer = n.Sequence(steps)
    cut_at_spaces(tokenizer)
    return between_cls_and_sep(tokenizer, pieces, settings, rows, {"unk": "<unk>", "pad": "<pad>"})


def deberta(pieces: Pieces, settings: TokenizerSettings, rows: int | None) -> Tokenizer:
    """Composed characters, runs of spaces made one; [CLS] text [SEP]."""
    from tokenizers import Regex, decoders, pre_tokenizers
    from tokenizers import normalizers as n

    steps: list[Any] = [n.Lowercase()] if settings.flag("do_lower_case", False) else []
    steps += [n.Replace(Regex(r"\s{2,}|[\n\r\t]"), " "), n.NFC(), n.Strip(left=False, right=True)]
    tokenizer = unigram(pieces)
    tokenizer.normalizer = n.Sequence(steps)
    cuts: list[Any] = (
        [pre_tokenizers.Punctuation("isolated")] if settings.flag("split_by_punct", False) else []
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*cuts, pre_tokenizers.Metaspace()])
    tokenizer.decoder = decoders.Metaspace()
    return between_cls_and_sep(tokenizer, pieces, settings, rows, {"unk": "[UNK]", "pad": "[PAD]"})


def llama(pieces: Pieces, settings: TokenizerSettings, rows: int | None) -> Tokenizer:
    """Pieces merged by rank, what none has spelled by its bytes; spaces are kept, each of them."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    if pieces.model != BPE:
        raise BadInput(f"{pieces.path} is no BPE model, as those of LLaMA's family are")
    numbers = {name: number for number, name in enumerate(pieces.names)}
    tokenizer = Tokenizer(models.BPE(numbers, merges_of(pieces), fuse_unk=True, byte_fallback=True))
    before = settings.flag("add_prefix_space", True)
    where = "never" if not before else "always" if settings.flag("legacy", False) else "first"
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=where, split=False)
    words = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*words, *([decoders.Strip(" ", 1, 0)] if before else [])])
    add_own(tokenizer, pieces)
    add_tokens(tokenizer, settings, {"bos": "<s>", "eos": END, "unk": "<unk>"}, rows)
    put_ends(tokenizer, settings, "<s>", END)
    return tokenizer


def unigram(pieces: Pieces, more: Sequence[tuple[str, float]] = ()) -> Tokenizer:
    """The most likely way to split a word into pieces."""
    from tokenizers import Tokenizer, models

    if pieces.model != UNIGRAM:
        raise BadInput(f"{pieces.path} is no unigram model, as those of its family are")
    both = [*zip(pieces.names, pieces.scores, strict=True), *more]
    return Tokenizer(models.Unigram(both, pieces.unknown, False))


def cut_at_spaces(tokenizer: Tokenizer) -> None:
    from tokenizers import decoders, pre_tokenizers

    cuts = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Sequence(cuts), decoders.Metaspace()


def add_own(tokenizer: Tokenizer, pieces: Pieces) -> None:
    """Pieces that the file itself says are never cut up."""
    from tokenizers import AddedToken

    for number in pieces.of_kind(CONTROL, USER):
        special = pieces.kinds[number] == CONTROL
        tokenizer.add_tokens([AddedToken(pieces.names[number], normalized=False, special=special)])


def between_cls_and_sep(
    tokenizer: Tokenizer, pieces: Pieces, settings: TokenizerSettings, rows: int | None, more: dict[str, str]
) -> Tokenizer:
    """[CLS] text [SEP], and [CLS] text [SEP] text [SEP]. more: the family's names of other special tokens."""
    add_own(tokenizer, pieces)
    names = {"bos": "[CLS]", "eos": "[SEP]", "sep": "[SEP]", "cls": "[CLS]", "mask": "[MASK]"}
    add_tokens(tokenizer, settings, names | more, rows)
    cls, sep = settings.name("cls", "[CLS]") or "[CLS]", settings.name("sep", "[SEP]") or "[SEP]"
    ends = [need(tokenizer, pieces.path, token) for token in (cls, sep)]
    around(tokenizer, [cls, "$A", sep], [cls, "$A", sep, "$B:1", f"{sep}:1"], ends)
    return tokenizer


def around(tokenizer: Tokenizer, single: list[str], pair: list[str], ends: list[tuple[str, int]]) -> None:
    from tokenizers import processors

    tokenizer.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=ends)


def need(tokenizer: Tokenizer, path: Path, token: str) -> tuple[str, int]:
    """A token that a family cannot do without, with its number."""
    number = tokenizer.token_to_id(token)
    if number is None:
        raise BadInput(f"{path} has no {short(token)}, which ends every text")
    return token, number


# Marian: the pieces of a file, the numbers of another


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
    token. No tokenizer of the library does that, so this one cuts by one of them (`cuts`) and looks up the
    pieces itself. For everything else, decoding and saving included, another stands in (`shown`). It differs
    only in characters that the other side alone knows.
    """

    def __init__(
        self, raw: bytes, cuts: Tokenizer, shown: Tokenizer, numbers: dict[str, int], unknown: str
    ) -> None:
        """raw: the file."""
        self.raw, self.cuts, self.shown = raw, cuts, shown
        self.numbers, self.unknown = numbers, numbers[unknown]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.shown, name)

    @property
    def encode_special_tokens(self) -> bool:
        return self.shown.encode_special_tokens

    @encode_special_tokens.setter
    def encode_special_tokens(self, value: bool) -> None:
        self.cuts.encode_special_tokens = self.shown.encode_special_tokens = value

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
        """The pieces of a text, after the language to translate into if it begins with one: >>fra<<."""
        end = text.find("<<") + 2 if text.startswith(">>") and "<<" in text else 0
        if end:
            put(found, text[:end], self.numbers.get(text[:end], self.unknown), (0, end), 0)
        cut = self.cuts.encode(text[end:])
        for token, (start, stop) in zip(cut.tokens, cut.offsets, strict=True):
            put(found, token, self.numbers.get(token, self.unknown), (end + start, end + stop), 0)


def put(found: Encoded, token: str, number: int, place: tuple[int, int], special: int) -> None:
    found.ids.append(number)
    found.tokens.append(token)
    found.offsets.append(place)
    found.special_tokens_mask.append(special)


def marian(model: Path, numbers: dict[str, int], settings: TokenizerSettings) -> Tokenizer:
    """The tokenizer of one side."""
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
    cuts = around_pieces(pieces, own, pieces.unknown)
    shown = around_pieces(pieces, renumbered(numbers, scores, settings, unknown), numbers[unknown])
    names = {"eos": END, "unk": unknown, "pad": "<pad>"}
    for tokenizer in (cuts, shown):
        special = [token for token in settings.special(names) if token.content in numbers]
        tokenizer.add_special_tokens(special)
    shown.add_tokens([name for name in numbers if is_code(name)])
    around(shown, ["$A", END], ["$A", "$B", END], [(END, numbers[END])])
    return cast("Tokenizer", Marian(pieces.path.read_bytes(), cuts, shown, numbers, unknown))


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


def read_whole_model(path: Path, settings: TokenizerSettings, rows: int | None) -> Tokenizer | None:
    """The tokenizer of a folder with one SentencePiece model; None where its family is not known here."""
    pieces = read_pieces(path)
    kind = settings.kind or likely(pieces)
    return FAMILIES[kind](pieces, settings, rows) if kind in FAMILIES else None


def likely(pieces: Pieces) -> str:
    """The family of a file that nothing else tells of."""
    if pieces.model == BPE:
        return "llama"
    if "[CLS]" not in pieces.names:
        return "t5"
    return "debertav2" if pieces.path.name == "spm.model" else "albert"


FAMILIES = {"t5": t5, "mt5": t5, "albert": albert, "debertav2": deberta, "llama": llama, "mistral": llama}
