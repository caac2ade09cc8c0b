"""Labels of the phrasebook: what the grammar says of a sentence, read again from its words."""

from collections import Counter

import pytest

from heedful.corpora import phrasebook
from heedful.corpora.phrasebook import lexicon as lex
from heedful.corpora.phrasebook.labels import LABELS, labeled, shared
from heedful.corpora.phrasebook.pair import Pair, words
from heedful.errors import BadInput

VERBS = (*lex.TRANSITIVE, *lex.INTRANSITIVE, *lex.GIVING, *lex.SAYING, *lex.CONTROLS, lex.LEARNING)
VERBS = (*VERBS, *(verb for verb, _, _ in lex.MOVING))
THIRD = {verb.third for verb in VERBS} | {"is", "does", "has", "was"}
PAST = {verb.past for verb in VERBS} | {"was", "were", "did", "had"}
BASE = {verb.base for verb in VERBS} | {"are", "do", "have", "were"}
PLURALS = {noun.plural for noun in lex.NOUNS}


def every() -> list[Pair]:
    return [*phrasebook.split("test"), *phrasebook.split("combinations"), *phrasebook.split("long")]


def main_clause(pair: Pair) -> tuple[str, list[str]]:
    """The verb that shows the tense, and the words that depend on the root, by the tree."""
    text, root = words(pair.source), pair.heads.index(-1)
    children = [place for place, head in enumerate(pair.heads) if head == root]
    helpers = [text[place].lower() for place in children if pair.tags[place] == "AUX"]
    return (helpers or [text[root].lower()])[0], [text[place] for place in children]


def test_a_question_ends_in_a_question_mark():
    assert all((pair.mood == "question") == pair.source.endswith("?") for pair in every())


def test_the_tense_is_the_one_that_the_main_verb_shows():
    for pair in every():
        verb, _ = main_clause(pair)
        root = words(pair.source)[pair.heads.index(-1)]
        shown = "future" if root == "going" else "past" if verb in PAST else "present"
        assert pair.tense == shown, pair.source


def test_the_verb_agrees_with_the_number_of_the_subject():
    shown = 0
    for pair in every():
        verb, children = main_clause(pair)
        if "I" in children or (verb in PAST and verb not in ("was", "were")) or verb in ("can", "must"):
            continue
        if verb in THIRD | BASE:
            shown += 1
            assert pair.number == ("singular" if verb in THIRD else "plural"), pair.source
    assert shown > 600


def test_the_number_is_that_of_the_noun_or_pronoun_before_a_past_verb():
    shown = 0
    for pair in every():
        verb, _ = main_clause(pair)
        text = words(pair.source)
        if pair.mood == "question" or verb not in PAST - {"was", "were", "did"} or "," in text:
            continue
        root = pair.heads.index(-1)
        before = [place for place, head in enumerate(pair.heads[:root]) if head == root]
        (subject,) = [place for place in before if pair.tags[place] in ("NOUN", "PROPN", "PRON")]
        if any(pair.tags[i] == "CCONJ" and pair.heads[pair.heads[i]] == subject for i in range(root)):
            number = "plural"
        else:
            number = "plural" if text[subject] in PLURALS or text[subject] in ("We", "They") else "singular"
        shown += 1
        assert pair.number == number, pair.source
    assert shown > 120


def test_sentences_whose_labels_one_can_check_by_hand():
    found = {pair.source: (pair.mood, pair.tense, pair.number) for pair in phrasebook.split("train")}
    for sentence, labels in {
        "Are the waiter's aunts next to the bakery?": ("question", "present", "plural"),
        "The girl who ate some salad is hungry.": ("statement", "present", "singular"),
        "Which weak snake is going to get up?": ("question", "future", "singular"),
        "All the actors phoned some Greek wizards.": ("statement", "past", "plural"),
        "Are there some waitresses near the shop?": ("question", "present", "plural"),
        "I visited some big universities because her bread was not Swiss.": ("statement", "past", "singular"),
    }.items():
        assert found[sentence] == labels


def test_a_mood_cannot_be_read_off_the_punctuation():
    for text, second, label in labeled("test", "mood"):
        assert not set(text) & set(".,?!") and second == "" and label in ("statement", "question")


@pytest.mark.parametrize("label", LABELS)
def test_every_label_is_frequent_enough_to_learn_and_rare_enough_to_be_missed(label):
    for split in ("train", "valid", "test", "combinations"):
        rows = list(labeled(split, label))
        counts = Counter(row.label for row in rows)
        assert len(rows) == phrasebook.SIZES[split]
        assert min(counts.values()) > 0.12 * len(rows) and max(counts.values()) < 0.8 * len(rows)


@pytest.mark.parametrize("label", LABELS)
def test_no_text_of_training_is_held_out(label):
    learned = {row.first for row in labeled("train", label)}
    for split in phrasebook.SPLITS[1:]:
        assert not learned & {row.first for row in labeled(split, label)}


@pytest.mark.parametrize("label", LABELS)
def test_labels_are_the_same_every_time(label):
    assert list(labeled("valid", label)) == list(labeled("valid", label))


def test_a_french_sentence_is_called_a_translation_where_it_is_one():
    true = {pair.source: pair.target for pair in phrasebook.split("valid")}
    rows = list(labeled("valid", "translation"))
    assert all((row.label == "yes") == (true[row.first] == row.second) for row in rows)
    assert {row.second for row in rows} <= set(true.values())


def test_a_wrong_translation_is_that_of_a_similar_sentence():
    pairs = phrasebook.split("valid")
    by_target = {pair.target: pair for pair in pairs}
    wrong = [(pair, row) for pair, row in zip(pairs, labeled("valid", "translation"), strict=True)]
    likeness = [shared(pair, by_target[row.second]) for pair, row in wrong if row.label == "no"]
    at_random = [shared(pair, pairs[place - 7]) for place, pair in enumerate(pairs)]
    assert sum(likeness) / len(likeness) > 2 * sum(at_random) / len(at_random)


def test_an_unknown_label_is_refused_with_the_nearest_name():
    with pytest.raises(BadInput, match="no label 'tens'; did you mean 'tense'"):
        list(labeled("valid", "tens"))
