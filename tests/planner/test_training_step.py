"""The computing of a step: its parts add up, and masks, precision and sharing show."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from heedful.errors import BadInput
from heedful.inside.costs.operations import AttentionProducts, VectorPass
from heedful.models import family, find_preset
from heedful.models.base.skeleton import skeleton
from heedful.models.transformer import TransformerConfig
from heedful.parts.masks import causal, full, window
from heedful.planner.machines import find_gpu
from heedful.planner.rates import Rates
from heedful.planner.training_step import compute_time, count_costs, operation_time, share_seen, update_time

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


class Dropped(TorchDispatchMode):
    """Counts the masks that dropout draws."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func is torch.ops.aten.bernoulli_.float
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("activation_dropout", [0.0, 0.1])
def test_passes_of_dropout_are_those_that_a_plain_step_makes(activation_dropout):
    config = TransformerConfig(
        vocab=17, target_vocab=17, context=9, layers=2, decoder_layers=3, width=8, heads=2, ffn_width=12,
        dropout=0.1, activation_dropout=activation_dropout,
    )  # fmt: skip
    model = family("transformer").build(config).train()
    found = count_costs(model, 2, 5, 7)
    passes = [run for run in found.whole.operations if isinstance(run, VectorPass) and run.kind == "dropout"]
    source_BS, target_BT = torch.zeros(2, 7, dtype=torch.long), torch.zeros(2, 5, dtype=torch.long)
    with Dropped() as seen:
        model(source_BS, target_BT)
    assert len(passes) == seen.count - 2  # the inputs' own, one for each side, is a part of their kernel
    compiled, eager = (compute_time(RATES, model, found, compiled=way) for way in (True, False))
    assert compiled.step() < eager.step()


def test_the_kernel_for_short_texts_is_that_of_compiled_steps():
    run = AttentionProducts(tables=3072, queries=64, keys=64, width=64)
    short, usual = (operation_time(RATES, run, 1.0, compiled) for compiled in (True, False))
    assert short == RATES.attention(run, 1.0, short=True)
    assert usual[0] > RATES.attention(run, 1.0, short=False)[0] > short[0]
