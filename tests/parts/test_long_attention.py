"""Attention for long texts: every fast form equals its definition, forwards and backwards, at its cost."""

import pytest
import torch
import torch.nn.functional as F

from heedful.parts import fused
from heedful.parts.attention import attend_plain
from heedful.parts.fused import attend_fused
from heedful.parts.long import compressed
from heedful.parts.long import linear as linear_attention
from heedful.parts.long import windowed_cache as remember
from heedful.parts.long.compressed import CompressedInput, CompressedKeys
from heedful.parts.long.compressed import compressed as shorten
from heedful.parts.long.linear import KernelAttention, KernelScore, attend_linear, causal_sums, phi
from heedful.parts.long.segments import RecurrentAttention, SegmentMemory
from heedful.parts.long.sparse import Band, attend_gathered, gather_pays, layouts_of
from heedful.parts.masks import PerHead, causal, full, window
from heedful.parts.multihead import MultiHeadAttention, join_heads, split_heads
from heedful.parts.packed_masks import document
from heedful.parts.positions.relative import TransformerXL, shifted
from heedful.parts.sparse_masks import SameBlock, fixed, fixed_steps, strided, strided_steps
from heedful.parts.view import View

B, H, N, K, L = 2, 4, 23, 5, 3
EXACT = 1e-12


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(3)


def close(found, expected):
    torch.testing.assert_close(found, expected, atol=EXACT, rtol=0)


def vectors(*widths, n=N):
    return [torch.randn(B, H, n, width, dtype=torch.float64, requires_grad=True) for width in widths]


# Sparse attention by gathering.

IDS = torch.tensor([[0] * 7 + [1] * 9 + [2] * 7, [0] * 11 + [1] * 12])
NEAR, FAR = strided_steps(4)
OWN, ENDS = fixed_steps(5, 2)
MASKS = {
    "strided, first step": NEAR,
    "strided, second step": FAR,
    "strided, merged": strided(4),
    "strided, by head": PerHead((NEAR, FAR)),
    "fixed, first step": OWN,
    "fixed, second step": ENDS,  # whose first queries see nobody
    "fixed, merged": fixed(5, 2),
    "fixed, a tail for each head": fixed_steps(5, 1, 3)[1],
    "fixed, merged, a tail for each head": fixed(5, 1, 3),
    "fixed, by head": PerHead((OWN, fixed_steps(5, 1, 4)[1])),
    "blocks and those before": causal() & SameBlock(4, 1),
    "blocks and two before": causal() & SameBlock(3, 2),
    "window": causal() & window(6),
    "window of one": causal() & window(1),
    "window of more than all": causal() & window(40),
    "window in documents": causal() & window(6) & document(IDS),
    "strided in documents": strided(4) & document(IDS),
    "by head in documents": PerHead((NEAR, FAR)) & document(IDS),
}


@pytest.mark.parametrize("name", MASKS)
def test_gathered_attention_is_the_masked_one_forwards_and_backwards(name):
    view, (q, k, v) = View(MASKS[name], N, N), vectors(K, K, L)
    found, expected = attend_gathered(q, k, v, view), attend_plain(q, k, v, view)
    close(found, expected)
    weight = torch.randn_like(found)
    close(*(torch.autograd.grad(out, (q, k, v), weight) for out in (found, expected)))


def test_what_cannot_be_gathered_says_so():
    q, k, v = vectors(K, K, L)
    for mask in (causal(), full(), window(3), strided(4) | causal()):  # a window that looks ahead is no band
        assert layouts_of(mask) is None and not gather_pays(View(mask, 4096, 4096), H)
    with pytest.raises(ValueError, match="no layout"):
        attend_gathered(q, k, v, View(causal(), N, N))


