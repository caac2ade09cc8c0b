"""Spelling: the regular forms of English and French words, and the conjugation of French verbs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from .tables import table

# English spelling


def with_s(word: str) -> str:
    """A noun's plural or a verb's third person, where it is regular."""
    if re.search(r"[^aeiou]y$", word):
        return word[:-1] + "ies"
    return word + ("es" if re.search(r"(s|x|ch|sh|[^aeio]o)$", word) else "s")


def with_ed(word: str) -> str:
    """A verb's past, where it is regular."""
    if re.search(r"[^aeiou]y$", word):
        return word[:-1] + "ied"
    return word + ("d" if word.endswith("e") else "ed")


def is_vowel_in_english(word: str) -> bool:
    """Whether `an` comes before it."""
    return word in ("heir", "heiress") or (word[0] in "aeiouAEIOU" and word not in ("university", "useful"))


# French spelling

# An aspirated h (and the numbers 8 and 11) keeps the vowel before it: `le héros`, but `l'héroïne`.
ASPIRATED = frozenset(
    [
        "héros",
        "hérisson",
        "hérissons",
        "hibou",
        "hiboux",
        "hache",
        "haches",
        "haricot",
        "haricots",
        "huit",
        "onze",
    ]
)


@cache
def is_vowel_in_french(word: str) -> bool:
    """Whether `le` becomes `l'` before it."""
    return word == "y" or (word[0].lower() in "aeiouhàâéèêëîïôœ" and word not in ASPIRATED)


def plural_of(word: str) -> str:
    """A French noun's or adjective's plural, where it is regular."""
    if word.endswith(("s", "x", "z")):
        return word
    if word.endswith("al"):
        return word[:-1] + "ux"
    return word + ("x" if word.endswith("eau") else "s")


def agreeing(masculine: str, feminine: str = "") -> tuple[str, str, str, str]:
    """The four forms of an adjective or participle."""
    feminine = feminine or (masculine if masculine.endswith("e") else masculine + "e")
    return (masculine, feminine, plural_of(masculine), feminine + "s")


# French verbs


@dataclass(frozen=True, eq=False)
class Conjugation:
    """A French verb: the forms the phrasebook says."""

    infinitive: str
    present: tuple[str, str, str, str]  # je, il, nous, ils
    participle: tuple[str, str, str, str]  # as an adjective's forms
    etre: bool  # the auxiliary of its compound past

    @property
    def imparfait(self) -> tuple[str, str, str, str]:
        stem = "ét" if self.infinitive == "être" else self.present[2].removesuffix("ons")
        return (stem + "ais", stem + "ait", stem + "ions", stem + "aient")


WITH_ETRE = {"aller", "venir", "revenir", "arriver", "partir", "tomber", "rester", "entrer", "sortir"}
IRREGULAR = {row.pop("infinitive"): list(row.values()) for row in table("french_verbs")}


@cache
def conjugation(infinitive: str) -> Conjugation:
    """The forms of a French verb: from the table, or by its ending."""
    je, il, nous, ils, participle = IRREGULAR.get(infinitive) or _regular(infinitive)
    return Conjugation(infinitive, (je, il, nous, ils), agreeing(participle), infinitive in WITH_ETRE)


def _regular(infinitive: str) -> list[str]:
    stem, ending = infinitive[:-2], infinitive[-2:]
    if ending == "ir":
        return [stem + "is", stem + "it", stem + "issons", stem + "issent", stem + "i"]
    if ending == "re":
        return [stem + "s", stem, stem + "ons", stem + "ent", stem + "u"]
    # Before a silent ending: acheter, il achète; espérer, il espère; nettoyer, il nettoie.
    strong = re.sub(r"[eé]([^aeiou])$", r"è\1", re.sub("y$", "i", stem))
    soft = {"g": stem + "eons", "c": stem[:-1] + "çons"}.get(stem[-1], stem + "ons")
    return [strong + "e", strong + "e", soft, strong + "ent", stem + "é"]
