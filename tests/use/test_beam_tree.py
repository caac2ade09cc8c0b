"""The tree of a beam search: what the search finds, what it drops, and a reference beside it."""

import json

import pytest
from helpers.loaded_models import SOURCES

from heedful.errors import BadInput

SOURCE = SOURCES[0]


def test_the_best_of_a_tree_are_what_translate_finds(load):
    model = load("demo")
    for how in ({}, {"beam": 3, "n_best": 2, "length_alpha": 0.2}, {"beam": 1}):
        tree = model.beam_tree(SOURCE, **how)
        answer = model.translate(SOURCE, **how)
        assert tree.answers == [str(one) for one in answer.n_best]
        way = tree.way(tree.best[0])
        assert [node.log_probability for node in way] == pytest.approx(answer.log_probabilities, abs=1e-5)
        assert way[-1].fate == "ended" and way[0].before == -1
        if how != {"beam": 1}:
            assert way[-1].score == pytest.approx(answer.score, abs=1e-5)
        assert tree.settings["beam"] == how.get("beam", 4)


def test_a_tree_of_a_language_model_has_a_beam_where_generate_is_greedy(load):
    model = load("lm")
    tree = model.beam_tree("def read(", max_new_tokens=4)
    assert tree.answers == [str(model.generate("def read(", beam=4, max_new_tokens=4))]
    assert tree.settings["beam"] == 4 and tree.steps == 4


def test_a_reference_scores_what_score_says_and_the_verdict_names_the_culprit(load):
    model = load("demo")
    own = model.translate(SOURCE)
    other = str(model.translate(SOURCES[1]))
    same = model.beam_tree(SOURCE, reference=str(own)).reference
    assert same.total == pytest.approx(model.score(SOURCE, str(own)).total, abs=1e-4)
    assert same.lost is None and same.margin == pytest.approx(0, abs=1e-5)
    assert same.verdict == "the search finds the reference"
    worse = model.beam_tree(SOURCE, reference=other, length_alpha=1.0).reference
    assert worse.total == pytest.approx(model.score(SOURCE, other).total, abs=1e-3)
    assert worse.score == pytest.approx(worse.total / ((5 + len(worse.tokens)) / 6), rel=1e-5)
    assert f"prefers its own text to the reference by {worse.margin:.2f}" in worse.verdict
    word = own.split()[-1].rstrip(".")
    missed = model.beam_tree(SOURCE, reference=str(own), bad_words=[word]).reference
    assert missed.margin < 0 and missed.tokens[missed.lost - 1] == word
    assert "search error: the model scores the reference" in missed.verdict and word in missed.verdict


def test_a_reference_with_the_coverage_penalty_scores_as_the_search_does(load):
    model = load("demo")
    tree = model.beam_tree(SOURCE, coverage_penalty=0.3)
    again = model.beam_tree(SOURCE, coverage_penalty=0.3, reference=tree.answers[0])
    assert again.reference.score == pytest.approx(tree.nodes[tree.best[0]].score, abs=1e-5)


def test_a_continuation_can_be_the_reference(load):
    model = load("lm")
    text, more = "def read(", "self, name"
    forced = model.beam_tree(text, reference=more, max_new_tokens=3).reference
    whole, begun = model.score(text + more), model.score(text)
    assert forced.total == pytest.approx(whole.total - begun.total, abs=1e-4)


def test_pictures_text_and_json_show_every_fate(load):
    model = load("demo")
    word = model.translate(SOURCE).split()[0]
    how = {"beam": 2, "beam_groups": 2, "diversity_penalty": 0.4, "n_best": 3, "bad_words": [word]}
    tree = model.beam_tree(SOURCE, **how)
    assert tree.counts()["forbidden"] and tree.counts()["fell off"]
    plain = tree.text().splitlines()
    assert "group 1" in plain and "group 2" in plain and f"1. {tree.answers[0]}" in plain
    assert "forbidden" not in tree.text().split("\n", 1)[1] and "(forbidden" in tree.text(every=True)
    found = json.loads(json.dumps(tree.as_json(), allow_nan=False))
    assert [node["id"] for node in found["nodes"]] == list(range(len(found["nodes"])))
    assert found["nodes"][found["best"][0]]["fate"] == "ended"
    drawn = tree._repr_html_()
    assert drawn.count("<title>") == len(tree.nodes) + 1 and "<svg" in drawn
    assert drawn.count("<line") == sum(node.before >= 0 for node in tree.nodes)


@pytest.mark.parametrize(
    "name, text, how, message",
    [
        ("mlm", "a cat", {}, "which searches for no text"),
        ("demo", ["a", "b"], {}, "a tree belongs to one text"),
        ("demo", " ", {}, "says nothing"),
        ("demo", "the cat", {"reference": " "}, "the reference says nothing"),
        ("demo", "the cat", {"sample": True}, "`sample` is no beam search"),
        ("demo", "the cat", {"beam": 1, "length_alpha": 1.0}, "no effect without `beam`"),
    ],
)
def test_what_has_no_tree_is_refused(load, name, text, how, message):
    with pytest.raises(BadInput, match=message):
        load(name).beam_tree(text, **how)
