"""Searches in turns find what they find at once, whatever others do in between, and leave nothing behind."""

import weakref

import pytest
import torch
from helpers.decoding_cases import EOS, FAMILIES, Case
from helpers.kernel_cases import Eager, fast, shaken, tiny_gpt2

from heedful.decode.beam import beam_search, beam_steps
from heedful.decode.beam_settings import BeamSettings
from heedful.decode.filters import no_repeat_ngram
from heedful.decode.turns import finish

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


def test_a_search_that_is_closed_gives_its_runner_back():
    model, prompts = shaken(tiny_gpt2()), torch.tensor([[1, 2], [3, 4]])
    step = fast(model)
    runners, given = step.runners, {"longest": 12, "eos": None, "settings": BeamSettings(3, 3)}
    prompts = prompts.to(next(model.parameters()).device)
    expected = beam_search(step, prompts, **given)
    del step
    before = set(map(id, runners.free))
    turns = beam_steps(Eager(runners, 16), prompts, **given)
    next(turns), next(turns)
    assert len(runners.free) == len(before) - 1, "no runner is borrowed"
    turns.close()
    assert set(map(id, runners.free)) == before
    again = finish(beam_steps(Eager(runners, 16), prompts, **given))
    assert [[h.tokens for h in row] for row in again] == [[h.tokens for h in row] for row in expected]


def test_searches_on_runners_take_turns_too():
    model = shaken(tiny_gpt2())
    runners, device = fast(model).runners, next(model.parameters()).device
    how = [{"longest": 9 + n, "eos": 3, "settings": BeamSettings(2 + n, 2)} for n in range(3)]
    prompts = [torch.tensor([[1, 2, n], [5, n, 4]], device=device) for n in range(3)]
    expected = [beam_search(Eager(runners, 16), p, **one) for p, one in zip(prompts, how, strict=True)]
    turns = [beam_steps(Eager(runners, 16), p, **one) for p, one in zip(prompts, how, strict=True)]
    found = alternately(*turns)
    assert [[h.tokens for h in row] for some in found for row in some] == [
        [h.tokens for h in row] for some in expected for row in some
    ]
