"""Preference: the losses that teach a language model what people, or a program, would rather read.

    r     reward of a response                y+, y-   the chosen and the rejected response to a prompt x
    pi    the model that learns               ref      the model that it started from, which stays as it is
    A     advantage: how much better than expected a token turned out to be

A response is a row of T tokens, and `real_BT` says which of them the model wrote: prompts and padding cost
nothing and get no gradient. Everything is computed per pair, per token or per response. Who calls adds up.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .loss import NOTHING

# Log-probabilities


def token_logprobs(scores_BTV: Tensor, answers_BT: Tensor) -> Tensor:
    """log pi(y_t | x, y_<t) [B, T] of the answers, 0 at positions that have none.

    Args:
        scores_BTV: The model's scores.
        answers_BT: The tokens; -100 where there is none.

    Returns:
        Log-probabilities.

    Example:
        >>> token_logprobs(torch.zeros(1, 2, 4), torch.tensor([[1, -100]]))
        tensor([[-1.3863,  0.0000]])
    """
    here_BT = answers_BT != NOTHING
    logprobs_BTV = scores_BTV.log_softmax(-1)
    chosen_BT = logprobs_BTV.gather(-1, answers_BT.where(here_BT, 0)[..., None])[..., 0]
    return chosen_BT.where(here_BT, 0.0)


def kl_of_samples(logprobs_BT: Tensor, reference_BT: Tensor) -> Tensor:
    """ref/pi - log(ref/pi) - 1 [B, T]: over tokens drawn from pi, its mean is KL(pi || ref).

    It is never negative, and varies less than log(pi/ref) itself (k3 of
    http://joschu.net/blog/kl-approx.html, GRPO's equation 4).

    Args:
        logprobs_BT: log pi of the tokens.
        reference_BT: log ref of the tokens.

    Returns:
        One number for each token.

    Example:
        >>> kl_of_samples(torch.tensor([[-1.0]]), torch.tensor([[-1.0]]))
        tensor([[0.]])
    """
    log_ratio_BT = reference_BT - logprobs_BT
    return log_ratio_BT.exp() - log_ratio_BT - 1


# Pairs


def bradley_terry_loss(chosen_B: Tensor, rejected_B: Tensor) -> Tensor:
    """-log sigmoid(r(x, y+) - r(x, y-)) [B]: how surprising the choice is, if rewards decide it.

    Bradley and Terry 1952; a reward model learns by it in InstructGPT (https://arxiv.org/abs/2203.02155).

    Args:
        chosen_B: Rewards of the chosen responses.
        rejected_B: Rewards of the others.

    Returns:
        A loss for each pair.

    Example:
        >>> bradley_terry_loss(torch.tensor([1.0]), torch.tensor([1.0]))  # ln 2
        tensor([0.6931])
    """
    return -F.logsigmoid(chosen_B - rejected_B)


def implicit_reward(logprobs_B: Tensor, reference_B: Tensor, beta: float) -> Tensor:
    """beta log(pi(y | x) / ref(y | x)) [B]: the reward that a model implies.

    The model is the best answer to it, up to a constant of the prompt, where leaving the reference costs beta
    per nat.

    Args:
        logprobs_B: log pi of whole responses.
        reference_B: log ref of whole responses.
        beta: See above.

    Returns:
        A reward for each response.

    Example:
        >>> implicit_reward(torch.tensor([-2.0]), torch.tensor([-3.0]), beta=0.5)
        tensor([0.5000])
    """
    return beta * (logprobs_B - reference_B)


def dpo_loss(
    chosen_B: Tensor, rejected_B: Tensor, chosen_ref_B: Tensor, rejected_ref_B: Tensor, beta: float
) -> Tensor:
    """-log sigmoid(beta log(pi(y+)/ref(y+)) - beta log(pi(y-)/ref(y-))) [B], of whole responses.

    Bradley and Terry's loss on the rewards that the model itself implies (equation 7 of
    https://arxiv.org/abs/2305.18290). All four are log-probabilities.

    Args:
        chosen_B: log pi of the chosen responses.
        rejected_B: log pi of the others.
        chosen_ref_B: log ref of the chosen responses.
        rejected_ref_B: log ref of the others.
        beta: As in `implicit_reward`.

    Returns:
        A loss for each pair.

    Example:
        >>> same = torch.tensor([-3.0])
        >>> dpo_loss(same, same, same, same, beta=0.1)  # ln 2
        tensor([0.6931])
    """
    rewards = implicit_reward(chosen_B, chosen_ref_B, beta), implicit_reward(rejected_B, rejected_ref_B, beta)
    return bradley_terry_loss(*rewards)


# Advantages


def penalized_rewards(
    rewards_B: Tensor, logprobs_BT: Tensor, reference_BT: Tensor, real_BT: Tensor, beta: float
) -> Tensor:
    """-beta log(pi/ref) at every token, and the reward of the response at its last one [B, T].

    InstructGPT's objective, token by token (https://arxiv.org/abs/1909.08593). No gradient goes through it.

    Args:
        rewards_B: Reward of each response.
        logprobs_BT: log pi of the tokens.
        reference_BT: log ref of the tokens.
        real_BT: Which tokens the model wrote.
        beta: Cost per nat.

    Returns:
        A reward for each token.

    Example:
        >>> zero, real = torch.zeros(1, 3), torch.tensor([[True, True, False]])
        >>> penalized_rewards(torch.tensor([5.0]), zero, zero, real, beta=0.1)
        tensor([[0., 5., 0.]])
    """
    costs_BT = (-beta * (logprobs_BT - reference_BT)).where(real_BT, 0.0)
    places_T = torch.arange(real_BT.shape[1], device=real_BT.device)
    last_B1 = places_T.where(real_BT, -1).amax(-1, keepdim=True)
    return (costs_BT + rewards_B[:, None] * (places_T == last_B1)).detach()


def advantages_of(
    rewards_BT: Tensor, values_BT: Tensor, real_BT: Tensor, gamma: float = 1.0, lam: float = 0.95
) -> Tensor:
    """Generalized advantage estimation [B, T] (https://arxiv.org/abs/1506.02438).

    delta_t = r_t + gamma V_{t+1} - V_t, and A_t = delta_t + gamma lam A_{t+1}; after the last token of a
    response both V and A are 0. A value learns from A_t + V_t. The tokens of a response stand side by side.

    Args:
        rewards_BT: Reward of each token.
        values_BT: Value of each place.
        real_BT: Which tokens the model wrote.
        gamma: Discount of later rewards.
        lam: How far advantages look ahead.

    Returns:
        An advantage for each token.

    Example:
        >>> rewards, real = torch.tensor([[0.0, 1.0]]), torch.tensor([[True, True]])
        >>> advantages_of(rewards, torch.zeros(1, 2), real, lam=0.5)
        tensor([[0.5000, 1.0000]])
    """
    values_BT = values_BT.where(real_BT, 0.0)
    next_BT = F.pad(values_BT[:, 1:], (0, 1))
    deltas_BT = (rewards_BT + gamma * next_BT - values_BT).where(real_BT, 0.0)
    advantage_B, found = torch.zeros_like(deltas_BT[:, 0]), []
    for delta_B in deltas_BT.flip(-1).unbind(-1):
        advantage_B = delta_B + gamma * lam * advantage_B
        found.append(advantage_B)
    return torch.stack(found[::-1], -1).where(real_BT, 0.0).detach()


def group_advantages(rewards_BN: Tensor, epsilon: float = 1e-4) -> Tensor:
    """(r - mean) / (std + epsilon) [B, N] over N responses to the same prompt: GRPO needs no value.

    https://arxiv.org/abs/2402.03300, section 4.1.2. The deviation divides by N - 1; where all responses
    got the same reward there is nothing to learn.

    Args:
        rewards_BN: Rewards of the responses.
        epsilon: Keeps the divisor above 0.

    Returns:
        An advantage for each response.

    Example:
        >>> group_advantages(torch.tensor([[1.0, 1.0]]))
        tensor([[0., 0.]])
    """
    centered_BN = rewards_BN - rewards_BN.mean(-1, keepdim=True)
    return centered_BN / (rewards_BN.std(-1, keepdim=True) + epsilon)


# The policy gradient, clipped


def clipped_policy_loss(
    logprobs_BT: Tensor, old_BT: Tensor, advantages_BT: Tensor, clip: float = 0.2
) -> Tensor:
    """-min(ratio A, clip(ratio, 1 - clip, 1 + clip) A) [B, T], where ratio = pi / pi_old.

    PPO's objective (equation 7 of https://arxiv.org/abs/1707.06347): pi_old wrote the tokens, and moving
    further away from it than the clip allows gains nothing.

    Args:
        logprobs_BT: log pi of the tokens.
        old_BT: log pi_old of the tokens.
        advantages_BT: Their advantages.
        clip: How far the ratio may move.

    Returns:
        A loss for each token.

    Example:
        >>> old = torch.tensor([[-2.0]])
        >>> clipped_policy_loss(old + 1, old, torch.tensor([[1.0]]), clip=0.2)
        tensor([[-1.2000]])
    """
    ratios_BT = (logprobs_BT - old_BT).exp()
    clipped_BT = ratios_BT.clamp(1 - clip, 1 + clip)
    return -torch.minimum(ratios_BT * advantages_BT, clipped_BT * advantages_BT)


def clipped_value_loss(values_BT: Tensor, old_BT: Tensor, returns_BT: Tensor, clip: float = 0.2) -> Tensor:
    """max((V - R)^2, (V_clipped - R)^2) / 2 [B, T], where V_clipped is within the clip of the old value.

    Args:
        values_BT: Values V.
        old_BT: Values when the tokens were written.
        returns_BT: What the values should have been, R.
        clip: How far a value may move.

    Returns:
        A loss for each token.

    Example:
        >>> clipped_value_loss(torch.tensor([[1.0]]), torch.tensor([[1.0]]), torch.tensor([[3.0]]))
        tensor([[2.]])
    """
    clipped_BT = old_BT + (values_BT - old_BT).clamp(-clip, clip)
    return torch.maximum((values_BT - returns_BT) ** 2, (clipped_BT - returns_BT) ** 2) / 2


def grpo_loss(
    logprobs_BT: Tensor,
    old_BT: Tensor,
    reference_BT: Tensor,
    advantages_B: Tensor,
    real_BT: Tensor,
    clip: float = 0.2,
    beta: float = 0.04,
) -> Tensor:
    """The mean over a response's tokens of PPO's loss and beta KL(pi || ref) [B] (GRPO's equation 3).

    Every token of a response has the advantage of the whole.

    Args:
        logprobs_BT: log pi of the tokens.
        old_BT: log pi_old of the tokens.
        reference_BT: log ref of the tokens.
        advantages_B: Advantage of each response.
        real_BT: Which tokens the model wrote.
        clip: As in `clipped_policy_loss`.
        beta: Weight of the KL term.

    Returns:
        A loss for each response.

    Example:
        >>> log_p, real = torch.full((1, 2), -2.0), torch.tensor([[True, True]])
        >>> grpo_loss(log_p, log_p, log_p, torch.tensor([1.0]), real)
        tensor([-1.])
    """
    losses_BT = clipped_policy_loss(logprobs_BT, old_BT, advantages_B[:, None], clip)
    losses_BT = losses_BT + beta * kl_of_samples(logprobs_BT, reference_BT)
    return losses_BT.where(real_BT, 0.0).sum(-1) / real_BT.sum(-1).clamp(min=1)
