"""The phrasebook: sizes and splits, one translation per sentence, trees, alignments and parts of speech."""

import hashlib
import itertools
from collections import Counter, defaultdict

import pytest
from helpers.phrases import everything, lower

from heedful.corpora.phrasebook import SPLITS, count, function_words, pairs, selection, split
from heedful.corpora.phrasebook import lexicon as lex
from heedful.corpora.phrasebook.pair import Pair, words

# A change of the grammar or of a word changes this, and every figure measured on the phrasebook with it.
TRAIN_SHA256 = "9bba8c68fe8ff9832328b7eeae520b411fb5952a5d9f36163f912b9434faaf59"


# Splits


def test_the_splits_have_their_sizes():
    sizes = {name: len(split(name)) for name in SPLITS}
    assert sizes == {"train": 20_000, "valid": 500, "test": 500, "combinations": 500, "long": 200}


def test_no_sentence_occurs_twice_in_either_language():
    for side in ("source", "target"):
        sentences = [getattr(pair, side) for pair in everything()]
        assert len(set(sentences)) == len(sentences)


def test_there_are_at_least_300_words_a_side_and_all_are_learnt_in_train():
    for side in ("source", "target"):
        times = Counter(word for pair in split("train") for word in words(getattr(pair, side)))
        assert len({word.lower() for word in times}) >= 300
        for name in SPLITS[1:]:
            rare = {word for pair in split(name) for word in words(getattr(pair, side)) if times[word] < 5}
            assert not rare, f"{name} asks for {sorted(rare)}"


def test_lengths():
    for pair in split("long"):
        for text in (pair.source, pair.target):
            assert 20 <= len(text.split()) and len(words(text)) <= 40
    lengths = [len(words(pair.source)) for pair in split("train")]
    assert max(lengths) < 20 and max(len(words(pair.target)) for pair in split("train")) < 20
    assert sum(4 <= length - 1 <= 14 for length in lengths) >= 0.9 * len(lengths)


def test_an_unknown_split_is_refused_with_the_nearest_name():
    with pytest.raises(ValueError, match="'combination'; did you mean 'combinations'"):
        split("combination")


def test_the_caller_may_change_the_list():
    split("valid").clear()
    assert len(split("valid")) == 500


def test_train_is_the_same_everywhere():
    content = "\n".join(repr((p.source, p.target, p.alignment, p.heads)) for p in split("train"))
    assert hashlib.sha256(content.encode()).hexdigest() == TRAIN_SHA256


NOUN_OF = {form: noun.singular for noun in (*lex.NOUNS, lex.ANIMAL) for form in (noun.singular, noun.plural)}
ADJECTIVE_WORDS = {adjective.word for adjective in lex.ADJECTIVES}
VERBS_OF: dict[str, list[lex.Verb]] = defaultdict(list)
for verb in (*lex.TRANSITIVE, *lex.GIVING):
    for form in {verb.state} - {""} or {verb.base, verb.third, verb.past, verb.participle}:
        VERBS_OF[form].append(verb)
PREPOSITIONS = {particle for verb in lex.TRANSITIVE for particle in verb.particle}
PREPOSITIONS |= {word for place in function_words.PLACES for word in place[0].split()} | {
    "by",
    "from",
    "than",
    "without",
}


def combinations(pair: Pair) -> set[tuple[str, str]]:
    """Adjectives with the noun they stand before, and verbs with the noun that follows as their object."""
    source, found = words(pair.source), set()
    for i, head in enumerate(pair.heads):
        if source[i] in ADJECTIVE_WORDS and i < head and source[head] in NOUN_OF:
            found.add((source[i], NOUN_OF[source[head]]))
        if source[i] in NOUN_OF and -1 < head < i:
            own = {source[j] for j, other in enumerate(pair.heads) if other == i} & PREPOSITIONS
            verbs = [verb for verb in VERBS_OF[source[head]] if set(verb.particle) == own]
            found |= {(verb.name, NOUN_OF[source[i]]) for verb in verbs}
    return found


def test_combinations_are_new_although_their_words_are_not():
    seen = set().union(*(combinations(pair) for pair in split("train")))
    known = {part for combination in seen for part in combination}
    for pair in split("combinations"):
        new = combinations(pair) - seen
        assert any(set(combination) <= known for combination in new), pair.source


# One translation


