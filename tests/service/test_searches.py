"""Requests with the options of an earlier one are planned without another look at these options."""

import pytest
from helpers.loop_cases import writing

import heedful
from heedful.errors import BadInput
from heedful.service import searches as kept_searches
from heedful.service.searches import KnownSearches
from heedful.service.writing import plan

OPTIONS = [
    {"max_new_tokens": 9},
    {"max_new_tokens": 23},
    {},
    {"sample": False, "max_new_tokens": 9},
    {"sample": True, "seed": 5, "max_new_tokens": 9},
    {"sample": True, "seed": 6, "temperature": 1.5, "top_k": 3},
    {"sample": True, "seed": 7, "temperature": 1.5, "top_k": 3},
    {"min_new_tokens": 4, "max_new_tokens": 9},
    {"min_new_tokens": 4, "max_new_tokens": 11},
    {"sample": True, "seed": 2},
    {"stop": ["t"], "repetition_penalty": 1.25},
    {"logit_bias": {"4": 1.5}, "max_new_tokens": 9},
]
WRONG = [
    {"max_new_tokens": 0},
    {"max_new_tokens": "many"},
    {"min_new_tokens": 4, "max_new_tokens": 3},
    {"sample": True, "seed": "five"},
    {"top_k": 3},
    {"logit_bias": {"999999": 1}},
]


@pytest.fixture(scope="module")
def lm(stored):
    return heedful.load(stored / "lm")


def test_every_request_has_the_options_that_it_would_have_alone(lm):
    searches = KnownSearches(lm)
    for options in [*OPTIONS, *OPTIONS]:
        found, alone = searches.search("generate", options, 1), lm.decoding("generate", options, beam=1)
        assert found.how == alone
        assert len(found.common_filters) == len(kept_searches.generate.search_for(lm, alone).common_filters)


def test_options_are_looked_at_once_however_seeds_and_lengths_differ(lm, monkeypatch):
    searches, looked = KnownSearches(lm), []
    decoding = type(lm).decoding
    monkeypatch.setattr(type(lm), "decoding", lambda *a, **b: looked.append(1) or decoding(*a, **b))
    for number in range(5):
        given = writing("the cat", sample=True, seed=number, max_new_tokens=3 + number, temperature=0.5)
        planned = plan(searches, given)
        assert planned.search.how.seed == number and planned.requests[0].longest == 3 + number
    assert len(looked) == 1


@pytest.mark.parametrize("options", WRONG)
def test_what_is_wrong_is_refused_in_the_same_words_after_something_right(lm, options):
    searches = KnownSearches(lm)
    for right in OPTIONS:
        searches.search("generate", right, 1)
    with pytest.raises(BadInput) as alone:
        KnownSearches(lm).search("generate", options, 1)
    with pytest.raises(BadInput) as found:
        searches.search("generate", options, 1)
    assert str(found.value) == str(alone.value)


def test_only_the_latest_searches_are_kept(lm, monkeypatch):
    monkeypatch.setattr(kept_searches, "MOST", 3)
    searches = KnownSearches(lm)
    for number in (1, 2, 3, 1, 4):
        searches.search("generate", {"repetition_penalty": 1 + number}, 1)
    kept = [search.how.repetition_penalty for search in searches.searches.values()]
    assert kept == [4, 2, 5]
    searches.search("generate", {"stop": ["a" * kept_searches.LONGEST]}, 1)
    assert len(searches.searches) == 3
