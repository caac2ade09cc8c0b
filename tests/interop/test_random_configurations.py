"""Random configurations of every family: each gives transformers' numbers or is refused."""

from collections import Counter

import pytest
from helpers import hf_zoo
from helpers.encoder_cases import _no_progress_bars  # noqa: F401 (fixtures)
from helpers.random_settings import outcome

FIRST, MANY = 1000, 200  # seeds that no other test uses


def check(name, seeds, folder) -> Counter:
    """How often each outcome came; anything but "equal" and "refused" fails."""
    found = Counter(outcome(name, seed, folder / str(seed)) for seed in seeds)
    wrong = [what for what in found if what not in ("equal", "refused")]
    assert not wrong, f"{len(wrong)} of {found.total()} configurations:\n" + "\n".join(wrong)
    return found


@pytest.mark.parametrize("name", hf_zoo.FAMILIES)
def test_two_random_configurations_are_equal_or_refused(name, tmp_path):
    check(name, range(2), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", hf_zoo.FAMILIES)
def test_two_hundred_random_configurations_are_equal_or_refused(name, tmp_path):
    found = check(name, range(FIRST, FIRST + MANY), tmp_path)
    print(f"{name}: {dict(found)}")
    assert found["equal"] >= MANY / 4, "a reader that refuses everything proves nothing"
