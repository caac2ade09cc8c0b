"""The phrasebook: English sentences with their French, from one grammar that writes both at once.

A sentence grows as two lists side by side: English words that know their part of speech and their head, and
French words that know which English words they render. Elision and contraction come last, when the neighbors
are known.

One English sentence has one French sentence. What French must say and English hides (the gender of `they`,
which `you`) is settled by another word of the sentence, or the sentence is not written.
"""

from __future__ import annotations

import difflib
import hashlib
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple, TypeVar

from ..errors import BadInput
from . import lexicon as lex
from .lexicon import FUTURE, PAST, PRESENT, Adjective, Kinds, Noun, Verb

SPLITS = ("train", "valid", "test", "combinations", "long")
SIZES = {"train": 20_000, "valid": 500, "test": 500, "combinations": 500, "long": 200}
SEEDS = {"train": 1, "valid": 2, "test": 3, "combinations": 4, "long": 5}
RARE = 5  # a word that train says less often than this is not asked for elsewhere

T = TypeVar("T")


@dataclass(frozen=True)
class Pair:
    """A sentence and its translation; the numbers count `words(source)` and `words(target)`."""

    source: str
    target: str
    alignment: tuple[tuple[int, int], ...]  # source word, target word
    heads: tuple[int, ...]  # of each source word, in the manner of Universal Dependencies; -1 is the root
    tags: tuple[str, ...]  # of each source word, its part of speech, as the treebank English-EWT has it


_TOKEN = re.compile(r"aujourd['’]hui|o['’]clock|['’]s\b|[\w-]+['’](?!s\b)|[\w-]+|[^\w\s]", re.IGNORECASE)


def words(text: str) -> list[str]:
    """The words of a sentence in either language; clitics, `'s` and punctuation stand alone."""
    return _TOKEN.findall(text)


def split(name: str) -> list[Pair]:
    """The pairs of one split, the same ones on every machine."""
    if name not in SPLITS:
        close = difflib.get_close_matches(name, SPLITS, n=1, cutoff=0.0)[0]
        raise BadInput(
            f"phrasebook has no split {name!r}; did you mean {close!r}? It has {', '.join(SPLITS)}"
        )
    return list(_split(name))


def pairs(seed: int) -> Iterator[Pair]:
    """An endless stream of sentences, repetitions included, from everything the grammar can say."""
    writer = Writer(seed)
    while True:
        yield writer.write()


def count() -> int:
    """How many sentences there are at the very least: those of a subject, a verb and its object alone."""
    ways = 3 * 2  # tenses, said or denied
    verbs = [verb for verb in lex.TRANSITIVE if not verb.link]
    return ways * sum(_plain_phrases(verb.subjects) * _plain_phrases(verb.objects) for verb in verbs)


def _plain_phrases(kinds: Kinds) -> int:
    """How many phrases are a determiner (each noun has two or more), one adjective or none, and a noun."""
    nouns = _nouns(kinds)
    return sum(2 * (1 + len(_adjectives_of(n.kinds))) * (1 if n.kinds & _NO_PLURAL else 2) for n in nouns)


# The splits


@cache
def _split(name: str) -> tuple[Pair, ...]:
    """Draws sentences until there are enough, leaving out those of the splits before it."""
    earlier = [pair for other in SPLITS[: SPLITS.index(name)] for pair in _split(other)]
    sources, targets = {pair.source for pair in earlier}, {pair.target for pair in earlier}
    writer = Writer(SEEDS[name], wordy=name == "long")
    found: list[Pair] = []
    while len(found) < SIZES[name]:
        pair = writer.write()
        if pair.source in sources or pair.target in targets or not _belongs(name, pair, writer):
            continue
        sources.add(pair.source)
        targets.add(pair.target)
        found.append(pair)
    return tuple(found)


def _belongs(name: str, pair: Pair, writer: Writer) -> bool:
    """Whether the sentence just written has this split's length and combinations, and words train knows."""
    is_new = any(_is_held_out(*combination) for combination in writer.combinations)
    is_newish = any(_is_held_out(*combination) for combination in writer.looser)
    if not is_new if name == "combinations" else is_new or is_newish:
        return False
    most = 1 + max(pair.alignment[-1])  # the full stops are aligned, so this is the longer side
    least = min(len(pair.source.split()), len(pair.target.split()))  # clitics and punctuation not counted
    if (least < 20 or most > 40) if name == "long" else most > 17:
        return False
    return name == "train" or all(_familiar(side).issuperset(words(getattr(pair, side))) for side in _SIDES)


_SIDES = ("source", "target")


@cache
def _familiar(side: str) -> frozenset[str]:
    """The words of one language that train says often enough."""
    times = Counter(word for pair in _split("train") for word in words(getattr(pair, side)))
    return frozenset(word for word in times if times[word] >= RARE)


@cache
def _is_held_out(first: str, second: str) -> bool:
    """Whether an adjective with its noun, or a verb with its object, is kept for `combinations`."""
    return hashlib.sha256(f"{first} {second}".encode()).digest()[0] < 16


# A sentence in the making


class Word:
    """An English word, its part of speech (NOUN, VERB...) and its head; the root has none."""

    __slots__ = ("head", "index", "tag", "text")

    def __init__(self, text: str, tag: str, head: Word | None = None) -> None:
        self.text = text
        self.tag = tag
        self.head = head
        self.index = -1


class Mot:
    """A French word and the English words it renders."""

    __slots__ = ("article", "of", "text")

    def __init__(self, text: str, of: tuple[Word, ...], article: bool = False) -> None:
        self.text = text
        self.of = of
        self.article = article  # contracts with `de` and `à`, as the pronoun `le` does not


class Phrase(NamedTuple):
    en: list[Word]
    fr: list[Mot]
    head: Word


@dataclass(slots=True)
class Nominal:
    """A noun phrase or a pronoun, with what other words agree with."""

    en: list[Word]
    fr: list[Mot]
    head: Word
    feminine: bool
    plural: bool
    kinds: Kinds
    nouns: tuple[Noun, ...] = ()
    first: bool = False  # I, we
    second_at: int = 0  # where the second half of `the cat and the dog` starts in French
    described: bool = False  # ends in a relative clause

    @property
    def person(self) -> int:
        return 2 * self.plural + (not self.first)

    @property
    def human(self) -> bool:
        return "person" in self.kinds

    def after(self, preposition: str, of: tuple[Word, ...]) -> list[Mot]:
        """The French side behind a preposition; `à`, `de` and `dans` are said again before a second half."""
        *start, last = preposition.split()
        first, second = self.fr[: self.second_at], self.fr[self.second_at :]
        again = [Mot(last, of)] if first and last in ("à", "de", "dans") else []
        return [*(Mot(text, of) for text in start), Mot(last, of), *first, *again, *second]


class Manner(NamedTuple):
    """How a verb is said."""

    tense: str
    over: Verb | None = None  # `wants to`, `can`: takes the verb as an infinitive
    denial: str = ""
    often: str = ""
    asked: bool = False


@dataclass(slots=True)
class Clause:
    """A clause before it is settled whether it states, asks or describes."""

    subject: Nominal
    front: list[Word]  # what a question puts before the subject
    rest: list[Word]  # the other English verbs
    verbs: list[Mot]
    root: Word
    governor: Word  # complements and adjuncts depend on it
    manner: Manner
    after: list[Word] = field(default_factory=list)
    apres: list[Mot] = field(default_factory=list)
    object: Nominal | None = None

    def add(self, en: list[Word], fr: list[Mot], head: Word) -> None:
        head.head = self.governor
        self.after += en
        self.apres += fr

    def complete(self, en: list[Word], fr: list[Mot]) -> None:
        """Adds what heads the clause itself: the adjective or noun after `be`."""
        self.after += en
        self.apres += fr

    def render(self, words: list[Word]) -> None:
        """Lets the French verb stand for words that have no French word of their own."""
        for mot in self.verbs:
            if self.governor in mot.of:
                mot.of += tuple(words)

    def statement(self) -> Phrase:
        self.subject.head.head = self.root
        en = [*self.subject.en, *self.front, *self.rest, *self.after]
        return Phrase(en, [*self.subject.fr, *self.verbs, *self.apres], self.root)

    def question(self, asking: Sequence[Word] = (), mots: Sequence[Mot] = ()) -> Phrase:
        """`Does the girl...`, `est-ce que la fille...`, behind the question words if there are any."""
        self.subject.head.head = self.root
        for word in asking:
            word.head = word.head or self.governor
        front = tuple(self.front)
        en = [*asking, *self.front, *self.subject.en, *self.rest, *self.after]
        est_ce_que = [Mot("est-ce", front), Mot("que", front)]
        return Phrase(en, [*mots, *est_ce_que, *self.subject.fr, *self.verbs, *self.apres], self.root)


