"""How a policy learns from the rewards of its responses: PPO by a value of every token, GRPO by comparison.

    PPO      A_t = the reward still to come, more than the value expected (GAE); leaving the reference costs
             beta per nat, as a part of the reward (https://arxiv.org/abs/1707.06347 and 2203.02155)
    GRPO     A = (r - mean) / std over the responses to the same prompt, and no value; leaving the reference
             costs beta per nat, as a part of the loss (https://arxiv.org/abs/2402.03300)

Both keep the new policy near the one that wrote, by a clipped ratio.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ..models.base.shells import lasting
from ..train.preference import (
    advantages_of,
    clipped_policy_loss,
    clipped_value_loss,
    group_advantages,
    grpo_loss,
    penalized_rewards,
)
from .rollouts import Round, placed, response_logprobs, response_scores


@dataclass(frozen=True)
class GRPO:
    """Group-relative policy optimization: a response is as good as it beats the others to its prompt."""

    responses: int  # to each prompt
    clip: float
    beta: float
    tau: float  # the temperature at which responses are written

    def judged(self, model: nn.Module, drawn: Round) -> Round:
        advantages_R = group_advantages(drawn.rewards_R.unflatten(0, (-1, self.responses))).flatten()
        return replace(drawn, advantages=advantages_R[:, None])

    def losses(self, model: nn.Module, part: Round) -> Tensor:
        policy: Any = lasting(model)
        logprobs_RT, advantages_R = response_logprobs(policy, part, self.tau), part.advantages[:, 0]
        return grpo_loss(
            logprobs_RT, part.old_RT, part.reference_RT, advantages_R, part.real_RT, self.clip, self.beta
        )


@dataclass(frozen=True)
class PPO:
    """Proximal policy optimization. Advantages have mean 0 and deviation 1 over the tokens of a round."""

    clip: float
    beta: float
    tau: float
    gamma: float
    lam: float
    value_weight: float
    most: int  # rows that are scored at once without a gradient

    def judged(self, model: nn.Module, drawn: Round) -> Round:
        real_RT = drawn.real_RT
        values_RT = torch.zeros_like(drawn.old_RT)
        for some in torch.arange(len(values_RT), device=values_RT.device).split(self.most):
            part = drawn.rows(some)
            values_RT[some, : part.tokens_RT.shape[1]] = self.scored(model, part)[1]
        rewards_RT = penalized_rewards(drawn.rewards_R, drawn.old_RT, drawn.reference_RT, real_RT, self.beta)
        advantages_RT = advantages_of(rewards_RT, values_RT, real_RT, self.gamma, self.lam)
        returns_RT = (advantages_RT + values_RT).where(real_RT, 0.0)
        found_N = advantages_RT[real_RT]
        usual_RT = (advantages_RT - found_N.mean()) / (found_N.std() + 1e-8)
        advantages_RT = usual_RT.where(real_RT, 0.0)
        return replace(drawn, advantages=advantages_RT, values_RT=values_RT, returns_RT=returns_RT)

    def losses(self, model: nn.Module, part: Round) -> Tensor:
        """The sum over the tokens of a response, over the mean length of responses: tokens count alike."""
        assert part.values_RT is not None and part.returns_RT is not None
        logprobs_RT, values_RT = self.scored(model, part)
        policy_RT = clipped_policy_loss(logprobs_RT, part.old_RT, part.advantages, self.clip)
        value_RT = clipped_value_loss(values_RT, part.values_RT, part.returns_RT, self.clip)
        losses_RT = (policy_RT + self.value_weight * value_RT).where(part.real_RT, 0.0)
        return losses_RT.sum(-1) / part.told_F[LENGTH].to(losses_RT)

    def scored(self, model: Any, part: Round) -> tuple[Tensor, Tensor]:
        """(log-probabilities, values) [R, T] of the tokens of responses."""
        logprobs_N, hidden_RTD = response_scores(model.decoder, part, self.tau)
        values_N = model.value(hidden_RTD[part.real_RT])[..., 0]
        return placed(logprobs_N, part.real_RT), placed(values_N.float(), part.real_RT)


LENGTH = 2  # the place of the mean length among the figures of a round
