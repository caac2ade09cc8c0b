"""The loop of a worker: whatever is cancelled or fails, in whatever moment, ends alone."""

import itertools
import time

import pytest
import torch
from helpers.loop_cases import Desk, writing

import heedful
from heedful.service import loop as loops
from heedful.service import writing as writings

TEXTS = ["the cat", "once upon a time there was", "a dog and"]
REQUESTS = {  # what is cancelled, and beside it what is not
    "a row": writing(TEXTS[0], streams=True),
    "several rows": writing(TEXTS[:2], n=2, sample=True, seed=3, streams=True),
    "more rows than there are": writing(TEXTS, n=3, sample=True, seed=4, max_new_tokens=15),
    "echo with scores": writing(TEXTS[1], echoes=True, scored=True, top=2, streams=True),
    "a beam": writing(TEXTS[2], beam=3, max_new_tokens=25),
    "a long prompt": writing(TEXTS[1] * 4, streams=True),
}


@pytest.fixture(autouse=True)
def a_step_a_turn(monkeypatch):
    """Other work does one step in a turn, so that requests are met in every state."""
    monkeypatch.setattr(loops, "TURN", 0.0)
    monkeypatch.setattr(loops, "LEAST", 0.0)
    monkeypatch.setattr(writings, "PACE", 0.0)


@pytest.fixture(scope="module")
def lm(stored):
    return heedful.load(stored / "lm")


@pytest.fixture(scope="module")
def alone(lm):
    """What each request is answered when there is no other."""
    found = {}
    for name, given in REQUESTS.items():
        desk = Desk(lm)
        desk.ask("r", **given)
        desk.finish()
        found[name] = desk.texts("r"), desk.events["r"][-1]
    return found


def test_a_request_is_answered_as_by_the_model_itself(lm, alone):
    for name in ("a row", "a beam", "a long prompt"):
        given = REQUESTS[name]
        assert alone[name][0] == [lm.generate(given["texts"][0], **given["options"])]


def test_a_stream_that_is_written_faster_than_it_is_read_has_fewer_pieces_and_the_same_text(lm, monkeypatch):
    for stop in ([], ["is"]):
        given, found = writing(TEXTS[0], streams=True, scored=True, stop=stop), []
        for pace in (0.0, 600.0):
            monkeypatch.setattr(writings, "PACE", pace)
            desk = Desk(lm)
            desk.ask("a", **given)
            desk.finish()
            *pieces, over = desk.events["a"]
            found.append((desk.texts("a"), [one for event in pieces for one in event["tokens"]]))
            assert (
                over["result"]["answers"][0]["text"]
                == desk.texts("a")[0]
                == lm.generate(TEXTS[0], stop=stop, max_new_tokens=40)
            )
        assert found[0] == found[1] and len(pieces) == 2


def test_where_rows_cannot_join_texts_are_streamed_one_after_the_other(lm, monkeypatch):
    monkeypatch.setattr(loops, "can_write_together", lambda fast: False)
    for options in ({}, {"stop": ["is"]}, {"sample": True, "seed": 3, "temperature": 1.5}):
        desk = Desk(lm)
        desk.ask("a", **writing(TEXTS, streams=True, scored=True, top=2, **options))
        desk.ask("b", **writing(TEXTS[1], streams=True, **options))
        desk.turns(12)
        desk.cancel("b")
        desk.finish()
        assert desk.texts("a") == lm.generate(TEXTS, max_new_tokens=40, **options)
        pieces = [event for event in desk.events["a"] if "piece" in event]
        assert len(pieces) > 20 and all(len(one["top"]) == 2 for event in pieces for one in event["tokens"])
        assert 0 < len(desk.events["b"]) < len(pieces) and desk.calm()


def test_requests_that_come_at_different_moments_are_answered_as_alone(lm, alone):
    desk = Desk(lm)
    for name, given in REQUESTS.items():
        desk.ask(name, **given)
        desk.turns(2)
    desk.finish()
    for name, (texts, over) in alone.items():
        assert desk.texts(name) == texts
        assert desk.events[name][-1]["usage"] == over["usage"] and over["over"]
    assert desk.calm()


@pytest.mark.parametrize("name", REQUESTS)
def test_cancelled_in_any_moment_a_request_leaves_at_once_and_others_do_not_notice(lm, alone, name):
    beside = writing(TEXTS[2], max_new_tokens=5)
    expected = [str(lm.generate(TEXTS[2], max_new_tokens=5))]
    for turns in itertools.chain(range(5), itertools.count(5, 7)):
        desk = Desk(lm)
        desk.ask("gone", **REQUESTS[name])
        desk.turns(turns)
        desk.ask("stays", **beside)
        desk.turns(3)
        over = any("over" in event for event in desk.events.get("gone", ()))
        desk.cancel("gone")
        said = len(desk.events.get("gone", ()))
        desk.turns(1)
        assert len(desk.events.get("gone", ())) == said
        assert "gone" not in desk.loop.tasks and desk.loop.together.rows <= 1
        desk.finish()
        assert desk.texts("stays") == expected and desk.calm()
        if over:
            break
    assert turns > 5