class Unsayable(Exception):
    """What was begun cannot be said, or not in one way only; the writer starts again."""


# Verbs


class EnglishVerbs:
    """The verbs of an English clause: going, wanting, and the verb itself, each the head of the next."""

    def __init__(self, verbs: list[Verb], person: int, manner: Manner, state: Word | None) -> None:
        tense = PAST if manner.tense == PAST else PRESENT
        self.denial = _words(manner.denial, lex.DENIALS[manner.denial][1]) if manner.denial else []
        self.often = [Word(manner.often, "ADV")] if manner.often else []
        self.said = [Word(verb.base, "AUX" if verb.helper else "VERB") for verb in verbs]
        self.states = [_state(verb) for verb in verbs[:-1]]
        self.states.append(state or _state(verbs[-1]))
        self.to = [Word(verb.to, "PART") if verb.to else None for verb in verbs]
        self.do: Word | None = None
        self.front: list[Word] = []
        if verbs[0].helper:
            self.said[0].text = verbs[0].form(tense, person)
            self.front = [self.said[0]]
        elif manner.asked or manner.denial == "not":
            self.do = Word(lex.DO[tense][person], "AUX")
            self.front = [self.do]
        else:
            self.said[0].text = verbs[0].form(tense, person)
        self.rest = self._order(state)
        self._depend(verbs)
        if self.front and self.front[0].text == "can" and manner.denial == "not":
            self.rest.remove(self.denial[0])
            self.denial, self.front[0].text = [self.front[0]], "cannot"

    def _order(self, said_later: Word | None) -> list[Word]:
        """All but the first helper, in order; an adjective that has company is said later."""
        rest: list[Word | None] = [*self.denial, *self.often]
        for i, word in enumerate(self.said):
            rest += [word if word not in self.front else None, self.states[i], self.to[i]]
        return [word for word in rest if word is not None and word is not said_later]

    def _depend(self, verbs: list[Verb]) -> None:
        heads = [state or said for state, said in zip(self.states, self.said, strict=True)]
        for said, head in zip(self.said, heads, strict=True):
            said.head = head if said is not head else None
        for i in range(1, len(heads)):
            if verbs[i - 1].to:
                heads[i].head = heads[i - 1]
            else:  # a modal
                heads[i - 1].head = heads[i]
        for to, head in zip(self.to, heads[1:], strict=False):
            if to:
                to.head = head
        self.governor = heads[-1]
        self.root = next(head for head in heads if head.head is None)
        for word in [self.do, *self.denial, *self.often]:
            if word:
                word.head = self.root

    def rendered(self, i: int, verb: Verb, asked: bool) -> tuple[Word, ...]:
        """The English words that the i-th French verb stands for."""
        do = self.do if i == 0 and not asked else None
        state = self.states[i] if verb.state and not verb.tail else None
        helpers = (do, state, None if verb.link else self.to[i])
        return (self.said[i], *(word for word in helpers if word))


def _state(verb: Verb) -> Word | None:
    """The word after `be` that says what one is: `hungry`, or before another verb `going`."""
    return Word(verb.state, "VERB" if verb.to else "ADJ") if verb.state else None


def _particles(verb: Verb, head: Word) -> list[Word]:
    return [Word(text, verb.particle_tag, head) for text in verb.particle]


def _french_verbs(
    verbs: list[Verb],
    spoken: EnglishVerbs,
    subject: Nominal,
    manner: Manner,
    clitics: list[Mot],
    agreed: Nominal | None,
) -> list[Mot]:
    """The verbs of the French clause, with pronouns, negation and adverb in their places."""
    denial = tuple(spoken.denial)
    fr = [Mot("ne", denial)] if manner.denial else []
    middle = [Mot(lex.DENIALS[manner.denial][0], denial)] if manner.denial else []
    middle += [Mot(lex.OFTEN[word.text], (word,)) for word in spoken.often]
    if verbs[-1].reflexive:
        clitics = [Mot(lex.REFLEXIVES[subject.person], (spoken.said[-1],))]
    for i, verb in enumerate(verbs):
        of = spoken.rendered(i, verb, manner.asked)
        to = spoken.to[i - 1]
        if i and to and verbs[i - 1].link:
            fr.append(Mot(verbs[i - 1].link, (to,)))
        if i == len(verbs) - 1:
            fr += clitics
        if i:
            fr.append(Mot(verb.french.infinitive, of))
        else:
            fr += _finite(verb, subject, manner.tense, of, middle, agreed if len(verbs) == 1 else None)
        if verb.tail:
            fr.append(Mot(verb.tail, (spoken.states[i] or spoken.said[i],)))
    return fr


def _finite(
    verb: Verb, subject: Nominal, tense: str, of: tuple[Word, ...], middle: list[Mot], agreed: Nominal | None
) -> list[Mot]:
    """The verb that shows the tense: present, imparfait for states, compound past for events."""
    french = verb.french
    if tense != PAST:
        return [Mot(french.present[subject.person], of), *middle]
    if verb.stative:
        return [Mot(french.imparfait[subject.person], of), *middle]
    with_etre = french.etre or verb.reflexive
    auxiliary = lex.conjugation("être" if with_etre else "avoir").present[subject.person]
    lead = subject if with_etre else agreed
    participle = french.participle[2 * lead.plural + lead.feminine] if lead else french.participle[0]
    return [Mot(auxiliary, of), *middle, Mot(participle, of)]


# What goes with what


@cache
def _nouns(kinds: Kinds) -> tuple[Noun, ...]:
    return tuple(noun for noun in lex.NOUNS if noun.kinds & kinds)


@cache
def _adjectives_of(kinds: Kinds) -> tuple[Adjective, ...]:
    return tuple(a for a in lex.ADJECTIVES if a.kinds & kinds)


@cache
def _verbs(verbs: tuple[Verb, ...], subject: Kinds | None, object: Kinds | None) -> tuple[Verb, ...]:
    """Those that can be done by one and to the other."""
    found = verbs if subject is None else tuple(v for v in verbs if v.subjects & subject)
    return found if object is None else tuple(v for v in found if v.objects & object)


def _weighted(**weights: int) -> tuple[str, ...]:
    return tuple(name for name, weight in weights.items() for _ in range(weight))


