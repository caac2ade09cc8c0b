"""Averages of weights follow their definitions, in a run's files too, however often it was interrupted."""

import copy
import shutil
from collections.abc import Iterator

import pytest
import torch
from helpers.runs import (
    CPU,
    Interrupted,
    Quiet,
    losses,
    recipe_for,
    state_of,
    texts,  # noqa: F401 (fixtures)
)
from torch import nn

from heedful.errors import BadInput
from heedful.runs import checkpoint, setup, trainer
from heedful.tasks import recipe
from heedful.tasks.recipe.settings import Recipe
from heedful.train.average import MovingAverage, TailAverage, weights_of

STEPS = 7
EVERY = {"checkpoint.every": 1, "checkpoint.keep": STEPS, "evaluate.every": 2}


def toy() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 5)).double()


def wander(model: nn.Module, steps: int) -> Iterator[dict[str, torch.Tensor]]:
    """Weights that change at random; those after each step."""
    generator = torch.Generator().manual_seed(7)
    for _ in range(steps):
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(torch.randn(weight.shape, generator=generator, dtype=weight.dtype))
        yield {name: weight.clone() for name, weight in weights_of(model).items()}


def test_a_moving_average_is_its_recurrence():
    model = toy()
    average = MovingAverage(model, 0.8)
    expected = {name: weight.clone() for name, weight in weights_of(model).items()}
    shares = []
    for step, weights in enumerate(wander(model, 40), 1):
        average.after(step, model)
        decay = min(0.8, (1 + step) / (10 + step))
        shares.append(1 - decay)
        for name, weight in weights.items():
            expected[name] = decay * expected[name] + (1 - decay) * weight
            torch.testing.assert_close(average.weights[name], expected[name], rtol=1e-12, atol=1e-12)
        assert average.ready(step)
    assert shares[0] == pytest.approx(9 / 11) and shares == sorted(shares, reverse=True)
    assert shares[-1] == pytest.approx(0.2)  # at last the decay that was asked for


def test_a_tail_average_is_the_mean_of_its_steps_and_of_no_others():
    model = toy()
    average = TailAverage(model, [12, 6, 9])
    path = []
    for step, weights in enumerate(wander(model, 13), 1):
        average.after(step, model)
        path.append((step, weights))
        taken = [weights for step, weights in path if step in (6, 9, 12)]
        assert average.ready(step) == (step == 12)
        for name in weights if taken else ():
            mean = sum(weights[name] for weights in taken) / len(taken)
            torch.testing.assert_close(average.weights[name], mean, rtol=1e-12, atol=1e-12)


def test_an_average_stands_in_for_a_model_and_leaves_no_trace():
    model = toy()
    tied = nn.Sequential(model, nn.Linear(4, 3))
    tied[1].weight = model[0].weight  # one weight under two names
    average = MovingAverage(tied, 0.5)
    for step, _ in enumerate(wander(tied, 3), 1):
        average.after(step, tied)
    before = copy.deepcopy(tied.state_dict())
    assert average.weights.keys() == dict(tied.named_parameters()).keys()
    with pytest.raises(KeyError), average.in_place_of(tied):
        assert all(torch.equal(weight, average.weights[name]) for name, weight in weights_of(tied).items())
        assert tied[1].weight is model[0].weight and not torch.equal(before["0.0.weight"], tied[1].weight)
        raise KeyError  # an evaluation that fails must not leave the wrong weights behind
    assert all(torch.equal(weight, before[name]) for name, weight in tied.state_dict().items())


def test_two_ways_at_once_are_refused():
    twice = r"train\.ema_decay and train\.average_checkpoints average weights twice: give one of them"
    with pytest.raises(BadInput, match=twice):
        recipe.make("lm", settings={"train.ema_decay": 0.9, "train.average_checkpoints": 3})


@pytest.mark.parametrize("task", ["lm", "translate", "classify"])
def test_a_given_average_of_checkpoints_replaces_the_moving_average_that_is_the_default(task):
    assert recipe.make(task).train.ema_decay > 0
    for given in (3, "3"):
        found = recipe.make(task, settings={"train.average_checkpoints": given}).train
        assert (found.average_checkpoints, found.ema_decay) == (3, 0.0)
    assert recipe.make(task, settings={"train.average_checkpoints": "0"}).train.ema_decay > 0


# In a run

