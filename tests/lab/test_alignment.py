"""Alignment: stages that start from each other, their figures side by side, and a curve that bends."""

import csv
import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from helpers.runs import CPU, Quiet

from heedful.cli.main import main
from heedful.errors import BadInput
from heedful.lab.alignment import judged, report, stages
from heedful.lab.alignment.judged import JudgedStage
from heedful.runs import trainer
from heedful.tasks.metrics import interval
from heedful.tasks.rl import BASELINE


def stage_of(name: str, seed: int, rewards: list[float], kl: float = 0.0) -> JudgedStage:
    said = [f"{name} {reward}" for reward in rewards]
    count = len(rewards)
    return JudgedStage(
        name,
        seed,
        [f"prompt {i}" for i in range(count)],
        ["right"] * count,
        said,
        [float(reward == 1) for reward in rewards],
        rewards,
        [kl] * count,
    )


@pytest.fixture
def found():
    rewards = {
        ("supervised", 0): [0.2, 1.0, 0.3, 1.0],
        ("supervised", 1): [1.0, 0.1, 0.3, 1.0],
        ("dpo", 0): [1.0, 1.0, 0.3, 0.5],
        ("dpo", 1): [1.0, 1.0, 1.0, 1.0],
    }
    return {key: stage_of(*key, some, 0.5 * (key[0] == "dpo")) for key, some in rewards.items()}


def test_a_row_counts_wins_ties_and_losses_against_the_supervised_model_of_the_same_seed(found):
    first, second = report.rows_of_stages(found)
    assert (first.stage, second.stage) == ("supervised", "dpo")
    assert (second.wins, second.ties, second.losses) == (3, 4, 1)
    assert second.win_rate == 0.75 and second.win_interval == interval(0.75, 4)
    assert second.reward == pytest.approx((1 + 1 + 0.3 + 0.5 + 4) / 8)
    assert second.exact == 6 / 8 and second.divergence == 0.5
    assert second.rewards == {0: pytest.approx(0.7), 1: 1.0}
    low, high = second.gain
    assert (low + high) / 2 == pytest.approx(((0.7 - 0.625) + (1.0 - 0.6)) / 2)
    assert first.gain is None and first.wins == first.losses == 0


def points_of(rewards: list[float], scores: list[float]) -> list[report.WayPoint]:
    both = zip(rewards, scores, strict=True)
    return [report.WayPoint(0, 5 * i, float(i), score, reward) for i, (reward, score) in enumerate(both)]


def test_a_curve_bends_where_the_score_rises_and_the_true_reward_falls():
    bend = report.bend_of(points_of([0.8, 0.9, 0.5], [1.0, 2.0, 3.0]))
    assert bend.bends and (bend.step, bend.best, bend.last, bend.last_score) == (5, 0.9, 0.5, 3.0)
    assert not report.bend_of(points_of([0.8, 0.9, 0.95], [1.0, 2.0, 3.0])).bends
    assert not report.bend_of(points_of([0.8, 0.9, 0.5], [1.0, 2.0, 1.5])).bends
    assert report.bend_of([]) is None


def test_the_curve_begins_with_the_model_to_start_from(tmp_path):
    run = stages.BY_NAME[stages.OVER_OPTIMIZED].path(tmp_path, 0)
    run.mkdir(parents=True)
    (run / BASELINE).write_text(json.dumps({"loss": -1.5, "score": 1.5, "reward": 0.8, "kl": 0.0}))
    lines = [{"step": 1, "loss": 0.1}, {"step": 1, "valid_kl": 0.2, "valid_score": 2.0, "valid_reward": 0.7}]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert report.curve_of(tmp_path, [0]) == [
        report.WayPoint(0, 0, 0.0, 1.5, 0.8),
        report.WayPoint(0, 1, 0.2, 2.0, 0.7),
    ]


def test_the_report_has_all_figures_and_the_files_say_the_same(found, tmp_path):
    rows, points = report.rows_of_stages(found), points_of([0.8, 0.9, 0.5], [1.0, 2.0, 3.0])
    told = report.report_text(rows, points, found)
    assert "dpo         0.850" in told and "75% (3 : 1)" in told and "highest at a KL of 1.00" in told
    assert "prompt 0" in told and "dpo             dpo 1.0  (right)" in told
    report.write_files(tmp_path, rows, points)
    with (tmp_path / report.TABLE).open() as file:
        table = list(csv.DictReader(file))
    assert [row["stage"] for row in table] == ["supervised", "dpo"] and table[1]["wins"] == "3"
    with (tmp_path / report.CURVE).open() as file:
        assert [float(row["score"]) for row in csv.DictReader(file)] == [1.0, 2.0, 3.0]
    drawn = (tmp_path / report.FIGURE).read_text()
    assert drawn.startswith("<svg") and "seed 0" in drawn and "light-dark" in drawn
    told_json = json.loads(report.as_json(rows, points, tmp_path))
    assert told_json["bend"]["bends"] is True and len(told_json["curve"]) == 3


