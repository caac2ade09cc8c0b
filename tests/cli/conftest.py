"""What tests of the commands share: calls with lines on stdin, and small runs to evaluate."""

import io
import json
import random
import sys
from pathlib import Path

import pytest
import torch
from helpers.runs import CPU, TINY, Quiet, started_from
from helpers.small_runs import small_run  # noqa: F401 (fixtures)

import heedful
from heedful.cli.main import main
from heedful.runs import trainer
from heedful.tasks import recipe


def label_of(line: str) -> str:
    return {"e": "front", "i": "front", "a": "mixed"}.get(line[1], "back")


@pytest.fixture
def given(small_run, monkeypatch, capsysbinary):
    """Runs a command with lines on stdin; gives exit code, output lines and what was said."""

    def call(command: str, run: str, *args: str, stdin: bytes | str = b"") -> tuple[int, list[str], str]:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        code = main([command, small_run(run) if "/" not in run else run, *args])
        out, err = capsysbinary.readouterr()
        return code, out.decode().split("\n"), err.decode()

    return call


@pytest.fixture
def load(small_run):
    return lambda name: heedful.load(small_run(name))


@pytest.fixture(scope="session")
def files(tmp_path_factory) -> dict[str, str]:
    """A toy translation (each word upper-cased, their order turned round), a text, and texts with labels."""
    folder = tmp_path_factory.mktemp("files")
    rng = random.Random(0)
    words = [f"{a}{b}" for a in "bdfgk" for b in "aeiou"]
    lines = [" ".join(rng.choices(words, k=n % 5 + 2)) for n in range(137)]
    turned = [" ".join(reversed(line.upper().split())) for line in lines]
    texts = {
        "a.src": lines[:100],
        "a.tgt": turned[:100],
        "v.src": lines[100:],
        "v.tgt": turned[100:],
        "text": lines,
        "a.tsv": ["sentence\tlabel", *(f"{line}\t{label_of(line)}" for line in lines[:100])],
        "v.tsv": ["sentence\tlabel", *(f"{line}\t{label_of(line)}" for line in lines[100:])],
    }
    for name, start, end in (("a.pairs", 0, 100), ("v.pairs", 100, 137)):
        both = zip(lines[start:end], turned[start:end], strict=True)
        texts[name] = ["source\ttarget", *(f"{a}\t{b}" for a, b in both)]
    for name, some in texts.items():
        (folder / name).write_text("\n".join(some) + "\n")
    return {path.name: str(path) for path in folder.iterdir()}


@pytest.fixture(scope="session")
def trained(files, tmp_path_factory):
    """Makes a run of each kind, once."""
    folder = tmp_path_factory.mktemp("runs")
    pairs = {"data.source": files["a.src"], "data.target": files["a.tgt"], "data.tokenizer": "word"}
    pairs |= {"data.valid_source": files["v.src"], "data.valid_target": files["v.tgt"]}
    table = {"data.table": files["a.tsv"], "data.valid_table": files["v.tsv"], "data.tokenizer": "word"}
    table |= {"train.steps": 60, "train.learning_rate": 1e-2, "model.context": 12, "evaluate.every": 60}
    text = {"data.text": files["text"], "data.tokenizer": "char", "model.context": 13}
    kinds = {
        "translate": (
            "translate",
            pairs
            | {"train.steps": 100, "train.learning_rate": 1e-2, "evaluate.every": 100, "model.dropout": 0.0},
        ),
        "tables": (
            "translate",
            {
                "data.table": files["a.pairs"],
                "data.valid_table": files["v.pairs"],
                "data.joint": False,
                "data.tokenizer": "word",
                "train.steps": 3,
            },
        ),
        "lower": ("translate", pairs | {"data.lowercase": True, "train.steps": 2}),
        "lm": ("lm", text),
        "documents": ("lm", text | {"data.pack": "documents", "train.steps": 5}),
        "mlm": ("mlm", text),
        "pairs": ("mlm", text | {"data.pairs": True, "train.seed": 3}),
        "classify": ("classify", table),
        "decoder": ("classify", table | {"train.from": "lm", "train.steps": 8}),
    }

    def make(kind: str) -> Path:
        path = folder / kind
        if not path.exists():
            task, settings = kinds[kind]
            settings = TINY | {"train.steps": 12} | settings
            if "train.from" in settings:
                settings = started_from(make(settings["train.from"]), settings)
            asked = recipe.make(task, settings=settings)
            with torch.enable_grad():  # whoever asks may have none
                trainer.start(asked, path, Quiet(), CPU)
        return path

    return make


@pytest.fixture
def evaluate(capsys):
    """The JSON that `heedful evaluate` prints; what it says is in .said."""

    def call(*args) -> dict:
        assert main(["evaluate", *map(str, args), "--json"]) == 0
        out, call.said = capsys.readouterr()
        return json.loads(out)

    return call


@pytest.fixture
def fails(capsys):
    """The sentence with which it refuses something."""

    def call(*args, code: int = 2) -> str:
        assert main(["evaluate", *map(str, args)]) == code
        out, err = capsys.readouterr()
        *said, last = err.splitlines()
        assert out == "" and last.startswith("error: ") and all(not line.startswith("error") for line in said)
        return last

    return call
