"""Tracking: the tools get every figure of metrics.jsonl once, locally, however often a run is interrupted."""

import json
import math
import os
import sys
from types import ModuleType, SimpleNamespace

import pytest
from helpers.runs import (
    CPU,
    Interrupted,
    Quiet,
    recipe_for,
    texts,  # noqa: F401 (fixtures)
)

from heedful.cli.main import main
from heedful.runs import track, trainer

TOOLS = ("tensorboard", "trackio", "wandb")


class Shelf:
    """What stand-ins for the three packages have kept: for each run, (step, name, figure)."""

    def __init__(self) -> None:
        self.runs: dict[str, list[tuple[int, str, float]]] = {}
        self.closed: list[str] = []
        self.began: list[dict] = []


class StandIn:
    """A run of a stand-in, which is not begun twice under one name."""

    def __init__(self, shelf: Shelf, name: str, project: str = "") -> None:
        assert name not in shelf.runs
        self.shelf, self.name, self.rows = shelf, name, shelf.runs.setdefault(name, [])

    def log(self, metrics: dict[str, float], step: int) -> None:
        assert all(row[0] <= step for row in self.rows), "wandb drops steps that go back"
        self.rows.extend((step, name, figure) for name, figure in metrics.items())

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        self.log({tag: scalar_value}, global_step)

    def finish(self) -> None:
        self.shelf.closed.append(self.name)

    close = finish

    def delete(self) -> None:
        del self.shelf.runs[self.name]


@pytest.fixture
def shelf(monkeypatch, tmp_path) -> Shelf:
    """The calls that heedful makes, checked by hand against tensorboard 2.21, trackio 0.43 and wandb 0.31."""
    kept = Shelf()
    open_runs: list[StandIn] = []

    def begin(name: str, **given) -> StandIn:
        kept.began.append({**given, "name": name, "space": os.environ.get("TRACKIO_SPACE_ID")})
        open_runs.append(StandIn(kept, name))
        return open_runs[-1]

    def summary_writer(log_dir: str, flush_secs: int) -> StandIn:
        kept.runs.pop(log_dir, None)  # its folder is gone
        return begin(log_dir)

    def trackio_init(project: str, name: str, config: dict, embed: bool) -> StandIn:
        return begin(name, project=project, config=config)

    def wandb_init(project, name, id, dir, config, mode, settings) -> StandIn:
        kept.runs.pop(name, None)  # its folder is gone
        return begin(name, project=project, config=config, mode=mode, id=id, settings=settings)

    def runs_of(project: str) -> list[StandIn]:
        if not open_runs:
            raise ValueError(f"Project {project!r} does not exist")
        return [run for run in open_runs if run.name in kept.runs]

    modules = {
        "tensorboard": {},
        "torch.utils.tensorboard": {"SummaryWriter": summary_writer},
        "trackio": {
            "init": trackio_init,
            "Api": lambda: SimpleNamespace(runs=runs_of),
            "finish": lambda: open_runs[-1].finish(),
        },
        "wandb": {"init": wandb_init, "Settings": dict},
    }
    for name, contents in modules.items():
        module = ModuleType(name)
        vars(module).update(contents)
        monkeypatch.setitem(sys.modules, name, module)
    return kept


def logged(run) -> list[tuple[int, str, float]]:
    """What metrics.jsonl says."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [(line["step"], name, figure) for line in lines for name, figure in track.figures_of(line).items()]


@pytest.mark.parametrize("tool", TOOLS)
def test_a_tracked_run_has_every_figure_of_the_log(tool, shelf, texts, tmp_path):
    talk = Quiet()
    trainer.start(recipe_for("lm", texts), tmp_path / "run", talk, CPU, track=tool)
    (rows,) = shelf.runs.values()
    assert rows == logged(tmp_path / "run") and len(shelf.closed) == 1
    names = {name for _, name, _ in rows}
    assert {"train/loss", "train/learning_rate", "train/grad_norm", "valid/loss"} <= names
    assert [step for step, name, _ in rows if name == "train/loss"] == list(range(1, 13))
    assert [line for line in talk.lines if line.startswith("track: ")]


@pytest.mark.parametrize("tool", TOOLS)
def test_a_resumed_run_goes_on_in_the_same_track_without_repeating_a_step(tool, shelf, texts, tmp_path):
    with pytest.raises(Interrupted):  # the checkpoint is of step 4
        trainer.start(recipe_for("lm", texts), tmp_path / "run", Quiet(until=7), CPU, track=tool)
    (name,) = shelf.runs
    assert max(step for step, _, _ in shelf.runs[name]) == 7
    trainer.resume(tmp_path / "run", Quiet(), CPU)
    assert shelf.runs == {name: logged(tmp_path / "run")}
    assert len(shelf.closed) == 2


def test_a_run_can_be_tracked_from_its_middle_on_and_has_its_beginning_too(shelf, texts, tmp_path):
    with pytest.raises(Interrupted):
        trainer.start(recipe_for("lm", texts), tmp_path / "run", Quiet(until=7), CPU)
    assert not shelf.runs
    trainer.resume(tmp_path / "run", Quiet(), CPU, track="trackio")
    assert list(shelf.runs.values()) == [logged(tmp_path / "run")]


def test_wandb_is_offline_and_trackio_local_whatever_the_environment_says(
    shelf, texts, tmp_path, monkeypatch
):
    monkeypatch.setenv("TRACKIO_SPACE_ID", "someone/space")
    monkeypatch.setenv("WANDB_MODE", "online")
    for tool in ("wandb", "trackio"):
        trainer.start(recipe_for("lm", texts, steps=1), tmp_path / tool, Quiet(), CPU, track=tool)
    offline, local = shelf.began
    assert offline["mode"] == "offline" and offline["settings"]["console"] == "off"
    assert offline["name"] == f"wandb-{offline['id']}" and offline["config"]["train"]["steps"] == 1
    assert local["space"] is None and os.environ["TRACKIO_SPACE_ID"] == "someone/space"


def test_a_tool_that_fails_does_not_stop_the_training(shelf, texts, tmp_path, monkeypatch):
    def broken(run, metrics, step):
        raise OSError("no room")

    monkeypatch.setattr(StandIn, "log", broken)
    talk = Quiet()
    assert trainer.start(recipe_for("lm", texts), tmp_path / "run", talk, CPU, track="wandb").finished
    (warning,) = [line for line in talk.lines if line.startswith("warning: wandb stopped")]
    assert "(no room)" in warning and "--resume" in warning


@pytest.mark.parametrize("tool", TOOLS)
def test_a_tool_that_is_not_installed_is_named_with_the_remedy(tool, texts, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, tool, None)
    assert main(["train", "lm", "--text", "text", "--track", tool]) == 2
    assert capsys.readouterr().err == (f'error: {tool} is not installed: pip install "heedful[{tool}]"\n')
    assert not (tmp_path / "runs").exists()


def test_the_learning_rate_finder_tracks_nothing(texts, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "lm", "--text", "text", "--find-rate", "--track", "wandb"]) == 2
    assert "--track cannot be given with --find-rate" in capsys.readouterr().err


def test_numbers_that_are_not_finite_are_tracked_as_such_and_tables_are_left_out():
    line = {"step": 3, "loss": "nan", "rate": 0.5, "norm": math.inf, "loads": [[0.5]], "valid_bleu": 7}
    found = track.figures_of(line)
    assert math.isnan(found.pop("train/loss"))
    assert found == {"train/learning_rate": 0.5, "train/grad_norm": math.inf, "valid/bleu": 7.0}
