"""Speculation: whatever the draft, the outcome is the target's own, be it greedy or drawn."""

import math
from collections import Counter
from functools import cache

import pytest
import torch
from helpers.decoding_cases import EOS, FAMILIES, Case, Forgetful, Spy, chi_square
from helpers.sampling_cases import expected_of, sharpened

from heedful.decode import filters as f
from heedful.decode.greedy import greedy
from heedful.decode.sampling import sample
from heedful.decode.speculative import (
    FilteredDistribution,
    all_on_the_argmax,
    softmax,
    speculate,
    speculative_greedy,
    speculative_sample,
)
from heedful.decode.step import Step
from heedful.decode.streaming import hypotheses
from heedful.errors import BadInput, NotFinite

every_family = pytest.mark.parametrize("name", FAMILIES)
OTHER = {
    "gpt2": "llama",
    "llama": "gpt2",
    "transformer": "t5",
    "t5": "transformer",
}  # a draft of another kind


@cache
def case_of(name: str, vocab: int = 9, seed: int = 11) -> Case:
    return Case(name, vocab, seed)


def tokens(found) -> list[list[int]]:
    return [h.tokens for h in found]


class Wrong(Step):
    """A draft that always bets on one token, whatever it is fed."""

    def __init__(self, token: int, vocab: int) -> None:
        self.scores = torch.full((vocab,), -50.0)
        self.scores[token] = 50.0

    def __call__(self, tokens_BT, lengths_B=None):
        return self.scores.expand(*tokens_BT.shape, -1)

    def reorder(self, rows, siblings=False):
        pass

    def rewind(self, lengths_B):
        pass


def unsaid(case: Case) -> int:
    """A token that the model never writes of its own accord."""
    said = {t for h in greedy(case.step(), case.prompts, case.lengths, longest=12) for t in h.tokens}
    said |= {t for t in greedy(case.step(), case.prompts[:1], longest=12)[0].tokens}
    return min(set(range(9)) - said)


# Greedy.


@every_family
@pytest.mark.parametrize("ahead", [1, 2, 5])
def test_speculative_greedy_is_greedy_with_any_draft(name, ahead):
    case, limits = case_of(name), [9, 5, 12]
    rules = [
        f.repetition_penalty(1.3),
        f.no_repeat_ngram(3),
        f.minimum_length(2, EOS),
        f.forced_prefix([[4], [], [5, 6]]),
    ]
    for filters in ([], rules):
        given = {"longest": limits, "eos": EOS, "filters": filters}
        expected = greedy(case.step(), case.prompts, case.lengths, **given)
        drafts = {
            "the model itself": case.step(),
            "another of its kind": case_of(name, seed=5).step(),
            "one of another kind": case_of(OTHER[name], seed=7).step(),
            "a wrong one": Wrong(8, 9),
        }
        for what, draft in drafts.items():
            found = speculative_greedy(case.step(), draft, case.prompts, case.lengths, ahead=ahead, **given)
            assert tokens(found) == tokens(expected), what
            for a, b in zip(found, expected, strict=True):
                assert (
                    a.log_probabilities == pytest.approx(b.log_probabilities, abs=1e-9) and a.ended == b.ended
                )


def test_a_perfect_draft_saves_calls_and_a_wrong_one_costs_none():
    case = case_of("llama")
    # The prompt; then 12 tokens, in fours or one by one.
    for draft, calls in ((case.step(), 1 + 3), (Wrong(unsaid(case), 9), 1 + 12)):
        spy = Spy(case.step())
        found = speculative_greedy(spy, draft, case.prompts[:1], longest=12, ahead=3)
        assert len(found[0].tokens) == 12 and len(spy.rows) == calls


def test_rows_that_have_ended_cost_nothing():
    case = case_of("llama")
    spy = Spy(case.step())
    speculative_greedy(spy, Wrong(unsaid(case), 9), case.prompts, case.lengths, longest=[1, 4, 2])
    assert spy.rows == [3, 3, 2, 1, 1]


def test_a_learned_table_is_filled_to_its_end():
    """Guesses stop where the row must, even if others may go on."""
    case, draft = case_of("gpt2"), case_of("gpt2", seed=5)
    longest = [31 - n + 1 for n in case.lengths.tolist()]
    for other in (case, draft):
        found = speculative_greedy(case.step(), other.step(), case.prompts, case.lengths, longest=longest)
        assert tokens(found) == tokens(greedy(case.step(), case.prompts, case.lengths, longest=longest))
        assert [len(h.tokens) for h in found] == longest


# Sampling.


@every_family
@pytest.mark.parametrize("ahead", [1, 3])
@pytest.mark.parametrize(
    "change, filters",
    [(lambda p: p, []), (sharpened, [f.temperature(0.6), f.top_k(2)])],
    ids=["plain", "filtered"],
)
def test_speculative_samples_have_the_targets_distribution(name, ahead, change, filters):
    case, draft = case_of(name, 4), case_of(OTHER[name], 4, 7)
    step, prompts = case.many(1, 2000)
    helper, _ = draft.many(1, 2000)
    given = {"longest": 3, "eos": EOS, "ahead": ahead, "seed": 2, "filters": filters}
    found = speculative_sample(step, helper, prompts, **given)
    statistic, limit = chi_square(Counter(tuple(h.tokens) for h in found), expected_of(case, 3, change))
    assert statistic < limit


