"""The losses of preference: each equals its formula, written out as a loop in fp64."""

import math

import pytest
import torch

from heedful.train.loss import NOTHING
from heedful.train.preference import (
    advantages_of,
    bradley_terry_loss,
    clipped_policy_loss,
    clipped_value_loss,
    dpo_loss,
    group_advantages,
    grpo_loss,
    implicit_reward,
    kl_of_samples,
    penalized_rewards,
    token_logprobs,
)

B, T, V, N = 3, 5, 7, 4
BETA, CLIP, GAMMA, LAM = 0.3, 0.2, 0.9, 0.8
REAL = torch.tensor([[0, 1, 1, 1, 0], [1, 1, 1, 1, 1], [0, 0, 1, 0, 0]], dtype=torch.bool)


@pytest.fixture
def draw():
    generator = torch.Generator().manual_seed(0)
    return lambda *shape: torch.randn(shape, generator=generator, dtype=torch.float64)


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def test_log_probabilities_are_those_of_the_answers(draw):
    scores, answers = draw(B, T, V), torch.randint(V, (B, T))
    answers[0, 1], answers[2, 4] = NOTHING, NOTHING
    found = token_logprobs(scores, answers)
    for b in range(B):
        for t in range(T):
            answer = int(answers[b, t])
            weights = [math.exp(float(score)) for score in scores[b, t]]
            right = 0.0 if answer == NOTHING else math.log(weights[answer] / sum(weights))
            assert float(found[b, t]) == pytest.approx(right, abs=1e-12)


def test_the_mean_of_the_kl_of_samples_is_the_kl(draw):
    """Over all tokens, weighed as the model would draw them."""
    model, reference = draw(V).log_softmax(-1), draw(V).log_softmax(-1)
    kl = sum(float(p.exp() * (p - q)) for p, q in zip(model, reference, strict=True))
    samples = kl_of_samples(model[None], reference[None])[0]
    assert float((model.exp() * samples).sum()) == pytest.approx(kl, abs=1e-12)
    assert samples.min() >= 0 and float(kl_of_samples(model, model).abs().max()) == 0


# Pairs


def test_bradley_terry_is_the_log_loss_of_the_better_one(draw):
    chosen, rejected = draw(B), draw(B)
    right = [-math.log(sigmoid(float(c - r))) for c, r in zip(chosen, rejected, strict=True)]
    assert bradley_terry_loss(chosen, rejected).tolist() == pytest.approx(right, abs=1e-12)
    even = bradley_terry_loss(chosen, chosen)
    assert even.tolist() == pytest.approx([math.log(2)] * B)
    far = bradley_terry_loss(torch.tensor([-1e4]), torch.tensor([1e4]))
    assert far.tolist() == [2e4]


def test_dpo_is_the_formula_of_the_paper(draw):
    chosen, rejected, chosen_ref, rejected_ref = (draw(B) for _ in range(4))
    found = dpo_loss(chosen, rejected, chosen_ref, rejected_ref, BETA)
    for b in range(B):
        ratios = float(chosen[b]) - float(chosen_ref[b]), float(rejected[b]) - float(rejected_ref[b])
        right = -math.log(sigmoid(BETA * ratios[0] - BETA * ratios[1]))
        assert float(found[b]) == pytest.approx(right, abs=1e-12)


def test_the_gradient_of_dpo_weighs_a_pair_by_how_wrong_the_rewards_are(draw):
    """The paper's section 4: beta sigmoid(r- - r+) (grad log pi(y+) - grad log pi(y-))."""
    chosen, rejected, *references = (draw(B) for _ in range(4))
    chosen.requires_grad_()
    rejected.requires_grad_()
    dpo_loss(chosen, rejected, *references, BETA).sum().backward()
    plus, minus = (
        implicit_reward(mine.detach(), reference, BETA)
        for mine, reference in zip((chosen, rejected), references, strict=True)
    )
    weight = BETA * torch.sigmoid(minus - plus)
    assert torch.allclose(chosen.grad, -weight) and torch.allclose(rejected.grad, weight)


def test_an_untrained_policy_has_the_loss_of_a_coin(draw):
    chosen, rejected = draw(B), draw(B)
    assert dpo_loss(chosen, rejected, chosen, rejected, BETA).tolist() == pytest.approx([math.log(2)] * B)


# Advantages


def test_the_reward_stands_at_the_last_token_and_every_token_costs_its_kl(draw):
    rewards, mine, reference = draw(B), draw(B, T), draw(B, T)
    found = penalized_rewards(rewards, mine.clone().requires_grad_(), reference, REAL, BETA)
    assert not found.requires_grad
    for b in range(B):
        places = [t for t in range(T) if REAL[b, t]]
        for t in range(T):
            right = -BETA * float(mine[b, t] - reference[b, t]) if t in places else 0.0
            right += float(rewards[b]) if t == places[-1] else 0.0
            assert float(found[b, t]) == pytest.approx(right, abs=1e-12)


