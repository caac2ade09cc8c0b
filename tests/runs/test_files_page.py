"""The page on files names what a run writes: every file of its folder, and every key of its log."""

import json
import re
from pathlib import Path

import pytest
from helpers.runs import (
    CPU,
    Quiet,
    recipe_for,
    texts,  # noqa: F401 (fixtures)
)

from heedful.runs import trainer

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "files.md").read_text(encoding="utf-8")
SHORT_LIVED = {"lock"}  # while a process writes


@pytest.mark.parametrize("task", ["translate", "classify", "mlm"])
def test_every_file_of_a_run_is_on_the_page(task, texts, tmp_path):
    trainer.start(recipe_for(task, texts), tmp_path / "run", Quiet(), CPU)
    written = {path.name for path in (tmp_path / "run").iterdir()} - SHORT_LIVED
    assert "metrics.jsonl" in written and "checkpoints" in written
    assert written - set(re.findall(r"[\w.-]+\w", PAGE)) == set()
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    keys = {key for line in lines for key in line if not key.startswith("valid_")}
    assert {"loss", "rate", "norm"} <= keys and keys - set(re.findall(r"`(\w+)`", PAGE)) == set()
