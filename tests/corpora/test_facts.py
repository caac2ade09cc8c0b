"""The corpus of facts: what a lead says is what the sources say, splits share no title, and articles grow."""

import hashlib
from itertools import islice

import pytest

from heedful.corpora import facts
from heedful.data.articles import SENTENCE
from heedful.data.extract import EXTRACTORS, words
from heedful.errors import BadInput

HELD_OUT = [name for name in facts.SPLITS if name != "train"]


def some(name, count=120, sources=4):
    return list(islice(facts.split(name, sources), count))


def test_splits_share_no_title_and_have_the_sizes_that_they_say():
    titles = {name: [person.name for person in facts.titles(name)] for name in facts.SPLITS}
    assert {name: len(some) for name, some in titles.items()} == facts.SIZES
    together = [title for some in titles.values() for title in some]
    assert len(set(together)) == len(together)


def test_the_same_articles_come_again_and_are_those_of_every_machine():
    assert [(a, a.heading, lead) for a, lead in some("test")] == [
        (a, a.heading, lead) for a, lead in some("test")
    ]
    told = "\n".join(f"{a.heading}\n{a}\n{lead}" for a, lead in some("valid", 50))
    assert hashlib.sha256(told.encode()).hexdigest()[:16] == "d59ca3682dcea4c7"


@pytest.mark.parametrize("name", facts.SPLITS)
def test_every_fact_of_a_lead_is_told_by_a_paragraph_that_names_the_person(name):
    for article, lead in some(name):
        named = [p for p in article.paragraphs if article.heading in p]
        told = SENTENCE.split(lead)
        assert len(told) == facts.TOLD and told[0].startswith(f"{article.heading} was a ")
        for sentence in told:
            value = sentence.removesuffix(".").split()[-1].replace("Medal", sentence.split()[-2])
            assert any(value in words_of(p) for p in named), (sentence, article)


def words_of(paragraph):
    return paragraph.replace(".", "").split()


def test_others_are_told_of_in_the_same_words_so_that_the_first_trade_is_often_not_the_right_one():
    wrong = 0
    for article, lead in some("test", 300):
        trade = next(word for word in words(article) if word in facts.TRADES)
        wrong += trade not in lead
    assert wrong > 60


def test_the_first_words_of_an_article_are_no_lead():
    assert not any(lead in article or facts.share_right(article, lead) for article, lead in some("test", 300))


def test_more_sources_make_an_article_longer_and_leave_its_lead_as_long():
    sizes = []
    for sources in (1, 3, 10):
        made = some("valid", 60, sources)
        assert all(len(article.paragraphs) == 2 * sources for article, _ in made)
        sizes.append(sum(len(words(article)) for article, _ in made) / len(made))
        assert {len(SENTENCE.split(lead)) for _, lead in made} == {facts.TOLD}
    assert sizes[0] < 0.7 * sizes[1] < 0.49 * sizes[2]
    long = [len(article.paragraphs) for article, _ in some("long", 9)]
    assert long == [2 * 4 * facts.LONGER] * 9


def test_every_word_that_is_asked_for_was_learned():
    known = {word for article, lead in facts.split("train") for word in (*words(article), *words(lead))}
    for name in HELD_OUT:
        assert all(known.issuperset((*words(article), *words(lead))) for article, lead in facts.split(name))


def test_the_title_finds_the_paragraphs_that_matter():
    """Half of the paragraphs of twelve sources are about others; tf-idf puts those about the person first."""
    early = late = 0
    for article, _ in some("test", 100, 12):
        named = [article.heading in p for p in EXTRACTORS["tf-idf"](article)]
        early, late = early + sum(named[:12]), late + sum(named[12:])
    assert early == 12 * 100 and late == 0


def test_facts_are_counted_one_by_one():
    lead = "Ada Low was a poet. She lived in Selby. She was born in 1815. She won the Lion Medal."
    assert facts.share_right(lead, lead) == 1
    assert facts.share_right("She lived in Selby. Ada Low was a cook.", lead) == 0.25
    assert facts.share_right("", lead) == 0


def test_a_split_that_is_none_is_refused_with_the_nearest():
    with pytest.raises(BadInput, match="facts has no split 'tests'; did you mean 'test'"):
        next(facts.split("tests"))
