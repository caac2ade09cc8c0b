"""Runs on shards are those on one store: the same losses, and a process reads its own rows only."""

import json
from pathlib import Path

import pytest
import torch

from heedful.data import sections, workers
from heedful.data.shards import Shards, opened
from heedful.data.store import Store
from heedful.data.tokenizing import KEPT
from heedful.runs import trainer
from heedful.tasks import recipe

CPU = torch.device("cpu")
TINY = {
    "data.tokenizer": "char",  # whose tokens do not depend on where a text is cut
    "model.layers": 1,
    "model.width": 12,
    "model.heads": 3,
    "model.ffn_width": 20,
    "model.context": 24,
    "train.batch_tokens": 100,
    "train.steps": 5,
    "train.warmup_steps": 2,
    "evaluate.every": 3,
    "evaluate.rows": 7,
    "evaluate.examples": 2,
}
KINDS = {
    "windows": ("lm", {}),
    "documents": ("lm", {"data.pack": "documents"}),
    "segments": ("lm", {"model.architecture": "xl", "model.memory_length": 8}),
    "blanks": ("mlm", {}),
    "pairs": ("mlm", {"data.pairs": True}),
}


class Quiet:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)

    def step(self, progress, steps) -> None:
        pass


@pytest.fixture
def corpus(tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    for n in range(9):
        lines = [f"line {i * i % 17} of {n} éàü {i % (n + 2)}" for i in range(20 + 60 * (n % 3))]
        (folder / f"{n}.txt").write_text("\n".join(lines) + "\n" * (n % 2))
    return folder


def run(kind: str, corpus: Path, folder: Path) -> tuple[list[dict], list[str]]:
    task, settings = KINDS[kind]
    asked = recipe.make(task, settings={**TINY, **settings, "data.text": str(corpus)})
    talk = Quiet()
    assert trainer.start(asked, folder, talk, CPU).finished
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()], talk.lines


@pytest.mark.parametrize("kind", KINDS)
def test_losses_on_shards_are_those_on_one_store(kind, corpus, tmp_path, monkeypatch):
    expected, _ = run(kind, corpus, tmp_path / "one" / "run")
    assert isinstance(opened(tmp_path / "one" / "run" / "train"), Store)
    assert not (tmp_path / "one" / KEPT).exists()  # a short text leaves nothing beside the run
    monkeypatch.setattr(sections, "PART", 1500)
    monkeypatch.setattr(workers, "MOST", 1)
    found, _ = run(kind, corpus, tmp_path / "many" / "run")
    assert isinstance(opened(tmp_path / "many" / "run" / "train"), Shards)
    assert found == expected
    again, said = run(kind, corpus, tmp_path / "many" / "second")
    assert again == expected
    assert sum("an earlier run of the same text" in line for line in said) >= 1