def test_no_sentence_has_two_translations(monkeypatch):
    """With few words, sentences come again soon, and must come with the same French."""
    few = {
        "NOUNS": (
            "man",
            "queen",
            "sister",
            "dog",
            "cow",
            "apple",
            "bread",
            "key",
            "house",
            "garden",
            "table",
        ),
        "ADJECTIVES": ("old", "tired", "cold", "red"),
        "TRANSITIVE": ("see", "know", "visit", "speak", "need", "leave", "eat", "look"),
        "GIVING": ("give",),
        "INTRANSITIVE": ("leave", "sleep", "stop"),
        "CONTROLS": ("want", "try"),
    }
    for table, kept in few.items():
        rows = [row for row in getattr(lex, table) if getattr(row, NAME_OF.get(table, "base")) in kept]
        monkeypatch.setattr(lex, table, tuple(rows))
    monkeypatch.setattr(lex, "MEN", ("Paul",))
    monkeypatch.setattr(lex, "WOMEN", ("Anne",))
    few_times = {tense: times[:1] for tense, times in function_words.TIMES.items()}
    monkeypatch.setattr(function_words, "TIMES", few_times)
    caches = (selection.nouns_of, selection.adjectives_of, selection.verbs_for)
    for cached in caches:
        cached.cache_clear()
    try:
        assert_one_translation(itertools.islice(pairs(7), 25_000), repeated=1_000)
    finally:
        for cached in caches:
            cached.cache_clear()


NAME_OF = {"NOUNS": "singular", "ADJECTIVES": "word"}


def test_no_sentence_of_the_whole_grammar_has_two_translations():
    assert_one_translation([*everything(), *itertools.islice(pairs(8), 15_000)], repeated=100)


def assert_one_translation(sample, repeated):
    translations: dict[str, str] = {}
    again = 0
    for pair in sample:
        again += pair.source in translations
        assert translations.setdefault(pair.source, pair.target) == pair.target, pair.source
    assert again >= repeated


def test_nobody_is_called_you():
    assert not any({"you", "your"} & set(lower(pair.source)) for pair in everything())


def test_it_and_they_have_one_gender():
    """Whichever of the nouns before it a pronoun takes up, French says the same."""
    noun_of = {form: noun for noun in lex.NOUNS for form in (noun.singular, noun.plural)}
    said = {"il": False, "ils": False, "le": False, "elle": True, "elles": True, "la": True}  # feminine
    checked = Counter()
    for pair in everything():
        source, target = words(pair.source), lower(pair.target)
        if {"watch", "watches"} & set(source):
            continue  # noun or verb
        for i, j in pair.alignment:
            before = [(word, noun_of[word]) for word in source[:i] if word in noun_of]
            if source[i] == "it" and source[i + 1] not in function_words.WEATHER:
                nouns = [n for word, n in before if word == n.singular and "person" not in n.kinds]
            elif source[i] == "they" and "and" not in source[:i]:
                nouns = [n for word, n in before if word == n.plural]
            else:
                continue
            checked[source[i]] += 1
            feminine = {noun.feminine for noun in nouns}
            assert len(feminine) == 1 and said.get(target[j], *feminine) in feminine, pair.source
    assert checked["it"] >= 100 and checked["they"] >= 100


# Words, alignments, trees


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The king's horse sleeps.", "The king 's horse sleeps ."),
        ("Louis's niece gets up at six o'clock.", "Louis 's niece gets up at six o'clock ."),
        ("L'homme n'a pas faim aujourd'hui.", "L' homme n' a pas faim aujourd'hui ."),
        ("Qu'est-ce qu'elle voit ?", "Qu' est-ce qu' elle voit ?"),
        ("S'il pleut, j'ai soif.", "S' il pleut , j' ai soif ."),
        ("Son grand-père l’aime.", "Son grand-père l’ aime ."),
    ],
)
def test_words(text, expected):
    assert words(text) == expected.split()


def test_words_lose_nothing():
    for pair in everything():
        for text in (pair.source, pair.target):
            assert "".join(words(text)) == text.replace(" ", "")
            assert text[0].isupper() and text[-1] in ".?"


def test_every_word_is_aligned():
    for pair in everything():
        assert {i for i, _ in pair.alignment} == set(range(len(words(pair.source)))), pair
        assert {j for _, j in pair.alignment} == set(range(len(words(pair.target)))), pair


