"""The learning-rate finder: rates that grow by equal factors, where the loss breaks, and the command."""

import math
import os
import re
from dataclasses import dataclass
from itertools import pairwise

import pytest
import torch
from torch import nn

from heedful.cli.main import main
from heedful.errors import NotFinite
from heedful.runs import setup
from heedful.tasks import lm, recipe
from heedful.train import finder, loop
from heedful.train.finder import Tried
from heedful.train.loop import Progress
from heedful.train.loss import Loss


def progress(step: int, loss: float) -> Progress:
    return Progress(step, loss, 1, finder.growing()(step), 1.0, 0.0)


def test_rates_grow_by_equal_factors_from_tiny_to_absurd():
    rates = [finder.growing()(step) for step in range(1, finder.STEPS + 1)]
    assert rates[0] == 1e-6 and rates[-1] == pytest.approx(1.0)
    factors = [b / a for a, b in pairwise(rates)]
    assert max(factors) == pytest.approx(min(factors)) and factors[0] > 1


def test_losses_are_smoothed_as_adam_does():
    losses = [4.0, 3.0, 5.0, 2.5, 2.0]
    found = list(finder.tried(progress(n, loss) for n, loss in enumerate(losses, 1)))
    for n, one in enumerate(found, 1):
        weights = [0.8 ** (n - k) for k in range(1, n + 1)]
        mean = sum(w * x for w, x in zip(weights, losses, strict=False)) / sum(weights)
        assert one.loss == pytest.approx(mean) and one.rate == finder.growing()(n)
    assert len(found) == 5


def test_it_stops_when_the_loss_has_broken_away():
    steps = iter([progress(n, loss) for n, loss in enumerate([4.0, 2.0, 2.0, 50.0, 1.0], 1)])
    found = list(finder.tried(steps))
    assert len(found) == 4 and found[-1].loss > 1.5 * min(one.loss for one in found)
    assert next(steps).step == 5  # nobody has asked for it


def test_it_stops_where_numbers_are_no_longer_finite():
    def made():
        yield progress(1, 3.0)
        raise NotFinite("too high")

    assert [one.loss for one in finder.tried(made())] == [3.0]


def test_a_tenth_of_the_best_rate_is_suggested():
    found = [Tried(1e-3, 5.0), Tried(3.456e-2, 2.0), Tried(0.1, 2.5)]
    assert finder.suggest(found) == 3.5e-3


class Bowl(nn.Module):
    """Loss = curvature / 2 |w - target|^2: gradient descent diverges from a rate of 2 / curvature on."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([1.0, -2.0, 0.5]))


@dataclass
class Target:
    """A batch: they differ a little, as real ones do."""

    place: torch.Tensor
    count: int = 1

    def to(self, device):
        return self


@pytest.mark.parametrize("curvature", [4.0, 50.0, 900.0])
def test_the_suggestion_lies_below_the_edge_of_a_quadratic_and_not_far_below(curvature):
    model = Bowl()
    settings = loop.LoopSettings(1.0, finder.growing(), finder.STEPS, clip=0.0)

    def batches(step):
        return [Target(0.2 * torch.randn(3, generator=torch.Generator().manual_seed(step)))]

    def loss_of(model, batch):
        loss = curvature / 2 * (model.w - batch.place).square().sum()
        return Loss(loss, loss, 1)

    sgd = [torch.optim.SGD(model.parameters(), lr=1.0)]
    found = list(finder.tried(loop.train(model, batches, loss_of, sgd, settings)))
    edge = 2 / curvature
    assert edge / 200 < finder.suggest(found) < edge / 5
    assert found[-1].rate < 5 * edge  # it went on until it broke, and no further


# Through the command

SIZES = {
    "model.layers": 1,
    "model.width": 16,
    "model.heads": 2,
    "model.ffn_width": 24,
    "model.context": 16,
    "data.tokenizer": "char",
    "train.batch_tokens": 64,
}
OPTIONS = [f"--set={key}={value}" for key, value in SIZES.items()]


@pytest.fixture
def text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_text("".join(f"line {i * i % 17} of {i % 7}\n" for i in range(60)))
    return tmp_path / "text"


def test_the_command_prints_a_table_and_leaves_nothing(text, capsys):
    assert main(["train", "lm", "--text", "text", "--find-rate", *OPTIONS]) == 0
    out, _ = capsys.readouterr()
    assert os.listdir() == ["text"]
    head, *rows, last = out.splitlines()
    assert head.split() == ["rate", "loss"] and len(rows) > 10
    table = [tuple(map(float, row.split())) for row in rows]
    assert [rate for rate, _ in table] == sorted(rate for rate, _ in table) and table[0][0] == 1e-6
    nothing = math.log(23)  # the loss of a model that knows nothing of about 23 characters
    assert table[0][1] == pytest.approx(nothing, abs=0.3)
    told = (
        r"lowest at (\S+) \(loss (\S+?)(, between two of these)?\); "
        r"a tenth of that: --set (\S+) \(without it: (\S+)\)"
    )
    lowest, loss, between, setting, default = re.fullmatch(told, last).groups()
    assert float(default) == recipe.make("lm").train.learning_rate
    assert float(loss) <= min(loss for _, loss in table)
    assert (between is None) == (float(lowest) in [rate for rate, _ in table])
    rate = recipe.make("lm", settings=recipe.parse_settings([setting])).train.learning_rate
    assert rate == pytest.approx(float(lowest) / 10, rel=0.06) and 1e-4 < rate < 0.1
    assert main(["train", "lm", "--text", "text", "--find-rate", *OPTIONS]) == 0
    assert capsys.readouterr().out == out


def test_rates_are_tried_on_the_batches_that_a_run_would_have(text, monkeypatch):
    """What a run chooses for the device and the data is chosen here too, and no time is measured."""
    text.write_text(20 * text.read_text())
    counts, honest = [], lm.loss_of

    def counted(model, batch, smoothing=0.0):
        counts.append(batch.count)
        return honest(model, batch, smoothing)

    monkeypatch.setattr(lm, "loss_of", counted)
    monkeypatch.setattr(finder, "STEPS", 2)
    plain = recipe.make("lm", settings={"data.text": str(text), "train.minutes": 5, **SIZES})
    open_ = {
        key: value for key, value in SIZES.items() if key not in ("train.batch_tokens", "data.tokenizer")
    }
    for asked, tokens in ((plain, 64), (recipe.make("lm", settings={"data.text": str(text), **open_}), 2048)):
        counts.clear()
        list(setup.find_rate(asked, setup.SilentReporter(), torch.device("cpu")))
        assert len(counts) == 2 and max(counts) <= tokens and max(counts) > tokens / 3


def test_the_command_refuses_what_would_do_nothing(text, capsys):
    assert main(["train", "lm", "--text", "text", "--find-rate", "--run", "new", *OPTIONS]) == 2
    assert main(["train", "--resume", "new", "--find-rate"]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert "--run cannot be given with --find-rate" in first
    assert "--find-rate cannot be given with --resume" in second


def test_a_loss_that_is_never_finite_is_said_so(text, capsys, monkeypatch):
    honest = lm.loss_of

    def broken(model, batch, smoothing=0.0):
        found = honest(model, batch, smoothing)
        return Loss(found.total * math.inf, found.nll * math.inf, found.count)

    monkeypatch.setattr(lm, "loss_of", broken)
    assert main(["train", "lm", "--text", "text", "--find-rate", *OPTIONS]) == 3
    assert "error: the loss is not finite at any rate" in capsys.readouterr().err
    assert os.listdir() == ["text"]
