"""Decoding with models for long texts: beams, drafts and waiting rows reorder and cut caches."""

import pytest
import torch
from helpers import decoding_cases, tiny
from helpers.decoding_cases import EOS, Case
from helpers.long_cases import ALL

from heedful.decode.beam import beam_search
from heedful.decode.beam_settings import BeamSettings
from heedful.decode.greedy import greedy
from heedful.decode.speculative import FilteredDistribution, all_on_the_argmax, speculate
from heedful.decode.step import step_of
from heedful.decode.streaming import hypotheses
from heedful.fast.cpu_decoder import packed
from heedful.parts.long import compressed
from heedful.parts.long import linear as linear_attention
from heedful.parts.long import windowed_cache as remember

NAMES = ["xl", "fixed, merged", "window", "t-dmca", "t-dmca, tensor2tensor", "linear"]
each = pytest.mark.parametrize("name", NAMES)


@pytest.fixture(autouse=True)
def _these(monkeypatch):
    """Rows of forty tokens: caches forget early, so that they have something to forget."""
    longer = {name: (file, type(c)(**{**vars(c), "context": 64})) for name, (file, c) in ALL.items()}
    monkeypatch.setattr(tiny, "DECODERS", longer)
    for module in (remember, compressed, linear_attention):
        monkeypatch.setattr(module, "SLACK", 8)


def words(found):
    return [[one.tokens for one in row] for row in found]


@each
def test_a_beam_finds_what_it_finds_without_a_cache(name):
    case = Case(name, sharper=3.0)
    settings = BeamSettings(width=3, n_best=2)
    found, expected = (
        beam_search(step, case.prompts, case.lengths, longest=12, eos=EOS, settings=settings)
        for step in (case.step(), case.forgetful())
    )
    assert words(found) == words(expected)


@each
def test_greedy_writing_is_the_same_without_a_cache_and_with_packed_weights(name):
    case = Case(name, sharper=3.0)
    expected = [one.tokens for one in greedy(case.forgetful(), case.prompts, case.lengths, longest=40)]
    found = [one.tokens for one in greedy(case.step(), case.prompts, case.lengths, longest=40)]
    assert found == expected
    model = packed(case.model.float())
    again = greedy(step_of(model), case.prompts, case.lengths, longest=40)
    assert [one.tokens for one in again] == expected


@each
def test_a_draft_changes_nothing_but_the_speed(name):
    case, other = Case(name, sharper=3.0), Case(name, seed=12, sharper=3.0)
    expected = [one.tokens for one in greedy(case.forgetful(), case.prompts, case.lengths, longest=30)]
    told = speculate(
        case.step(),
        step_of(other.model),
        case.prompts,
        case.lengths,
        distribution=FilteredDistribution(all_on_the_argmax, []),
        longest=30,
        ahead=3,
        seed=[1, 2, 3],
    )
    assert [one.tokens for one in hypotheses(told, 3)] == expected


@each
def test_a_row_that_waits_and_one_that_is_copied_go_on_as_they_would_alone(name):
    model = decoding_cases.model_of(name)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(tiny.VOCAB, (3, 30), generator=generator)
    step, fed = step_of(model), [[], [], []]
    lengths = [[3, 0, 2], [1, 4, 0], [0, 1, 1], [2, 2, 2], *[[1, 1, 1]] * 8]
    with torch.no_grad():
        for row in lengths:
            given = torch.zeros(3, max(row), dtype=torch.long)
            for b, n in enumerate(row):
                given[b, :n] = ids[b, len(fed[b]) : len(fed[b]) + n]
                fed[b] += ids[b, len(fed[b]) : len(fed[b]) + n].tolist()
            scores = step(given, torch.tensor(row))
            for b, n in enumerate(row):
                if n:
                    expected = model(torch.tensor([fed[b]]))[0, -n:]
                    torch.testing.assert_close(scores[b, :n], expected, atol=1e-10, rtol=0)
        step.reorder(torch.tensor([2, 2, 0, 1]))
        step.rewind(torch.tensor([len(fed[2]) - 2, len(fed[2]), len(fed[0]) - 1, len(fed[1])]))
        rows = [fed[2][:-2], fed[2], fed[0][:-1], fed[1]]
        scores = step(torch.full((4, 1), 5))
        for b, row in enumerate(rows):
            expected = model(torch.tensor([[*row, 5]]))[0, -1:]
            torch.testing.assert_close(scores[b], expected, atol=1e-10, rtol=0)
