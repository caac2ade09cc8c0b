"""Checks of the tokenizer: texts come back, and the model has few rows that no token uses."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable
from itertools import combinations
from typing import TYPE_CHECKING

import torch

from ...data import pieces
from ...data.vocab import no_panic
from ...files import one_line
from ...parts.embeddings import Inputs
from .finding import FAIL, OK, WARN, Finding, NotApplicable
from .patient import Patient

if TYPE_CHECKING:
    from tokenizers import Tokenizer


UNUSED = 0.1  # of a vocabulary
SENTENCES = (
    "The quick brown fox jumps over the lazy dog.",
    "Où est l'école où Zoë étudiait déjà ?",
    "Größe, Ærøskøbing, çağ, žluťoučký kůň",
    "МОСКВА и Ελλάδα",
    "東京は日本の首都です。我是学生。",
    "🙂 👩‍👩‍👧 and a naïve café",
    "two  spaces,\ttabs,\nlines and a space at the end ",
    "x_y = 1,234.56 == 'a'  # isn't it?",
)
UNKNOWN = ("[UNK]", "<unk>", "<UNK>")


def forms(text: str) -> str:
    return unicodedata.normalize("NFKC", text)


def without_accents(text: str) -> str:
    return "".join(c for c in unicodedata.normalize("NFD", text) if not unicodedata.combining(c))


# What a tokenizer may be made to ignore.
IGNORED: dict[str, Callable[[str], str]] = {
    "white space": lambda text: "".join(text.split()),
    "capital letters": str.lower,
    "accents": without_accents,
    "forms of characters": forms,
}


def round_trip(p: Patient) -> Finding:
    """Texts become tokens and the same texts again, but for what the tokenizer ignores or does not know."""
    tokenizers = [t for t in (p.loaded.tokenizer, p.loaded.target_tokenizer) if t is not None]
    if not tokenizers:
        raise NotApplicable("the folder has no tokenizer" if p.reads_text else "images are not tokenized")
    exact = unknown = total = 0
    changed: list[tuple[str, str]] = []
    ignored: Counter[str] = Counter()
    for tokenizer in tokenizers:
        for text in (*SENTENCES, *own_texts(p, tokenizer)):
            back, knows_all = there_and_back(tokenizer, text)
            reasons = excuse(text, back)
            total += 1
            exact += back == text
            unknown += not knows_all
            if knows_all and reasons is None:
                changed.append((text, back))
            elif knows_all and reasons:
                ignored.update(reasons)
    summary = [f"{exact} of {total} texts are restored exactly"]
    summary += [f"{n} except for {reason}" for reason, n in ignored.items()]
    summary += [f"{unknown} have unknown tokens"] if unknown else []
    summary += ["{!r} becomes {!r}".format(*map(one_line, changed[0]))] if changed else []
    remedy = "the tokenizer changes texts: check its decoder, and that it belongs to this model"
    return Finding(FAIL if changed else OK, float(len(changed)), "; ".join(summary), "0 changed", remedy)


def own_texts(p: Patient, tokenizer: Tokenizer) -> list[str]:
    """Texts that a vocabulary surely knows: words of its own in a row."""
    special = {number for number, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    tokens = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    said = pieces.said(repr(tokenizer.decoder), [token for token, _ in tokens])
    words = [
        n
        for (_, n), text in zip(tokens, said, strict=True)
        if n not in special and text[1:].isalpha() and text[0] == " "
    ]
    if not words:
        return []
    picks = torch.randint(len(words), (3, 12), generator=p.random).tolist()
    with no_panic("token numbers cannot be turned into text"):
        return [tokenizer.decode([words[i] for i in row]) for row in picks]


def there_and_back(tokenizer: Tokenizer, text: str) -> tuple[str, bool]:
    """A text that was tokenized, and whether every part of it was known."""
    with no_panic("a text cannot be tokenized"):
        encoding = tokenizer.encode(text, add_special_tokens=False)
        back = tokenizer.decode(encoding.ids, skip_special_tokens=False)
    unknown = {tokenizer.token_to_id(token) for token in UNKNOWN}
    return back, unknown.isdisjoint(encoding.ids)


def excuse(text: str, back: str) -> tuple[str, ...] | None:
    """The fewest things one has to ignore for two texts to be the same; None if that is not enough."""
    for count in range(len(IGNORED) + 1):
        for names in combinations(IGNORED, count):
            a, b = text, back
            for name in names:
                a, b = IGNORED[name](a), IGNORED[name](b)
            if a == b:
                return names
    return None


def used_vocabulary(p: Patient) -> Finding:
    """The model's table has few rows that no token uses."""
    if p.loaded.tokenizer is None:
        raise NotApplicable("the folder has no tokenizer")
    tokenizer = p.loaded.target_tokenizer or p.loaded.tokenizer
    shell = p.decoder or p.reader
    if not isinstance(shell.inputs, Inputs):
        raise NotApplicable("words are read letter by letter; there is no embedding table of words")
    rows = shell.inputs.tokens.weight.shape[0]
    unused = rows - tokenizer.get_vocab_size()
    summary = f"{unused:,} of {rows:,} embedding rows have no token"
    remedy = "check that this tokenizer belongs to the model; if so, its embedding is larger than needed"
    verdict = WARN if unused > UNUSED * rows else OK
    return Finding(verdict, float(unused), summary, f"≤ {UNUSED:.0%}", remedy)
