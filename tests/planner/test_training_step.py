"""The computing of a step: its parts add up, and masks, precision and sharing show."""

import pytest

from heedful.errors import BadInput
from heedful.models import find_preset
from heedful.models.base.skeleton import skeleton
from heedful.parts.masks import causal, full, window
from heedful.planner.machines import find_gpu
from heedful.planner.rates import Rates
from heedful.planner.training_step import compute_time, count_costs, share_seen, update_time

RATES = Rates(find_gpu("h200"))


def time_of(name: str, rows: int = 8, length: int = 512, tensor: int = 1, compiled: bool = True):
    model = skeleton(*find_preset(name))
    return compute_time(RATES, model, count_costs(model, rows, length), tensor, compiled)


@pytest.mark.parametrize(
    ("masks", "length", "share"),
    [
        ((full(),), 512, 1.0),
        ((causal(),), 4096, 0.5),
        ((causal(), full()), 512, 0.75),
        ((causal() & window(64),), 4096, 64 / 4096),
        ((), 512, 1.0),
    ],
)
def test_the_share_that_masks_let_through(masks, length, share):
    assert share_seen(masks, length) == pytest.approx(share, abs=0.01)


def test_a_step_is_its_micro_batches_and_one_update():
    one = time_of("gpt2")
    assert one.step(3) == pytest.approx(3 * (one.forward + one.backward) + one.update)
    again = sum(section.forward for section in one.sections if section.is_block)
    assert one.step(3, recompute=True) == pytest.approx(one.step(3) + 3 * again)
    assert 1.8 < one.backward / one.forward < 2.6


def test_pieces_are_the_blocks_in_order_and_the_rest():
    found = time_of("gpt2").sections
    assert [section.is_block for section in found] == 12 * [True] + [False]
    assert sum(section.parameters for section in found) == 124_439_808


def test_compiling_saves_time_and_rows_cost_time():
    assert time_of("gpt2").step() < time_of("gpt2", compiled=False).step()
    assert 1.6 < time_of("gpt2", rows=16).step() / time_of("gpt2", rows=8).step() < 2


def test_gpus_that_share_products_are_faster_and_never_in_proportion():
    alone, shared = time_of("gpt2-xl"), time_of("gpt2-xl", tensor=4)
    assert alone.forward / 4 < shared.forward < alone.forward
    assert shared.update == pytest.approx(update_time(RATES, 1_557_611_200 / 4))


def test_an_encoder_sees_both_ways_and_a_decoder_one():
    model = skeleton(*find_preset("transformer-base"))
    found = count_costs(model, 4, 1024, 1024)
    before = compute_time(RATES, model, found).forward
    model.encoder.masks = (causal(),)
    assert compute_time(RATES, model, found).forward < before


def test_models_that_are_no_transformers_are_refused():
    with pytest.raises(BadInput, match="the time of this model cannot be predicted: 71% of its FLOPs"):
        time_of("lstm-large")