def test_the_choice_of_kernel_gathers_long_rows_in_order_and_nothing_else(monkeypatch):
    n, asked = 60, []
    q, k, v = vectors(K, K, L, n=n)
    monkeypatch.setattr(fused, "attend_gathered", lambda *args: asked.append(1) or attend_gathered(*args))
    places = torch.arange(n)
    for view, gathered in (
        (View(NEAR, n, n), True),
        (View(causal(), n, n), False),
        (View(causal() & window(50), n, n), False),
        (View(strided(8), n, n), False),  # several layouts are scored in the open, which takes longer
        (View(NEAR, n, n, q_pos=places, k_pos=places), False),
    ):
        asked.clear()
        close(attend_fused(q, k, v, view), attend_plain(q, k, v, view))
        assert bool(asked) == gathered
    view = View(NEAR, 2, n)
    close(attend_fused(q[:, :, :2], k, v, view), attend_plain(q[:, :, :2], k, v, view))


def test_two_strided_steps_reach_everyone_and_fixed_ones_do_with_the_residual():
    here, everyone = torch.arange(40), torch.ones(40, 40).tril().bool()

    def table(mask):
        return mask.dense(here, here)[0, 0].float()

    for stride in (3, 6, 7):
        near, far = map(table, strided_steps(stride))
        assert torch.equal(near @ far > 0, everyone) and torch.equal(far @ near > 0, everyone)
        own, ends = map(table, fixed_steps(stride, 2))
        assert not torch.equal(own @ ends > 0, everyone) and not torch.equal(ends @ own > 0, everyone)
        both = table(fixed(stride, 2))
        assert torch.equal(both @ both > 0, everyone)


def test_work_grows_as_it_should():
    def work(mask, n):
        return sum(layout.scores(n) for layout in layouts_of(mask(n)))

    def root(n):
        return round(n**0.5)

    for mask, ratio in (
        (lambda n: strided_steps(root(n))[0], 8),
        (lambda n: strided_steps(root(n))[1], 8),
        (lambda n: strided(root(n)), 8),
        (lambda n: fixed(root(n), 2), 8),
        (lambda n: causal() & window(65), 4),
        (lambda n: causal() & SameBlock(64), 4),
    ):
        assert work(mask, 4 * 4096) == ratio * work(mask, 4096) <= 4096 * 4096


def test_a_block_needs_no_table_of_who_sees_whom():
    assert Band(5, 0).is_triangle(OWN) and not Band(5, 0).is_triangle(OWN & document(IDS))


# Transformer-XL.


def xl_layer(reach=100, clamp=None, position=True):
    inner = MultiHeadAttention(
        12, 3, bias=False, position=TransformerXL(12, 3, 4, clamp=clamp) if position else None
    ).double()
    for weight in inner.position.parameters():
        torch.nn.init.normal_(weight)
    return RecurrentAttention(inner, reach)


@pytest.mark.parametrize("T, S", [(1, 1), (4, 4), (3, 8), (1, 6)])
def test_the_shift_puts_every_distance_in_its_place(T, S):
    x = torch.randn(B, H, T, S)
    found = shifted(x)
    for t in range(T):
        for s in range(S):
            distance = (S - T + t) - s
            if distance >= 0:
                assert torch.equal(found[:, :, t, s], x[:, :, t, S - 1 - distance])


@pytest.mark.parametrize("clamp", [None, 3])
def test_shifted_scores_equal_those_looked_up(clamp):
    layer, x = xl_layer(clamp=clamp).inner, torch.randn(B, 7, 12, dtype=torch.float64)
    places = torch.arange(7)
    close(layer(x, View(causal(), 7, 7)), layer(x, View(causal(), 7, 7, q_pos=places, k_pos=places)))