def test_a_search_goes_on_for_the_others_when_one_of_those_merged_into_it_is_cancelled(lm, monkeypatch):
    desk, searched = Desk(lm), []
    write = loops.Loop.while_wanted
    monkeypatch.setattr(
        loops.Loop, "while_wanted", lambda self, some: searched.append(len(some)) or write(self, some)
    )
    given = [writing(text, beam=2, max_new_tokens=9) for text in ("the", *TEXTS)]
    desk.ask("first", **given[0])
    desk.turns(1)
    for number, one in zip("abc", given[1:], strict=True):
        desk.ask(number, **one)
    while len(searched) < 2:
        desk.turns(1)
    desk.cancel("b")
    desk.finish()
    assert searched == [1, 3] and "b" not in desk.events
    for number, text in (("first", "the"), ("a", TEXTS[0]), ("c", TEXTS[2])):
        assert desk.texts(number) == [lm.generate(text, beam=2, max_new_tokens=9)]


def test_a_search_ends_within_one_step_when_nobody_waits_for_it(lm):
    desk = Desk(lm)
    desk.ask("a", **REQUESTS["a beam"])
    desk.turns(1)
    assert desk.loop.searches
    desk.cancel("a")
    desk.loop.work(0)
    assert desk.calm()


def test_beams_of_different_widths_are_not_searched_for_together(lm):
    desk = Desk(lm)
    for width in (2, 4):
        desk.ask(str(width), **writing(TEXTS[0], beam=width, max_new_tokens=12, n_best=2))
    desk.finish()
    for width in (2, 4):
        best = lm.generate(TEXTS[0], beam=width, max_new_tokens=12, n_best=2)
        answer = desk.events[str(width)][-1]["result"]["answers"][0]
        assert [one["text"] for one in answer["n_best"]] == list(map(str, best.n_best))


class Panic(BaseException):
    """As a tokenizer in Rust raises it."""


def failing(monkeypatch, error, after=2):
    """Let requests for "bad" texts fail when this many tokens are written."""
    plan = loops.plan

    def fail(scores_BV, context):
        if context.counts_B[0] >= after:
            raise error
        return scores_BV

    def planned(model, given):
        found = plan(model, given)
        if given["texts"] == ["bad"]:
            object.__setattr__(found.search, "filters", lambda requests: [fail])
        return found

    monkeypatch.setattr(loops, "plan", planned)


@pytest.mark.parametrize(
    "error", [ValueError("secret"), MemoryError(), Panic("secret"), heedful.BadInput("why")]
)
@pytest.mark.parametrize("beam", [1, 2])
def test_an_error_in_a_filter_ends_its_request_and_the_worker_goes_on(
    lm, alone, monkeypatch, error, beam, capfd
):
    failing(monkeypatch, error)
    desk = Desk(lm)
    desk.ask("bad", **writing("bad", beam=beam, n=2 if beam == 1 else 1))
    desk.ask("good", **REQUESTS["a row"])
    desk.finish()
    found = desk.fault("bad")
    kinds = {MemoryError: 503, heedful.BadInput: 400}
    assert found["status"] == kinds.get(type(error), 500)
    assert "secret" not in found["message"] and "secret" not in capfd.readouterr().err
    if not isinstance(error, Panic) or beam == 2:  # after a panic nobody knows what the rows hold
        assert desk.texts("good") == alone["a row"][0]
    desk.ask("next", **REQUESTS["a row"])
    desk.finish()
    assert desk.texts("next") == alone["a row"][0] and desk.calm()


def merged(lm, monkeypatch):
    """A desk where a search is under way and three requests wait to be searched for together."""
    desk, together = Desk(lm), []
    write = loops.Loop.while_wanted

    def noted(self, some):
        together.append([task.number for task in some])
        return write(self, some)

    monkeypatch.setattr(loops.Loop, "while_wanted", noted)
    for number, text in zip("zabc", ("the", *TEXTS), strict=True):
        desk.ask(number, **writing(text, beam=2, max_new_tokens=9))
        desk.turns(1)
    return desk, together


def test_where_a_joint_search_fails_one_that_is_cancelled_does_not_end_those_behind_it(lm, monkeypatch):
    monkeypatch.setattr(loops, "SEARCHED", 3)
    desk, together = merged(lm, monkeypatch)
    write, joint = loops.Loop.while_wanted, []

    def failing_together(self, some):
        if len(some) > 1:
            joint.append(len(some))
            raise MemoryError
        return write(self, some)

    monkeypatch.setattr(loops.Loop, "while_wanted", failing_together)
    while together[-1] != ["a"]:
        desk.turns(1)
    desk.ask("d", **writing("a", beam=2, max_new_tokens=9))
    desk.cancel("b")
    desk.finish()
    assert joint and "b" not in desk.events and desk.calm()
    for number, text in (("a", TEXTS[0]), ("c", TEXTS[2]), ("d", "a")):
        assert desk.texts(number) == [lm.generate(text, beam=2, max_new_tokens=9)]


