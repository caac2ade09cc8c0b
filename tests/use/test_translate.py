"""Translations equal what the searches of decode give, alone and in batches."""

from pathlib import Path

import pytest
import torch
from helpers.loaded_models import HOW, SOURCES
from helpers.small_runs import (
    PAIRS,
)

from heedful.decode.beam import beam_search
from heedful.decode.beam_settings import BeamSettings
from heedful.decode.prompts import pad
from heedful.decode.sampling import sample
from heedful.decode.step import step_of
from heedful.tasks import translate as translate_task
from heedful.tasks import translate_data
from heedful.use import search
from heedful.use.search import seed_of


@pytest.mark.parametrize("name", ["demo", "bytes", "separate"])
def test_greedy_translations_are_those_that_training_is_judged_by(name, load):
    model = load(name)
    vocab = translate_data.read_vocabs(Path(model.folder), name != "separate")
    expected = translate_task.translate(model.model, vocab, SOURCES)
    assert model.translate(SOURCES, beam=1) == expected
    assert name != "demo" or expected[: len(PAIRS)] == list(PAIRS.values())


def direct(model, source: str, settings: BeamSettings) -> list:
    words = model.wording
    row = words.source([source])[0].ids
    step = step_of(model.model, *pad([row]), watched=bool(settings.coverage_penalty))
    prompt = torch.tensor([[model.special["decoder_start"]]])
    (found,) = beam_search(
        step, prompt, longest=2 * len(row) + 20, eos=model.special["eos"], settings=settings
    )
    return found


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"beam": 2},
        {"beam": 3, "n_best": 3, "length_penalty": "power", "length_alpha": 1.5},
        {"stopping": "exact", "n_best": 2},
        {"coverage_penalty": 0.7, "n_best": 4},
        {"beam": 2, "beam_groups": 3, "diversity_penalty": 0.8, "n_best": 6},
    ],
)
def test_a_beam_is_the_beam_search_of_decode(options, load):
    model = load("demo")
    settings = BeamSettings(
        **({"width": options.get("beam", 4)} | {k: v for k, v in options.items() if k != "beam"})
    )
    for source, answer in zip(SOURCES, model.translate(SOURCES, **options, batch=3), strict=True):
        found = direct(model, source, settings)
        assert [str(one) for one in answer.n_best] == [model.wording.decoded(one.words) for one in found]
        for mine, theirs in zip(answer.n_best, found, strict=True):
            assert mine.score == pytest.approx(theirs.score, abs=1e-5)
            assert mine.log_probabilities == pytest.approx(theirs.log_probabilities, abs=1e-5)
            assert mine.tokens == model.wording.names(theirs.tokens) and mine.ended == theirs.ended
        assert answer is answer.n_best[0] and answer.log_probability == sum(answer.log_probabilities)


@pytest.mark.parametrize("how", [*HOW, {"prefix": "le chien", "beam": 2}, {"sample": True, "prefix": "je"}])
def test_a_text_is_answered_alike_alone_and_among_others(how, load):
    model = load("demo")
    whole = model.translate(SOURCES, **how)
    assert whole == model.translate(SOURCES, **how, batch=1) == model.translate(SOURCES, **how, batch=3)
    if not how.get("sample"):
        assert whole == [model.translate(source, **how) for source in SOURCES]
        assert model.translate(SOURCES[::-1], **how) == whole[::-1]
    if how.keys() & {"sample", "forbid", "prefix"}:
        assert whole != model.translate(SOURCES, beam=1)


def test_what_is_drawn_depends_on_the_seed_and_on_the_place_only(load):
    model = load("demo")
    row = model.wording.source([SOURCES[1]])[0].ids
    for place in (0, 3):
        step = step_of(model.model, *pad([row]))
        start = torch.tensor([[model.special["decoder_start"]]])
        expected = sample(
            step, start, longest=2 * len(row) + 20, eos=model.special["eos"], seed=[seed_of(8, place)]
        )
        texts = [SOURCES[0]] * place + [SOURCES[1]]
        found = model.translate(texts, sample=True, seed=8)[place]
        assert found.tokens == model.wording.names(expected[0].tokens)
    assert model.translate(["the dog"] * 9, sample=True, temperature=3.0) != model.translate(
        ["the dog"] * 9, sample=True, temperature=3.0, seed=1
    )


def test_filters_do_what_they_say(load):
    model = load("demo")
    source = "the cat sleeps"
    assert model.translate(source, bad_words=["chat"]) == "le chien dort"
    assert model.translate(source, prefix="le chien mange").startswith("le chien mange")
    assert len(model.translate(source, max_new_tokens=2, beam=1).tokens) == 2
    assert not model.translate(source, max_new_tokens=2, beam=1).ended


def test_an_empty_text_has_an_empty_translation(load):
    found = load("demo").translate(["", "the cat sleeps", " \t"])
    assert found == ["", "le chat dort", ""] and found[0].tokens == [] and found[0].n_best == [found[0]]
    assert load("demo").translate([]) == []


def test_batches_hold_a_bounded_number_of_tokens(load, monkeypatch):
    """However many texts a batch may have, long ones go in smaller batches."""
    sizes = []
    whole = search.Search.together

    def counted(self, given, prefill):
        sizes.append(len(given))
        return whole(self, given, prefill)

    monkeypatch.setattr(search.Search, "together", counted)
    monkeypatch.setattr(search, "MOST_TOKENS", 48)
    model = load("demo")
    expected = [model.translate(source, beam=3) for source in SOURCES]
    sizes.clear()
    assert model.translate(SOURCES, beam=3) == expected
    assert sum(sizes) == len(SOURCES) and max(sizes) < len(SOURCES)