# Which determiners a noun phrase may take, by its role: singular, plural, and for what is not counted.
_DETERMINERS = {
    "any": (
        _weighted(the=12, a=7, this=2, my=1, his=1, her=1, our=1, their=1, every=1),
        _weighted(
            the=10, some=6, this=2, my=1, his=1, her=1, our=1, their=1, number=5, many=2, several=1, all=1
        ),
        _weighted(the=4, some=5, this=1, my=1, his=1, her=1),
    ),
    "subject": (
        _weighted(the=12, a=6, this=2, my=1, his=1, her=1, our=1, their=1, every=1),
        _weighted(the=10, this=2, my=1, his=1, her=1, our=1, their=1, number=4, many=2, several=1, all=1),
        _weighted(the=5, this=1, my=1, his=1, her=1),
    ),
    "known": (
        _weighted(the=10, this=2, my=1, his=1, her=1, our=1, their=1),
        _weighted(the=10, this=2, my=1, his=1, her=1, our=1, their=1, number=1),
        _weighted(the=5, this=1, my=1, his=1, her=1),
    ),
    "firm": (_weighted(the=6, this=1, my=1, his=1, her=1, our=1, their=1),) * 3,
    "spot": (
        _weighted(the=12, a=5, this=2, my=1, his=1, her=1, our=1, their=1),
        _weighted(the=10, this=2, my=1, his=1, her=1, our=1, their=1),
        (),
    ),
    "denied": (
        _weighted(the=6, a=5, this=1, my=1, his=1, her=1, our=1, their=1),
        _weighted(the=6, some=5, this=1, my=1, his=1, her=1, our=1, their=1),
        _weighted(the=2, some=5, this=1, his=1, her=1),
    ),
    "kin": (_weighted(the=2, my=3, his=3, her=3, our=2, their=2),) * 2,
    "spouse": (_weighted(my=2, his=1, her=1),),
    "new": (_weighted(a=1), _weighted(some=2, number=4, many=1, several=1), _weighted(some=1)),
    "none": (_weighted(a=1), _weighted(some=1), _weighted(some=1)),
}
_NUMBERS = tuple(lex.NUMBERS)
_OFTEN = tuple(lex.OFTEN)
_OWNERS = ("my", "his", "her", "our", "their")
_QUANTIFIERS = ("every", "all", "many", "several")  # `chaque roi ne dort pas` would be two thoughts
_AT_ONCE = ("when", "while", "if")
_TENSES = (PRESENT,) * 4 + (PAST,) * 3 + (FUTURE,) * 2
_NO_PLURAL = frozenset({"mass", "single"})
_PEOPLE = frozenset({"person"})
_LIVING = frozenset({"person", "animal"})
_LAID = frozenset({"thing", "food", "dish", "clothing"})
_DESCRIBED = frozenset().union(*(noun.kinds for noun in lex.NOUNS)) - _NO_PLURAL
_PASSIVE = tuple(v for v in lex.TRANSITIVE if not (v.link or v.particle or v.stative))
_SIMPLY_DONE = tuple(v for v in lex.TRANSITIVE if not (v.link or v.stative))
_FIRST_DONE = tuple(v for v in lex.TRANSITIVE if v.base in lex.FIRST)
_THEN_DONE = tuple(v for v in lex.TRANSITIVE if v.base in lex.THEN)
_SOMEWHERE = tuple(v for v in lex.INTRANSITIVE if v.base not in lex.ELSEWHERE)
_SOMEHOW = tuple(v for v in lex.INTRANSITIVE if v.base in lex.BY_SOME_MEANS)
_ASKED_ABOUT = tuple(v for v in lex.TRANSITIVE if v.link != "dans")


