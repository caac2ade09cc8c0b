"""Continuations equal what the searches of decode give, alone, in batches and as a stream."""

import pytest
import torch
from helpers.loaded_models import HOW, PROMPTS
from helpers.tokenizer_cases import AWKWARD, byte_level

from heedful import BadInput, Loaded
from heedful.decode import filters as f
from heedful.decode.greedy import greedy, greedy_continuation
from heedful.decode.options import decoding_options
from heedful.decode.sampling import sample
from heedful.decode.step import step_of
from heedful.models import gpt2
from heedful.use.pieces import TextSoFar
from heedful.use.search import seed_of
from heedful.use.wording import RunWording

FILTERS = {
    "repetition_penalty": (3.0, f.repetition_penalty),
    "no_repeat_ngram_size": (3, f.no_repeat_ngram),
    "temperature": (2.5, f.temperature),
    "top_k": (2, f.top_k),
    "top_p": (0.6, f.top_p),
    "min_p": (0.2, f.min_p),
}


@pytest.mark.parametrize("name", FILTERS)
def test_each_filter_is_that_of_decode(name, load):
    model, (value, make) = load("lm"), FILTERS[name]
    drawn = (
        {"sample": True, "temperature": 2.5, "seed": 3}
        if decoding_options()[name].use.needs == "sample"
        else {}
    )
    row = model.wording.prompt(["the cat"])[0].ids
    filters = ([f.temperature(2.5)] if drawn else []) + ([] if name == "temperature" else [make(value)])
    how = {"longest": 17, "eos": model.special["eos"], "filters": filters}
    if drawn:
        (expected,) = sample(step_of(model.model), torch.tensor([row]), seed=[seed_of(3, 0)], **how)
    else:
        (expected,) = greedy(step_of(model.model), torch.tensor([row]), **how)
    found = model.generate("the cat", max_new_tokens=17, **(drawn | {name: value}))
    assert found.tokens == model.wording.names(expected.tokens)
    without = {key: held for key, held in drawn.items() if key != name}
    assert found != model.generate("the cat", max_new_tokens=17, **without)


@pytest.mark.parametrize("name", ["lm", "lm-bytes"])
@pytest.mark.parametrize("how", [*HOW[:5], {"beam": 2, "max_new_tokens": 4, "bad_words": ["c"]}])
def test_a_prompt_is_continued_alike_alone_and_among_others(name, how, load):
    model = load(name)
    how = {"max_new_tokens": 11} | how
    whole = model.generate(PROMPTS, **how)
    assert whole == model.generate(PROMPTS, **how, batch=1) == model.generate(PROMPTS, **how, batch=2)
    assert whole[0] == model.generate(PROMPTS[0], **how)


def test_past_the_context_the_oldest_is_forgotten(load):
    model = load("lm")
    for prompt in ("the cat", "the dog ate the fish. th", "the dog ate the fish. t"):
        ids = torch.tensor(model.wording.prompt([prompt])[0].ids)
        expected = greedy_continuation(model.model, ids, 60, model.config.context)
        found = model.generate(prompt, max_new_tokens=60)
        assert found.tokens == model.wording.names(expected) and len(found) == 60
        assert "".join(model.stream(prompt, max_new_tokens=60)) == found
    both = model.generate(["the cat", "the dog ate the fish. t"], max_new_tokens=60)
    assert both[1] == found
    drawn = {"sample": True, "temperature": 2.0, "max_new_tokens": 60, "seed": 3}
    assert model.generate(["the", "the cat"], **drawn)[0] == model.generate("the", **drawn)
    long = "the cat sat on the mat. the dog ate the fish. the cat sat on the mat. the"
    with pytest.warns(UserWarning, match="text 1 has 73 tokens, and the model reads at most 24"):
        assert model.generate(long, max_new_tokens=5) == " dog "
    with pytest.warns(UserWarning, match="it reads the last 12"):
        found = model.generate(long, max_new_tokens=500, beam=2)
    assert len(found.tokens) == 13  # a beam stops where its table is full