KINDS = {
    "ema": {"train.ema_decay": 0.7},
    "average": {"train.average_checkpoints": 3, "checkpoint.every": 2, "evaluate.every": STEPS},
}


def asked(kind: str, texts: dict[str, str], **more) -> Recipe:
    return recipe_for("lm", texts, steps=STEPS, **{**EVERY, **KINDS[kind], **more})


def weights_after(folder, step: int) -> dict[str, torch.Tensor]:
    return checkpoint.load(folder / "checkpoints" / f"step-{step}")[0]["model"]


def test_the_published_weights_are_the_moving_average_where_it_was_best(texts, tmp_path):
    folder = tmp_path / "run"
    talk = Quiet()
    outcome = trainer.start(asked("ema", texts), folder, talk, CPU)
    evaluations = [line for line in losses(folder) if "valid_loss" in line]
    best = min(evaluations, key=lambda line: line["valid_loss"])
    assert outcome.best.step == best["step"] in (2, 4, 6, 7)
    assert sum("of averaged weights" in line for line in talk.lines) == len(evaluations) == 4
    settings = asked("ema", texts)
    expected = weights_of(setup.new_model(outcome.job, settings, CPU))
    for step in range(1, best["step"] + 1):
        decay = min(0.7, (1 + step) / (10 + step))
        new = weights_after(folder, step)
        expected = {name: decay * weight + (1 - decay) * new[name] for name, weight in expected.items()}
    published = checkpoint.copy(folder / "model.safetensors")
    for name, weight in expected.items():
        torch.testing.assert_close(published[name], weight, rtol=1e-5, atol=1e-7)
    assert published_scores(outcome, published) == pytest.approx(best["valid_loss"], rel=1e-6)


def published_scores(outcome, weights: dict[str, torch.Tensor]) -> float:
    """The held-out loss of weights as a file has them."""
    with torch.no_grad():
        for name, weight in outcome.model.named_parameters():
            weight.copy_(weights[name])
        return outcome.job.evaluate(outcome.model.eval())["loss"]


def test_the_last_evaluation_tries_the_mean_of_the_last_checkpoints(texts, tmp_path):
    """Steps 7, 5 and 3 are a checkpoint's distance apart, counted from the end."""
    whole, every = tmp_path / "whole", tmp_path / "every"
    talk = Quiet()
    outcome = trainer.start(asked("average", texts), whole, talk, CPU)
    assert [line.split(":")[0] for line in talk.lines if "of averaged weights" in line] == ["step 7"]
    trainer.start(asked("ema", texts, **{"train.ema_decay": 0.0}), every, Quiet(), CPU)
    mean = {
        name: sum(weights_after(every, step)[name] for step in (3, 5, 7)) / 3
        for name in weights_after(every, 7)
    }
    kept = checkpoint.load(whole / "checkpoints" / "step-7")[0]["average"]
    for name, weight in mean.items():
        torch.testing.assert_close(kept[name], weight, rtol=1e-5, atol=1e-7)
    (last,) = [line["valid_loss"] for line in losses(whole) if "valid_loss" in line]
    assert published_scores(outcome, mean) == pytest.approx(last, rel=1e-6)
    assert last != [line["valid_loss"] for line in losses(every) if "valid_loss" in line][-1]
    published = checkpoint.copy(whole / "model.safetensors")
    assert all(torch.equal(published[name], kept[name]) for name in kept)
    # Training itself goes on with its own weights.
    assert [line for line in losses(whole) if "loss" in line] == [
        line for line in losses(every) if "loss" in line
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_resumed_at_every_step_equals_uninterrupted_byte_for_byte(kind, texts, tmp_path):
    settings = asked(kind, texts)
    trainer.start(settings, tmp_path / "whole", Quiet(), CPU)
    expected = state_of(tmp_path / "whole") | averages(tmp_path / "whole")
    for step in range(1, STEPS + 1):
        folder = tmp_path / f"cut-{step}"
        with pytest.raises(Interrupted):
            trainer.start(settings, folder, Quiet(until=step), CPU)
        assert trainer.resume(folder, Quiet(), CPU).finished
        assert state_of(folder) | averages(folder) == expected, step
        shutil.rmtree(folder)


def averages(folder) -> dict[str, bytes]:
    return {"average": (folder / "checkpoints" / f"step-{STEPS}" / "average.safetensors").read_bytes()}