class Writer:
    """Writes sentences; the seed decides them all."""

    def __init__(self, seed: int, wordy: bool = False) -> None:
        self.random = random.Random(seed).random
        self.wordy = wordy
        common = (self.doing,) * 10 + (self.acting,) * 5 + (self.being,) * 4
        rare = (self.done, self.moving, self.being_there, self.existing, self.being_old, self.being_one)
        self.frames = common + rare + (self.giving, self.giving, self.saying, self.saying)
        self.start()

    def start(self) -> None:
        self.combinations: list[tuple[str, str]] = []  # adjectives before nouns, verbs before objects
        self.looser: list[tuple[str, str]] = []  # the same in other constructions
        self.mentioned: list[Nominal] = []
        self.tenses: Sequence[str] = _TENSES
        self.adjuncts = True

    def write(self) -> Pair:
        """The next sentence."""
        while True:
            self.start()
            try:
                sentence, mark = self.sentence()
            except Unsayable:
                continue
            return _pair(sentence, mark)

    # Only `random()` is promised to be the same in every Python, so nothing else is used.

    def pick(self, options: Sequence[T]) -> T:
        if not options:
            raise Unsayable
        return options[int(self.random() * len(options))]

    def chance(self, probability: float) -> bool:
        return self.random() < probability

    # Noun phrases

    def nominal(self, kinds: Kinds, role: str = "any", plain: bool = False) -> Nominal:
        """A noun phrase about something of these kinds."""
        roll = self.random()
        if roll < 0.1 and "person" in kinds:
            return self.name()
        noun = self.pick(_nouns(kinds))
        if plain:
            return self.simple(noun, role)
        if roll < 0.16 and role in ("any", "subject", "known"):
            return self.coordination(kinds, role)
        if roll < 0.22 and not noun.kinds & {"mass", "anyone"}:
            return self.genitive(noun)
        phrase = self.simple(noun, role)
        if role != "denied" and phrase.en[0].text not in _OWNERS and self.chance(0.6 if self.wordy else 0.12):
            self.describe(phrase)
        return phrase

    def mention(self, nominal: Nominal) -> Nominal:
        self.mentioned.append(nominal)
        return nominal

    def name(self) -> Nominal:
        feminine = self.chance(0.5)
        text = self.pick(lex.WOMEN if feminine else lex.MEN)
        word = Word(text, "PROPN")
        if any(mentioned.head.text == text for mentioned in self.mentioned):
            raise Unsayable
        return self.mention(Nominal([word], [Mot(text, (word,))], word, feminine, False, _PEOPLE))

    def coordination(self, kinds: Kinds, role: str) -> Nominal:
        """`The man and his dog`."""
        first, second = self.nominal(kinds, role, plain=True), self.nominal(kinds, role, plain=True)
        if first.head.text == second.head.text:
            raise Unsayable
        conjunction = Word("and", "CCONJ", second.head)
        second.head.head = first.head
        en = [*first.en, conjunction, *second.en]
        fr = [*first.fr, Mot("et", (conjunction,)), *second.fr]
        feminine = first.feminine and second.feminine
        shared, nouns = first.kinds & second.kinds, first.nouns + second.nouns
        at = len(first.fr) + 1
        return self.mention(Nominal(en, fr, first.head, feminine, True, shared, nouns, second_at=at))

    def simple(
        self, noun: Noun, role: str = "any", determiner: str = "", plural: bool | None = None
    ) -> Nominal:
        """Determiner, adjectives and noun."""
        if plural is None:
            plural = not noun.kinds & _NO_PLURAL and self.chance(0.35)
        head = Word(noun.form(plural), "NOUN")
        en, before, after = self.adjectives(noun, plural, head)
        fr = [*before, Mot(noun.forme(plural), (head,)), *after]
        determiner = determiner or self.determiner(noun, role, plural)
        of, mots = _determined(determiner, noun, plural, role in ("denied", "none"), fr, head)
        return self.mention(
            Nominal([*of, *en, head], mots + fr, head, noun.feminine, plural, noun.kinds, (noun,))
        )

    def determiner(self, noun: Noun, role: str, plural: bool) -> str:
        if "kin" in noun.kinds and role not in ("new", "none"):
            role = "spouse" if "spouse" in noun.kinds else "kin"
        choice = self.pick(_DETERMINERS[role][2 if "mass" in noun.kinds else plural])
        if choice in _OWNERS and "anyone" in noun.kinds:  # `ma fille` would be my daughter
            return "the"
        return self.pick(_NUMBERS) if choice == "number" else choice

    def adjectives(self, noun: Noun, plural: bool, head: Word) -> tuple[list[Word], list[Mot], list[Mot]]:
        """Up to two adjectives: in English order, then those before the French noun and those after it."""
        roll, options = self.random(), _adjectives_of(noun.kinds)
        if roll > 0.4 or not options:
            return [], [], []
        chosen = [self.pick(options)]
        if roll < 0.12:
            second = self.pick(options)
            if second.before != chosen[0].before and second.rank != chosen[0].rank:
                chosen = sorted((chosen[0], second), key=lambda a: a.rank)
        en: list[Word] = []
        sides: tuple[list[Mot], list[Mot]] = ([], [])
        for adjective in chosen:
            self.combinations.append((adjective.word, noun.singular))
            word = Word(adjective.word, adjective.tag, head)
            very = self.very(adjective, word) if len(chosen) == 1 else []
            en += [*very, word]
            forme = _attributive(adjective, noun, plural)
            sides[not adjective.before].extend([*_mots("très", very), *_mots(forme, [word])])
        return en, *sides

    def very(self, adjective: Adjective, word: Word) -> list[Word]:
        return [Word("very", "ADV", word)] if adjective.comparative and self.chance(0.12) else []

    def genitive(self, noun: Noun) -> Nominal:
        """`The king's horse`, `le cheval du roi`."""
        person = self.pick(_nouns(_PEOPLE))
        owner = self.name() if self.chance(0.3) else self.simple(person, "known", plural=False)
        owned = self.simple(noun, determiner="the")
        mark = Word("'s", "PART", owner.head)
        owner.head.head = owned.head
        owned.fr[0].of = (mark,)
        owned.en = [*owner.en, mark, *owned.en[1:]]
        owned.fr += [Mot("de", (mark,)), *owner.fr]
        return owned

    def describe(self, nominal: Nominal) -> None:
        """Adds a relative clause."""
        tenses, self.tenses = self.tenses, (PRESENT, PRESENT, PAST)
        roll = self.random()
        if nominal.kinds & {"inside", "goal"} and roll < 0.3:
            self.where(nominal)
        elif nominal.kinds & _LIVING and roll < 0.6:
            self.relative_subject(nominal)
        else:
            self.relative_object(nominal)
        self.tenses = tenses

    def relative_subject(self, nominal: Nominal) -> None:
        """`The girl who sleeps`."""
        who = Word("who" if nominal.human else "that", "PRON")
        qui = Mot("qui", (who,))
        gap = Nominal([who], [qui], who, nominal.feminine, nominal.plural, nominal.kinds, nominal.nouns)
        frame = self.pick((self.acting, self.doing, self.doing, self.being))
        self.relate(nominal, frame(gap, plain=True).statement())

    def relative_object(self, nominal: Nominal) -> None:
        """`The book that the boy needs`: `que`, or `dont`, or `à qui`, as the French verb has it."""
        verb = self.pick(_verbs(_ASKED_ABOUT, _LIVING, nominal.kinds))
        # `The key that the boy has chosen`: a bare `has` would be taken for a helper.
        if verb.base == "have" or (verb.link in ("à", "avec") and not nominal.human):
            raise Unsayable
        subject = self.someone(verb.subjects, plain=True)
        self.note(verb.name, nominal)
        manner = Manner(self.tense(subject, verb))
        clause = self.predicate(subject, verb, manner, agreed=None if verb.link else nominal)
        self.strand(clause, verb)
        that = Word("that", "PRON", clause.governor)
        en, fr, root = clause.statement()
        relative = {"": "que", "de": "dont"}.get(verb.link, verb.link + " qui")
        self.relate(nominal, Phrase([that, *en], [*_mots(relative, [that]), *fr], root))

    def where(self, nominal: Nominal) -> None:
        """`The garden where she works`."""
        subject, verb = self.someone(_PEOPLE, plain=True), self.pick(_verbs(_SOMEWHERE, _PEOPLE, None))
        clause = self.predicate(subject, verb, Manner(self.tense(subject, verb)))
        self.strand(clause, verb)
        en, fr, root = clause.statement()
        where = Word("where", "ADV", root)
        self.relate(nominal, Phrase([where, *en], [Mot("où", (where,)), *fr], root))

    def relate(self, nominal: Nominal, clause: Phrase) -> None:
        clause.head.head = nominal.head
        nominal.en += clause.en
        nominal.fr += clause.fr
        nominal.described = True

    # Pronouns

    def someone(self, kinds: Kinds, plain: bool = False) -> Nominal:
        """A subject: a pronoun that needs no explaining, or a noun phrase."""
        if "person" in kinds and self.chance(0.3):
            text = self.pick(tuple(lex.SUBJECTS))
            mot, person = lex.SUBJECTS[text]
            word = Word(text, "PRON")
            first = person in (0, 2)
            return Nominal(
                [word], [Mot(mot, (word,))], word, text == "she", person == 2, _PEOPLE, first=first
            )
        return self.nominal(kinds, "subject", plain)

    def is_clear(self, nominal: Nominal) -> bool:
        """Whether `it`, `they` or `them` has one gender, whichever of the things mentioned it takes up."""
        if nominal.first or not nominal.kinds:
            return False
        if nominal.human and not nominal.plural:
            return True
        rivals = [m for m in self.mentioned if m.plural == nominal.plural and (m.plural or not m.human)]
        return len({m.feminine for m in rivals}) == 1

    def taken_up(self, nominal: Nominal) -> Nominal:
        """The subject pronoun for something mentioned."""
        singular = ("she" if nominal.feminine else "he") if nominal.human else "it"
        word = Word("they" if nominal.plural else singular, "PRON")
        mot = Mot(("elle" if nominal.feminine else "il") + "s" * nominal.plural, (word,))
        return Nominal([word], [mot], word, nominal.feminine, nominal.plural, nominal.kinds)

    def taken_up_as_object(self, nominal: Nominal) -> tuple[Word, Mot]:
        """The object pronoun for something mentioned."""
        singular = ("her" if nominal.feminine else "him") if nominal.human else "it"
        word = Word("them" if nominal.plural else singular, "PRON")
        return word, Mot("les" if nominal.plural else "la" if nominal.feminine else "le", (word,))

    # Verbs

    def predicate(
        self,
        subject: Nominal,
        verb: Verb,
        manner: Manner,
        clitics: Sequence[Mot] = (),
        agreed: Nominal | None = None,
        state: Word | None = None,
    ) -> Clause:
        """The verbs of a clause; after `be`, `state` heads it; `agreed` is an object French said before."""
        near_future = lex.GOING if manner.tense == FUTURE else None
        verbs = [v for v in (near_future, manner.over, verb) if v is not None]
        spoken = EnglishVerbs(verbs, subject.person, manner, state)
        mots = _french_verbs(verbs, spoken, subject, manner, list(clitics), agreed)
        return Clause(subject, spoken.front, spoken.rest, mots, spoken.root, spoken.governor, manner)

    def tense(self, subject: Nominal, verb: Verb) -> str:
        """A tense that does not ask who `I` and `we` are, as `je suis partie` does."""
        tense = self.pick(self.tenses)
        agrees = (verb.french.etre or verb.reflexive) and not verb.stative
        if tense == PAST and subject.first and agrees:
            raise Unsayable
        return tense

    def manner(
        self, subject: Nominal, verb: Verb, asked: bool = False, plain: bool = False, steady: bool = False
    ) -> Manner:
        """How to say a verb: when, whether, under which other verb, and unless it is steady, how often."""
        over = self.over(verb)
        tense = PRESENT if over in lex.MODALS else self.tense(subject, over or verb)
        steady = steady or (verb.stative and verb.base != "be")
        roll = self.random()
        if roll < 0.28 and not (asked or plain or subject.en[0].text in _QUANTIFIERS):
            # In `the girl who sleeps often comes back`, two verbs could claim the adverb.
            denial = "not" if subject.described else self.denial(tense, steady, not (over or verb).stative)
            return Manner(tense, over, denial)
        steady = steady or subject.described or over in lex.MODALS
        often = roll > 0.9 and tense == PRESENT and not steady
        return Manner(tense, over, "", self.pick(_OFTEN) if often else "", asked)

    def denial(self, tense: str, steady: bool, event: bool) -> str:
        options = ["not", "not", "not"]
        if tense == PRESENT:
            options.append("no longer")
        if not steady and (tense == PRESENT or (tense == PAST and event)):
            options.append("never")
        return self.pick(options)

    def over(self, verb: Verb) -> Verb | None:
        """Now and then, a verb that takes this one as an infinitive."""
        roll = self.random()
        if roll > 0.18 or verb.stative:
            return None
        if roll < 0.02 and verb.base in lex.SKILLS:
            return lex.LEARNING
        if roll < 0.08 and PRESENT in self.tenses:
            return lex.MODALS[verb.base in lex.SKILLS or self.chance(0.4)]
        return self.pick(lex.CONTROLS)

    # Clauses. Each takes a subject or finds one.

    def doing(self, subject: Nominal | None = None, asked: bool = False, plain: bool = False) -> Clause:
        """`The girl sees the dog`."""
        verb = self.pick(_verbs(lex.TRANSITIVE, subject and subject.kinds, None))
        subject = subject or self.someone(verb.subjects, plain)
        manner = self.manner(subject, verb, asked, plain)
        if "person" in verb.objects and verb.clitic and self.chance(0.25):
            clause = self.doing_to_pronoun(subject, verb, manner)
        else:
            clause = self.predicate(subject, verb, manner)
            self.place_object(clause, verb, self.object(verb, manner, plain))
        self.adjoin(clause, verb, plain)
        return clause

    def object(self, verb: Verb, manner: Manner, plain: bool) -> Nominal:
        """What the verb acts on; under a denial a direct object (`pas de`), or something known."""
        loves = verb.stative and "person" in verb.objects  # whom one loves or knows is somebody
        role = "firm" if manner.denial else "known" if verb.link == "de" or loves else "any"
        if manner.denial and not verb.link and manner.over is None:
            role = "denied"
        nominal = self.nominal(verb.objects, role, plain)
        if nominal.en[0].text == "her" and (nominal.plural or "mass" in nominal.kinds):
            nominal.en[0].text = "his"  # `sells her apples` could be to her
        self.note(verb.name, nominal)
        self.combinations += self.looser[-len(nominal.nouns) :][:1]
        return nominal

    def note(self, word: str, nominal: Nominal) -> None:
        self.looser += [(word, noun.singular) for noun in nominal.nouns]

    def place_object(self, clause: Clause, verb: Verb, object: Nominal) -> None:
        """Puts the object after its verb, with the prepositions of both languages."""
        particles = _particles(verb, object.head)
        of = tuple(particles) or (clause.governor,)
        fr = object.after(verb.link, of) if verb.link else object.fr
        clause.add([*particles, *object.en], fr, object.head)
        clause.object = object
        if not verb.link:
            clause.render(particles)

    def doing_to_pronoun(self, subject: Nominal, verb: Verb, manner: Manner) -> Clause:
        """`She sees him`, `elle le voit`."""
        direct = verb.clitic == "direct"
        # `Il m'a vue`: the compound past tells the gender that `me`, `us` and `them` hide.
        tells = direct and manner.tense == PAST and manner.over is None and not verb.stative
        word = Word(self.pick(("him", "her") if tells else self.others(subject)), "PRON")
        mot = Mot(lex.OBJECTS[word.text][not direct], (word,))
        said = Nominal([word], [mot], word, word.text == "her", False, _PEOPLE)
        clause = self.predicate(subject, verb, manner, [mot], said if direct else None)
        return self.with_pronoun(clause, verb, word)

    def others(self, subject: Nominal) -> Sequence[str]:
        """The object pronouns that are not the subject itself."""
        return ("him", "her", "them") if subject.first else tuple(lex.OBJECTS)

    def with_pronoun(self, clause: Clause, verb: Verb, word: Word) -> Clause:
        """Puts the English pronoun after the verb; the French one is there already."""
        particles = _particles(verb, word)
        clause.add([*particles, word], [], word)
        clause.render(particles)
        return clause

    def strand(self, clause: Clause, verb: Verb) -> None:
        """Leaves the particle without an object: `gets up`, `the man that she looks for`."""
        particles = _particles(verb, clause.governor)
        clause.after += particles
        clause.render(particles)

    def acting(self, subject: Nominal | None = None, asked: bool = False, plain: bool = False) -> Clause:
        """`The girl sleeps`, `the girl is hungry`."""
        verbs = lex.STATES if self.chance(0.2) else lex.INTRANSITIVE
        verb = self.pick(_verbs(verbs, subject and subject.kinds, None))
        subject = subject or self.someone(verb.subjects, plain)
        clause = self.predicate(subject, verb, self.manner(subject, verb, asked, plain))
        self.strand(clause, verb)
        self.adjoin(clause, verb, plain)
        return clause

    def being(self, subject: Nominal | None = None, asked: bool = False, plain: bool = False) -> Clause:
        """`The girl is tired`."""
        subject = subject or (
            self.someone(_PEOPLE) if self.chance(0.3) else self.nominal(_DESCRIBED, "subject")
        )
        options = _adjectives_of(subject.kinds)
        if subject.first:
            options = tuple(a for a in options if not a.shows_gender)
        adjective = self.pick(options)
        if any(lex.RANKS.get(word.text) == adjective.rank for word in subject.en):  # `the old house is new`
            raise Unsayable
        state = Word(adjective.word, adjective.tag)
        manner = self.manner(subject, lex.BEING, asked, plain, steady=adjective.rank != 3)
        clause = self.predicate(subject, lex.BEING, manner, state=state)
        self.note(adjective.word, subject)
        if adjective.comparative and not (subject.first or plain) and self.chance(0.45):
            self.compare(clause, adjective, state)
        else:
            very = self.very(adjective, state)
            clause.complete(
                [*very, state], [*_mots("très", very), *_mots(_predicative(adjective, subject), [state])]
            )
            self.add_adjective(clause, adjective, state, options)
        return clause

    def add_adjective(
        self, clause: Clause, first: Adjective, state: Word, options: Sequence[Adjective]
    ) -> None:
        """Sometimes, `and` with a second adjective of the same order."""
        second = self.pick(options)
        if second is first or second.rank != first.rank or clause.manner.denial or self.chance(0.7):
            return
        word = Word(second.word, second.tag, state)
        conjunction = Word("and", "CCONJ", word)
        mots = _mots(_predicative(second, clause.subject), [word])
        clause.complete([conjunction, word], [Mot("et", (conjunction,)), *mots])
        self.note(second.word, clause.subject)

    def compare(self, clause: Clause, adjective: Adjective, state: Word) -> None:
        """`Bigger than the dog`, `as big as the dog`, `less famous than the queen`."""
        subject = clause.subject
        other = self.nominal(subject.kinds & _DESCRIBED, "known", plain=True)
        other.head.head = state
        than = Word("than", "ADP", other.head)
        more = adjective.comparative == "more"
        grades = [Word(self.pick(("more", "less")), "ADV", state)] if more else []
        if self.chance(0.3):
            grades, than.text = [Word("as", "ADV", state)], "as"
        elif not grades:
            state.text = adjective.comparative
        clause.complete([*grades, state, than, *other.en], [])
        if state.text == "better":
            clause.apres += _mots(lex.BETTER[2 * subject.plural + subject.feminine], [state])
        else:
            plus = lex.GRADES[grades[0].text if grades else "more"]
            clause.apres += [
                *_mots(plus, grades or [state]),
                *_mots(_predicative(adjective, subject), [state]),
            ]
        clause.apres += [Mot("que", (than,)), *other.fr]

    def being_one(self, subject: Nominal | None = None, asked: bool = False, plain: bool = False) -> Clause:
        """`The king is a kind man`."""
        subject = subject or self.simple(self.pick(_nouns(_LIVING)), "known", plural=False)
        noun = lex.ANIMAL if not subject.human else lex.WOMAN if subject.feminine else lex.MAN
        kind = self.simple(noun, determiner="a", plural=False)
        is_news = len(kind.en) > 2 and noun not in subject.nouns
        is_named = subject.head.text in [noun.singular for noun in subject.nouns]  # else French says `c'est`
        if not (is_news and is_named):
            raise Unsayable
        denial = "" if asked or self.chance(0.8) else "not"
        manner = Manner(self.tense(subject, lex.BEING), None, denial, asked=asked)
        clause = self.predicate(subject, lex.BEING, manner, state=kind.head)
        clause.complete(kind.en, kind.fr)
        return clause

    def being_there(self, subject: Nominal | None = None, asked: bool = False, plain: bool = False) -> Clause:
        """`The key is on the table`."""
        laid = subject.kinds.isdisjoint(_LIVING) if subject else self.chance(0.5)
        subject = subject or self.nominal(_LAID if laid else _LIVING, "subject", plain)
        place = self.place(_LAID if laid else _LIVING)
        manner = self.manner(subject, lex.BEING, asked, plain)
        clause = self.predicate(subject, lex.BEING, manner, state=place.head)
        clause.complete(place.en, place.fr)
        return clause

    def existing(self, subject: Nominal | None = None, asked: bool = False, plain: bool = False) -> Clause:
        """`There is a cat in the garden`, `il y a un chat dans le jardin`."""
        kinds = self.pick((_LAID, _LIVING))
        tense = self.pick(self.tenses)
        if subject or tense == FUTURE:
            raise Unsayable
        denial = "not" if not asked and self.chance(0.25) else ""
        thing = self.simple(self.pick(_nouns(kinds)), "none" if denial else "new")
        if "kin" in thing.kinds:
            raise Unsayable
        there = Word("there", "PRON")
        il = Nominal([there], [Mot("il", (there,))], there, False, False, frozenset())
        clause = self.predicate(
            il, lex.BEING_AS_HAVING, Manner(tense, None, denial, "", asked), [Mot("y", (there,))]
        )
        clause.governor.text, clause.governor.tag = lex.BE[tense][thing.person], "VERB"
        clause.add(thing.en, thing.fr, thing.head)
        clause.add(*self.place(kinds))
        return clause

    def being_old(self, subject: Nominal | None = None, asked: bool = False, plain: bool = False) -> Clause:
        """`The boy is ten years old`, `le garçon a dix ans`."""
        subject = self.person(subject)
        old = Word("old", "ADJ")
        years = Word("years", "NOUN", old)
        number = Word(self.pick(tuple(lex.AGES)), "NUM", years)
        manner = Manner(self.tense(subject, lex.BEING_AS_HAVING), asked=asked)
        clause = self.predicate(subject, lex.BEING_AS_HAVING, manner, state=old)
        clause.complete(
            [number, years, old], [Mot(lex.AGES[number.text], (number,)), Mot("ans", (years, old))]
        )
        return clause

    def person(self, subject: Nominal | None) -> Nominal:
        """The subject, which must be a person, or one newly found."""
        subject = subject or self.someone(_PEOPLE)
        if not subject.human:
            raise Unsayable
        return subject

    def giving(self, subject: Nominal | None = None, asked: bool = False, plain: bool = False) -> Clause:
        """`The girl gives him the book`, `the girl gives the book to the boy`."""
        subject, verb = self.person(subject), self.pick(lex.GIVING)
        manner = self.manner(subject, verb, asked, plain)
        object = self.object(verb, manner, plain=True)
        if self.chance(0.5):
            word = Word(self.pick(self.others(subject)), "PRON")
            clause = self.predicate(subject, verb, manner, [Mot(lex.OBJECTS[word.text][1], (word,))])
            clause.add([word, *object.en], object.fr, object.head)
            word.head = clause.governor
        else:
            clause = self.predicate(subject, verb, manner)
            clause.add(object.en, object.fr, object.head)
            clause.add(*self.behind("to", "à", self.nominal(_PEOPLE, "known", plain)))
        clause.object = object
        return clause

    def done(self, subject: Nominal | None = None, asked: bool = False, plain: bool = False) -> Clause:
        """`The cake was eaten by the dog`."""
        verb = self.pick(_verbs(_PASSIVE, None, subject and subject.kinds))
        subject = subject or self.nominal(verb.objects, "subject")
        if PAST not in self.tenses or subject.first:
            raise Unsayable
        self.note(verb.name, subject)
        participle = Word(verb.participle, "VERB")
        manner = Manner(PAST, denial="not" if self.chance(0.15) and not asked else "", asked=asked)
        clause = self.predicate(subject, lex.BEING_DONE, manner, state=participle)
        clause.complete(
            [participle], _mots(verb.french.participle[2 * subject.plural + subject.feminine], [participle])
        )
        clause.add(*self.behind("by", "par", self.nominal(verb.subjects, "known", plain=True)))
        return clause

    def moving(self, subject: Nominal | None = None, asked: bool = False, plain: bool = False) -> Clause:
        """`She goes to the market`, `he lives in Paris`, `we come from Italy`."""
        verb, en, fr = self.pick(lex.MOVING)
        subject = self.person(subject)
        clause = self.predicate(subject, verb, self.manner(subject, verb, asked, plain))
        if self.chance(0.4):
            clause.add(*self.country(en))
        else:
            clause.add(*self.located(en, fr, verb.objects))
        if not plain and self.chance(0.2):
            self.add_time(clause)
        return clause

    def saying(self, subject: Nominal | None = None, asked: bool = False, plain: bool = False) -> Clause:
        """`The girls think that they are right`."""
        if PRESENT not in self.tenses:
            raise Unsayable
        subject, verb = self.person(subject), self.pick(lex.SAYING)
        clause = self.predicate(subject, verb, Manner(PRESENT, asked=asked))
        that = Word("that", "SCONJ")
        clause.add([that], [Mot("que", (that,))], that)
        tenses, self.tenses = self.tenses, _TENSES
        inner = self.clause(
            self.taken_up(subject) if self.is_clear(subject) and self.chance(0.4) else None, plain
        )
        self.tenses = tenses
        clause.add(*inner)
        that.head = inner.head
        return clause

    # Adjuncts

    def adjoin(self, clause: Clause, verb: Verb, plain: bool) -> None:
        """Adds how, where, with whom and when; often nothing."""
        if not self.adjuncts or (plain and self.chance(0.8)):
            return
        if not verb.stative:
            if verb.base in lex.SKILLS and not clause.object and self.chance(0.3):
                word = Word(self.pick(tuple(lex.MANNERS)), "ADV")
                clause.add([word], [Mot(lex.MANNERS[word.text], (word,))], word)
            if self.chance(0.6 if self.wordy else 0.32):
                clause.add(*self.circumstance(verb, clause.subject))
        if (verb.state or not verb.stative) and self.chance(0.4 if self.wordy else 0.22):
            self.add_time(clause)

    def circumstance(self, verb: Verb, subject: Nominal) -> Phrase:
        """Where, with whom or for whom."""
        roll = self.random()
        if roll < 0.4 and verb.base in lex.FOR_OTHERS:
            return self.company("for", "pour", subject)
        if roll < 0.7 and verb.base not in lex.ELSEWHERE:
            return self.country("in") if roll < 0.1 else self.place(_LIVING)
        if verb.link == "avec":
            raise Unsayable
        return self.company(*self.pick((("with", "avec"), ("with", "avec"), ("without", "sans"))), subject)

    def add_time(self, clause: Clause) -> None:
        if clause.manner.often or clause.manner.denial in ("never", "no longer") or not self.adjuncts:
            return
        clause.add(*_set_phrase(*self.pick(lex.TIMES[clause.manner.tense])))

    def place(self, kinds: Kinds) -> Phrase:
        """`Under the table`: a place for people and animals, or one for things."""
        return self.located(*self.pick(lex.PLACES if kinds is _LIVING else lex.SPOTS))

    def located(self, en: str, fr: str, places: Kinds, tags: str = "ADP") -> Phrase:
        """`In a garden`; but `at` a place, as French says `à`, only where the place is known."""
        place = self.nominal(places, "firm" if fr == "à" else "spot", plain=True)
        return self.behind(en, fr, place, tags)

    def country(self, en: str) -> Phrase:
        name = Word(self.pick(tuple(lex.COUNTRIES)), "PROPN")
        preposition = Word(en, "ADP", name)
        fr, nom = lex.COUNTRIES[name.text][en == "from"].split()
        return Phrase([preposition, name], [Mot(fr, (preposition,)), Mot(nom, (name,))], name)

    def company(self, en: str, fr: str, subject: Nominal) -> Phrase:
        """`With me`, `with the queen`."""
        if self.chance(0.7):
            return self.behind(en, fr, self.nominal(_PEOPLE, "known", plain=True))
        word = Word(self.pick(("him", "her") if subject.first else ("me", "him", "her", "us")), "PRON")
        preposition = Word(en, "ADP", word)
        return Phrase(
            [preposition, word], [Mot(fr, (preposition,)), Mot(lex.OBJECTS[word.text][2], (word,))], word
        )

    def behind(self, en: str, fr: str, nominal: Nominal, tags: str = "ADP") -> Phrase:
        """A noun phrase behind a preposition, which may have several words."""
        of = _words(en, tags, nominal.head)
        return Phrase([*of, *nominal.en], nominal.after(fr, tuple(of)), nominal.head)

    # Sentences

    def sentence(self) -> tuple[Phrase, str]:
        roll = self.random()
        if self.wordy:
            return self.joined(3 if roll < 0.5 else 2), "."
        if roll < 0.5:
            return self.clause(), "."
        if roll < 0.68:
            return self.joined(2), "."
        if roll < 0.73:
            return self.doing_twice(), "."
        if roll < 0.77:
            return self.timed(), "."
        if roll < 0.87:
            return self.pick(self.frames)(None, True).question(), "?"
        return self.asked(), "?"

    def clause(self, subject: Nominal | None = None, plain: bool = False) -> Phrase:
        return self.pick(self.frames)(subject, plain=plain).statement()

    def timed(self) -> Phrase:
        """`Yesterday, the girl slept`."""
        tense = self.pick(_TENSES)
        self.tenses, self.adjuncts = (tense,), False
        time = _set_phrase(*self.pick(lex.TIMES[tense]))
        clause = self.pick((self.doing, self.acting, self.giving))()
        if clause.manner.often or clause.manner.denial in ("never", "no longer"):
            raise Unsayable
        en, fr, root = clause.statement()
        time.head.head = root
        comma = Word(",", "PUNCT", root)
        return Phrase([*time.en, comma, *en], [*time.fr, Mot(",", (comma,)), *fr], root)

    def joined(self, clauses: int) -> Phrase:
        """Clauses held together by `and`, `because`, `when` and their like."""
        conjunction = self.pick(tuple(lex.CONJUNCTIONS))
        whole = self.at_once(conjunction) if conjunction in _AT_ONCE else self.in_turn(conjunction)
        if clauses == 2:
            return whole
        self.tenses = _TENSES
        return _join(whole, "and" if conjunction == "but" else "but", self.clause())

    def in_turn(self, conjunction: str) -> Phrase:
        """`And`, `but` or `because`."""
        self.tenses = (self.pick(_TENSES),)
        first = self.pick(self.frames)(None)
        known = None if first.manner.denial else first.object
        if conjunction == "and" and known and self.is_clear(known) and self.chance(0.5):
            return _join(first.statement(), conjunction, self.doing_it(known))
        if conjunction == "because" and self.tenses == (PRESENT,) and self.chance(0.1):
            return _join(first.statement(), conjunction, self.weather())
        # A reason in the past is a state, so that French always has an imparfait.
        state = conjunction == "because" and PAST in self.tenses
        frame = self.pick((self.being, self.being_there)) if state else self.pick(self.frames)
        return _join(first.statement(), conjunction, frame(self.taken_up_or_new(first)).statement())

    def taken_up_or_new(self, first: Clause) -> Nominal | None:
        """The subject of a second clause: often the first one's, as a pronoun."""
        return self.taken_up(first.subject) if self.is_clear(first.subject) and self.chance(0.6) else None

    def at_once(self, conjunction: str) -> Phrase:
        """`When`, `while` or `if`, in the present, where the two languages use their tenses alike."""
        self.tenses = (PRESENT,)
        first = self.pick((self.doing, self.acting))()
        if conjunction != "while" and self.chance(0.1):
            return _join(first.statement(), conjunction, self.weather())
        second = self.pick((self.doing, self.acting, self.giving))(self.taken_up_or_new(first)).statement()
        return (_turned if self.chance(0.3) else _join)(first.statement(), conjunction, second)

    def weather(self) -> Phrase:
        it, does = Word("it", "PRON"), Word(self.pick(tuple(lex.WEATHER)), "VERB")
        it.head = does
        return Phrase([it, does], [Mot("il", (it,)), Mot(lex.WEATHER[does.text], (does,))], does)

    def doing_it(self, object: Nominal) -> Phrase:
        """A clause whose object pronoun takes up an object mentioned before."""
        verb = self.pick(_verbs(_SIMPLY_DONE, _PEOPLE, object.kinds))
        subject = self.name() if self.chance(0.5) else self.someone(_PEOPLE, plain=True)
        if not self.is_clear(object):
            raise Unsayable
        return self.to_it(subject, verb, self.pick(self.tenses), object).statement()

    def to_it(self, subject: Nominal, verb: Verb, tense: str, object: Nominal) -> Clause:
        word, mot = self.taken_up_as_object(object)
        return self.with_pronoun(self.predicate(subject, verb, Manner(tense), [mot], object), verb, word)

    def doing_twice(self) -> Phrase:
        """`The girl buys the apple and eats it`."""
        first = self.pick(_FIRST_DONE)
        subject = self.someone(first.subjects)
        tense = self.pick((PRESENT, PAST))
        object = self.simple(self.pick(_nouns(first.objects)))
        second = self.pick(_verbs(_THEN_DONE, subject.kinds, object.kinds))
        if not self.is_clear(object):
            raise Unsayable
        self.note(first.name, object)
        clause = self.predicate(subject, first, Manner(tense))
        self.place_object(clause, first, object)
        again = self.to_it(subject, second, tense, object)
        main = clause.statement()
        rest = Phrase([*again.rest, *again.after], [*again.verbs, *again.apres], again.root)
        return _join(main, "and", rest)

    # Questions

    def asked(self) -> Phrase:
        """A question with a question word."""
        ask: tuple[Callable[[], Phrase], ...] = (
            self.who,
            self.which_one,
            self.why,
            self.where_is,
            self.how_old,
        )
        more = (self.whom, self.which, self.when_or_where)
        return self.pick((*ask, *more, *more))()

    def who(self) -> Phrase:
        """`Who sees the dog?`"""
        word = Word("who", "PRON")
        subject = Nominal([word], [Mot("qui", (word,))], word, False, False, _PEOPLE)
        return self.pick((self.doing, self.acting, self.giving))(subject).statement()

    def which_one(self) -> Phrase:
        """`Which boy sees the dog?`"""
        noun = self.pick(_nouns(_LIVING))
        if noun.kinds & _NO_PLURAL:
            raise Unsayable
        subject = self.simple(noun, determiner="which")
        return self.pick((self.doing, self.acting, self.being))(subject).statement()

    def whom(self) -> Phrase:
        """`What does he look for?`, `who does she speak to?`"""
        verb = self.pick(_ASKED_ABOUT)
        human = "person" in verb.objects and (verb.objects == _PEOPLE or self.chance(0.5))
        word = Word("who" if human else "what", "PRON")
        mots = _mots(f"{verb.link} {'qui' if human else 'quoi' if verb.link else 'que'}", [word])
        return self.asking(verb, None).question([word], mots)

    def which(self) -> Phrase:
        """`Which car did she buy?`, `how many apples does he eat?`"""
        verb = self.pick(_ASKED_ABOUT)
        noun = self.pick(_nouns(verb.objects))
        many = not verb.link and self.chance(0.5)
        if noun.kinds & _NO_PLURAL:
            raise Unsayable
        object = self.simple(noun, "any", "how many" if many else "which", many or None)
        self.note(verb.name, object)
        clause = self.asking(verb, None if verb.link else object)
        mots = object.after(verb.link, (clause.governor,)) if verb.link else object.fr
        return clause.question(object.en, mots)

    def asking(self, verb: Verb, agreed: Nominal | None) -> Clause:
        """A question that has its object already."""
        subject = self.someone(verb.subjects, plain=True)
        clause = self.predicate(subject, verb, Manner(self.tense(subject, verb), asked=True), agreed=agreed)
        self.strand(clause, verb)
        return clause

    def why(self) -> Phrase:
        why = Word("why", "ADV")
        return self.pick(self.frames)(None, True, True).question([why], [Mot("pourquoi", (why,))])

    def when_or_where(self) -> Phrase:
        word = Word(self.pick(("when", "where", "how")), "ADV")
        self.adjuncts = False
        if word.text == "how" or self.chance(0.6):
            verbs = {"when": lex.INTRANSITIVE, "where": _SOMEWHERE, "how": _SOMEHOW}[word.text]
            clause = self.asking(self.pick(verbs), None)
        else:
            verb = self.pick(_SIMPLY_DONE)
            subject = self.someone(verb.subjects, plain=True)
            clause = self.predicate(subject, verb, Manner(self.tense(subject, verb), asked=True))
            self.place_object(clause, verb, self.object(verb, clause.manner, plain=True))
        mot = {"when": "quand", "where": "où", "how": "comment"}[word.text]
        return clause.question([word], [Mot(mot, (word,))])

    def where_is(self) -> Phrase:
        """`Where is the key?`, `où est la clé ?`"""
        where = Word("where", "ADV")
        subject = self.nominal(_LAID | _LIVING, "known", plain=True)
        clause = self.predicate(
            subject, lex.BEING, Manner(self.pick((PRESENT, PAST)), asked=True), state=where
        )
        subject.head.head = where
        return Phrase(
            [where, *clause.front, *subject.en], [Mot("où", (where,)), *clause.verbs, *subject.fr], where
        )

    def how_old(self) -> Phrase:
        """`How old is the boy?`, `quel âge a le garçon ?`"""
        old = Word("old", "ADJ")
        how = Word("how", "ADV", old)
        subject = self.nominal(_PEOPLE, "known", plain=True)
        tense = self.pick((PRESENT, PRESENT, PAST))
        clause = self.predicate(subject, lex.BEING_AS_HAVING, Manner(tense, asked=True), state=old)
        subject.head.head = old
        mots = [Mot("quel", (how,)), Mot("âge", (old,)), *clause.verbs, *subject.fr]
        return Phrase([how, old, *clause.front, *subject.en], mots, old)