def test_scores_are_the_four_terms_of_the_paper():
    layer, (q, k) = xl_layer().inner.position, (torch.randn(1, 3, 6, 4, dtype=torch.float64) for _ in "qk")
    view = View(causal(), 6, 6)
    found = layer.bias(q, k, view.q_pos, view.k_pos, view.memo) + q @ k.mT / 2
    w = 10000 ** (-2 * torch.arange(6, dtype=torch.float64) / 12)
    for i in range(6):
        for j in range(i + 1):
            angles = (i - j) * w
            r = layer.distance(torch.cat([angles.sin(), angles.cos()])).view(3, 4)
            for h in range(3):
                expected = (q[0, h, i] + layer.u_HK[h]) @ k[0, h, j] + (q[0, h, i] + layer.v_HK[h]) @ r[h]
                close(found[0, h, i, j], expected / 2)


def test_without_memory_recurrent_attention_is_plain_relative_attention():
    layer, x = xl_layer(), torch.randn(B, 7, 12, dtype=torch.float64)
    view, memory = View(causal(), 7, 7), SegmentMemory(1, 0)
    close(layer(x, view, cache=memory.layers[0]), layer.inner(x, view))
    assert memory.states()[0].shape == (B, 0, 12)


def test_a_memory_holds_the_last_states_without_gradient_and_serves_once():
    layer, x = xl_layer(), torch.randn(B, 5, 12, dtype=torch.float64, requires_grad=True)
    first = SegmentMemory(1, 3)
    with pytest.raises(ValueError, match="has read this one"):
        first.after()
    layer(x, View(causal(), 5, 5), cache=first.layers[0])
    second = first.after()
    assert first.size == 0 and second.size == 3
    before = second.layers[0].before_BMD
    close(before, x.detach()[:, 2:])
    assert not before.requires_grad
    y = torch.randn(B, 4, 12, dtype=torch.float64)
    S, _ = second.begin(None, B, 4)
    layer(y, View(causal(), 4, S), cache=second.layers[0]).sum().backward()
    assert x.grad is None  # nothing goes back into what was read before,
    assert layer.inner.key.weight.grad.abs().sum() > 0
    close(second.states()[0], y[:, 1:])
    with pytest.raises(ValueError, match="has 2 rows, but 3 were given"):
        second.begin(None, 3, 4)


def test_gradients_reach_the_matrices_through_what_they_make_of_the_memory():
    layer = xl_layer()
    memory = SegmentMemory(1, 3, [torch.randn(B, 3, 12, dtype=torch.float64)])
    x = torch.zeros(B, 1, 12, dtype=torch.float64)  # it says nothing itself
    layer(x, View(causal(), 1, 4), cache=memory.layers[0]).sum().backward()
    assert layer.inner.value.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("reach", [1, 4])
def test_while_it_writes_it_sees_so_many_tokens_and_no_more(reach, monkeypatch):
    """The same as hidden states remembered segment by segment, by keys and values that are made once."""
    monkeypatch.setattr(remember, "SLACK", 2)
    layer, x = xl_layer(reach), torch.randn(B, 30, 12, dtype=torch.float64)
    cache, at, slots = layer.layer_cache(), 0, []
    states = None
    for T in [3, 1, 1, 5] + [1] * 20:
        here = x[:, at : at + T]
        memory = SegmentMemory(1, reach, states)
        expected = layer(here, View(causal(), T, memory.size + T), cache=memory.layers[0])
        states = memory.states()
        with torch.no_grad():
            found = layer(here, View(causal(), T, at + T), cache=cache)
        cache.advance()
        close(found, expected.detach())
        at += T
        slots.append(cache.k_pos_BS.shape[1])
    assert max(slots) < 2 * (reach + 2) + 6


# Memory-compressed attention.


def compressed_layer(kind=CompressedKeys):
    return kind(MultiHeadAttention(12, 3)).double()


@pytest.mark.parametrize("kind", [CompressedKeys, CompressedInput])
def test_slots_are_a_strided_convolution(kind):
    layer = compressed_layer(kind)
    x = torch.randn(B, 11, 12, dtype=torch.float64)
    for raw, linear in zip(layer.raw(x), layer.compress, strict=True):
        kernel = linear.weight.view(12, 3, 12).transpose(1, 2)  # out, in, tap
        expected = F.conv1d(raw.mT, kernel, linear.bias, stride=3).mT
        assert expected.shape[1] == (11 - 3) // 3 + 1
        close(shorten(raw, linear), expected)