def test_aligned_nouns_are_translations():
    french = defaultdict(set)
    for noun in (*lex.NOUNS, lex.ANIMAL):
        french[noun.singular].add(noun.singulier)
        french[noun.plural].add(noun.pluriel)
    for pair in split("test"):
        source, target = words(pair.source), words(pair.target)
        aligned = defaultdict(set)
        for i, j in pair.alignment:
            aligned[i].add(target[j])
        for i, word in enumerate(source):
            if word in french and word not in ("watch", "watches"):  # which may be the verb
                assert aligned[i] <= french[word], (word, pair)


def test_heads_form_a_tree():
    for pair in everything():
        heads = pair.heads
        assert len(heads) == len(words(pair.source)) and heads.count(-1) == 1
        for start in range(len(heads)):
            seen, place = set(), start
            while place != -1:
                assert place not in seen, pair
                seen.add(place)
                place = heads[place]


@pytest.mark.parametrize(
    ("form", "heads"),
    [
        ("The _ did not _ the _ .", (1, 4, 4, 4, -1, 6, 4, 4)),
        ("Is the _ going to _ ?", (3, 2, 3, -1, 5, 3, 3)),
        ("_ 's _ was _ .", (2, 0, 4, 4, -1, 4)),
        ("Who did _ _ ?", (3, 3, 3, -1, 3)),
        ("The _ was _ by the _ .", (1, 3, 3, -1, 6, 6, 3, 3)),
        ("The _ _ the _ and _ it .", (1, 2, -1, 4, 2, 6, 2, 6, 2)),
        ("She is _ years old .", (4, 4, 3, 4, -1, 4)),
        ("He _ the _ to the _ .", (1, -1, 3, 1, 6, 6, 1, 1)),
        ("The _ who is _", (1, None, 4, 4, 1)),
    ],
)
def test_heads_one_can_check_by_hand(form, heads):
    wanted = form.split()
    for pair in split("train"):
        source = words(pair.source)[: len(wanted)]
        if [w if w == "_" else word for w, word in zip(wanted, source, strict=False)] == wanted:
            found = pair.heads[: len(heads)]
            assert all(head in (None, got) for head, got in zip(heads, found, strict=True)), pair
            return
    pytest.fail(f"train has no {form!r}")


# Parts of speech

