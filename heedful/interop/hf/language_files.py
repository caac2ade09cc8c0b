"""Tokenizers of translators that know many languages, from their SentencePiece files: mBART, NLLB, M2M100."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import BadInput
from .pipelines import FAIRSEQ
from .sentencepiece import BPE, Pieces, merges_of, read_pieces
from .token_settings import TokenizerSettings, add_tokens

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# The languages of classes whose folders need not list them, in the order of their numbers.
MBART = [
    "ar_AR", "cs_CZ", "de_DE", "en_XX", "es_XX", "et_EE", "fi_FI", "fr_XX", "gu_IN", "hi_IN", "it_IT",
    "ja_XX", "kk_KZ", "ko_KR", "lt_LT", "lv_LV", "my_MM", "ne_NP", "nl_XX", "ro_RO", "ru_RU", "si_LK",
    "tr_TR", "vi_VN", "zh_CN",
]  # fmt: skip
MORE = [
    "af_ZA", "az_AZ", "bn_IN", "fa_IR", "he_IL", "hr_HR", "id_ID", "ka_GE", "km_KH", "mk_MK", "ml_IN",
    "mn_MN", "mr_IN", "pl_PL", "ps_AF", "pt_XX", "sv_SE", "sw_KE", "ta_IN", "te_IN", "th_TH", "tl_XX",
    "uk_UA", "ur_PK", "xh_ZA", "gl_ES", "sl_SI",
]  # fmt: skip
M2M100 = [
    "af", "am", "ar", "ast", "az", "ba", "be", "bg", "bn", "br", "bs", "ca", "ceb", "cs", "cy", "da", "de",
    "el", "en", "es", "et", "fa", "ff", "fi", "fr", "fy", "ga", "gd", "gl", "gu", "ha", "he", "hi", "hr",
    "ht", "hu", "hy", "id", "ig", "ilo", "is", "it", "ja", "jv", "ka", "kk", "km", "kn", "ko", "lb", "lg",
    "ln", "lo", "lt", "lv", "mg", "mk", "ml", "mn", "mr", "ms", "my", "ne", "nl", "no", "ns", "oc", "or",
    "pa", "pl", "ps", "pt", "ro", "ru", "sd", "si", "sk", "sl", "so", "sq", "sr", "ss", "su", "sv", "sw",
    "ta", "th", "tl", "tn", "tr", "uk", "ur", "uz", "vi", "wo", "xh", "yi", "yo", "zh", "zu",
]  # fmt: skip
LISTS = {"mbart": MBART, "mbart50": MBART + MORE}
M2M100_LISTS = {"m2m100": M2M100, "wmt21": ["en", "ha", "is", "ja", "cs", "ru", "zh", "de"]}

NAMES = FAIRSEQ | {"cls": "<s>", "sep": "</s>"}


def of_languages(pieces: Pieces, settings: TokenizerSettings, rows: int | None) -> Tokenizer:
    """fairseq's numbers: its own four tokens, the file's pieces from the fourth on, languages, <mask>."""
    listed = [settings.name(which, token) or token for which, token in FAIRSEQ.items()] + pieces.names[3:]
    numbers = {name: number for number, name in enumerate(listed)}
    if len(numbers) < len(listed):
        raise BadInput(f"{pieces.path} has a piece that fairseq numbers itself: it is another family's file")
    tokenizer, names = cut_by(pieces, numbers), NAMES | {"mask": "<mask>"}
    return with_languages(tokenizer, pieces.path, settings, rows, names, LISTS.get(settings.kind, []))


def m2m100(path: Path, numbers: dict[str, int], settings: TokenizerSettings, rows: int | None) -> Tokenizer:
    """Pieces of a file under the numbers of vocab.json, and languages after them."""
    codes = M2M100_LISTS.get(str(settings.said.get("language_codes", "m2m100")), [])
    tokenizer = cut_by(read_pieces(path), numbers)
    return with_languages(tokenizer, path, settings, rows, NAMES, [f"__{code}__" for code in codes])


def cut_by(pieces: Pieces, numbers: dict[str, int]) -> Tokenizer:
    """Texts cut as the file says, under these numbers; what has no number is unknown."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from tokenizers import normalizers as n

    unknown = FAIRSEQ["unk"]
    if sorted(numbers.values()) != list(range(len(numbers))) or unknown not in numbers:
        raise BadInput(f"the vocabulary of {pieces.path} is not numbered from 0 on, or lacks {unknown}")
    if pieces.model == BPE:
        merges = [(a, b) for a, b in merges_of(pieces) if {a, b, a + b} <= numbers.keys()]
        tokenizer = Tokenizer(models.BPE(numbers, merges, unk_token=unknown, fuse_unk=True))
    else:
        scores = dict(zip(pieces.names, pieces.scores, strict=True))
        listed = [(name, scores.get(name, 0.0)) for name in sorted(numbers, key=numbers.__getitem__)]
        tokenizer = Tokenizer(models.Unigram(listed, numbers[unknown], False))
    clean = [n.Precompiled(pieces.charsmap)] if pieces.charsmap else []
    tokenizer.normalizer = n.Sequence([*clean, n.Replace(Regex(r" {2,}"), " ")])
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    return tokenizer


def with_languages(
    tokenizer: Tokenizer,
    path: Path,
    settings: TokenizerSettings,
    rows: int | None,
    names: dict[str, str],
    codes: list[str],
) -> Tokenizer:
    """The tokenizer with its languages, and other special tokens after them. codes: where none is listed."""
    languages = [settings.token(code) for code in codes] or settings.more()
    if not languages:
        raise BadInput(
            f"nothing beside {path} lists its languages: save the tokenizer again with transformers, "
            f"which writes tokenizer.json"
        )
    tokenizer.add_special_tokens(languages)
    add_tokens(tokenizer, settings, names, rows)
    return tokenizer