@every_family
def test_the_drafts_own_distribution_would_not_pass(name):
    case, draft = case_of(name, 4), case_of(OTHER[name], 4, 7)
    step, prompts = draft.many(1, 2000)
    found = sample(step, prompts, longest=3, eos=EOS, seed=2)
    statistic, limit = chi_square(Counter(tuple(h.tokens) for h in found), expected_of(case, 3))
    assert statistic > limit


@every_family
def test_a_row_does_not_depend_on_its_neighbors_and_streams_the_same(name):
    case, draft, seeds, limits = case_of(name), case_of(OTHER[name], seed=7), [31, 32, 33], [12, 3, 9]
    given = {"eos": EOS, "ahead": 3}
    found = speculative_sample(
        case.step(), draft.step(), case.prompts, case.lengths, longest=limits, seed=seeds, **given
    )
    more = {"distribution": FilteredDistribution(softmax), "longest": limits, "seed": seeds, **given}
    words = speculate(case.forgetful(), draft.forgetful(), case.prompts, case.lengths, **more)
    rounds = list(words)
    assert tokens(hypotheses(rounds, 3)) == tokens(found)
    assert len(rounds) < max(len(h.tokens) for h in found), "some guesses were right"
    for row in range(3):
        (step, prompt), (helper, _) = case.alone(row), Case.alone(draft, row)
        (alone,) = speculative_sample(step, helper, prompt, longest=limits[row], seed=[seeds[row]], **given)
        assert found[row].tokens == alone.tokens
        assert found[row].log_probabilities == pytest.approx(alone.log_probabilities, abs=1e-9)


def fixed(probabilities: list[float]) -> Forgetful:
    """A model that always says the same."""
    scores = torch.tensor(probabilities, dtype=torch.float64).log()
    return Forgetful(lambda tokens, lengths, rows: scores.expand(*tokens.shape, -1))


def test_the_first_tokens_distribution_does_not_depend_on_the_draft():
    """One step with known p and q: q bets on what p seldom says, and p's share comes back from the rest."""
    target, bet = [0.5, 0.3, 0.15, 0.05], [0.05, 0.15, 0.2, 0.6]
    prompts = torch.zeros(4000, 1, dtype=torch.long)
    found = speculative_sample(fixed(target), fixed(bet), prompts, longest=2, ahead=1, seed=3)
    for place in range(2):
        counts = Counter((h.tokens[place],) for h in found)
        statistic, limit = chi_square(counts, {(i,): p for i, p in enumerate(target)})
        assert statistic < limit


def test_a_draft_that_knows_only_what_is_forbidden_guesses_nothing():
    target, bet = [0.5, 0.3, 0.15, 0.05], [1.0, 0.0, 0.0, 0.0]
    prompts = torch.ones(3000, 1, dtype=torch.long)
    given = {"longest": 2, "seed": 3, "filters": [f.forbidden([0])]}
    found = speculative_sample(fixed(target), fixed(bet), prompts, **given)
    for place in range(2):
        counts = Counter((h.tokens[place],) for h in found)
        statistic, limit = chi_square(counts, {(i,): target[i] / 0.5 for i in (1, 2, 3)})
        assert statistic < limit


# What is refused.


def test_what_cannot_be_speculated_is_refused_in_a_sentence():
    case = case_of("llama")
    given = {"prompts_BT": case.prompts, "longest": 5}
    with pytest.raises(BadInput, match="ahead must be at least 1"):
        speculative_greedy(case.step(), case.step(), ahead=0, **given)
    with pytest.raises(BadInput, match="the draft knows 4 tokens and the model 9"):
        speculative_greedy(case.step(), Wrong(1, 4), **given)
    with pytest.raises(BadInput, match="every token is forbidden as the next one of row 0"):
        speculative_greedy(case.step(), case.step(), filters=[f.forbidden(range(9))], **given)
    broken = Wrong(1, 9)
    broken.scores = broken.scores * math.nan
    for search in (speculative_greedy, speculative_sample):
        with pytest.raises(NotFinite, match="the draft's scores are not numbers"):
            search(case.step(), broken, **given)
        with pytest.raises(NotFinite, match="the model's scores for row 0"):
            search(broken, case.step(), **given)
    with pytest.raises(BadInput, match="prompt 2 is empty"):
        speculative_greedy(case.step(), case.step(), lengths_B=torch.tensor([1, 2, 0]), **given)
    assert (
        list(
            speculate(
                case.step(),
                case.step(),
                case.prompts[:0],
                distribution=FilteredDistribution(all_on_the_argmax),
                longest=3,
            )
        )
        == []
    )
