"""The loop that runs ahead of the device: the same steps, told later; a bad one changes nothing."""

import copy
from dataclasses import dataclass

import pytest
import torch
from torch import nn

from heedful.errors import NotFinite
from heedful.fast.async_loop import LEAD, train_async
from heedful.train import loop, optimizer, schedule
from heedful.train.loss import Loss

STEPS = 11


@dataclass(frozen=True)
class Rows:
    rows_BD: torch.Tensor
    count: int
    ids: tuple[int, ...] = ()

    def to(self, device):
        return Rows(self.rows_BD.to(device), self.count, self.ids)


class Toy(nn.Module):
    """Two matrices inside a block, which Muon takes, and two outside."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(5, 8)
        self.blocks = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)])
        self.drop, self.last = nn.Dropout(0.3), nn.Linear(8, 1)

    def forward(self, x):
        x = torch.tanh(self.first(x))
        for block in self.blocks:
            x = x + torch.tanh(block(self.drop(x)))
        return self.last(x)


def loss_of(model, batch):
    error = (model(batch.rows_BD) - batch.rows_BD.sum(-1, keepdim=True)).square().sum()
    return Loss(error, error, batch.count)


def batches(step, worst=None):
    rows = torch.randn(7, 5, generator=torch.Generator().manual_seed(step))
    if step == worst:
        rows[3, 2] = float("nan")
    return [Rows(part, len(part), tuple(range(len(part)))) for part in rows.split([4, 3])]


def fresh(kind):
    torch.manual_seed(0)
    model = Toy()
    return model, getattr(optimizer, kind)(model, 0.02, 0.1)


def settings(steps=STEPS):
    return loop.LoopSettings(rate=0.02, schedule=schedule.constant(3), steps=steps, seed=3)


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_ahead_makes_the_steps_of_the_plain_loop(kind):
    plain, optimizers = fresh(kind)
    expected = list(loop.train(plain, batches, loss_of, optimizers, settings()))
    model, others = fresh(kind)
    found = list(train_async(model, batches, loss_of, others, settings()))
    for a, b in zip(expected, found, strict=True):
        assert (a.step, a.tokens) == (b.step, b.tokens)
        assert (a.loss, a.norm, a.rate) == pytest.approx((b.loss, b.norm, b.rate), rel=1e-5)
    for a, b in zip(plain.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_a_step_is_settled_where_the_caller_looks_and_the_model_is_then_its_own(kind):
    wanted = {1, 4, 5, STEPS}
    at: dict[int, list[torch.Tensor]] = {}
    model, optimizers = fresh(kind)
    for progress in loop.train(model, batches, loss_of, optimizers, settings()):
        at[progress.step] = [p.detach().clone() for p in model.parameters()]
    model, optimizers = fresh(kind)
    followed, settled = [], []
    for progress in train_async(
        model, batches, loss_of, optimizers, settings(), look=wanted.__contains__, after=followed.append
    ):
        assert progress.step <= followed[-1] <= progress.step + LEAD
        if progress.settled:
            settled.append(progress.step)
            assert followed[-1] == progress.step
            for a, b in zip(at[progress.step], model.parameters(), strict=True):
                torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
    assert wanted == set(settled) and followed == list(range(1, STEPS + 1))


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_a_step_that_is_not_finite_changes_nothing_and_nothing_after_it_does(kind):
    worst = 4  # the fifth step
    model, optimizers = fresh(kind)
    before = list(loop.train(model, batches, loss_of, optimizers, settings(worst)))
    weights = copy.deepcopy(model.state_dict())
    state = optimizer.state_tensors(model, optimizers)
    model, optimizers = fresh(kind)
    found = []
    with pytest.raises(
        NotFinite, match=r"step 5: the loss is nan .*first in first;.*examples \[\[0, 1, 2, 3\]\]"
    ):
        for progress in train_async(
            model, lambda step: batches(step, worst), loss_of, optimizers, settings()
        ):
            found.append(progress.step)
    assert found == [progress.step for progress in before]
    for name, weight in model.state_dict().items():
        torch.testing.assert_close(weight, weights[name], rtol=1e-5, atol=1e-6)
    for name, value in optimizer.state_tensors(model, optimizers).items():
        torch.testing.assert_close(value, state[name], rtol=1e-5, atol=1e-6)


def test_a_run_cut_in_two_equals_one_run():
    whole, optimizers = fresh("muon")
    list(train_async(whole, batches, loss_of, optimizers, settings()))
    model, optimizers = fresh("muon")
    list(train_async(model, batches, loss_of, optimizers, settings(4)))
    list(train_async(model, batches, loss_of, optimizers, settings(), start=4))
    for a, b in zip(whole.parameters(), model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_what_goes_wrong_with_a_batch_comes_out_where_it_is_due():
    def broken(step):
        if step == 6:
            raise OSError("the disk is gone")
        return batches(step)

    model, optimizers = fresh("adamw")
    made, seen = train_async(model, broken, loss_of, optimizers, settings()), []
    with pytest.raises(OSError, match="the disk is gone"):
        for progress in made:
            seen.append(progress.step)
    assert seen == [1, 2, 3]  # those that had been told when the seventh was due