def test_an_answer_goes_on_where_its_prompt_ends(load):
    """prompt + answer is the text that all the tokens spell."""
    for name in ("lm", "lm-bytes"):
        model = load(name)
        for prompt in PROMPTS:
            answer = model.generate(prompt, max_new_tokens=7, sample=True)
            ids = model.wording.prompt([prompt])[0].ids
            new = [model.tokenizer.token_to_id(token) for token in answer.tokens if token != "[EOS]"]
            assert prompt + answer == model.wording.decoded([*ids, *new])


@pytest.mark.parametrize("sampled", [{}, {"sample": True, "temperature": 0.7}])
def test_a_draft_changes_the_speed_and_not_the_text(sampled, load):
    model, draft = load("lm"), load("draft")
    how = sampled | {"max_new_tokens": 40}
    with_it = model.generate(PROMPTS, **how, draft=draft, draft_tokens=3)
    assert with_it == model.generate(PROMPTS, **how, draft=draft, draft_tokens=3, batch=2)
    assert with_it[0] == "".join(model.stream(PROMPTS[0], **how, draft=draft, draft_tokens=3))
    if not sampled:
        assert with_it == model.generate(PROMPTS, **how)
    else:  # its own draft: every guess is right, and what is drawn is still a text of the model's
        assert all(len(answer.tokens) == 40 for answer in model.generate(PROMPTS, **how, draft=model))


def test_a_draft_needs_the_same_vocabulary(load):
    with pytest.raises(BadInput, match="a draft needs the same vocabulary"):
        load("lm").generate("the", draft=load("lm-bytes"))


def test_a_greedy_answer_is_that_of_decode(load):
    model = load("lm")
    row = model.wording.prompt(["the cat"])[0].ids
    (found,) = greedy(step_of(model.model), torch.tensor([row]), longest=9, eos=model.special["eos"])
    answer = model.generate("the cat", max_new_tokens=9)
    assert answer.tokens == model.wording.names(found.tokens)
    assert answer.score == pytest.approx(found.score, abs=1e-5)


@pytest.mark.parametrize("name", ["demo", "bytes", "separate", "lm", "lm-bytes"])
@pytest.mark.parametrize("how", [{}, {"sample": True, "temperature": 1.4, "seed": 4}])
def test_a_stream_adds_up_to_the_whole(name, how, load):
    model = load(name)
    do = model.translate if "translate" in model.can else model.generate
    for text in ("the cat", "i am a student"):
        whole = do(text, **({"beam": 1} | how if not how else how), max_new_tokens=17)
        pieces = list(model.stream(text, **how, max_new_tokens=17))
        assert "".join(pieces) == whole and all(pieces)
    assert "translate" not in model.can or list(model.stream("")) == []


def pieces_of(words, ids, prompt=()) -> list[str]:
    text = TextSoFar(words, prompt)
    return [piece for piece in (*(text.add(token)[0] for token in ids), text.rest()) if piece]


def test_no_piece_of_a_stream_ends_inside_a_character():
    config = gpt2.GPT2Config(vocab=400, context=11, layers=1, width=12, heads=3, ffn_width=20)
    words = RunWording(Loaded("gpt2", config, gpt2.build(config), byte_level(), {}), "here")
    for text in AWKWARD:
        ids = words.prompt([text])[0].ids
        for at in (0, 1, len(ids) // 2):
            pieces = pieces_of(words, ids[at:], ids[:at])
            assert "".join(pieces) == words.text(ids[at:], ids[:at])
            before = words.decoded(ids[:at])
            known = before if text.startswith(before) else before.rstrip("\ufffd")
            assert known + "".join(pieces) == text.replace("<|endoftext|>", "")
            assert "\ufffd" in text or not any("\ufffd" in piece for piece in pieces)
    half = words.prompt(["猫"])[0].ids[:1]
    assert pieces_of(words, half) == ["\ufffd"]  # nothing follows: it is given as it is
