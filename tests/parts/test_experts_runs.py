"""Runs of models with experts: loads are logged, and a run is cut, resumed and used as any other."""

import json
import os
import subprocess

import pytest
from helpers.runs import (
    CPU,
    TINY,
    Quiet,
    recipe_for,
    state_of,
    texts,  # noqa: F401 (fixtures)
)
from helpers.torchrun import DRIVER, LAUNCH

from heedful.cli.main import main
from heedful.errors import BadInput
from heedful.models import mixture
from heedful.parts.experts import (
    Experts,
    ImportanceAndLoad,
    NoisyTopK,
    SwitchTopK,
)
from heedful.parts.layers import FeedForward
from heedful.runs import trainer
from heedful.tasks import expert_load, recipe

D, F, E, K = 6, 10, 5, 2
MIXTURE = {"model.architecture": "mixture", "model.experts": 3, "model.top_k": 2}
TRANSLATOR = MIXTURE | {"model.architecture": "mixture_transformer"}


@pytest.mark.parametrize("task", ["lm", "translate"])
def test_a_run_logs_the_load_of_every_layer_and_tells_it_at_the_end(task, texts, tmp_path):
    asked = recipe_for(task, texts, **(MIXTURE if task == "lm" else TRANSLATOR))
    quiet = Quiet()
    outcome = trainer.start(asked, tmp_path / "run", quiet, CPU)
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "loss" in line]
    layers = 1 if task == "lm" else 2
    assert len(steps) == 12
    for line in steps:
        assert [round(sum(shares), 3) for shares in line["expert_shares"]] == [1.0] * layers
        assert [len(shares) for shares in line["expert_shares"]] == [3] * layers
        assert line["expert_cv"] == pytest.approx(
            [expert_load.variation(s) for s in line["expert_shares"]], abs=1e-3
        )
    said = [line for line in quiet.lines if line.startswith("  layer ")]
    assert len(said) == layers and "coefficient of variation" in said[0]
    assert any("active for a token" in line for line in quiet.lines)
    assert outcome.finished


def test_an_interrupted_mixture_goes_on_to_the_same_bytes(texts, tmp_path):
    asked = recipe_for("translate", texts, **TRANSLATOR)
    trainer.start(asked, tmp_path / "whole", Quiet(), CPU)
    with pytest.raises(Exception, match="^$"):
        trainer.start(asked, tmp_path / "twice", Quiet(until=7), CPU)
    trainer.resume(tmp_path / "twice", Quiet(), CPU)
    assert state_of(tmp_path / "whole") == state_of(tmp_path / "twice")


def test_a_mixture_answers_like_any_other_model(texts, tmp_path, capsys):
    trainer.start(recipe_for("lm", texts, **MIXTURE), tmp_path / "lm", Quiet(), CPU)
    trainer.start(recipe_for("translate", texts, **TRANSLATOR), tmp_path / "translate", Quiet(), CPU)
    for line in ("generate lm ba", "generate lm ba --beam 3", "translate translate ba da", "info lm"):
        command, folder, *rest = line.split()
        assert main([command, str(tmp_path / folder), *rest]) == 0, capsys.readouterr()
    for folder in ("lm", "translate"):
        capsys.readouterr()
        main(["doctor", str(tmp_path / folder)])
        failed = [told for told in capsys.readouterr().out.splitlines() if told.strip().startswith("fail")]
        assert all("better than guessing" in told for told in failed), failed  # it was trained for a moment


def test_hardly_used_experts_are_warned_of(tmp_path):
    path = tmp_path / "metrics.jsonl"
    lines = [{"step": n, **expert_load.logged([[98, 1, 1, 100]])} for n in (1, 2)]
    path.write_text("\n".join(map(json.dumps, [*lines, {"step": 3, "valid_loss": 1.0}])) + "\n")
    *_, shares, warning = expert_load.describe_load(path, 2)
    assert "49.0% 0.5% 0.5% 50.0%" in shares and warning.startswith("warning: 2 of 4 experts got hardly any")
    assert expert_load.logged([]) == {} and list(expert_load.describe_load(tmp_path / "gone", 2)) == []


def test_more_experts_chosen_than_there_are_is_one_sentence(capsys):
    words = (
        "train lm --corpus pylib --set model.architecture=mixture --set model.experts=3 --set model.top_k=4"
    )
    assert main(words.split()) == 2
    told = capsys.readouterr().err
    assert told == (
        "error: mixture: a token is sent to at least 1 expert and to no more than there are, 3: not to 4\n"
    )
    for make in (
        lambda: NoisyTopK(D, 3, 4),
        lambda: SwitchTopK(D, 3, 0),
        lambda: mixture.MixtureConfig(top_k=9),
    ):
        with pytest.raises(ValueError, match="sent to at least 1 expert and to no more than there are"):
            make()
    with pytest.raises(ValueError, match="router must be one of noisy, switch, not 'loud'"):
        mixture.MixtureConfig(router="loud")
    with pytest.raises(ValueError, match="the gate chooses among 5 experts, not 1"):
        Experts([FeedForward(D, F)], NoisyTopK(D, E, K), ImportanceAndLoad())


def test_settings_of_experts_are_refused_where_there_are_none():
    with pytest.raises(
        BadInput, match="has no setting .model.experts.; it is for --architecture mixture or "
    ):
        recipe.make("lm", settings={"model.experts": 4})
    with pytest.raises(BadInput, match="^mlm with bert has no setting .model.router."):
        recipe.make("mlm", settings={"model.router": "switch"})
    with pytest.raises(BadInput, match="^translate cannot train the architecture modern: it can train "):
        recipe.make("translate", settings={"model.architecture": "modern"})
    assert recipe.make("translate").model.architecture == "transformer"


@pytest.mark.parametrize(
    "task, architecture",
    [
        ("translate", "mixture_transformer"),
        ("summarize", "mixture_transformer"),
        ("summarize", "mixture_dmca"),
    ],
)
def test_translators_and_summarizers_choose_experts_without_noise(task, architecture):
    """docs/explain/lecture-tables.md: the noise of `noisy` slows down short runs."""
    asked = recipe.make(task, settings={"model.architecture": architecture})
    assert asked.model.router == "switch"
    noisy = recipe.make(task, settings={"model.architecture": architecture, "model.router": "noisy"})
    assert noisy.model.router == "noisy"


def test_two_processes_whole_or_sharded_do_the_same_though_one_may_be_idle(texts, tmp_path):
    """One row a step: the other process is idle, and still every expert must have a gradient in both."""
    files = {
        "data.text": texts["text"],
        "data.tokenizer": "char",
        "model.context": 16,
        "train.batch_tokens": 16,
    }
    settings = TINY | files | MIXTURE | {"train.steps": 3, "evaluate.examples": 0}
    plan = [
        ["start", "lm", settings, "whole"],
        [
            "start",
            "lm",
            settings | {"train.parallel": "fsdp", "train.activation_checkpointing": True},
            "shards",
        ],
    ]
    (tmp_path / "answers").mkdir()
    (tmp_path / "plan").write_text(json.dumps(plan))
    done = subprocess.run(
        [*LAUNCH, str(DRIVER), "plan", "answers"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    whole, shards = (
        [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        for name in ("whole", "shards")
    )
    assert len(whole) == len(shards) == 4
    for a, b in zip(whole, shards, strict=True):
        assert a.get("expert_shares") == b.get("expert_shares")
        name = "loss" if "loss" in a else "valid_loss"
        assert a[name] == pytest.approx(b[name], rel=1e-4)
