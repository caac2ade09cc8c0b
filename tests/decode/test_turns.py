"""Searches in turns find what they find at once, whatever others do in between, and leave nothing behind."""

import weakref

import pytest
import torch
from helpers.decoding_cases import EOS, FAMILIES, Case
from helpers.kernel_cases import DEVICE, Eager, fast, shaken, tiny_gpt2

from heedful.decode.beam import beam_search, beam_steps
from heedful.decode.beam_settings import BeamSettings
from heedful.decode.filters import no_repeat_ngram
from heedful.decode.turns import finish
from heedful.parts.masks import full

SEARCHES = {
    "plain": {"settings": BeamSettings(3, 2)},
    "groups": {"settings": BeamSettings(2, 3, beam_groups=2, diversity_penalty=0.5)},
    "filtered": {"settings": BeamSettings(4, 1), "filters": [no_repeat_ngram(2)]},
}


def alternately(*turns):
    """The results of several searches, each of which makes one step at a time."""
    results, going = [None] * len(turns), dict(enumerate(turns))
    while going:
        for number, one in list(going.items()):
            try:
                next(one)
            except StopIteration as end:
                results[number] = end.value
                del going[number]
    return results


@pytest.mark.parametrize("name", FAMILIES)
def test_searches_that_take_turns_find_what_each_finds_alone(name):
    case = Case(name)
    how = [{**one, "longest": 5 + n, "eos": EOS} for n, one in enumerate(SEARCHES.values())]
    expected = [beam_search(case.step(), case.prompts, case.lengths, **one) for one in how]
    turns = [beam_steps(case.step(), case.prompts, case.lengths, **one) for one in how]
    assert alternately(*turns) == expected


def test_a_turn_is_one_step_and_gradients_are_kept_in_between():
    case, fed = Case("gpt2"), []
    step = case.step()
    last = step.last
    step.last = lambda *given: fed.append(1) or last(*given)
    turns = beam_steps(step, case.prompts, case.lengths, longest=6, eos=None, settings=BeamSettings(3))
    with torch.enable_grad():
        for n, _ in enumerate(turns, 1):
            assert len(fed) == n and torch.is_grad_enabled()
    assert len(fed) == 6


@pytest.mark.parametrize("name", [*FAMILIES, "prefix-lm"])
def test_prompts_are_read_a_few_tokens_in_a_turn(name):
    case, sizes = Case(name) if name != "prefix-lm" else Case("gpt2"), []
    if name == "prefix-lm":  # where tokens see those that follow, prompts are read at once
        case.model.masks = (full(),)
    how = {"longest": 4, "eos": None, "settings": BeamSettings(3, 2)}
    for lengths in (case.lengths, None):
        expected = beam_search(case.step(), case.prompts, lengths, **how)
        step = case.step()
        last = step.last
        step.last = lambda tokens, *given, last=last: sizes.append(tokens.shape[1]) or last(tokens, *given)
        found = finish(beam_steps(step, case.prompts, lengths, prefill=5, **how))
        assert [[h.tokens for h in row] for row in found] == [[h.tokens for h in row] for row in expected]
        scores = [h.score for row in found for h in row]
        assert scores == pytest.approx([h.score for row in expected for h in row], abs=1e-9)
    parts = [4] if name == "prefix-lm" else [1, 1, 1, 1]
    assert sizes == [*parts, 1, 1, 1] * 2


@pytest.mark.parametrize("steps", [1, 3])
def test_a_search_that_is_closed_leaves_nothing_behind(steps):
    case = Case("transformer")
    step = case.step()
    gone = weakref.ref(step)
    turns = beam_steps(step, case.prompts, case.lengths, longest=9, eos=None, settings=BeamSettings(3))
    del step
    for _ in range(steps):
        next(turns)
    assert gone() is not None
    turns.close()
    assert gone() is None


def on_runners(runners, number: int):
    """A search whose steps are kernels."""
    prompts = torch.tensor([[1, 2, number]], device=DEVICE)
    return beam_steps(Eager(runners, 8), prompts, longest=4 + number, eos=3, settings=BeamSettings(2, 2))


@pytest.mark.slow  # kernels are interpreted where there is no GPU
def test_searches_on_runners_take_turns_and_give_their_runners_back():
    runners = fast(shaken(tiny_gpt2())).runners
    expected = [finish(on_runners(runners, number)) for number in range(2)]
    before = set(map(id, runners.free))
    closed, *turns = (on_runners(runners, number) for number in (2, 0, 1))
    next(closed), next(turns[0])
    assert len(before & set(map(id, runners.free))) < len(before), "no runner is borrowed"
    closed.close()
    found = alternately(*turns)
    assert [[h.tokens for h in row] for some in found for row in some] == [
        [h.tokens for h in row] for some in expected for row in some
    ]
    del closed, turns
    assert before <= set(map(id, runners.free)) and len(runners.free) == len(set(map(id, runners.free)))
