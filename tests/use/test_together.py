"""Answers that are written together say what each says alone, whatever its options are."""

import random

import pytest
from helpers.loaded_models import PROMPTS, SOURCES

from heedful.decode.options import DecodingOptions
from heedful.use import generate, translate
from heedful.use.together import Together, Writing

DRAWN = {"sample": True, "temperature": 1.6, "seed": 8}
OPTIONS = [
    {},
    {"presence_penalty": 1.7, "frequency_penalty": 0.6, **DRAWN},
    {"logit_bias": {4: 1.5, 6: -100, 9: 0.3}},
    {"min_new_tokens": 14, "no_repeat_ngram_size": 2},
    {"repetition_penalty": 1.3, "bad_words": ["a"]},
    {"encoder_no_repeat_ngram_size": 2, **DRAWN, "top_k": 5, "top_p": 0.9, "min_p": 0.01},
    {"suppress_tokens": (5, 7), "begin_suppress_tokens": (8,), "forced_last": (3,)},
    {"stop": ["t", "zz"], **DRAWN},
]


def requested(model, command, text: str, options: dict, number: int) -> Writing:
    how = DecodingOptions(**{"max_new_tokens": 17, "beam": 1} | options)
    (request,) = command.requests(model, command.encode(model, [text]), how, [number])
    search = command.search_for(model, how)
    return Writing(request, search, search.text_so_far(request), tag=[])


@pytest.mark.parametrize("name", ["demo", "lm"])
def test_every_option_means_for_rows_that_join_what_it_means_alone(name, load):
    model, dice = load(name), random.Random(name)
    command, texts = (translate, SOURCES[:4]) if name == "demo" else (generate, PROMPTS[:4])
    known = {} if name == "lm" else {"bad_words": ["le"], "stop": ["a", "zz"]}
    options = [{key: known.get(key, x) for key, x in one.items()} for one in OPTIONS]
    options += [{"prefix": "le chien"}, {"prefix": "je", "min_new_tokens": 9}] if name == "demo" else []
    waiting, done, expected = [], {}, {}
    for number, one in enumerate(options):
        text = texts[number % len(texts)]
        waiting.append(requested(model, command, text, one, number))
        alone = requested(model, command, text, one, number)
        (found,) = alone.search.write([alone.request])
        expected[waiting[-1]] = found[0].tokens, alone_text(model, alone, found[0])
    together = Together(model.writing, most=4, prefill=9)
    left = list(waiting)
    while left or together.busy:
        for _ in range(min(len(left), dice.choice([0, 1, 2]))):
            together.add(left.pop(0))
        for piece in together.turn():
            assert piece.error is None
            piece.writing.tag.append(piece.writing.take(whole=bool(piece.finish)))
            if piece.finish:
                done[piece.writing] = piece.finish
    assert done.keys() == expected.keys() and {"stop", "length"} >= set(done.values())
    for writing, (tokens, text) in expected.items():
        assert writing.ids[len(writing.request.prompt) :] == tokens
        assert "".join(writing.tag) == text


def test_pieces_come_when_they_are_due_and_at_the_end_with_every_token(load):
    model = load("lm")
    later, never, scored = (requested(model, generate, PROMPTS[n], {}, n) for n in range(3))
    later.due, never.due, scored.due, scored.top, scored.plain = 7.0, 99.0, 99.0, 2, False
    together, seen = Together(model.writing, most=3), []
    for writing in (later, never, scored):
        together.add(writing)
    clock = 0.0
    while together.busy:
        seen += [(piece.writing, clock, piece.finish) for piece in together.turn(clock)]
        clock += 1
    assert [at for one, at, _ in seen if one is later] == list(range(7, len(later.tokens)))
    assert [finish for one, _, finish in seen if one is not later] == ["length", "length"]
    for writing in (later, never, scored):
        ((found,),) = writing.search.write([writing.request])
        assert writing.tokens == found.tokens
        assert writing.log_probabilities == pytest.approx(found.log_probabilities, rel=1e-4)
    assert [tops[0][0] for tops in scored.tops] == scored.tokens and len(scored.tops[4]) == 2


def alone_text(model, alone: Writing, found) -> str:
    before = alone.request.prompt if alone.request.continues else ()
    text = model.wording.text(found.words, before)
    cut = alone.search.stops.cut(text)
    return text if cut is None else cut