def test_with_averaging_kernels_it_is_attention_over_block_means():
    layer, T = compressed_layer(), 11
    with torch.no_grad():
        for linear in layer.compress:
            linear.weight.copy_(torch.eye(12, dtype=torch.float64).repeat(1, 3) / 3)
            linear.bias.zero_()
    x = torch.randn(B, T, 12, dtype=torch.float64)
    inner = layer.inner
    q, (k, v) = (
        split_heads(inner.query(x), 3),
        inner.split_keys_values(inner.key(x), inner.value(x)),
    )
    k, v = (torch.cat([y[:, :, :1], y[:, :, :9].unflatten(2, (3, 3)).mean(3)], dim=2) for y in (k, v))
    allowed = torch.tensor([0, 2, 5, 8]) <= torch.arange(T)[:, None]
    expected = inner.out(join_heads(attend_plain(q, k, v, allowed)))
    close(layer(x, View(causal(), T, T)), expected)


@pytest.mark.parametrize("kind", [CompressedKeys, CompressedInput])
@pytest.mark.parametrize("T", range(1, 8))
def test_the_quick_form_equals_a_slot_at_every_token(kind, T):
    layer, x = compressed_layer(kind), torch.randn(B, T, 12, dtype=torch.float64)
    places = torch.arange(T).expand(B, T)
    close(layer(x, View(causal(), T, T)), layer(x, View(causal(), T, T, q_pos=places, k_pos=places)))


@pytest.mark.parametrize("rate", [2, 3, 5])
@pytest.mark.parametrize("T", [1, 2, 4, 5, 6, 7, 19])
def test_stairs_without_a_table_equal_the_masked_formula_forwards_and_backwards(rate, T):
    S = 1 + T // rate
    q = torch.randn(B, 4, T, K, dtype=torch.float64, requires_grad=True)
    k, v = (torch.randn(B, 2, S, X, dtype=torch.float64, requires_grad=True) for X in (K, L))
    allowed = torch.arange(S) <= (torch.arange(T)[:, None] + 1) // rate
    found, expected = (
        fused.attend_stairs(q, k, v, rate, scale=0.7),
        attend_plain(q, k, v, allowed, scale=0.7),
    )
    close(found, expected)
    weight = torch.randn_like(found)
    close(*(torch.autograd.grad(out, (q, k, v), weight) for out in (found, expected)))


def test_slots_are_attended_to_without_a_table(monkeypatch):
    view = compressed.slots_view(View(causal(), N, N))
    q, k, v = torch.randn(B, H, N, K), torch.randn(B, H, view.S, K), torch.randn(B, H, view.S, L)
    expected = attend_plain(q, k, v, view)
    monkeypatch.setattr(View, "allowed", None)
    torch.testing.assert_close(attend_fused(q, k, v, view), expected)


@pytest.mark.parametrize("kind", [CompressedKeys, CompressedInput])
def test_steps_with_a_compressed_memory_equal_the_whole_at_every_length(kind, monkeypatch):
    monkeypatch.setattr(compressed, "SLACK", 4)  # so that much is forgotten
    layer, x = compressed_layer(kind), torch.randn(B, 31, 12, dtype=torch.float64)
    for first in range(1, 8):
        cache = layer.layer_cache()
        found = [layer(x[:, :first], View(causal(), first, first), cache=cache)]
        cache.advance()
        for at in range(first, 31):
            found.append(layer(x[:, at : at + 1], View(causal(), 1, at + 1), cache=cache))
            cache.advance()
            close(torch.cat(found, dim=1), layer(x[:, : at + 1], View(causal(), at + 1, at + 1)))
        assert cache.state.slots[0].shape[1] == 1 + 30 // 3 + 1
        assert cache.state.raw[0].shape[1] <= 8


