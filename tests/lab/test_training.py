"""Training on toy tasks: learning rates, levels of a loss, and batches that follow from a seed and a step."""

import pytest
import torch
from torch import nn

from heedful.lab import toys
from heedful.lab.training import (
    RATES,
    TEST,
    VALIDATION,
    accuracy,
    fitted,
    held_out_loss,
    last_loss,
    likelihood,
    steps_to,
    trained,
)

TASKS = {
    "fibonacci": lambda seed, step: toys.fibonacci(seed, step, 5, 9),
    "before": lambda seed, step: toys.before(seed, step, 5),
    "twice": lambda seed, step: toys.twice(seed, step, 5),
    "reverse": lambda seed, step: toys.reverse(seed, step, 5, 7),
    "delayed": lambda seed, step: toys.delayed(seed, step, 5, 7),
}


@pytest.mark.parametrize("name", TASKS)
def test_a_batch_follows_from_the_seed_and_the_step(name):
    task = TASKS[name]
    torch.manual_seed(1)
    first = task(0, 3)
    torch.manual_seed(2)
    again = task(0, 3)
    assert torch.equal(first.tokens_BT, again.tokens_BT) and torch.equal(first.targets, again.targets)
    others = [task(1, 3), task(0, 4), task(0, TEST), task(0, VALIDATION), task(0, 1_000_000)]
    assert not any(torch.equal(first.tokens_BT, other.tokens_BT) for other in others)


def test_toy_tasks_ask_what_their_names_say():
    batch = toys.reverse(0, 0, 3, 7)
    assert batch.targets[1, 2] == batch.tokens_BT[1, 4]
    batch = toys.delayed(0, 0, 3, 7, delay=2)
    assert batch.targets[2].tolist() == [-1, -1, *batch.tokens_BT[2, :5].tolist()]
    batch = toys.fibonacci(0, 0, 3, 7)
    assert batch.targets[0, 3] == (batch.tokens_BT[0, 2] + batch.tokens_BT[0, 3]) % toys.MODULUS
    batch = toys.before(0, 0, 50)
    places = [row.tolist() for row in batch.tokens_BT]
    assert batch.targets.tolist() == [int(row.index(0) < row.index(1)) for row in places]
    batch = toys.twice(0, 0, 50)
    assert batch.targets.tolist() == [int((row == 0).sum() == 2) for row in batch.tokens_BT]


def test_a_level_is_reached_when_ten_losses_are_below_it_on_average():
    assert steps_to([1.0] * 10 + [0.0] * 10, 0.55) == 15
    assert steps_to([1.0] * 12, 0.5) == 13
    assert steps_to([0.1] * 10, 0.5) == 10 and steps_to([0.1] * 9, 0.5) == 10
    assert last_loss([5.0] * 18 + [1.0, 3.0]) == 2.0


class Table(nn.Module):
    """Scores of the next word by the word alone."""

    def __init__(self):
        super().__init__()
        self.scores = nn.Embedding(16, 16)

    def forward(self, tokens_BT):
        return self.scores(tokens_BT)


def copying(step):
    return toys.delayed(0, step, 8, 7, delay=0)


def test_the_better_learning_rate_is_kept_and_all_are_reported():
    torch.manual_seed(0)
    fit = fitted(Table, copying, 80, (1e-5, 0.1), likelihood)
    assert fit.rate == 0.1 and fit.tried[0.1] > fit.tried[1e-5]
    assert fit.numbers == {
        "learning rate": 0.1, "validation at 1e-05": fit.tried[1e-5], "validation at 0.1": fit.tried[0.1],
    }  # fmt: skip
    assert -fit.tried[0.1] == held_out_loss(fit.model, copying(VALIDATION))
    assert accuracy(fit.model, copying(TEST)) > 0.9
    torch.manual_seed(0)
    alone = Table()  # both rates begin from these weights
    assert trained(alone, copying, 80, 0.1) == fit.losses


def test_training_stops_at_a_level():
    torch.manual_seed(0)
    losses = trained(Table(), copying, 400, 0.1, until=0.5)
    assert 10 < len(losses) < 100 and steps_to(losses, 0.5) == len(losses)


def test_two_learning_rates_are_tried_except_in_quick_runs():
    assert len(RATES["quick"]) == 1 and len(RATES["standard"]) == len(RATES["full"]) == 2
