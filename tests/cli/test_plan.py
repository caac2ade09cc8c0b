"""`heedful plan`: what it prints fits a terminal and can be run, and what cannot be is refused in words."""

import json
import shlex
import typing

import pytest
from helpers.look_cases import saved

from heedful.cli.main import main
from heedful.cli.plan import PlanOptions
from heedful.cli.shared import arguments
from heedful.cli.train import recipe_of
from heedful.planner.machines import gpus
from heedful.train.parallel.way import Way, read_way

WIDTH = 100


def plan(capsys, *args):
    assert main(["plan", *args]) == 0
    return capsys.readouterr().out


def plan_json(capsys, *args):
    return json.loads(plan(capsys, *args, "--json"))


@pytest.mark.parametrize(
    "args",
    [
        ("gpt2",),
        ("gpt2-xl", "--gpus", "64", "--gpu", "a100", "--network", "ethernet-25", "--batch", "100k"),
        ("llama3-8b", "--gpus", "4", "--context", "8192"),
        ("transformer-big", "--gpus", "16"),
        ("bert-base", "--gpus", "1"),
        ("vit-b16", "--gpus", "1024", "--tokens", "1B"),
        ("gpt3-175b", "--gpus", "8"),
    ],
    ids=" ".join,
)
def test_what_is_printed_fits_a_terminal(capsys, args):
    out = plan(capsys, *args)
    assert max(map(len, out.splitlines())) <= WIDTH
    assert not {"nan", "inf", "-0"} & set(out.split())