def test_a_compressed_memory_is_a_third_and_its_table_too():
    layer, n = compressed_layer(), 3000
    plain = layer.inner.kv_heads * (layer.inner.key_width + layer.inner.value_width) * n
    assert layer.remembered(n) / plain == pytest.approx(1 / 3, rel=1e-2)
    assert compressed.slots_view(View(causal(), n, n)).allowed(1).numel() / n**2 == pytest.approx(
        1 / 3, rel=1e-2
    )


def test_a_compressed_memory_is_not_rewound_farther_than_it_can_be(monkeypatch):
    monkeypatch.setattr(compressed, "SLACK", 4)
    layer, cache = compressed_layer(), compressed_layer().layer_cache()
    for at in range(20):
        layer(torch.randn(B, 1, 12, dtype=torch.float64), View(causal(), 1, at + 1), cache=cache)
        cache.advance()
    cache.rewind(torch.tensor([18, 17]))
    with pytest.raises(ValueError, match="rewound by 4 tokens at most"):
        cache.rewind(torch.tensor([5, 5]))


# Kernel attention.


def test_running_sums_equal_the_open_formula_forwards_and_backwards():
    q, k, v = vectors(K, K, L, n=N)
    weights = (phi(q) @ phi(k).mT).tril()
    expected = weights / weights.sum(-1, keepdim=True) @ v
    found = attend_linear(q, k, v)
    close(found, expected)
    weight = torch.randn_like(found)
    close(*(torch.autograd.grad(out, (q, k, v), weight) for out in (found, expected)))
    assert (phi(torch.tensor([-60.0, 0, 2])) == torch.tensor([0.0, 1, 3])).all()


@pytest.mark.parametrize("chunk", [1, 4, 23, 64])
def test_chunks_of_any_size_sum_up_the_same(chunk):
    q, k, v = vectors(K, K, L)
    close(causal_sums(q, k, v, chunk), (q @ k.mT).tril() @ v)


def test_the_layer_is_watched_in_the_open_and_computes_the_same():
    layer = KernelAttention(MultiHeadAttention(12, 3, score=KernelScore())).double()
    x, view = torch.randn(B, 70, 12, dtype=torch.float64), View(causal(), 70, 70)
    close(layer(x, view), layer.inner(x, view))
    with pytest.raises(ValueError, match="KernelScore"):
        KernelAttention(MultiHeadAttention(12, 3))


def test_a_state_has_one_size_however_long_the_text(monkeypatch):
    monkeypatch.setattr(linear_attention, "SLACK", 4)
    layer = KernelAttention(MultiHeadAttention(12, 3, score=KernelScore())).double()
    x, cache, found, sizes = torch.randn(B, 40, 12, dtype=torch.float64), layer.layer_cache(), [], []
    for at in range(40):
        found.append(layer(x[:, at : at + 1], View(causal(), 1, at + 1), cache=cache))
        cache.advance()
        sizes.append(cache.recent[0].shape[2])
    close(torch.cat(found, dim=1), layer(x, View(causal(), 40, 40)))
    assert cache.sums_BHKL.shape == (B, 3, 4, 5) and max(sizes) <= 8
    with pytest.raises(ValueError, match="rewound by 4 tokens at most"):
        cache.rewind(torch.tensor([30, 3]))


def test_weights_of_kernel_attention_in_half_precision_are_summed_in_full():
    q, k, v = (x.detach().to(torch.bfloat16) for x in vectors(K, K, L))
    with torch.autocast("cpu", torch.bfloat16):
        found = attend_linear(q, k, v)
    assert found.dtype == torch.bfloat16
    whole = [x.detach().float() for x in vectors(K, K, L, n=400)]
    with torch.autocast("cpu", torch.bfloat16):
        half = attend_linear(*whole)
    assert torch.equal(half, attend_linear(*whole))
    torch.testing.assert_close(
        found.double(), attend_linear(q.double(), k.double(), v.double()), atol=2e-2, rtol=0
    )
