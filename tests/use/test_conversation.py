"""Conversations: every answer is that of the whole conversation, whatever is kept between answers."""

import pytest
from helpers.chat_cases import CHATML, LLAMA2, folder, tell  # noqa: F401

import heedful
from heedful.decode.step import DecoderStep
from heedful.use.conversation import Conversation

SAID = ["what is a mat?", "a rug", "is it? 猫", "what", "a mat is a rug"]


def turns(talk, messages):
    """The answers to messages, one after the other."""
    found = []
    for text in messages:
        talk.say(text)
        found.append("".join(talk.answer()))
    return found


@pytest.fixture
def fed(monkeypatch):
    """Counts the tokens that models are fed."""
    counts, known = [], DecoderStep.hidden

    def hidden(self, tokens_BT, lengths_B):
        counts.append(tokens_BT.shape[1])
        return known(self, tokens_BT, lengths_B)

    monkeypatch.setattr(DecoderStep, "hidden", hidden)
    return counts


@pytest.mark.parametrize(
    "options", [{}, {"sample": True, "seed": 5, "top_k": 9}, {"stop": ["a", "<|im_end|>"]}]
)
def test_each_answer_is_that_to_the_whole_conversation(options, folder, fed):
    tell(folder, CHATML)
    model, options = heedful.load(folder), {"max_new_tokens": 11, **options}
    talk = Conversation(model, options, system="be brief")
    found, read = turns(talk, SAID), sum(fed)
    said = [{"role": "system", "content": "be brief"}]
    for text, answer in zip(SAID, found, strict=True):
        said.append({"role": "user", "content": text})
        if not options.get("sample"):
            assert answer == model.generate(model.chat_prompt(said), **options)
        said.append({"role": "assistant", "content": answer})
    assert said[1:] == talk.messages
    fed.clear()
    again = Conversation(model, options, system="be brief", keep=False)
    assert turns(again, SAID) == found and read < 0.6 * sum(fed)


def test_other_answers_and_other_beginnings_are_read_from_where_they_differ(folder, fed):
    tell(folder, CHATML)
    model, options = heedful.load(folder), {"max_new_tokens": 7, "sample": True, "seed": 2}
    talk, plain = Conversation(model, options), Conversation(model, options, keep=False)
    for one in (talk, plain):
        turns(one, SAID[:2])
        assert one.forget_answer()
        one.found = ["".join(one.answer())]
        assert one.take_back() and len(one.messages) == 2
        one.found += turns(one, SAID[2:3])
        one.set_system("a new beginning")
        one.found += turns(one, SAID[3:4])
        one.clear()
        one.found += turns(one, SAID[4:])
    assert talk.found == plain.found and talk.messages == plain.messages
    assert talk.system == "a new beginning"


def test_a_step_that_is_interrupted_leaves_nothing_half_read(folder, monkeypatch):
    tell(folder, CHATML)
    model = heedful.load(folder)
    talk = Conversation(model, {"max_new_tokens": 5})
    turns(talk, SAID[:1])
    known, calls = DecoderStep.last, []

    def last(self, *args):
        calls.append(known(self, *args))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return calls[-1]

    monkeypatch.setattr(DecoderStep, "last", last)
    talk.say(SAID[1])
    with pytest.raises(KeyboardInterrupt):
        list(talk.answer())
    monkeypatch.setattr(DecoderStep, "last", known)
    (answer,) = turns(talk, SAID[2:3])
    assert answer == model.generate(model.chat_prompt(talk.messages[:-1]), max_new_tokens=5)


def test_the_oldest_turns_are_left_out_when_the_context_is_full_and_the_system_prompt_never_is(folder):
    tell(folder, CHATML)
    model = heedful.load(folder)
    talk = Conversation(model, {"max_new_tokens": 40}, system="stay " * 30)
    assert talk.context == 999
    notes = []
    for n in range(9):
        turns(talk, [f"{n} " + "what is a mat? " * 6])
        row = talk.row(talk.first)
        notes.append(talk.note)
        assert len(row.ids) <= 999 and talk.rendered(talk.messages[talk.first :]).count("stay ") == 30
    assert talk.first > 0 and talk.first % 2 == 0 and len(talk.messages) == 18
    assert not notes[0] and notes[-1].startswith(
        "the context of 999 tokens is full: the model no longer reads"
    )
    before = list(talk.messages)
    talk.say("x" * 2000)
    with pytest.raises(heedful.BadInput, match=r"has 2,\d+ tokens with all .* reads at most 999: shorten it"):
        talk.answer()
    assert talk.take_back() and talk.messages == before


def test_an_answer_ends_with_the_context_and_says_why(folder):
    tell(folder, CHATML)
    how = {"max_new_tokens": 700, "min_new_tokens": 700}
    talk = Conversation(heedful.load(folder), how, system="x" * 600)
    talk.say("hello")
    prompt = len(talk.row(0).ids)
    seen = []
    list(talk.answer(lambda: seen.append("a token")))
    assert len(seen) == 999 - prompt + 1
    assert talk.cut == "the answer ends here: the context of 999 tokens is full"
    talk = Conversation(talk.model, {"max_new_tokens": 3})
    turns(talk, ["hello"])
    assert talk.cut == "the answer ends here: it has 3 tokens, the most that --max-new-tokens allows"


def test_a_stopped_answer_keeps_what_was_said(folder):
    tell(folder, CHATML)
    talk = Conversation(heedful.load(folder), {"max_new_tokens": 60, "sample": True})
    talk.say("hello")
    seen = []
    for piece in talk.answer(lambda: len(seen) >= 4):
        seen.append(piece)  # noqa: PERF402 (the stop looks at it meanwhile)
    assert len(seen) <= 6 and talk.messages[1:] == [{"role": "assistant", "content": "".join(seen)}]
    assert not talk.cut


def test_a_model_without_a_template_goes_on_with_the_text(folder):
    model = heedful.load(folder)
    talk = Conversation(model, {"max_new_tokens": 6})
    first, second = turns(talk, ["what is", "a rug"])
    assert first == model.generate("what is", max_new_tokens=6)
    assert second == model.generate(f"what is{first}\na rug", max_new_tokens=6)
    assert "".join(talk.answer()) == model.generate(f"what is{first}\na rug{second}", max_new_tokens=6)
    long = "what is a mat? " * 170  # more than the context of 999
    (answer,) = turns(talk, [long])
    assert answer == model.generate(long, max_new_tokens=6) and "no longer reads the first 5" in talk.note
    with pytest.raises(heedful.BadInput, match="has no chat template, so it takes no system prompt"):
        Conversation(model, {}, system="x")


def test_what_a_template_refuses_is_refused_at_once(folder):
    tell(
        folder,
        LLAMA2.replace("{%- set loop_messages = messages[1:] %}", "{{ raise_exception('no system') }}"),
    )
    model = heedful.load(folder)
    with pytest.raises(heedful.BadInput, match="refuses it: no system"):
        Conversation(model, {}, system="x")
    talk = Conversation(model, {"max_new_tokens": 2})
    with pytest.raises(heedful.BadInput, match="refuses it: no system"):
        talk.set_system("x")
    assert talk.system == "" and turns(talk, ["hello"]) == [talk.messages[1]["content"]]
    with pytest.raises(heedful.BadInput, match="it cannot chat: leave out `beam`"):
        Conversation(model, {"beam": 2})
