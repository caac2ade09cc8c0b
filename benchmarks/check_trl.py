"""The losses of DPO, Bradley and Terry and GRPO beside TRL's own functions, on the same tensors.

    python -m benchmarks.check_trl        # where TRL is installed: pip install trl

TRL's loss functions belong to its trainers. They are called here with a stand-in for the trainer, which has
the settings that the function reads, and with a model that returns the tensors.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import torch
from torch import Tensor

from heedful.train.preference import bradley_terry_loss, dpo_loss, grpo_loss

B, T, BETA, CLIP = 4, 7, 0.3, 0.2
TOLERANCE = 1e-12


def trainer(**settings: Any) -> MagicMock:
    """A stand-in for a trainer of TRL."""
    made = MagicMock()
    made.model.training = False
    made._metrics = {mode: defaultdict(list) for mode in ("train", "eval")}
    made.accelerator.gather_for_metrics = made.accelerator.gather = lambda x: x
    made.accelerator.device = torch.device("cpu")
    for name, value in settings.items():
        setattr(made, name, value)
    return made


def of_dpo(logprobs_BT: Tensor, reference_BT: Tensor, real_BT: Tensor) -> float:
    """TRL's loss of DPO: the first half of the rows are chosen, the second half rejected."""
    from trl.trainer.dpo_trainer import DPOTrainer

    stand_in = trainer(
        aux_loss_enabled=False,
        ld_alpha=None,
        precompute_ref_logps=True,
        f_divergence_type="reverse_kl",
        loss_types=["sigmoid"],
        loss_weights=[1.0],
        beta=BETA,
        label_smoothing=0.0,
        use_weighting=False,
        _total_train_tokens=0,
    )
    first = torch.zeros(len(real_BT), 1, dtype=torch.long)
    half = len(real_BT) // 2
    inputs = {
        "input_ids": torch.zeros(len(real_BT), T + 1, dtype=torch.long),
        "attention_mask": torch.ones(len(real_BT), T + 1, dtype=torch.long),
        "completion_mask": torch.cat([first, real_BT.long()], 1),
        "ref_chosen_logps": reference_BT.sum(1)[:half],
        "ref_rejected_logps": reference_BT.sum(1)[half:],
    }
    numbers = torch.zeros_like(logprobs_BT)
    outputs = SimpleNamespace(
        log_probs=logprobs_BT, entropy=numbers, mean_logits=numbers, is_top1=numbers.bool()
    )
    return float(DPOTrainer._compute_loss(stand_in, lambda **given: outputs, inputs, False))


def of_rewards(chosen_B: Tensor, rejected_B: Tensor) -> float:
    """TRL's loss of reward models."""
    from trl.trainer.reward_trainer import RewardTrainer

    stand_in = trainer(args=SimpleNamespace(center_rewards_coefficient=None), _total_train_tokens=0)
    outputs = SimpleNamespace(logits=torch.cat([chosen_B, rejected_B])[:, None])
    return float(RewardTrainer.compute_loss(stand_in, lambda **given: outputs, {}))


def of_grpo(
    logprobs_BT: Tensor, old_BT: Tensor, reference_BT: Tensor, advantages_B: Tensor, real_BT: Tensor
) -> float:
    """TRL's loss of GRPO, with the mean over each response that the paper has."""
    from trl.trainer.grpo_trainer import GRPOTrainer

    stand_in = trainer(
        aux_loss_enabled=False,
        top_entropy_quantile=1.0,
        off_policy_mask_threshold=None,
        importance_sampling_level="token",
        beta=BETA,
        args=SimpleNamespace(use_bias_correction_kl=False, delta=None),
        loss_type="grpo",
        epsilon_low=CLIP,
        epsilon_high=CLIP,
        use_vllm=False,
        _entropy_bonus_enabled=False,
    )
    stand_in._get_per_token_logps_and_entropies = lambda *a, **k: (
        logprobs_BT,
        torch.zeros_like(logprobs_BT),
        None,
    )
    ids = torch.zeros(len(real_BT), T, dtype=torch.long)
    inputs = {
        "prompt_ids": ids[:, :1],
        "prompt_mask": torch.ones_like(ids[:, :1]),
        "completion_ids": ids,
        "completion_mask": real_BT.long(),
        "advantages": advantages_B,
        "old_per_token_logps": old_BT,
        "ref_per_token_logps": reference_BT,
    }
    return float(GRPOTrainer._compute_loss(stand_in, None, inputs))


def main() -> int:
    torch.manual_seed(0)
    lengths_B = torch.tensor([7, 3, 5, 1])
    real_BT = torch.arange(T) < lengths_B[:, None]
    logprobs_BT, old_BT, reference_BT = (
        (-torch.rand(B, T, dtype=torch.float64) * 3).where(real_BT, 0.0) for _ in range(3)
    )
    advantages_B, chosen_B, rejected_B = torch.randn(3, B, dtype=torch.float64)
    half, sums_B, references_B = B // 2, logprobs_BT.sum(1), reference_BT.sum(1)
    pairs = sums_B[:half], sums_B[half:], references_B[:half], references_B[half:]
    group = logprobs_BT, old_BT, reference_BT, advantages_B, real_BT
    both = {
        "DPO": (dpo_loss(*pairs, BETA), of_dpo(logprobs_BT, reference_BT, real_BT)),
        "reward model": (bradley_terry_loss(chosen_B, rejected_B), of_rewards(chosen_B, rejected_B)),
        "GRPO": (grpo_loss(*group, CLIP, BETA), of_grpo(*group)),
    }
    worst = 0.0
    for name, (mine, theirs) in both.items():
        difference = abs(float(mine.mean()) - theirs)
        worst = max(worst, difference)
        print(f"{name:<14} heedful {float(mine.mean()):.12f}  TRL {theirs:.12f}  difference {difference:.1e}")
    return 0 if worst < TOLERANCE else 3


if __name__ == "__main__":
    sys.exit(main())