# Putting the two sides together


def _words(text: str, tags: str, head: Word | None = None) -> list[Word]:
    """English words, each with its tag, on one head."""
    return [Word(word, tag, head) for word, tag in zip(text.split(), tags.split(), strict=True)]


def _mots(text: str, of: Sequence[Word]) -> list[Mot]:
    """French words for these English ones; none for none."""
    return [Mot(mot, tuple(of)) for mot in text.split()] if of else []


def _set_phrase(english: str, tags: str, french: str) -> Phrase:
    """A fixed phrase, each French word followed by the places of the English words it renders."""
    en = _words(english, tags)
    for word in en[:-1]:
        word.head = en[-1]
    fr = []
    for text in french.split():
        mot = text.rstrip("0123456789")
        fr.append(Mot(mot, tuple(en[int(place)] for place in text[len(mot) :])))
    return Phrase(en, fr, en[-1])


def _join(first: Phrase, conjunction: str, second: Phrase) -> Phrase:
    french, tag = lex.CONJUNCTIONS[conjunction]
    word = Word(conjunction, tag, second.head)
    second.head.head = first.head
    comma = [Word(",", "PUNCT", second.head)] if conjunction == "but" else []
    joint = [*_mots(",", comma), *_mots(french, [word])]
    return Phrase([*first.en, *comma, word, *second.en], [*first.fr, *joint, *second.fr], first.head)


