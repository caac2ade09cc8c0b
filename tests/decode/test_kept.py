"""A kept step gives the scores of a fresh one, whatever it was fed before."""

import pytest
import torch
from helpers import tiny

from heedful.decode.kept import KeptStep
from heedful.decode.step import step_of


@pytest.fixture(scope="module")
def model():
    return tiny.build(tiny.DECODERS["gpt2"]).eval()


def rows(*tokens: int) -> torch.Tensor:
    return torch.tensor([tokens])


@pytest.mark.parametrize("prompt", [(3, 1, 4, 9), (3, 1, 4, 1, 5, 9, 2), (7, 2), (3,)])
def test_scores_are_those_of_a_fresh_step(model, prompt):
    kept = KeptStep()
    with torch.no_grad():
        kept.instead_of(step_of(model)).last(rows(3, 1, 4, 1, 5))
        for name in ("last", "__call__"):
            again, fresh = kept.instead_of(step_of(model)), step_of(model)
            found, expected = (getattr(one, name)(rows(*prompt)) for one in (again, fresh))
            assert found.shape == expected.shape and (found - expected).abs().max() < 1e-9
            after = [one.last(rows(6)) for one in (again, fresh)]  # both go on from the same tokens
            assert (after[0] - after[1]).abs().max() < 1e-9


def test_other_rows_are_refused(model):
    kept = KeptStep()
    kept.instead_of(step_of(model)).reorder(torch.tensor([0]))
    with pytest.raises(ValueError, match="one row"):
        kept.reorder(torch.tensor([0, 0]))
