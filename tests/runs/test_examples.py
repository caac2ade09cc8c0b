"""Examples at evaluations: all at the first, afterwards those that changed."""

import pytest
from helpers.runs import (
    CPU,
    Quiet,
    recipe_for,
    texts,  # noqa: F401 (fixtures)
)

from heedful.runs import trainer
from heedful.runs.training import changed_examples


def test_the_first_evaluation_shows_every_example():
    assert changed_examples([], ["a", "b\nc"]) == ["a", "b\nc"]
    assert changed_examples([], []) == []


def test_later_evaluations_show_what_changed_and_count_the_rest():
    assert changed_examples(["a", "b", "c"], ["a", "d", "c"]) == ["d", "    (2 of 3 examples unchanged)"]
    assert changed_examples(["a", "b"], ["c", "d"]) == ["c", "d"]
    assert changed_examples(["a", "b"], ["a", "b"]) == ["    (2 of 2 examples unchanged)"]


@pytest.mark.parametrize("task", ["translate", "mlm", "image-classify", "summarize"])
def test_a_run_that_stands_still_shows_its_examples_once(task, texts, tmp_path):
    talk = Quiet()
    still = {"train.learning_rate": 1e-12, "evaluate.every": 1, "evaluate.examples": 2}
    trainer.start(recipe_for(task, texts, steps=4, **still), tmp_path / "run", talk, CPU)
    examples = [line for line in talk.lines if " → " in line]
    assert len(examples) == 2
    assert talk.lines.count("    (2 of 2 examples unchanged)") == 3
