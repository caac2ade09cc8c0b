"""Sampling has the model's distribution; the same seed gives the same text, whatever the other rows are."""

from collections import Counter
from functools import cache

import pytest
import torch
from helpers.decoding_cases import EOS, FAMILIES, Case, chi_square
from helpers.sampling_cases import expected_of, sharpened
from transformers.generation import logits_process as theirs

from heedful.decode import filters as f
from heedful.decode.sampling import BLOCK, Dice, Sampler, draw, row_seeds, sample
from heedful.decode.streaming import hypotheses, stream
from heedful.errors import BadInput

every_family = pytest.mark.parametrize("name", FAMILIES)
CPU = torch.device("cpu")


def tokens(found) -> list[list[int]]:
    return [h.tokens for h in found]


# Seeds.


@every_family
def test_the_same_seed_gives_the_same_text_and_another_gives_another(name):
    case = Case(name)
    given = (case.prompts, case.lengths)
    first, again, other = (sample(case.step(), *given, longest=12, seed=s) for s in (5, 5, 6))
    assert first == again
    assert all(a.tokens != b.tokens for a, b in zip(first, other, strict=True))


@every_family
def test_a_row_does_not_depend_on_its_neighbors(name):
    """Alone, in another order, beside others that end early: longer than one block of random numbers."""
    case, seeds = Case(name, seed=3), [101, 202, 303]
    longest = 24 if name == "gpt2" else BLOCK + 7
    given = {"eos": EOS, "filters": [f.temperature(0.8), f.top_p(0.9), f.no_repeat_ngram(4)]}
    found = sample(
        case.step(), case.prompts, case.lengths, longest=[longest, longest, 5], seed=seeds, **given
    )
    again = sample(
        case.forgetful(), case.prompts, case.lengths, longest=[longest, longest, 5], seed=seeds, **given
    )
    assert tokens(found) == tokens(again)
    for row, limit in enumerate([longest, longest, 5]):
        step, prompt = case.alone(row)
        (alone,) = sample(step, prompt, longest=limit, seed=[seeds[row]], **given)
        assert found[row].tokens == alone.tokens
        assert found[row].log_probabilities == pytest.approx(alone.log_probabilities, abs=1e-9)


def test_one_seed_stands_for_one_each():
    case = Case("llama")
    whole = sample(case.step(), case.prompts, case.lengths, longest=9, seed=7)
    for row in range(3):
        step, prompt = case.alone(row)
        assert sample(step, prompt, longest=9, seed=[row_seeds(7, 3)[row]])[0].tokens == whole[row].tokens
    assert row_seeds(7, 2) == row_seeds(7, 3)[:2]
    with pytest.raises(BadInput, match="3 prompts but 2 seeds"):
        sample(case.step(), case.prompts, longest=3, seed=[1, 2])


def test_dice_are_each_rows_own_and_go_on_from_block_to_block():
    dice = Dice([3, 4], CPU, each=2)
    rolled = torch.stack([dice.roll() for _ in range(2 * BLOCK + 1)], 1)
    for row, seed in enumerate([3, 4]):
        generator = torch.Generator().manual_seed(seed)
        own = torch.rand(3, BLOCK, 2, generator=generator, dtype=torch.float64).flatten(0, 1)
        assert torch.equal(rolled[row], own[: 2 * BLOCK + 1])


@every_family
def test_streaming_gives_the_same_tokens(name):
    case = Case(name, seed=2)
    whole = sample(case.step(), case.prompts, case.lengths, longest=6, seed=9, eos=EOS)
    choose = Sampler(row_seeds(9, 3), CPU)
    words = stream(case.step(), case.prompts, case.lengths, choose=choose, longest=6, eos=EOS)
    assert hypotheses(words, 3) == whole
    for h in whole:
        assert h.score == pytest.approx(sum(h.log_probabilities)) and h.ended == (h.tokens[-1] == EOS)


# The draw.


def test_a_draw_falls_where_the_running_sum_passes_the_height():
    weights = torch.tensor([0.0, 2.0, 0.0, 1.0, 1.0, 0.0])
    heights = torch.tensor([0.0, 0.499, 0.5, 0.749, 0.75, 1 - 2**-53], dtype=torch.float64)
    assert draw(weights.expand(6, -1), heights).tolist() == [1, 1, 3, 3, 4, 4]


def test_what_has_no_weight_is_never_drawn():
    made = torch.Generator().manual_seed(0)
    weights = torch.rand(2000, 50, generator=made) ** 20 * (torch.rand(2000, 50, generator=made) < 0.1)
    weights[:, 7] += 1e-30
    edges = torch.tensor([0.0, 1 - 2**-53], dtype=torch.float64)
    for heights in (torch.rand(2000, generator=made, dtype=torch.float64), edges.repeat(1000)):
        drawn = draw(weights, heights)
        assert (weights.gather(1, drawn[:, None]) > 0).all()


# The distribution.


@cache
def small(name: str, seed: int = 11) -> Case:
    return Case(name, 4, seed)


@every_family
@pytest.mark.parametrize(
    "change, filters",
    [(lambda p: p, []), (sharpened, [f.temperature(0.6), f.top_k(2)])],
    ids=["plain", "filtered"],
)
def test_samples_have_the_models_distribution(name, change, filters):
    case, copies = small(name), 3000
    step, prompts = case.many(1, copies)
    found = sample(step, prompts, longest=3, eos=EOS, seed=1, filters=filters)
    counts = Counter(tuple(h.tokens) for h in found)
    statistic, limit = chi_square(counts, expected_of(case, 3, change))
    assert statistic < limit


def test_the_test_of_the_distribution_can_fail():
    """A temperature of 1.2 is told from 1."""
    case = small("gpt2")
    step, prompts = case.many(1, 3000)
    found = sample(step, prompts, longest=3, eos=EOS, seed=1, filters=[f.temperature(1.2)])
    statistic, limit = chi_square(Counter(tuple(h.tokens) for h in found), expected_of(case, 3))
    assert statistic > limit


# Beside Hugging Face: the same filters on scores without ties (of equals they keep all at the border of
# top-k).


@pytest.mark.parametrize(
    "ours, other",
    [
        (f.temperature(0.7), theirs.TemperatureLogitsWarper(0.7)),
        (f.top_k(5), theirs.TopKLogitsWarper(5)),
        (f.top_p(0.8), theirs.TopPLogitsWarper(0.8)),
        (f.top_p(0.1), theirs.TopPLogitsWarper(0.1)),
        (f.min_p(0.2), theirs.MinPLogitsWarper(0.2)),
    ],
)
def test_filters_equal_theirs(ours, other):
    scores = torch.randn(40, 23, generator=torch.Generator().manual_seed(6)) * 2
    assert torch.equal(ours(scores, None), other(None, scores))


@pytest.mark.parametrize("p", [0.0, 0.3, 0.9, 0.999])
def test_top_p_looks_at_the_likeliest_tokens_first_and_keeps_the_same(p):
    made = torch.Generator().manual_seed(3)
    scores_BV = torch.randn(6, 1307, generator=made) * torch.tensor([[0.01], [1], [2], [4], [9], [30]])
    scores_BV[2] = scores_BV[2].round()  # with many equals
    scores_BV[3, ::2] = float("-inf")
    scores_BV[4] = float("-inf")
    one = f.TopP(p)
    kept_BV = one.among_likely(scores_BV)
    assert torch.equal(kept_BV, one.among_all(scores_BV))
    assert torch.equal(kept_BV, one(scores_BV, None))
    scores_BV[5, 7] = float("nan")
    assert one.among_likely(scores_BV)[5].isnan().any()
