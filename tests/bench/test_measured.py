"""Steps that were measured on a GPU, beside the planner's predictions."""

from pathlib import Path

import pytest

from heedful.bench.measured import measured_steps, measured_table
from heedful.bench.ours import gpu_called

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "planning.md"
CLOSE = 0.15
STEPS = measured_steps()


def name_of(step) -> str:
    return step.name if step.compiled else f"{step.name}, not compiled"


@pytest.mark.parametrize("step", STEPS, ids=name_of)
def test_predictions_are_within_15_percent_of_measurements(step):
    assert abs(step.error) <= CLOSE


def test_measurements_are_those_of_the_results():
    text = (PAGE.parents[2] / "benchmarks" / "RESULTS.md").read_text()
    for step in STEPS:
        assert f" {step.ms:g} " in text, step


def test_the_page_shows_the_comparison():
    assert measured_table() in PAGE.read_text()


@pytest.mark.parametrize(
    ("called", "name"),
    [
        ("NVIDIA H200", "NVIDIA H200 SXM"),
        ("NVIDIA A100-SXM4-80GB", "NVIDIA A100 SXM, 80 GB"),
        ("Tesla T4", None),
        (None, None),
    ],
)
def test_a_gpu_is_found_by_what_it_calls_itself(called, name):
    found = gpu_called(called)
    assert (found and found.name) == name
