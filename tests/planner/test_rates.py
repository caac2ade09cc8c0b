"""Rates: no operation is faster than its device, and what is larger takes longer."""

import math

import pytest

from heedful.inside.costs.operations import AttentionProducts, MatrixProduct
from heedful.planner.machines import find_gpu, gpus
from heedful.planner.rates import BACKWARD, SHORT, START, Rates

SHAPES = [(32768, 768, 2304), (100, 70, 50257), (8192, 8192, 8192), (24576, 512, 512), (1, 4096, 4096)]


@pytest.mark.parametrize("name", gpus())
@pytest.mark.parametrize("shape", SHAPES)
def test_a_product_is_bounded_by_arithmetic_and_by_memory(name, shape):
    gpu, (rows, inner, outer) = find_gpu(name), shape
    seconds = Rates(gpu).product(*shape) - START
    assert seconds >= 2 * math.prod(shape) / (gpu.peak * gpu.products)
    assert seconds >= 2 * (rows * inner + inner * outer + rows * outer) / (gpu.bandwidth * gpu.copies) * 0.999
    assert Rates(gpu).product(rows, 2 * inner, outer) > seconds + START


def test_tiles_that_are_nearly_empty_cost_as_much_as_full_ones():
    rates = Rates(find_gpu("h200"))
    assert rates.product(32768, 8192, 641) == pytest.approx(rates.product(32768, 8192, 768), rel=0.01)
    assert rates.product(32768, 8192, 641) > 1.1 * rates.product(32768, 8192, 640)


def test_a_large_product_runs_at_the_rate_of_the_table():
    gpu = find_gpu("h100")
    seconds = Rates(gpu).product(16384, 16384, 16384)
    assert 2 * 16384**3 / seconds == pytest.approx(gpu.peak * gpu.products, rel=0.03)


def test_gradients_of_a_product_are_two_more():
    rates = Rates(find_gpu("a100"))
    once, back = rates.products_of(MatrixProduct(4096, 1024, 3072))
    assert once == rates.product(4096, 1024, 3072)
    assert back == rates.product(4096, 3072, 1024) + rates.product(1024, 4096, 3072)


def test_attention_skips_what_a_mask_hides():
    rates = Rates(find_gpu("h200"))
    run = AttentionProducts(tables=192, queries=32768, keys=32768, width=64)
    everything, half = rates.attention(run, 1.0, False), rates.attention(run, 0.5, False)
    assert half[0] == pytest.approx(everything[0] / 2, rel=0.05)
    assert half[1] == pytest.approx(BACKWARD * half[0], rel=0.01)


def test_attention_of_short_texts_only_moves_memory():
    gpu = find_gpu("h200")
    run = AttentionProducts(tables=3072, queries=SHORT, keys=SHORT, width=64)
    moved = 2 * run.numbers / (gpu.bandwidth * gpu.copies)
    assert Rates(gpu).attention(run, 0.5, True)[0] == pytest.approx(moved + START)


def test_longer_texts_and_wider_heads_reach_higher_rates():
    rates = Rates(find_gpu("h200"))

    def rate(length: int, width: int) -> float:
        run = AttentionProducts(768, length, length, width)
        return run.flops / rates.attention(run, 1.0, False)[0]

    assert rate(512, 64) < rate(4096, 64) < rate(4096, 128) < find_gpu("h200").peak