def _turned(first: Phrase, conjunction: str, second: Phrase) -> Phrase:
    """The subordinate clause first: `when it rains, the girl sleeps`."""
    french, tag = lex.CONJUNCTIONS[conjunction]
    word, comma = Word(conjunction, tag, first.head), Word(",", "PUNCT", second.head)
    first.head.head = second.head
    start = [*_mots(french, [word]), *first.fr, *_mots(",", [comma])]
    return Phrase([word, *first.en, comma, *second.en], [*start, *second.fr], second.head)


def _determined(
    name: str, noun: Noun, plural: bool, denied: bool, following: list[Mot], head: Word
) -> tuple[list[Word], list[Mot]]:
    """A determiner in English, and in French as the noun and the words that follow want it."""
    english = {"this": "these" if plural else "this", "some": "any" if denied else "some", "all": "all the"}
    en = _words(english.get(name, name), lex.DETERMINER_TAGS.get(name, "DET"), head)
    of = tuple(en)
    if denied and name in ("a", "some"):
        return en, [Mot("de", of)]
    if name == "some" and not plural:
        return en, [Mot("de", of), Mot("la" if noun.feminine else "le", of, article=True)]
    if name == "some":  # `des chats`, but `de petits chats`
        return en, [Mot("des" if following[0].of == (head,) else "de", of)]
    if name == "all":
        return en, [Mot("toutes" if noun.feminine else "tous", of[:1]), Mot("les", of[1:], article=True)]
    if name in lex.QUANTITIES:
        return en, _mots(lex.QUANTITIES[name], en)
    text = lex.DETERMINERS[name][2 * plural + noun.feminine]
    if lex.is_vowel_in_french(following[0].text):
        text = lex.BEFORE_VOWEL.get(text, text)
    return en, [Mot(text, of, article=name == "the")]


