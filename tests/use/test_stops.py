"""Stop strings end an answer exactly before themselves: alone, in a batch, streamed, drawn, with a draft."""

import pytest
from helpers.loaded_models import copied

import heedful
from heedful import BadInput

TEXTS = ["the cat", "i am a", "the dog eats", "we"]
LONG = {"max_new_tokens": 23}


@pytest.fixture
def whole(theirs, tmp_path):
    """A model of letters and parts of words, and what it writes after each text."""
    _, model, tokenizer = theirs("gpt2")
    plain = {number for token, number in tokenizer.get_vocab().items() if token.strip("Ġ").isascii()}
    odd = [number for number in range(model.config.vocab) if number not in plain or number == 0]
    copied(model, tmp_path, suppress_tokens=odd, no_repeat_ngram_size=1)
    model = heedful.load(tmp_path)
    answers = model.generate(TEXTS, **LONG)
    assert all(len(set(answer)) > 9 for answer in answers)
    return model, answers


def before(text: str, *stops: str) -> str:
    return text[: min(text.find(stop) for stop in stops if stop in text)]


def test_an_answer_ends_before_a_stop_string_wherever_tokens_begin(whole):
    model, answers = whole
    text = answers[0]
    for start in range(0, len(text) - 4, 3):
        for size in (1, 3, 4):
            stop = text[start : start + size]
            found = model.generate(TEXTS[0], stop=[stop], **LONG)
            assert found == before(text, stop) and found.ended
            assert "".join(model.stream(TEXTS[0], stop=[stop], **LONG)) == found
            assert found.tokens == answers[0].tokens[: len(found.tokens)]


def test_the_first_of_several_stop_strings_ends_each_row_of_a_batch(whole):
    model, answers = whole
    stops = [answers[1][9:11], answers[2][15:17], answers[0][20:22], "no model writes this"]
    found = model.generate(TEXTS, stop=stops, batch=3, **LONG)
    assert found == [
        before(text, *stops) if any(stop in text for stop in stops) else text for text in answers
    ]
    assert found == [model.generate(text, stop=stops, **LONG) for text in TEXTS]
    assert any(len(one.tokens) < 23 for one in found), "writing goes on after the stop string"


def test_stop_strings_end_what_is_drawn_and_what_a_draft_proposes(whole):
    model, answers = whole
    drawn = model.generate(TEXTS, sample=True, seed=5, **LONG)
    stop = drawn[1][8:10]
    found = model.generate(TEXTS, sample=True, seed=5, stop=[stop], **LONG)
    assert found == [before(text, stop) if stop in text else text for text in drawn]
    stop = answers[2][12:14]
    drafted = model.generate(TEXTS, draft=model, draft_tokens=5, stop=[stop], **LONG)
    assert drafted == [before(text, stop) if stop in text else text for text in answers]


def test_a_special_token_can_be_a_stop_string(theirs):
    _, model, tokenizer = theirs("llama")
    text = model.generate("the cat", folder_settings="ignore", **LONG)
    assert model.generate("the cat", stop=["<|endoftext|>"], folder_settings="ignore", **LONG) == text
    search = heedful.use.search.search_of(model, model.decoding("generate", {"stop": ["<|endoftext|>"]}))
    assert search.ends == [*model.wording.ends, tokenizer.token_to_id("<|endoftext|>")]


@pytest.mark.parametrize(
    "options, words",
    [
        ({"stop": [""]}, "an empty stop string would end every answer at once"),
        ({"stop": "end"}, 'takes a list of words: ["end"]'),
        ({"stop": ["end"], "beam": 2}, "`stop` works with one hypothesis"),
    ],
)
def test_stop_strings_that_make_no_sense_are_refused(options, words, whole):
    with pytest.raises(BadInput) as refused:
        whole[0].generate("the cat", **options)
    assert words in str(refused.value)
