"""Attention: the formula against loops and torch; every kernel against the formula."""

import itertools
import math

import pytest
import torch
from helpers import attention_cases
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from heedful.parts.attention import (
    Additive,
    Bilinear,
    Dot,
    ScaledDot,
    SoftCapped,
    attend_plain,
    attention_weights,
    masked_softmax,
)
from heedful.parts.fused import attend_flex, attend_fused, attend_open, attend_sdpa, full_pays, open_pays
from heedful.parts.masks import causal, full, padding
from heedful.parts.multihead import MultiHeadAttention
from heedful.parts.positions.relative import ALiBi, Shaw
from heedful.parts.positions.rotary import Rotary
from heedful.parts.view import View

B, T, S, H, G, K, Kv = 2, 5, 7, 6, 3, 4, 8


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(7)


def test_formula_equals_a_loop_over_everything():
    q, k, v = normal(B, H, T, K), normal(B, G, S, K), normal(B, G, S, Kv)
    allowed, bias = torch.rand(B, H, T, S) < 0.7, normal(B, H, T, S)
    allowed[0, 1, 2] = False
    expected = torch.zeros(B, H, T, Kv, dtype=torch.float64)
    for b, h, t in itertools.product(range(B), range(H), range(T)):
        scores = {
            s: sum(q[b, h, t, i] * k[b, h // 2, s, i] for i in range(K)) / math.sqrt(K) + bias[b, h, t, s]
            for s in range(S)
            if allowed[b, h, t, s]
        }
        total = sum(math.exp(score) for score in scores.values())
        for s, score in scores.items():
            expected[b, h, t] += math.exp(score) / total * v[b, h // 2, s]
    torch.testing.assert_close(attend_plain(q, k, v, allowed, bias), expected, atol=1e-12, rtol=0)


# Every kernel gives the formula, forwards and backwards.

# Against fp64: (forward, backward) as a share of the largest number in the answer.
TOLERANCE = {
    torch.float64: (1e-12, 1e-11),
    torch.float32: (3e-6, 1e-5),
    torch.float16: (3e-3, 1e-2),
    torch.bfloat16: (2e-2, 6e-2),
}


def answer(attend, problem):
    out = attend(problem.q, problem.k, problem.v, problem.mask, problem.bias, problem.scale)
    out.backward(torch.linspace(-1, 1, out.numel()).view_as(out).to(out.dtype))
    return out.detach(), [leaf.grad for leaf in problem.leaves()]


def assert_near(found, expected, tolerance, about):
    assert found.isfinite().all(), about
    size = max(1.0, float(expected.abs().max())) if expected.numel() else 1.0
    assert (found.double() - expected).abs().max() <= tolerance * size, about


@pytest.mark.parametrize("block", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 3))])
@given(st.integers(0, 10**8))
@settings(max_examples=80, deadline=None, derandomize=True)
def test_plain_and_sdpa_agree_forwards_and_backwards_and_flex_forwards(block, seed):
    problem, dtype = attention_cases.make(block * 10**8 + seed)
    exact, exact_grads = answer(attend_plain, problem.to(torch.float64))
    forwards, backwards = TOLERANCE[dtype]
    for attend in (attend_plain, attend_open, attend_sdpa, attend_fused):
        out, grads = answer(attend, problem.to(dtype))
        assert out.dtype == dtype
        assert_near(out, exact, forwards, f"{attend.__name__}, {problem.about}")
        for found, expected in zip(grads, exact_grads, strict=True):
            assert_near(found, expected, backwards, f"{attend.__name__} backward, {problem.about}")
    q, k, v, *bias = (leaf.to(dtype) for leaf in problem.leaves())  # no gradients: no backward on the CPU
    out = attend_flex(q, k, v, problem.mask, *(bias or [None]), problem.scale)
    assert_near(out, exact, forwards, f"attend_flex, {problem.about}")


def test_half_precision_is_not_left_to_the_open_formula(monkeypatch):
    """Scores beyond what fp16 can hold: torch's kernel adds them up in fp32."""
    q, k, v = (torch.full((1, 1, 3, 64), 60.0, dtype=torch.float16, requires_grad=True) for _ in range(3))
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert open_pays(q.float(), k.float()) and not open_pays(q, k)
    assert attend_fused(q, k, v).isfinite().all() and not attend_open(q, k, v).isfinite().all()
    with torch.autocast("cpu", torch.bfloat16):
        assert not open_pays(q.float(), k.float())
    with torch.no_grad():
        assert not open_pays(q.float(), k.float())


