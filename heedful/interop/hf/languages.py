"""Languages of a translator that knows many: each is a token beside the source and before the translation."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import BadInput
from ...files import naming
from .token_settings import TokenizerSettings

if TYPE_CHECKING:
    from tokenizers import Tokenizer

END = "</s>"
CODES = (
    r"[a-z]{3}_[A-Z][a-z]{3}",
    r"[a-z]{2,3}_[A-Z]{2}",
    r"__(?P<code>[a-z]{2,3})__",
)  # NLLB, mBART, M2M100
# {tokenizer class, in lower case: (its name, the language of texts unless the folder names one)}
CLASSES = {
    "nllb": ("NllbTokenizer", "eng_Latn"),
    "m2m100": ("M2M100Tokenizer", "en"),
    "mbart": ("MBartTokenizer", "en_XX"),
    "mbart50": ("MBart50Tokenizer", "en_XX"),
}
TOKENIZER_JSON = ("nllb", "mbart", "mbart50")  # classes that read a tokenizer.json


@dataclass(frozen=True)
class Languages:
    """The languages that a model knows, and where their tokens stand."""

    kind: str  # the tokenizer's class, in lower case
    codes: Mapping[str, int]  # {code: the number of its token}
    written: str  # the language whose token the tokenizer puts beside a text
    source: str  # the language of texts
    target: str | None = None  # the language of translations; None: as the generation settings say

    @property
    def is_start(self) -> bool:
        """Whether the decoder starts with the language (mBART); others write it as their first token."""
        return self.kind == "mbart"

    def number(self, code: str) -> int:
        """The number of a language's token."""
        if code not in self.codes:
            known = f"{len(self.codes)} languages, such as {', '.join(list(self.codes)[:3])}"
            raise BadInput(f'there is no language "{code}" among {known}{close(code, self.codes)}')
        return self.codes[code]

    def of_source(self, ids: list[int]) -> list[int]:
        """The tokens of a text, with the token of the source language beside them."""
        old, new = self.codes[self.written], self.codes[self.source]
        if ids[:1] == [old]:
            return [new, *ids[1:]]
        return [*ids[:-1], new] if ids[-1:] == [old] else ids


def close(code: str, codes: Mapping[str, int]) -> str:
    """What was probably meant: codes that begin alike."""
    found = [known for known in codes if known[:2].lower() == code[:2].lower()]
    return f"; did you mean {' or '.join(found[:3])}?" if found else "; its tokenizer names them"


def codes_in(tokenizer: Tokenizer) -> dict[str, int]:
    """{language: the number of its token} of a vocabulary, in the order of their numbers."""
    found = {}
    for number, token in sorted(tokenizer.get_added_tokens_decoder().items()):
        match = next(filter(None, (re.fullmatch(code, token.content) for code in CODES)), None)
        if match is not None:
            found[match.groupdict().get("code") or token.content] = number
    return found


def read_languages(folder: Path, tokenizer: Tokenizer | None) -> Languages | None:
    """The languages of a folder's tokenizer, which from now on puts the source language beside a text."""
    if tokenizer is None:
        return None
    with naming(folder):
        settings = TokenizerSettings(folder)
        if settings.kind not in CLASSES or not (codes := codes_in(tokenizer)):
            return None
        said = settings.said.get("src_lang")
        source = said if isinstance(said, str) and said in codes else CLASSES[settings.kind][1]
        if source not in codes:
            source = next(iter(codes))
        after = settings.kind == "mbart" or settings.flag("legacy_behaviour", False)
        put_around(tokenizer, codes[source], after)
        return Languages(settings.kind, codes, source, source)


def put_around(tokenizer: Tokenizer, language: int, after: bool) -> None:
    """Let a tokenizer write LANGUAGE text </s>, or text </s> LANGUAGE."""
    from tokenizers import processors

    name, end = str(tokenizer.id_to_token(language)), tokenizer.token_to_id(END)
    if end is None:
        raise BadInput(f"its tokenizer has no {END}, which ends every text")
    first, last = ([], [END, name]) if after else ([name], [END])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=[*first, "$A", *last],
        pair=[*first, "$A", "$B", *last],
        special_tokens=[(END, end), (name, language)],
    )


def language_settings(languages: Languages | None) -> dict[str, Any]:
    """What tokenizer_config.json says of them."""
    if languages is None:
        return {}
    named = {"tokenizer_class": CLASSES[languages.kind][0]} if languages.kind in TOKENIZER_JSON else {}
    return {**named, "src_lang": languages.written}
