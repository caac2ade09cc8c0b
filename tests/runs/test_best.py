"""Which evaluation is the best: by the task's metric, equally good ones by the loss; or by the loss alone."""

import json

import pytest
from helpers.runs import (
    CPU,
    TASKS,
    Quiet,
    recipe_for,
    texts,  # noqa: F401 (fixtures)
)

from heedful.errors import BadInput
from heedful.runs import trainer
from heedful.runs.resume import Best, rank
from heedful.runs.training import metric_of
from heedful.tasks import find_task, recipe, translate
from heedful.tasks.evaluation import LOWER_IS_BETTER


def test_a_higher_bleu_beats_a_lower_loss():
    assert Best(3, {"bleu": 20.0, "loss": 1.0}).beaten_by({"bleu": 20.5, "loss": 2.0}, "bleu")
    assert not Best(3, {"bleu": 20.5, "loss": 2.0}).beaten_by({"bleu": 20.0, "loss": 1.0}, "bleu")


def test_among_equal_metrics_the_lower_loss_wins_and_the_first_of_equals_stays():
    best = Best(3, {"accuracy": 0.5, "loss": 1.5})
    assert best.beaten_by({"accuracy": 0.5, "loss": 1.4}, "accuracy")
    assert not best.beaten_by({"accuracy": 0.5, "loss": 1.6}, "accuracy")
    assert not best.beaten_by({"accuracy": 0.5, "loss": 1.5}, "accuracy")


def test_a_bleu_below_one_is_noise_and_the_loss_decides():
    best = Best(3, {"bleu": 0.9, "loss": 1.5})
    assert best.beaten_by({"bleu": 0.1, "loss": 1.4}, "bleu")
    assert not best.beaten_by({"bleu": 0.99, "loss": 1.6}, "bleu")
    assert best.beaten_by({"bleu": 1.0, "loss": 1.6}, "bleu")


def test_of_a_loss_the_lower_one_is_better_whatever_the_metric_says():
    best = Best(3, {"bleu": 20.0, "loss": 1.0})
    assert best.beaten_by({"bleu": 10.0, "loss": 0.9}, "loss")
    assert not best.beaten_by({"bleu": 90.0, "loss": 1.1}, "loss")


def test_the_first_evaluation_is_the_best_so_far():
    assert Best().beaten_by({"loss": 99.0}, "loss") and Best().beaten_by({"bleu": 0.0, "loss": 9.0}, "bleu")


@pytest.mark.parametrize("metric", sorted(LOWER_IS_BETTER))
def test_a_rank_grows_as_scores_get_better(metric):
    worse, better = ({metric: value, "loss": value} for value in (2.0, 1.0))
    assert rank(better, metric) > rank(worse, metric)


@pytest.mark.parametrize("task", TASKS)
def test_every_task_measures_the_metric_that_it_chooses_by(task, texts, tmp_path):
    asked = recipe_for(task, texts, steps=1)
    outcome = trainer.start(asked, tmp_path / "run", Quiet(), CPU)
    assert {metric_of(asked), "loss"} <= outcome.best.scores.keys()
    assert metric_of(asked) == find_task(task).metric
    assert metric_of(recipe.changed(asked, "evaluate.choose_by", "loss")) == "loss"


SCORES = {2: (10.0, 3.0), 4: (20.0, 2.0), 6: (25.0, 2.5), 8: (25.0, 2.4), 10: (25.0, 2.6), 12: (24.0, 2.1)}


@pytest.mark.parametrize(("choose_by", "best"), [("metric", 8), ("loss", 4)])
def test_the_published_weights_are_those_of_the_best_evaluation(
    choose_by, best, texts, tmp_path, monkeypatch
):
    """Scores as if they had been measured: (BLEU, loss) by step."""

    class Counting(Quiet):
        now = 0

        def step(self, progress, steps) -> None:
            self.now = progress.step

    talk = Counting()

    def scripted(*_):
        bleu, loss = SCORES[talk.now]
        return {"loss": loss, "exact": 0.0, "bleu": bleu}

    monkeypatch.setattr(translate, "evaluate", scripted)
    more = {"evaluate.every": 2, "checkpoint.every": 2, "checkpoint.keep": 9, "train.ema_decay": 0.0}
    asked = recipe_for("translate", texts, **more, **{"evaluate.choose_by": choose_by})
    outcome = trainer.start(asked, tmp_path / "run", talk, CPU)
    assert (
        outcome.best.step == best
        and (outcome.best.scores["bleu"], outcome.best.scores["loss"]) == SCORES[best]
    )
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert status["best_step"] == best
    published, then = (tmp_path / "run" / name for name in ("", f"checkpoints/step-{best}"))
    assert (published / "model.safetensors").read_bytes() == (then / "model.safetensors").read_bytes()


def test_there_is_no_other_way_to_choose():
    with pytest.raises(BadInput, match="evaluate.choose_by must be one of metric, loss, not 'bleu'"):
        recipe.make("translate", settings={"evaluate.choose_by": "bleu"})