def test_sentences_in_half_precision_attend_in_full_on_a_cpu():
    """The fp32 attention of what was rounded, forwards and backwards, also where autocast would round."""
    q, k, v, slope = (torch.randn(2, 3, T, 4).bfloat16() for T in (5, 7, 7, 5))
    view = View(causal(), 5, 7, "cpu")
    half = [x.clone().requires_grad_() for x in (q, k, v)]
    full = [x.float().requires_grad_() for x in (q, k, v)]
    assert full_pays(q, k) and not full_pays(q.float(), k)
    with torch.autocast("cpu", torch.bfloat16):
        found = attend_fused(*half, view)
    expected = attend_fused(*full, view)
    assert found.dtype == torch.bfloat16 and torch.equal(found, expected.bfloat16())
    mine, its = (
        torch.autograd.grad(out, given, slope.to(out.dtype))
        for out, given in ((found, half), (expected, full))
    )
    for a, b in zip(mine, its, strict=True):
        assert torch.equal(a, b.bfloat16())
    assert not full_pays(
        torch.empty(1, 1, 300, 4, dtype=torch.bfloat16), k
    )  # torch's kernel is the quicker one then
    with torch.no_grad():
        assert not full_pays(q, k)


@pytest.mark.parametrize("attend", [attend_plain, attend_open, attend_sdpa, attend_fused, attend_flex])
@pytest.mark.parametrize("bias", [None, "bias"])
@pytest.mark.parametrize("kind", ["table", "strict", "nobody", "lengths"])
def test_a_row_with_nobody_to_look_at_gives_zeros_and_no_gradient(attend, bias, kind):
    q, k, v = (normal(B, H, n, K).requires_grad_() for n in (T, T, T))
    bias = None if bias is None else normal(1, H, T, T)
    mask = {
        "table": torch.arange(T)[:, None] > torch.arange(T),
        "strict": View(causal(strict=True), T, T),
        "nobody": View(full(), T, T, k_pos=torch.full((B, T), -1)),
        "lengths": View(padding(torch.tensor([0, 3])), T, T),
    }[kind]
    empty = {"table": (..., 0, slice(None)), "strict": (..., 0, slice(None)), "nobody": ..., "lengths": 0}[
        kind
    ]
    if attend is attend_flex:
        out = attend(q.detach(), k.detach(), v.detach(), mask, bias)
        assert (out[empty] == 0).all() and out.isfinite().all()
        return
    out = attend(q, k, v, mask, bias)
    assert (out[empty] == 0).all() and out.isfinite().all()
    out.sum().backward()
    assert (q.grad[empty] == 0).all()
    assert all(t.grad.isfinite().all() for t in (q, k, v))


def test_weights_sum_to_one_and_shuffling_keys_changes_nothing():
    q, k, v = normal(B, H, T, K), normal(B, H, S, K), normal(B, H, S, Kv)
    weights = attention_weights(q, k)
    torch.testing.assert_close(weights.sum(-1), torch.ones(B, H, T, dtype=torch.float64))
    order = torch.randperm(S)
    torch.testing.assert_close(attend_plain(q, k[:, :, order], v[:, :, order]), attend_plain(q, k, v))


def test_equal_keys_give_the_mean_of_the_values():
    q, v = normal(B, H, T, K), normal(B, H, S, Kv)
    k = normal(B, H, 1, K).expand(B, H, S, K)
    torch.testing.assert_close(attend_plain(q, k, v), v.mean(2, keepdim=True).expand(B, H, T, Kv))


def test_a_very_negative_bias_silences_a_key():
    q, k = normal(B, H, T, K), normal(B, H, S, K)
    bias = torch.zeros(S, dtype=torch.float64)
    bias[3] = -1e9
    assert (attention_weights(q, k, bias=bias)[..., 3] == 0).all()


def test_dot_products_of_unit_vectors_have_variance_k_until_scaled():
    q, k = torch.randn(1, 1, 4000, 64), torch.randn(1, 1, 500, 64)
    assert Dot()(q, k).var().item() == pytest.approx(64, rel=0.05)
    assert ScaledDot()(q, k).var().item() == pytest.approx(1, rel=0.05)


def test_multiplying_by_a_zero_one_matrix_is_not_masking():
    """One lecture multiplies the weights by 0 and 1: rows no longer sum to one.

    Minus infinity renormalizes.
    """
    scores = normal(1, 1, 4, 4)
    allowed = torch.ones(4, 4).tril().bool()
    multiplied, masked = scores.softmax(-1) * allowed, masked_softmax(scores, allowed)
    assert not torch.allclose(multiplied.sum(-1), torch.ones(4, dtype=torch.float64))
    torch.testing.assert_close(multiplied / multiplied.sum(-1, keepdim=True), masked)


def test_softmax_is_in_fp32_even_for_half_precision():
    scores = (torch.randn(1, 1, 3, 4096) * 3).half()
    expected = scores.double().softmax(-1)
    assert (masked_softmax(scores).double() - expected).abs().max() < 5e-4 * expected.max()
    assert masked_softmax(scores).dtype == torch.float16


# Scores


def test_bilinear_and_additive_scores_are_their_formulas():
    q, k = normal(B, H, T, K), normal(B, H, S, Kv)
    bilinear, additive = Bilinear(K, Kv).double(), Additive(K, Kv, 9).double()
    found, loud = bilinear(q, k), additive(q, k)
    W, Wq, Wk = bilinear.W, additive.query.weight, additive.key.weight
    for b, h, t, s in itertools.product(range(B), range(H), range(T), range(S)):
        torch.testing.assert_close(found[b, h, t, s], q[b, h, t] @ W @ k[b, h, s])
        inside = torch.tanh(Wq @ q[b, h, t] + Wk @ k[b, h, s] + additive.key.bias)
        torch.testing.assert_close(loud[b, h, t, s], (additive.score.weight @ inside)[0])