def _attributive(adjective: Adjective, noun: Noun, plural: bool) -> str:
    """The form beside a noun: `un bel homme`."""
    if adjective.before and not (plural or noun.feminine) and lex.is_vowel_in_french(noun.singulier):
        return adjective.liaison
    return adjective.formes[2 * plural + noun.feminine]


def _predicative(adjective: Adjective, subject: Nominal) -> str:
    """The form after `être`."""
    return adjective.formes[2 * subject.plural + subject.feminine]


def _settled(mots: list[Mot]) -> list[Mot]:
    """Elides and contracts: `le homme` to `l'homme`, `de le roi` to `du roi`."""
    settled: list[Mot] = []
    for place, mot in enumerate(mots):
        if mot.text in lex.ELIDED:
            follower = mots[place + 1].text
            if lex.is_vowel_in_french(follower) and (mot.text != "si" or follower in ("il", "ils")):
                mot = Mot(mot.text[:-1] + "'", mot.of)
        if mot.article and settled and (settled[-1].text, mot.text) in lex.CONTRACTED:
            before = settled.pop()
            mot = Mot(lex.CONTRACTED[before.text, mot.text], before.of + mot.of)
        settled.append(mot)
    return settled


def _pair(sentence: Phrase, mark: str) -> Pair:
    """The finished sentence, written as people write it."""
    stop = Word(mark, "PUNCT", sentence.head)
    en, fr = [*sentence.en, stop], [*_settled(sentence.fr), Mot(mark, (stop,))]
    for place, word in enumerate(en):
        word.index = place
        if word.text == "a" and lex.is_vowel_in_english(en[place + 1].text):
            word.text = "an"
    alignment = sorted({(word.index, place) for place, mot in enumerate(fr) for word in mot.of})
    heads = tuple(-1 if word.head is None else word.head.index for word in en)
    tags = tuple([word.tag for word in en])
    source = re.sub(r" (?='s |[.,?]$|, )", "", " ".join([word.text for word in en]))
    target = re.sub(r"(?<=') | (?=\.$|, )", "", " ".join([mot.text for mot in fr]))
    return Pair(source[0].upper() + source[1:], target[0].upper() + target[1:], tuple(alignment), heads, tags)
