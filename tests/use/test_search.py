"""Every search can take turns with others: it finds the same, and a search that is dropped leaves nothing."""

import weakref

import pytest
import torch
from helpers.loaded_models import PROMPTS, SOURCES

from heedful import BadInput
from heedful.decode.filters import Context
from heedful.decode.options import DecodingOptions
from heedful.decode.step import DecoderStep
from heedful.decode.turns import finish
from heedful.use import generate, translate
from heedful.use.search import search_of

TRANSLATIONS = [
    {"beam": 3, "n_best": 2},
    {"beam": 2, "beam_groups": 2, "diversity_penalty": 0.7},
    {"coverage_penalty": 0.3, "align": True},
    {"sample": True, "seed": 5},
]
CONTINUATIONS = [{"draft": "draft"}, {"draft": "draft", "sample": True}, {"beam": 2}, {"stop": ["a"]}]


@pytest.fixture
def searches(load):
    """(what begins a search in turns, what it finds at once) of every kind."""
    found = []
    for command, name, texts, options in [
        *((translate, "demo", SOURCES[:4], one) for one in TRANSLATIONS),
        *((generate, "lm", PROMPTS[:3], one) for one in CONTINUATIONS),
    ]:
        model, numbers = load(name), range(len(texts))
        options = {key: load(x) if key == "draft" else x for key, x in options.items()} | {"batch": 2}
        how = model.decoding(command.__name__.split(".")[-1], options | {"max_new_tokens": 9})
        given = model, command.encode(model, texts), how, numbers
        found.append(
            (lambda given=given, command=command: command.write_in_turns(*given), command.write(*given))
        )
    return found


def test_searches_of_all_kinds_take_turns_and_find_what_they_find_alone(searches):
    going = [(begin(), expected) for begin, expected in searches]
    while going:
        for one in list(going):
            turns, expected = one
            try:
                next(turns)
            except StopIteration as end:
                assert end.value == expected
                assert [a.n_best for a in end.value] == [a.n_best for a in expected]
                assert [a.log_probabilities for a in end.value] == [a.log_probabilities for a in expected]
                assert [a.alignment for a in end.value] == [a.alignment for a in expected]
                going.remove(one)


def test_searches_that_are_dropped_leave_nothing_and_disturb_nothing(searches, monkeypatch):
    alive, make = weakref.WeakSet(), DecoderStep.__init__

    def counted(step, *given, **options):
        alive.add(step)
        make(step, *given, **options)

    monkeypatch.setattr(DecoderStep, "__init__", counted)
    for begin, expected in searches:
        for turns in (1, 2, 4):
            dropped = begin()
            for _ in range(turns):
                next(dropped)
            assert alive
            dropped.close()
            assert not alive
        assert finish(begin()) == expected


def test_penalties_count_the_whole_answer_when_the_position_table_is_full(load):
    model = load("lm")
    (row,) = generate.encode(model, ["the cat"])
    (request,) = generate.requests(model, [row], DecodingOptions(max_new_tokens=90), [0])
    search = search_of(model, DecodingOptions(frequency_penalty=0.5))
    answer = [3, 5, 5] * 25
    part = search.within(request, [*request.prompt, *answer])
    assert len(part.prompt) < len(answer) and part.written == len(answer)
    (lower,) = search.filters([part])
    found = lower(torch.zeros(1, model.config.vocab), Context.prompts(torch.tensor([part.prompt]), None))
    assert found[0, 3:7].tolist() == [-12.5, 0, -25, 0]


@pytest.mark.parametrize("options", [{}, {"sample": True, "seed": 4}, {"draft": "draft"}, {"batch": 1}])
def test_answers_have_the_likeliest_tokens_of_the_models_own_distribution(options, load):
    model = load("lm")
    options = {key: load(x) if key == "draft" else x for key, x in options.items()}
    how = options | {"max_new_tokens": 7, "repetition_penalty": 1.5}
    answers, plain = model.generate(PROMPTS[:2], top=3, **how), model.generate(PROMPTS[:2], **how)
    for text, answer, other in zip(PROMPTS[:2], answers, plain, strict=True):
        assert answer == other and other.top == []
        ids = model.wording.prompt([text])[0].ids
        for n, some in enumerate(answer.top):
            written = [model.wording.writes.token_to_id(token) for token in answer.tokens[:n]]
            log_p = model.model(torch.tensor([[*ids, *written]]))[0, -1].log_softmax(-1)
            values, tokens = log_p.topk(3)
            assert [one.token for one in some] == model.wording.names(tokens.tolist())
            assert [one.log_probability for one in some] == pytest.approx(values.tolist(), abs=1e-4)
        assert len(answer.top) == len(answer.tokens)


def test_the_likeliest_tokens_are_refused_where_there_are_none(load):
    with pytest.raises(BadInput, match="`top` works with one hypothesis: give a `beam` of 1"):
        load("demo").translate("the cat", top=2)
    assert len(load("demo").translate("the cat", top=2, beam=1).top[0]) == 2
    with pytest.raises(BadInput, match="a stream is text alone"):
        load("lm").stream("the cat", top=2)
