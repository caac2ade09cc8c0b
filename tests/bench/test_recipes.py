"""The recipes of the benchmarks are ones that `heedful train` takes."""

import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from heedful.tasks import recipe

sys.path.append(str(Path(__file__).parents[2]))  # where benchmarks/ lies, for a plain `pytest`
benchmark = import_module("benchmarks.train")
quality = import_module("benchmarks.time_to_quality")
minilm = import_module("benchmarks.sst2_minilm")

CPU = torch.device("cpu")
EVERY = {
    **benchmark.WORK,
    "shakespeare on a CPU": (benchmark.shakespeare, benchmark.SHAKESPEARE_CPU),
}


class Enough(Exception):
    """Raised instead of training."""


def started(monkeypatch, work, settings, tmp_path):
    """The recipes of the runs that a benchmark starts; what comes after the last run is left out."""
    found = []

    def start(made, folder, talk, device):
        found.append(made)
        if made.task != "mlm":
            raise Enough
        return SimpleNamespace(best=SimpleNamespace(scores={}, step=0))

    monkeypatch.setattr(benchmark.trainer, "start", start)
    (tmp_path / "sst2").mkdir()
    (tmp_path / "sst2" / "train.tsv").write_text("sentence\tlabel\nfine\t1\n", encoding="utf-8")
    settings = {"train.seed": 3, "train.precision": "fp32"} | settings
    with pytest.raises(Enough):
        work(tmp_path, settings, CPU, tmp_path / "run")
    return found, settings


@pytest.mark.parametrize("name", EVERY)
def test_a_run_is_what_its_table_says(name, monkeypatch, tmp_path):
    found, settings = started(monkeypatch, *EVERY[name], tmp_path)
    assert [made.task for made in found[:-1]] == (["mlm"] if name == "sst2-pretrained" else [])
    made = recipe.to_json(found[-1])
    for key, value in settings.items():
        part, _, setting = key.partition(".")
        assert made[part][setting] == value
    assert set(settings) <= set(made["given"])


@pytest.mark.parametrize("name", quality.RECIPES)
@pytest.mark.parametrize("small", [False, True])
def test_both_sides_of_the_time_to_quality_are_recipes_of_lm(name, small):
    settings = quality.RECIPES[name] | (quality.SMALL if small else {})
    made = recipe.make("lm", settings=settings)
    assert made.model.architecture == settings["model.architecture"] and made.model.dropout == 0.0
    assert made.train.ema_decay == 0.0  # GPT-2's recipe has none, and an average takes time


def test_minilm_is_tuned_by_a_recipe_of_classify(tmp_path):
    made = minilm.recipe_of(tmp_path, tmp_path, CPU, {"train.steps": "7"})
    assert (made.train.from_, made.train.steps, made.train.ema_decay) == (str(tmp_path), 7, 0.999)


def test_what_a_benchmark_judges_by_is_the_recipe_that_the_run_settled(tmp_path):
    made = recipe.make("summarize", settings=benchmark.SCITLDR)
    (tmp_path / "recipe.json").write_text(
        benchmark.json.dumps(recipe.to_json(made) | {"facts": {}}), encoding="utf-8"
    )
    assert recipe.to_json(benchmark.recipe_of(tmp_path)) == recipe.to_json(made)
