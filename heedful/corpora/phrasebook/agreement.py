"""Agreement: determiners and adjectives as their nouns want them; elision, contraction, the finished pair."""

from __future__ import annotations

import re

from . import function_words
from .lexicon import Adjective, Noun
from .pair import Pair
from .sentence import Clause, Mot, Nominal, Phrase, Word, mots_for, words_on
from .spelling import is_vowel_in_english, is_vowel_in_french


def determined(
    name: str, noun: Noun, plural: bool, denied: bool, following: list[Mot], head: Word
) -> tuple[list[Word], list[Mot]]:
    """A determiner in English, and in French as the noun and the words that follow want it."""
    english = {"this": "these" if plural else "this", "some": "any" if denied else "some", "all": "all the"}
    en = words_on(english.get(name, name), function_words.DETERMINER_TAGS.get(name, "DET"), head)
    of = tuple(en)
    if denied and name in ("a", "some"):
        return en, [Mot("de", of)]
    if name == "some" and not plural:
        return en, [Mot("de", of), Mot("la" if noun.feminine else "le", of, article=True)]
    if name == "some":  # `des chats`, but `de petits chats`
        return en, [Mot("des" if following[0].of == (head,) else "de", of)]
    if name == "all":
        return en, [Mot("toutes" if noun.feminine else "tous", of[:1]), Mot("les", of[1:], article=True)]
    if name in function_words.QUANTITIES:
        return en, mots_for(function_words.QUANTITIES[name], en)
    text = function_words.DETERMINERS[name][2 * plural + noun.feminine]
    if is_vowel_in_french(following[0].text):
        text = function_words.BEFORE_VOWEL.get(text, text)
    return en, [Mot(text, of, article=name == "the")]


def attributive(adjective: Adjective, noun: Noun, plural: bool) -> str:
    """The form beside a noun: `un bel homme`."""
    if adjective.before and not (plural or noun.feminine) and is_vowel_in_french(noun.singulier):
        return adjective.liaison
    return adjective.formes[2 * plural + noun.feminine]


def predicative(adjective: Adjective, subject: Nominal) -> str:
    """The form after `être`."""
    return adjective.formes[2 * subject.plural + subject.feminine]


def settled(mots: list[Mot]) -> list[Mot]:
    """Elides and contracts: `le homme` to `l'homme`, `de le roi` to `du roi`."""
    settled: list[Mot] = []
    for place, mot in enumerate(mots):
        if mot.text in function_words.ELIDED:
            follower = mots[place + 1].text
            if is_vowel_in_french(follower) and (mot.text != "si" or follower in ("il", "ils")):
                mot = Mot(mot.text[:-1] + "'", mot.of)
        if mot.article and settled and (settled[-1].text, mot.text) in function_words.CONTRACTED:
            before = settled.pop()
            mot = Mot(function_words.CONTRACTED[before.text, mot.text], before.of + mot.of)
        settled.append(mot)
    return settled


def finished(sentence: Phrase, mark: str, main: Clause) -> Pair:
    """The finished sentence, written as people write it, with what is known of its main clause."""
    stop = Word(mark, "PUNCT", sentence.head)
    en, fr = [*sentence.en, stop], [*settled(sentence.fr), Mot(mark, (stop,))]
    for place, word in enumerate(en):
        word.index = place
        if word.text == "a" and is_vowel_in_english(en[place + 1].text):
            word.text = "an"
    alignment = sorted({(word.index, place) for place, mot in enumerate(fr) for word in mot.of})
    heads = tuple(-1 if word.head is None else word.head.index for word in en)
    tags = tuple([word.tag for word in en])
    source = re.sub(r" (?='s |[.,?]$|, )", "", " ".join([word.text for word in en]))
    target = re.sub(r"(?<=') | (?=\.$|, )", "", " ".join([mot.text for mot in fr]))
    return Pair(
        source[0].upper() + source[1:],
        target[0].upper() + target[1:],
        tuple(alignment),
        heads,
        tags,
        "question" if mark == "?" else "statement",
        main.manner.tense,
        main.number,
    )