def test_concat_of_luong_is_additive():
    """w . tanh([q ; k] W) is w . tanh(q W_q + k W_k) with W cut in two."""
    q, k, W, w = normal(K), normal(Kv), normal(K + Kv, 9), normal(9)
    torch.testing.assert_close(w @ torch.tanh(torch.cat([q, k]) @ W), w @ torch.tanh(q @ W[:K] + k @ W[K:]))


def test_soft_capped_scores_stay_below_the_cap():
    q, k = 100 * normal(B, H, T, K), normal(B, H, S, K)
    capped = SoftCapped(ScaledDot(), 5.0)(q, k)
    assert capped.abs().max() <= 5
    torch.testing.assert_close(capped, 5 * torch.tanh(ScaledDot()(q, k) / 5))


# The layer


@pytest.mark.parametrize("cross", [False, True])
def test_multi_head_attention_equals_torch(cross):
    width, source_width = 18, 10 if cross else 18
    theirs = nn.MultiheadAttention(
        width, 3, batch_first=True, kdim=source_width if cross else None, vdim=source_width if cross else None
    ).double()
    ours = MultiHeadAttention(width, 3, source_width=source_width).double()
    with torch.no_grad():
        if cross:
            weights = (theirs.q_proj_weight, theirs.k_proj_weight, theirs.v_proj_weight)
        else:
            weights = theirs.in_proj_weight.chunk(3)
        theirs.in_proj_bias.normal_()
        for layer, weight, bias in zip(
            (ours.query, ours.key, ours.value), weights, theirs.in_proj_bias.chunk(3), strict=True
        ):
            layer.weight.copy_(weight)
            layer.bias.copy_(bias)
        ours.out.load_state_dict(theirs.out_proj.state_dict())
    x, source = normal(B, T, width), normal(B, S, source_width)
    lengths = torch.tensor([4, 7] if cross else [3, 5])
    size = S if cross else T
    dead = torch.arange(size) >= lengths[:, None]
    kv = source if cross else x
    expected, _ = theirs(x, kv, kv, key_padding_mask=dead)
    view = View(padding(lengths), T, size)
    torch.testing.assert_close(ours(x, view, source if cross else None), expected)


def test_widths_are_free():
    layer = MultiHeadAttention(18, 4, kv_heads=2, key_width=5, value_width=3, source_width=11)
    assert layer(torch.randn(B, T, 18), None, torch.randn(B, S, 11)).shape == (B, T, 18)
    assert [tuple(p.shape) for p in layer.parameters() if p.ndim == 2] == [
        (20, 18),
        (10, 11),
        (6, 11),
        (18, 12),
    ]


@pytest.mark.parametrize("heads, kv_heads, numbers", [(5, None, "18 .* 5"), (6, 4, "6 .* 4")])
def test_impossible_heads_are_refused_with_both_numbers(heads, kv_heads, numbers):
    with pytest.raises(ValueError, match=numbers):
        MultiHeadAttention(18, heads, kv_heads=kv_heads)


@pytest.mark.parametrize(
    "score", [Dot(), ScaledDot(), Bilinear(4, 4), Additive(4, 4, 7), SoftCapped(Dot(), 3.0)]
)
@pytest.mark.parametrize("position", [None, Rotary(4), ALiBi(6), Shaw(2, 4)])
def test_the_layer_gives_the_same_by_kernel_and_openly(score, position):
    layer = MultiHeadAttention(24, 6, kv_heads=3, score=score, position=position).double()
    x = normal(B, T, 24)
    view = View(causal() & padding(torch.tensor([2, 5])), T, T)
    fast = layer(x, view)
    layer.attend = layer.attend_recorded
    torch.testing.assert_close(layer(x, view), fast)


def test_attention_ignores_order():
    layer = MultiHeadAttention(12, 3).double()
    x, order = normal(B, T, 12), torch.randperm(T)
    torch.testing.assert_close(layer(x[:, order]), layer(x)[:, order])


def test_queries_and_keys_can_be_normalized():
    from heedful.parts.layers import RMSNorm

    layer = MultiHeadAttention(12, 3, qk_norm=RMSNorm)
    x = torch.randn(B, T, 12)
    k, _ = layer.split_keys_values(layer.key(x), layer.value(x))
    torch.testing.assert_close(k.square().mean(-1), torch.ones(B, 3, T), atol=1e-3, rtol=0)


def test_dropout_applies_in_training_only():
    layer = MultiHeadAttention(12, 3, dropout=0.5)
    x = torch.randn(B, T, 12)
    assert not torch.equal(layer(x), layer(x))
    layer.eval()
    assert torch.equal(layer(x), layer(x))


def test_flex_refuses_dropout_and_the_choice_routes_around_it():
    q = torch.randn(1, 1, 4, 8)
    with pytest.raises(ValueError, match="dropout"):
        attend_flex(q, q, q, dropout=0.1)
    assert attend_fused(q, q, q, dropout=0.1).shape == q.shape