def test_advantages_are_the_discounted_sum_of_what_was_not_expected(draw):
    """The definition: A_t = sum over l of (gamma lam)^l delta_{t+l}."""
    rewards, values = draw(B, T), draw(B, T)
    found = advantages_of(rewards, values.clone().requires_grad_(), REAL, GAMMA, LAM)
    assert not found.requires_grad
    for b in range(B):
        places = [t for t in range(T) if REAL[b, t]]
        value = {t: float(values[b, t]) for t in places}
        delta = {t: float(rewards[b, t]) + GAMMA * value.get(t + 1, 0.0) - value[t] for t in places}
        for t in range(T):
            later = [place for place in places if place >= t] if t in places else []
            right = sum((GAMMA * LAM) ** (place - t) * delta[place] for place in later)
            assert float(found[b, t]) == pytest.approx(right, abs=1e-12)


def test_at_lambda_one_an_advantage_is_the_return_less_the_value(draw):
    rewards, values = draw(B, T), draw(B, T)
    everything = torch.ones(B, T, dtype=torch.bool)
    returns = rewards.flip(-1).cumsum(-1).flip(-1)
    assert torch.allclose(advantages_of(rewards, values, everything, 1.0, 1.0), returns - values)


def test_a_group_is_compared_with_itself(draw):
    rewards = draw(B, N)
    found = group_advantages(rewards, 1e-4)
    for b in range(B):
        row = rewards[b].tolist()
        mean = sum(row) / N
        deviation = math.sqrt(sum((r - mean) ** 2 for r in row) / (N - 1))
        right = [(r - mean) / (deviation + 1e-4) for r in row]
        assert found[b].tolist() == pytest.approx(right, abs=1e-12)
    assert group_advantages(torch.ones(B, N)).abs().max() == 0


# The policy gradient


def clipped(ratio: float, advantage: float) -> float:
    return -min(ratio * advantage, min(max(ratio, 1 - CLIP), 1 + CLIP) * advantage)


def test_the_policy_loss_is_clipped_as_in_the_paper(draw):
    mine, old, advantages = draw(B, T), draw(B, T), draw(B, T)
    found = clipped_policy_loss(mine, old, advantages, CLIP)
    for b in range(B):
        for t in range(T):
            right = clipped(math.exp(float(mine[b, t] - old[b, t])), float(advantages[b, t]))
            assert float(found[b, t]) == pytest.approx(right, abs=1e-12)


def test_the_first_step_is_the_plain_policy_gradient(draw):
    mine, advantages = draw(B, T).requires_grad_(), draw(B, T)
    clipped_policy_loss(mine, mine.detach(), advantages, CLIP).sum().backward()
    assert torch.allclose(mine.grad, -advantages)


def test_what_went_far_enough_gets_no_gradient():
    mine = torch.tensor([[math.log(1.3), math.log(1.3), math.log(0.7), math.log(0.7)]], requires_grad=True)
    advantages = torch.tensor([[1.0, -1.0, 1.0, -1.0]])
    clipped_policy_loss(mine, torch.zeros(1, 4), advantages, CLIP).sum().backward()
    assert (mine.grad != 0).tolist() == [[False, True, True, False]]


def test_the_value_loss_takes_the_worse_of_both(draw):
    values, old, returns = draw(B, T), draw(B, T), draw(B, T)
    found = clipped_value_loss(values, old, returns, CLIP)
    for b in range(B):
        for t in range(T):
            value, before, wanted = (float(some[b, t]) for some in (values, old, returns))
            near = before + min(max(value - before, -CLIP), CLIP)
            right = 0.5 * max((value - wanted) ** 2, (near - wanted) ** 2)
            assert float(found[b, t]) == pytest.approx(right, abs=1e-12)


def test_grpo_is_the_mean_over_tokens_of_each_response(draw):
    mine, old, reference, advantages = draw(B, T), draw(B, T), draw(B, T), draw(B)
    found = grpo_loss(mine, old, reference, advantages, REAL, CLIP, BETA)
    for b in range(B):
        losses = []
        for t in range(T):
            if REAL[b, t]:
                apart = float(reference[b, t] - mine[b, t])
                kl = math.exp(apart) - apart - 1
                losses.append(
                    clipped(math.exp(float(mine[b, t] - old[b, t])), float(advantages[b])) + BETA * kl
                )
        assert float(found[b]) == pytest.approx(sum(losses) / len(losses), abs=1e-12)


def test_prompts_and_padding_get_no_gradient(draw):
    mine, others = draw(B, T).requires_grad_(), [draw(B, T), draw(B, T)]
    grpo_loss(mine, *others, draw(B), REAL).sum().backward()
    assert ((mine.grad != 0) <= REAL).all() and (mine.grad[:, 2] != 0).any()
    scores, answers = draw(B, T, V).requires_grad_(), torch.randint(V, (B, T)).masked_fill(~REAL, NOTHING)
    token_logprobs(scores, answers).sum().backward()
    assert ((scores.grad != 0).any(-1) == REAL).all()
