"""Steps of many GPUs that others published, beside the planner's predictions."""

from pathlib import Path

import pytest

from heedful.bench.published import model_of, published_steps, published_table

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "planning.md"
STEPS = published_steps()


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_published_steps_are_not_faster_than_predicted_ones_and_not_half_as_fast(step):
    assert -0.05 <= step.error <= 1
    if step.gpu == "a100":
        assert step.error <= 0.16


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("mpt-7b", 6_658_859_008), ("mpt-70b", 64_862_437_376), ("llama3-8b", 8_030_261_248)],
)
def test_models_have_as_many_parameters_as_published(name, parameters):
    """Numbers of the table at its source; the learned positions are those of 2,048 tokens."""
    assert sum(weight.numel() for weight in model_of(name, 2048).parameters()) == parameters


def test_the_page_shows_the_comparison():
    assert published_table() in PAGE.read_text()