# As the treebank English-EWT tags such words; spellings that are two parts of speech stand here as both.
TAGGED = """
There/PRON is/VERB not/PART a/DET swan/NOUN in/ADP the/DET shop/NOUN ./PUNCT
Is/VERB there/PRON a/DET pineapple/NOUN next/ADV to/ADP the/DET chair/NOUN ?/PUNCT
There/PRON is/VERB a/DET boy/NOUN in/ADP front/NOUN of/ADP a/DET car/NOUN ./PUNCT
A/DET lady/NOUN is/AUX not/PART going/VERB to/PART clean/VERB the/DET clean/ADJ plates/NOUN ./PUNCT
She/PRON is/AUX going/VERB to/PART go/VERB to/ADP Paris/PROPN ./PUNCT
The/DET mirror/NOUN was/AUX broken/VERB by/ADP my/PRON witches/NOUN ./PUNCT
A/DET glass/NOUN was/AUX broken/ADJ ./PUNCT
We/PRON closed/VERB the/DET yellow/ADJ bag/NOUN ./PUNCT
Was/AUX every/DET bag/NOUN closed/ADJ ?/PUNCT
The/DET girls/NOUN open/VERB a/DET door/NOUN ./PUNCT
She/PRON tells/VERB Louis/PROPN 's/PART stories/NOUN at/ADP two/NUM o'clock/NOUN ./PUNCT
I/PRON cannot/AUX wake/VERB up/ADP ./PUNCT
Am/AUX I/PRON going/VERB to/PART be/AUX cold/ADJ next/ADJ week/NOUN ?/PUNCT
She/PRON thinks/VERB that/SCONJ she/PRON says/VERB that/SCONJ the/DET heroine/NOUN is/AUX discreet/ADJ ./PUNCT
This/DET actress/NOUN closes/VERB the/DET leather/NOUN bag/NOUN that/PRON I/PRON forget/VERB ./PUNCT
Marie/PROPN was/AUX as/ADV kind/ADJ as/ADP Louis/PROPN ./PUNCT
Is/AUX he/PRON more/ADV tired/ADJ than/ADP my/PRON husband/NOUN ?/PUNCT
The/DET water/NOUN is/AUX no/ADV longer/ADV better/ADJ than/ADP my/PRON coffee/NOUN ./PUNCT
How/ADV old/ADJ is/AUX Paul/PROPN ?/PUNCT
I/PRON was/AUX six/NUM years/NOUN old/ADJ ./PUNCT
How/ADV many/ADJ songs/NOUN do/AUX we/PRON sing/VERB ?/PUNCT
Which/DET cat/NOUN got/VERB up/ADP ?/PUNCT
Who/PRON is/AUX he/PRON afraid/ADJ of/ADP ?/PUNCT
He/PRON draws/VERB her/PRON aunt/NOUN and/CCONJ invites/VERB her/PRON ./PUNCT
Who/PRON had/VERB fun/NOUN two/NUM days/NOUN ago/ADV ?/PUNCT
Today/NOUN ,/PUNCT I/PRON fall/VERB asleep/ADJ ./PUNCT
He/PRON is/AUX going/VERB to/PART come/VERB back/ADV next/ADJ week/NOUN ./PUNCT
When/ADV the/DET bee/NOUN must/AUX go/VERB out/ADV ,/PUNCT it/PRON can/AUX drink/VERB this/DET tea/NOUN \
./PUNCT
If/SCONJ she/PRON is/AUX not/PART sleepy/ADJ ,/PUNCT she/PRON works/VERB ./PUNCT
Several/ADJ cows/NOUN come/VERB because/SCONJ it/PRON snows/VERB ./PUNCT
She/PRON arrives/VERB ,/PUNCT but/CCONJ she/PRON can/AUX come/VERB ./PUNCT
An/DET old/ADJ beach/NOUN where/ADV the/DET boy/NOUN wakes/VERB up/ADP was/AUX bad/ADJ ./PUNCT
We/PRON walked/VERB on/ADP Monday/PROPN ./PUNCT
All/DET the/DET men/NOUN cry/VERB ./PUNCT
We/PRON look/VERB like/ADP them/PRON ./PUNCT
A/DET frog/NOUN never/ADV watches/VERB the/DET plane/NOUN ./PUNCT
Which/DET watches/NOUN did/AUX her/PRON wife/NOUN keep/VERB ?/PUNCT
Where/ADV were/AUX the/DET open/ADJ boxes/NOUN ?/PUNCT
"""
ALL_TAGS = "ADJ ADP ADV AUX CCONJ DET NOUN NUM PART PRON PROPN PUNCT SCONJ VERB"


def test_tags_one_can_check_by_hand():
    by_letters = {pair.source.replace(" ", ""): pair for pair in everything()}
    for line in TAGGED.strip().splitlines():
        forms = [word.rsplit("/", 1)[0] for word in line.split()]
        tags = by_letters["".join(forms)].tags
        assert " ".join(f"{form}/{tag}" for form, tag in zip(forms, tags, strict=True)) == line


def test_every_word_has_a_tag_of_the_list():
    for pair in everything():
        assert len(pair.tags) == len(words(pair.source)) == len(pair.heads), pair
    assert sorted({tag for pair in everything() for tag in pair.tags}) == ALL_TAGS.split()


# How hard it is


def test_word_for_word_translation_fails():
    """Each word's most frequent French word, or words, in English order."""
    single, several = defaultdict(Counter), defaultdict(Counter)
    for pair in split("train"):
        source, target = lower(pair.source), lower(pair.target)
        aligned = defaultdict(list)
        for i, j in pair.alignment:
            single[source[i]][target[j]] += 1
            aligned[i].append(target[j])
        for i, word in enumerate(source):
            several[word][tuple(aligned[i])] += 1
    right = [0, 0]
    for pair in split("test"):
        source, target = lower(pair.source), lower(pair.target)
        right[0] += target == [single[word].most_common(1)[0][0] for word in source]
        right[1] += target == [mot for word in source for mot in several[word].most_common(1)[0][0]]
    assert max(right) <= 0.2 * len(split("test"))
    assert max(right) > 0, "then the test itself is broken: `Paul laughs.` is easy"


def test_the_grammar_derives_at_least_a_million_sentences():
    assert count() >= 10**6
    forms = [form for noun in lex.NOUNS for form in {noun.singular, noun.plural}]
    assert len(set(forms)) == len(forms)  # else the sentences counted would not all differ
