"""The tokenizers of families with a SentencePiece model: how texts are normalized and split, and their ends.

Each gives the token ids that `transformers` gives. (The sentencepiece package mostly gives them too. It
differs in rare characters, in spaces at the beginning of a text for LLaMA, and for DeBERTa in all that NFC
leaves as it is.)
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import BadInput
from ...files import short
from .sentencepiece import BPE, CONTROL, UNIGRAM, USER, Pieces, merges_of, read_pieces
from .token_settings import (
    AS_IT_IS,
    GENERIC,
    TokenizerSettings,
    add_tokens,
    mask_takes_space,
    put_ends,
)

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SPACE = "▁"  # what stands for a space within pieces
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


def xlm_roberta(pieces: Pieces, settings: TokenizerSettings, rows: int | None) -> Tokenizer:
    """fairseq's numbers: its own four tokens first, then the file's pieces from the fourth on."""
    first = [(settings.name(which, token) or token, 0.0) for which, token in FAIRSEQ.items()]
    return of_fairseq(pieces, first, pieces.names[3:], settings, rows)


def camembert(pieces: Pieces, settings: TokenizerSettings, rows: int | None) -> Tokenizer:
    """fairseq's tokens, of which three are not used, then all pieces of the file but the first."""
    pad, unknown = (settings.name(which, FAIRSEQ[which]) or FAIRSEQ[which] for which in ("pad", "unk"))
    first = [("<s>NOTUSED", 0.0), (pad, 0.0), ("</s>NOTUSED", 0.0), (unknown, 0.0), ("<unk>NOTUSED", -100.0)]
    mask_takes_space(settings, "<mask>")
    return of_fairseq(pieces, first, pieces.names[1:], settings, rows)


FAIRSEQ = {"bos": "<s>", "pad": "<pad>", "eos": END, "unk": "<unk>"}  # in the order of their numbers