# Stages


def test_every_stage_starts_from_one_before_it_and_its_recipe_can_be_made(tmp_path):
    known: set[str] = set()
    for stage in stages.STAGES:
        assert {stage.start, stage.judge} - {""} <= known
        known.add(stage.name)
        recipe = stages.recipe_of_stage(stage, tmp_path, 3, None)
        assert (recipe.task, recipe.train.seed, recipe.train.steps) == (stage.task, 3, stage.steps)
        if stage.start:
            assert recipe.train.from_ == str(stages.BY_NAME[stage.start].path(tmp_path, 3))
    assert recipe.train.reward == str(stages.BY_NAME[stages.REWARD_MODEL].path(tmp_path, 3))
    assert stages.recipe_of_stage(stages.STAGES[0], tmp_path, 0, 2).train.steps == 2


def test_finished_stages_are_not_trained_again_and_an_interrupted_one_goes_on(tmp_path, monkeypatch):
    done: list[tuple[str, str]] = []

    def finished(what):
        def run(*given):
            path = given[0] if what == "resumed" else given[1]
            path.mkdir(parents=True, exist_ok=True)
            stops = path.name.startswith("rl") and what == "started"
            (path / "recipe.json").write_text("{}")
            (path / "status.json").write_text(json.dumps({"reason": "interrupted" if stops else "done"}))
            done.append((what, path.name))
            return SimpleNamespace(finished=not stops)

        return run

    monkeypatch.setattr(trainer, "start", finished("started"))
    monkeypatch.setattr(trainer, "resume", finished("resumed"))

    def until_stopped():
        for stage, whole in stages.run_stages(tmp_path, 0, Quiet(), CPU):
            if not whole:
                return stage.name
        return ""

    assert until_stopped() == "rl"
    assert done == [("started", "supervised-0"), ("started", "dpo-0"), ("started", "rl-0")]
    done.clear()
    assert until_stopped() == ""
    assert done == [("resumed", "rl-0"), ("started", "reward-model-0"), ("started", "over-optimized-0")]


def test_a_folder_of_other_steps_or_of_something_else_is_refused(tmp_path):
    stages.open_folder(tmp_path / "a", 3)
    stages.open_folder(tmp_path / "a", 3)
    with pytest.raises(BadInput, match="other --steps"):
        stages.open_folder(tmp_path / "a", None)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "letter.txt").write_text("hello")
    with pytest.raises(BadInput, match="not empty"):
        stages.open_folder(tmp_path / "b", None)


@pytest.mark.parametrize("option", [["--size", "small"], ["--metric", "loss"], ["--corpus", "facts"]])
def test_options_of_other_comparisons_are_refused(option, capsys):
    assert main(["compare", "alignment", *option]) == 2
    assert f"{option[0]} cannot be given with alignment" in capsys.readouterr().err


def test_a_stage_is_judged_once(tmp_path, monkeypatch):
    calls = []

    def judge(run, reference, name, seed, rows, device):
        calls.append((run.name, reference.name, rows))
        return replace(stage_of(name, seed, [1.0, 0.5]))

    monkeypatch.setattr(judged, "judge_model", judge)
    first = judged.judged_stage(tmp_path, "dpo", 1, 2, CPU)
    assert judged.judged_stage(tmp_path, "dpo", 1, 2, CPU) == first
    assert calls == [("dpo-1", "supervised-1", 2)]


@pytest.mark.slow
def test_the_whole_story_in_a_few_steps(tmp_path, capsys):
    """Every stage for real, twice: the second time nothing is left to do."""
    call = [
        "compare",
        "alignment",
        "--steps",
        "3",
        "--seeds",
        "1",
        "--run",
        str(tmp_path / "a"),
        "--device",
        "cpu",
    ]
    assert main(call) == 0
    told = capsys.readouterr().out
    assert all(name in told for name in stages.COMPARED)
    assert main([*call, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["stage"] for row in found["stages"]] == list(stages.COMPARED)
    assert found["stages"][0]["kl"] == 0 and found["curve"][0]["step"] == 0
    assert torch.tensor([row["reward"] for row in found["stages"]]).isfinite().all()