def test_an_answer_that_cannot_be_made_text_does_not_end_those_that_were_found_with_it(lm, monkeypatch):
    desk, together = merged(lm, monkeypatch)
    found = writings.WriteTask.found

    def failing_at_b(self, hypotheses):
        if self.number == "b":
            raise Panic("secret")
        return found(self, hypotheses)

    monkeypatch.setattr(writings.WriteTask, "found", failing_at_b)
    desk.finish()
    assert ["a", "b", "c"] in together and desk.fault("b")["status"] == 500 and desk.calm()
    for number, text in (("a", TEXTS[0]), ("c", TEXTS[2])):
        assert desk.texts(number) == [lm.generate(text, beam=2, max_new_tokens=9)]


def test_where_memory_ends_all_rows_end_with_503_and_later_ones_are_written(lm, alone, monkeypatch):
    desk = Desk(lm)
    for number in "ab":
        desk.ask(number, **REQUESTS["a row"])
    desk.turns(5)
    head = desk.loop.together.slots.decoder.head

    def full(*given):
        monkeypatch.undo()
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 TiB")

    monkeypatch.setattr(type(head), "forward", full)
    desk.turns(1)
    assert [desk.fault(number)["status"] for number in "ab"] == [503, 503]
    desk.ask("c", **REQUESTS["a row"])
    desk.finish()
    assert desk.texts("c") == alone["a row"][0] and desk.calm()


def test_answers_that_end_together_are_sent_in_frames_of_few_tokens(lm, monkeypatch):
    """A frame has a greatest length, and a worker that sends a longer one is taken for broken."""
    given, desks = writing([TEXTS[0]] * 3, scored=True, top=2, max_new_tokens=7), []
    for most in (2048, 15):
        monkeypatch.setattr(loops, "TOKENS", most)
        desks.append(desk := Desk(lm))
        desk.ask("r", **given)
        desk.finish()
    whole, parted = ([tokens_of(frame) for frame in desk.frames if tokens_of(frame)] for desk in desks)
    assert whole == [21] and parted == [14, 7]
    assert desks[0].events == desks[1].events


def test_tokens_with_scores_are_spelled_as_they_come_and_not_all_in_one_turn(lm, monkeypatch):
    spelled, most = [], 0
    entry = writings.Speller.entry
    monkeypatch.setattr(writings, "CHUNK", 5)
    monkeypatch.setattr(writings.Speller, "entry", lambda *given: spelled.append(1) or entry(*given))
    desk = Desk(lm)
    desk.ask("r", **writing(TEXTS[1] * 4, scored=True, top=2, echoes=True, max_new_tokens=23))
    while desk.loop.busy:
        before = len(spelled)
        desk.turns(1)
        most = max(most, len(spelled) - before)
    assert most <= 10 and len(spelled) > 40  # a turn has a part of new work and a part of older
    assert [len(event["tokens"]) for event in desk.events["r"] if "index" in event] == [len(spelled)]


def tokens_of(frame):
    """How many tokens a frame reports with their scores."""
    return sum(len(event.get("tokens") or ()) for _, event in frame.get("news", ()))


def test_what_cannot_be_read_is_an_answer_too(lm):
    desk = Desk(lm)
    desk.ask("unknown", "dance")
    desk.ask("wrong", **writing("the", temperature=-1.0, sample=True))
    desk.ask("empty", ability="generate")
    desk.finish()
    assert [desk.fault(number)["status"] for number in ("unknown", "wrong", "empty")] == [500, 400, 500]
    assert desk.calm()


def test_other_work_and_tokens_take_turns(lm):
    desk, steps = Desk(lm), []

    def endless(name):
        while True:
            steps.append((name, sum("piece" in event for event in desk.events.get("a", ()))))
            time.sleep(0.001)
            yield None

    for name in ("x", "y"):
        desk.loop.jobs.append(loops.WaitingWork(name, endless(name)))
    desk.ask("a", **REQUESTS["a row"])
    while not any("over" in event for event in desk.events.get("a", ())):
        desk.turns(1)
    between = [[name for name, _ in some] for _, some in itertools.groupby(steps, lambda step: step[1])]
    assert len(between) > 30  # work was done between any two tokens, and by both
    assert {name for some in between for name in some} == {"x", "y"}
    assert max(map(len, between[1:-1])) <= 2  # and not for long


def test_many_requests_are_begun_before_the_next_token(lm):
    desk = Desk(lm, rows=16)
    for number in range(12):
        desk.ask(f"r{number}", **writing(TEXTS[number % 3]))
    desk.loop.work(60)
    assert len(desk.loop.tasks) == 12
    desk.finish()


def test_an_idle_worker_says_that_it_has_no_rows(lm):
    desk = Desk(lm)
    desk.ask("a", **REQUESTS["a row"])
    desk.finish()
    assert desk.frames[-1]["load"]["rows"] == 0