def of_fairseq(
    pieces: Pieces,
    first: list[tuple[str, float]],
    kept: list[str],
    settings: TokenizerSettings,
    rows: int | None,
) -> Tokenizer:
    """Pieces between other tokens and <mask>, which comes last; <s> text </s>, and <s> a </s></s> b </s>."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    if pieces.model != UNIGRAM:
        raise BadInput(f"{pieces.path} is no unigram model, as those of its family are")
    scores, mask = dict(zip(pieces.names, pieces.scores, strict=True)), settings.name("mask", "<mask>")
    listed = [*first, *((name, scores[name]) for name in kept), (mask or "<mask>", 0.0)]
    if len(dict(listed)) < len(listed):
        raise BadInput(f"{pieces.path} has a piece that fairseq numbers itself: it is another family's file")
    tokenizer = Tokenizer(models.Unigram(listed, 3, False))
    if pieces.charsmap:
        tokenizer.normalizer = normalizers.Precompiled(pieces.charsmap)
    where = "always" if settings.flag("add_prefix_space", True) else "never"
    cuts = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme=where)]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(cuts)
    tokenizer.decoder = decoders.Metaspace(prepend_scheme=where)
    names = FAIRSEQ | {"cls": "<s>", "sep": END, "mask": "<mask>"}
    add_tokens(tokenizer, settings, names, rows)
    bos, eos = (settings.name(which, names[which]) or names[which] for which in ("bos", "eos"))
    ends = [need(tokenizer, pieces.path, token) for token in dict.fromkeys((bos, eos))]
    around(tokenizer, [bos, "$A", eos], [bos, "$A", eos, eos, "$B", eos], ends)
    return tokenizer


def llama(pieces: Pieces, settings: TokenizerSettings, rows: int | None) -> Tokenizer:
    """Pieces merged by rank, what none has spelled by its bytes; spaces are kept, each of them."""
    from tokenizers import Tokenizer, models

    if pieces.model != BPE:
        raise BadInput(f"{pieces.path} is no BPE model, as those of LLaMA's family are")
    numbers = {name: number for number, name in enumerate(pieces.names)}
    tokenizer = Tokenizer(models.BPE(numbers, merges_of(pieces), fuse_unk=True, byte_fallback=True))
    tokenizer.pre_tokenizer, tokenizer.decoder = metaspace_of_llama(settings)
    add_own(tokenizer, pieces)
    add_tokens(tokenizer, settings, {"bos": "<s>", "eos": END, "unk": "<unk>"}, rows)
    put_ends(tokenizer, settings, "<s>", END)
    return tokenizer


def of_no_family(pieces: Pieces, settings: TokenizerSettings, rows: int | None) -> Tokenizer:
    """A file for which `transformers` has no class of a family: it puts no space before the first word."""
    from tokenizers import Tokenizer, decoders, models
    from tokenizers import normalizers as n

    unknown = pieces.names[pieces.unknown]
    if pieces.model == BPE:
        numbers = {name: number for number, name in enumerate(pieces.names)}
        how: dict[str, Any] = {"unk_token": unknown, "fuse_unk": True, "byte_fallback": pieces.byte_fallback}
        tokenizer = Tokenizer(models.BPE(numbers, merges_of(pieces), **how))
    else:
        both = [*zip(pieces.names, pieces.scores, strict=True)]
        tokenizer = Tokenizer(models.Unigram(both, pieces.unknown, pieces.byte_fallback))
    first = [n.Precompiled(pieces.charsmap)] if pieces.charsmap else []
    tokenizer.normalizer = n.Sequence([*first, n.Replace(" ", SPACE)])
    bytes_back = [decoders.ByteFallback(), decoders.Fuse()] if pieces.byte_fallback else []
    tokenizer.decoder = decoders.Sequence([decoders.Replace(SPACE, " "), *bytes_back])
    add_own(tokenizer, pieces)
    known = {which: token for which, token in {"bos": "<s>", "eos": END}.items() if token in pieces.names}
    add_tokens(tokenizer, settings, known | {"unk": unknown}, rows)
    put_ends(tokenizer, settings, known.get("bos"), known.get("eos"))
    return tokenizer


def metaspace_of_llama(settings: TokenizerSettings) -> tuple[Any, Any]:
    """How spaces become a part of pieces, and how they come back: a space goes before the first word, or (as
    the first versions did) after every special token too."""
    from tokenizers import decoders, pre_tokenizers

    before = settings.flag("add_prefix_space", True)
    where = "never" if not before else "always" if settings.flag("legacy", False) else "first"
    words = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    back = decoders.Sequence([*words, *([decoders.Strip(" ", 1, 0)] if before else [])])
    return pre_tokenizers.Metaspace(prepend_scheme=where, split=False), back


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


# Which family


def read_whole_model(path: Path, settings: TokenizerSettings, rows: int | None) -> Tokenizer | None:
    """The tokenizer of a folder with one SentencePiece model; None where its family is not known here."""
    pieces = read_pieces(path)
    unnamed = settings.said.get("tokenizer_class") in (None, *GENERIC)
    if settings.model in AS_IT_IS or (settings.model == "llama" and unnamed):
        return of_no_family(pieces, settings, rows)
    kind = settings.kind or likely(pieces)
    return FAMILIES[kind](pieces, settings, rows) if kind in FAMILIES else None


def likely(pieces: Pieces) -> str:
    """The family of a file that nothing else tells of."""
    if pieces.model == BPE:
        return "llama"
    if pieces.path.name == "sentencepiece.bpe.model":
        return "xlmroberta"
    if "[CLS]" not in pieces.names:
        return "t5"
    return "debertav2" if pieces.path.name == "spm.model" else "albert"


FAMILIES = {
    "xlmroberta": xlm_roberta,
    "camembert": camembert,
    "t5": t5,
    "mt5": t5,
    "albert": albert,
    "debertav2": deberta,
    "llama": llama,
    "mistral": llama,
}