def test_the_recommendation_comes_first(capsys):
    out = plan(capsys, "gpt2", "--tokens", "10B").splitlines()
    names = [line.split()[0] for line in out[:10]]
    figures = ["best", "rows", "time", "cost", "energy", "compute", "step", "memory"]
    assert names == ["gpt2", "parameters", *figures]
    assert out[0] == "gpt2 on 8 x NVIDIA H100 SXM, 80 GB"
    assert out[2] == "best         ddp"
    assert out[3] == "rows         1 micro-batch of 64 x 1,024 tokens per step on each GPU"
    assert "124,439,808" in out[1] and "10.0 B tokens, 19,074 steps of 524,288" in out[4]


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (("gpt2", "--gpus", "8"), {"task": "lm", "vocab_size": 50257}),
        (("gpt3-13b", "--gpus", "64"), {"task": "lm"}),
        (("gpt3-175b", "--gpus", "1024", "--gpu", "a100", "--batch", "3M"), {"task": "lm"}),
        (("llama3-8b", "--gpus", "64", "--context", "4096"), {"task": "lm", "max_length": 4096}),
        (("llama", "--set", "model.layers=24", "--set", "model.kv_heads=8"), {"task": "lm", "kv_heads": 8}),
        (("transformer-base", "--gpus", "8"), {"task": "translate"}),
        (("bert-base", "--gpus", "8"), {"task": "mlm"}),
        (("vit-b16", "--gpus", "1"), {"task": "image-classify"}),
        (("gpt2", "--set", "model.layers=24", "--gpus", "8"), {"task": "lm", "layers": 24}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_the_command_is_one_that_heedful_train_takes(capsys, args, expected):
    found = plan_json(capsys, *args)
    words = shlex.split(" ".join(found["command"]))
    several = found["gpus"] > 1
    assert (words[0] == "torchrun") == several
    typed = words[words.index("heedful") + 1 :]
    assert typed[0] == "train"
    recipe = recipe_of(arguments.parse("train", typed[1:]))
    best, t = found["best"], recipe.train
    assert t.steps == best["steps"] and t.batch_tokens == found["batch_tokens"]
    assert t.accumulation_steps == best["micro_batches"] and t.compile and t.precision == "bf16"
    assert t.activation_checkpointing == best["activation_checkpointing"]
    assert read_way(t.parallel) == (Way(best["parallel"], best["tensor"]) if several else Way())
    assert t.optimizer == "adamw" and t.ema_decay == 0  # as the memory is counted
    known = {"task": recipe.task, **vars(recipe.data), **recipe.model.sizes}
    assert expected.items() <= known.items()
    for line in found["command"][:2] if several else []:
        assert "heedful" in line or line.startswith(("torchrun", "--rdzv"))


def test_json_has_every_way_with_its_parts(capsys):
    found = plan_json(capsys, "gpt2-xl", "--gpus", "16", "--tokens", "30B", "--price", "2", "--watts", "1000")
    assert found["parameters"] == 1_557_611_200 and found["fits"] and len(found["plans"]) == 3
    assert sum(part["parameters"] for part in found["parts"]) == found["parameters"]
    for way in found["plans"]:
        memory, step = dict(way["memory"]), dict(way["step"])
        assert memory.pop("total") == pytest.approx(sum(memory.values()))
        assert step.pop("total") == pytest.approx(sum(step.values()))
        assert way["dollars"] == pytest.approx(2 * way["gpu_hours"]) and way["kwh"] == way["gpu_hours"]
        assert way["activations"]["checkpointed"] < way["activations"]["kept"]
        assert way["fits"] == (way["memory"]["total"] <= found["room"])
        assert 0 < way["utilization"] < 1


def test_an_architecture_compares_its_presets(capsys):
    found = plan_json(capsys, "gpt3", "--gpus", "1024", "--gpu", "a100")
    sizes = {size["preset"]: size for size in found["presets"]}
    assert len(sizes) == 8 and sizes["gpt3-175b"]["parameters"] == 174_604_259_328
    assert all(size["tokens"] == 300e9 for size in sizes.values())
    assert sizes["gpt3-175b"]["flops"] == pytest.approx(3.14e23, rel=0.05)
    days = [size["best"]["days"] for size in sizes.values()]
    assert days[0] < days[-1] / 100
    assert [one["name"] for one in found["lectures"]] == ["GPT-1", "GPT-2", "GPT-3", "GPT-3.5", "GPT-4"]


def test_gpt_is_shown_as_in_the_lectures(capsys):
    out = plan(capsys, "gpt3", "--gpus", "1024")
    assert max(map(len, out.splitlines())) <= WIDTH
    for told in ("117 M", "1.5 B", "175 B", "499 B tokens", "BooksCorpus", "WebText", "undisclosed"):
        assert told in out


def test_a_folder_is_planned_by_its_config(capsys, tmp_path):
    saved("gpt2", tmp_path / "mine")
    found = plan_json(capsys, str(tmp_path / "mine"), "--gpus", "2")
    assert found["model"] == "mine" and found["architecture"] == "gpt2"
    assert "--run runs/mine" in " ".join(found["command"])


def test_kinds_of_gpus_are_those_of_the_table():
    hints = typing.get_type_hints(PlanOptions, include_extras=True)
    assert arguments.kinds_of(hints["gpu"]) == list(gpus())


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["gpt22"], 'there is no preset "gpt22"; did you mean "gpt2"?'),
        ([], "plan needs a MODEL"),
        (["gpt2", "--gpus", "0"], "--gpus must be from 1 to 1,048,576, not 0"),
        (["gpt2", "--gpus", "12", "--gpus-per-machine", "8"], "are not whole machines"),
        (["gpt2", "--gpu", "h20"], "--gpu takes h200 or h100 or a100, not 'h20'; did you mean \"h200\"?"),
        (["gpt2", "--tokens", "lots"], "--tokens is a number of tokens such as 300B, 1.5T or 524288, not"),
        (["gpt2", "--batch", "3"], "--batch 3 is less than one row of 1,024 tokens: give at least that many"),
        (["gpt2", "--context", "0"], "--context must be from 1 to 16,777,216, not 0"),
        (["gpt2", "--context", "2048"], "does not fit the learned position table of 1024"),
        (["gpt2", "--price", "nan"], "--price must be from 0 to 1,000,000, not nan"),
        (["gpt2", "--watts", "-1"], "--watts must be from 0 to 1,000,000, not -1"),
        (["gpt2", "--network", "pigeons"], "--network is a number of Gb/s per machine or one of ndr"),
        (
            ["gpt2", "--set", "layers=3"],
            "--set takes model.NAME=VALUE, such as model.layers=24, not 'layers=3'",
        ),
        (["gpt2", "--set", "model.laiers=3"], 'there is no size "laiers"'),
        (["lstm-large"], "the time of this model cannot be predicted: 71% of its FLOPs"),
        (["nowhere/model"], "nowhere/model is not a folder"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_planned_is_refused(capsys, args, told):
    assert main(["plan", *args]) == 2
    assert told in capsys.readouterr().err
