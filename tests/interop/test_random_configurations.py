"""Random configurations of every family: each gives transformers' numbers or is refused."""

from collections import Counter

import pytest
from helpers import hf_zoo
from helpers.encoder_cases import _no_progress_bars  # noqa: F401 (fixtures)
from helpers.random_settings import compared, in_common_names, outcome, without_its_class

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


PARTS = (
    "Model",
    "ForMaskedLM",
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForQuestionAnswering",
)


@pytest.mark.parametrize("name", ["bert", "roberta", "distilbert", "albert", "deberta"])
def test_a_folder_that_names_no_class_is_read_by_its_weights(name, tmp_path):
    cases = {}
    for seed in range(60):
        case = hf_zoo.make(name, seed)
        cases.setdefault(type(case.theirs).__name__, case)
    for part in PARTS:
        case = next(case for kind, case in cases.items() if kind.endswith(part))
        assert compared(case, {}, tmp_path / part, without_its_class) == "equal", part


@pytest.mark.parametrize("name", ["gpt1", "gpt2", "t5", "distilbert", "transformer", "bart"])
def test_settings_may_have_the_names_that_all_families_share(name, tmp_path):
    assert compared(hf_zoo.make(name, 3), {}, tmp_path, in_common_names) == "equal"


@pytest.mark.parametrize("name", ["bert", "vit"])
def test_an_encoder_that_sees_only_the_past_is_refused(name, tmp_path):
    assert compared(hf_zoo.make(name, 3), {"is_causal": True}, tmp_path) == "refused"


def test_two_names_of_one_setting_must_agree(tmp_path):
    def twice(said, config):
        return said | {"num_hidden_layers": said["n_layer"] + 1}

    assert compared(hf_zoo.make("gpt2", 3), {}, tmp_path, twice) == "refused"
