"""The kernels of training are what the parts compute, forwards and backwards.

Without a GPU: in Triton's interpreter.
"""

from importlib import import_module

import pytest
import torch
import torch.nn.functional as F
from helpers.training_kernels import CLOSE, DEVICE, HALF, gradients, with_twins

from heedful.fast import kernels, training
from heedful.fast.kernels import heads
from heedful.fast.kernels.columns import column_sums
from heedful.fast.kernels.heads import Heads, join_slopes
from heedful.fast.kernels.product import Product, add_product, product_in_full
from heedful.fast.kernels.residual import NormAndResidual, add_and_norm, fused_add_and_norm
from heedful.fast.kernels.short import attend_joined, attend_short
from heedful.fast.kernels.up_projection import (
    GELU,
    GELU_TANH,
    RELU,
    UpProjection,
    activation_backward,
    up_project,
)
from heedful.fast.training import for_training
from heedful.models import transformer
from heedful.models.transformer import TransformerConfig
from heedful.parts.attention import attend_plain
from heedful.parts.fused import attend_sdpa
from heedful.parts.layers import ACTIVATIONS, FeedForward, LayerNorm, PostNorm, RMSNorm
from heedful.parts.masks import causal, full, padding
from heedful.parts.multihead import MultiHeadAttention, split_heads
from heedful.parts.places import Lengths
from heedful.parts.positions.rotary import Rotary
from heedful.parts.view import View


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(5)


@pytest.mark.parametrize("kind", [torch.float32, HALF])
@pytest.mark.parametrize(
    "sizes", [(2, 3, 5, 7, 4, 6), (1, 2, 17, 17, 16, 16), (3, 1, 1, 20, 8, 3), (2, 2, 33, 9, 5, 5)]
)
def test_short_attention_is_the_formula(sizes, kind):
    B, H, T, S, K, L = sizes
    q = torch.randn(B, T, H, K, device=DEVICE, dtype=kind).transpose(1, 2).requires_grad_()
    k = torch.randn(B, H, S, K, device=DEVICE, dtype=kind, requires_grad=True)
    v = torch.randn(B, H, S, 2 * L, device=DEVICE, dtype=kind, requires_grad=True)
    slope = torch.randn(B, H, T, L, device=DEVICE, dtype=kind)
    lengths = torch.arange(B, device=DEVICE) * 2 % (S + 1)  # the first row has nothing to look at
    table = torch.rand(B, 1, T, S, device=DEVICE) < 0.7
    queries, keys = torch.arange(T, device=DEVICE), torch.arange(S, device=DEVICE)
    padded = padding(lengths).dense(queries, keys, H)
    cases = ((None, False), (None, T == S), (padded, False), (table, T == S), (table[:, :, :1], False))
    for allowed, is_causal in cases:
        seen = torch.ones(1, 1, T, S, dtype=torch.bool, device=DEVICE) if allowed is None else allowed
        if is_causal:
            seen = seen & torch.ones(T, S, dtype=torch.bool, device=DEVICE).tril()
        found = attend_short(q, k, v[..., :L], allowed, is_causal, 0.3)
        expected = attend_plain(q.double(), k.double(), v[..., :L].double(), seen, scale=0.3)
        close = {"atol": CLOSE[kind], "rtol": CLOSE[kind]}
        assert found.transpose(1, 2).is_contiguous()
        torch.testing.assert_close(found.double(), expected, **close)
        for mine, its in zip(
            gradients(found, (q, k, v), slope), gradients(expected, (q, k, v), slope.double()), strict=True
        ):
            torch.testing.assert_close(mine.double(), its.double(), **close)


@pytest.mark.parametrize("kind", [torch.float32, HALF])
@pytest.mark.parametrize("sizes", [(2, 3, 5, 7, 4), (3, 2, 17, 9, 16)])
def test_side_by_side_is_the_same_as_apart(sizes, kind):
    B, H, T, S, K = sizes
    close = {"atol": CLOSE[kind], "rtol": CLOSE[kind]}
    table = torch.rand(B, 1, T, S, device=DEVICE) < 0.7
    wide = torch.randn(B, T, 3 * H * K, device=DEVICE, dtype=kind, requires_grad=True)
    one = torch.randn(B, T, H * K, device=DEVICE, dtype=kind, requires_grad=True)
    other = torch.randn(B, S, 2 * H * K, device=DEVICE, dtype=kind, requires_grad=True)
    slope = torch.randn(B, T, H * K, device=DEVICE, dtype=kind)

    def heads(x):
        return x.unflatten(-1, (H, K)).transpose(1, 2)

    for given, apart, allowed, is_causal in (
        ((wide, None), wide.chunk(3, -1), None, True),
        ((wide, None), wide.chunk(3, -1), table[:, :, :, :1], False),
        ((one, other), (one, *other.chunk(2, -1)), table, False),
        ((one, other), (one, *other.chunk(2, -1)), None, False),
    ):
        found = attend_joined(*given, H, allowed, is_causal, 0.4)
        expected = attend_short(*map(heads, apart), allowed, is_causal, 0.4).transpose(1, 2).flatten(2)
        torch.testing.assert_close(found, expected, **close)
        leaves = [x for x in given if x is not None]
        for mine, its in zip(
            gradients(found, leaves, slope), gradients(expected, leaves, slope), strict=True
        ):
            torch.testing.assert_close(mine, its, **close)


@pytest.mark.parametrize("kind", [torch.float32, HALF])
@pytest.mark.parametrize("rows, width, hidden", [(7, 12, 20), (40, 5, 300), (1, 16, 3)])
@pytest.mark.parametrize("act", [RELU, GELU, GELU_TANH])
def test_a_product_and_its_activation_are_the_formula(rows, width, hidden, kind, act):
    x = torch.randn(2, rows, width, device=DEVICE, dtype=kind, requires_grad=True)
    weight, bias = (
        torch.randn(*shape, device=DEVICE).div_(2).requires_grad_() for shape in ((hidden, width), (hidden,))
    )
    slope = torch.randn(2, rows, hidden, device=DEVICE, dtype=kind)
    around = torch.randn(2, rows, width, device=DEVICE, dtype=kind)
    found, beside = UpProjection.apply(x, weight, bias, act, True)
    assert torch.equal(beside, x)
    own = (weight.to(kind).double(), bias.to(kind).double())
    name = {RELU: "relu", GELU: "gelu", GELU_TANH: "gelu_tanh"}[act]
    expected = ACTIVATIONS[name](F.linear(x.double(), *own))
    loose = {"atol": 20 * CLOSE[kind], "rtol": 20 * CLOSE[kind]}
    torch.testing.assert_close(found.double(), expected, **loose)
    leaves = (x, weight, bias)
    for mine, its in zip(
        gradients((found, beside), leaves, (slope, around.clone())),
        gradients((expected, x.double()), leaves, (slope.double(), around.double())),
        strict=True,
    ):
        torch.testing.assert_close(mine.double(), its.double(), **loose)


@pytest.mark.parametrize("kind", [torch.float32, HALF])
def test_a_product_and_what_goes_on_beside_it(kind):
    x = torch.randn(2, 9, 6, device=DEVICE, dtype=kind, requires_grad=True)
    weight, bias = (torch.randn(*shape, device=DEVICE, requires_grad=True) for shape in ((5, 6), (5,)))
    slope, around = (torch.randn(2, 9, n, device=DEVICE, dtype=kind) for n in (5, 6))
    close = {"atol": 4 * CLOSE[kind], "rtol": 4 * CLOSE[kind]}
    for beside, added in ((True, None), (False, None), (True, bias), (False, bias)):
        found, again = Product.apply(x, weight, added, beside)
        own = None if added is None else bias.to(kind).double()
        expected = F.linear(x.double(), weight.to(kind).double(), own)
        torch.testing.assert_close(found.double(), expected, **close)
        assert torch.equal(again, x)
        leaves, outs, slopes = [x, weight, *([] if added is None else [bias])], [found], [slope]
        if beside:
            outs, slopes = [found, again], [slope, around.clone()]
        its = list(gradients(expected, leaves, slope.double()))
        its[0] = its[0] + around if beside else its[0]
        for a, b in zip(gradients(outs, leaves, slopes), its, strict=True):
            torch.testing.assert_close(a.double(), b.double(), **close)


@pytest.mark.parametrize("kind", [torch.float32, HALF])
@pytest.mark.parametrize("turned", [False, True])
def test_a_norm_and_what_goes_on_beside_it(kind, turned):
    x = torch.randn(2, 70, 12, device=DEVICE, dtype=kind)
    x = (x.mT.contiguous().mT if turned else x).requires_grad_()  # as a convolution leaves it
    gain, shift = (torch.randn(12, device=DEVICE, requires_grad=True) for _ in range(2))
    slope, around = (torch.randn(2, 70, 12, device=DEVICE, dtype=kind) for _ in range(2))
    found, again = NormAndResidual.apply(x, gain, shift, 1e-5)
    expected = F.layer_norm(x.double(), (12,), gain.double(), shift.double(), 1e-5)
    assert torch.equal(again, x)
    torch.testing.assert_close(found.double(), expected, atol=CLOSE[kind], rtol=CLOSE[kind])
    leaves = (x, gain, shift)
    mine = gradients((found, again), leaves, (slope, around))
    its = gradients((expected, x.double()), leaves, (slope.double(), around.double()))
    for a, b in zip(mine, its, strict=True):
        torch.testing.assert_close(a.double(), b.double(), atol=20 * CLOSE[kind], rtol=20 * CLOSE[kind])


def test_a_source_in_full_precision_is_read_in_half(monkeypatch):
    """Pictures come in fp32, captions in half: what attends to both multiplies one kind of numbers."""
    layer = MultiHeadAttention(12, 3).to(DEVICE)
    x, source = torch.randn(2, 5, 12, device=DEVICE, dtype=HALF), torch.randn(2, 7, 12, device=DEVICE)
    x.requires_grad_(), source.requires_grad_()
    slope, leaves = torch.randn(2, 5, 12, device=DEVICE), (x, source, *layer.parameters())
    expected = layer(x.float(), None, source)
    slopes = gradients(expected, leaves, slope)
    monkeypatch.setattr(kernels, "trains", lambda x: True)
    inside, _ = for_training(layer).inside(x, None, source)
    assert inside.dtype == HALF
    found = layer.out(inside.float())
    for mine, its in zip((found, *gradients(found, leaves, slope)), (expected, *slopes), strict=True):
        torch.testing.assert_close(mine.float(), its.float(), atol=20 * CLOSE[HALF], rtol=CLOSE[HALF])
    with pytest.raises(TypeError, match="both must be of one kind"):
        product_in_full(x.flatten(0, 1).detach(), source.flatten(0, 1)[:10].detach())


def test_attention_with_turned_heads_by_its_kernels(monkeypatch):
    """Where something is between projections and attention, they are split; their gradients are joined."""
    layer = MultiHeadAttention(
        12, 4, kv_heads=2, key_width=6, value_width=5, position=Rotary(6), qk_norm=RMSNorm
    ).to(DEVICE, HALF)
    x, slope = (torch.randn(2, 9, 12, device=DEVICE, dtype=HALF) for _ in range(2))
    x.requires_grad_()
    used, real = [], heads.join_slopes
    monkeypatch.setattr(heads, "join_slopes", lambda slopes: used.append(len(slopes)) or real(slopes))
    view, leaves = View(causal(), 9, 9, DEVICE), (x, *layer.parameters())
    expected = layer(x, view)
    slopes = gradients(expected, leaves, slope)
    monkeypatch.setattr(kernels, "trains", lambda x: True)
    found = for_training(layer)(x, view)
    torch.testing.assert_close(found, expected, atol=CLOSE[HALF], rtol=CLOSE[HALF])
    for mine, its in zip(gradients(found, leaves, slope), slopes, strict=True):
        torch.testing.assert_close(mine, its, atol=10 * CLOSE[HALF], rtol=10 * CLOSE[HALF])
    assert used == [3]


@pytest.mark.parametrize("kind", [torch.float32, HALF])
@pytest.mark.parametrize(
    "heads, widths", [((3, 3, 3), (4, 4, 4)), ((4, 2, 2), (5, 5, 20)), ((1, 1, 1), (16, 16, 3))]
)
def test_heads_come_apart_and_their_gradients_together(heads, widths, kind):
    B, T, sizes = 3, 90, [H * K for H, K in zip(heads, widths, strict=True)]
    x = torch.randn(B, T, sum(sizes), device=DEVICE, dtype=kind, requires_grad=True)
    bias = torch.randn(sum(sizes), device=DEVICE, requires_grad=True)
    found = Heads.apply(x, bias, heads, widths)
    expected = [split_heads(part, H) for part, H in zip(x.split(sizes, -1), heads, strict=True)]
    slopes = [
        torch.randn(B, T, H, K, device=DEVICE, dtype=kind).transpose(1, 2)
        for H, K in zip(heads, widths, strict=True)
    ]
    slopes[1] = slopes[1].contiguous()
    for mine, its in zip(found, expected, strict=True):
        assert torch.equal(mine, its)
    mine, sums = gradients(found, (x, bias), slopes)
    (its,) = gradients(expected, (x,), slopes)
    assert torch.equal(mine, its)
    torch.testing.assert_close(sums, its.float().sum((0, 1)), atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("rows, columns", [(1, 1), (64, 32), (65, 33), (200, 70)])
def test_columns_are_summed(rows, columns):
    x = torch.randn(rows, columns, device=DEVICE)
    torch.testing.assert_close(column_sums(x), x.sum(0), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_a_whole_transformer_by_its_kernels(norm, monkeypatch):
    """Every kernel of training in its place, against the parts, forwards and backwards; packed rows too."""
    torch.manual_seed(2)
    config = TransformerConfig(
        vocab=17,
        target_vocab=17,
        layers=2,
        decoder_layers=2,
        width=12,
        heads=3,
        decoder_heads=3,
        ffn_width=20,
        decoder_ffn_width=20,
        norm=norm,
        dropout=0.0,
    )
    model = transformer.build(config).to(DEVICE, HALF)
    source, target = torch.randint(17, (2, 9), device=DEVICE), torch.randint(17, (2, 7), device=DEVICE)
    lengths = torch.tensor([9, 4], device=DEVICE)
    used, close = [], 2e-2 if HALF == torch.float16 else 1e-1  # bfloat16 has three bits fewer
    files = {
        "attend_joined": "short",
        "up_project": "up_projection",
        "fused_add_and_norm": "residual",
        "embedded": "inputs",
    }
    for name, file in files.items():
        module = import_module(f"heedful.fast.kernels.{file}")
        real = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *a, name=name, real=real: used.append(name) or real(*a))

    def run(trains):
        monkeypatch.setattr(kernels, "trains", lambda x: trains)
        monkeypatch.setattr(kernels, "embeds", lambda tokens: trains)
        model.zero_grad()
        scores = model(source, target, Lengths(lengths))
        F.cross_entropy(scores.float().flatten(0, 1), target.flatten()).backward()
        return scores.detach(), {name: p.grad.clone() for name, p in model.named_parameters()}

    expected, slopes = run(False)
    with_twins(model)
    for found, mine in zip(run(False)[1].values(), slopes.values(), strict=True):  # twins without a kernel
        assert torch.equal(found, mine)
    assert not used
    found, mine = run(True)
    assert set(used) == {"attend_joined", "up_project", "embedded"} | (
        {"fused_add_and_norm"} if norm == "post" else set()
    )
    torch.testing.assert_close(found, expected, atol=close, rtol=close)
    for name, slope in slopes.items():
        torch.testing.assert_close(mine[name], slope, atol=close, rtol=close, msg=name)


def test_short_attention_behind_a_view():
    q, k, v = (torch.randn(2, 3, S, 4, device=DEVICE, dtype=HALF, requires_grad=True) for S in (6, 6, 6))
    lengths = torch.tensor([6, 2], device=DEVICE)
    for mask in (causal(), full(), padding(lengths), causal() & padding(lengths)):
        view = View(mask, 6, 6, DEVICE)
        found, expected = training.attend_short(q, k, v, view, 0.5), attend_sdpa(q, k, v, view)
        torch.testing.assert_close(found, expected, atol=3e-2, rtol=3e-2)


@pytest.mark.parametrize("kind", [torch.float32, HALF])
@pytest.mark.parametrize("rows, width", [(7, 12), (600, 5), (3, 130), (1, 4097)])
def test_sum_and_norm_are_the_formula(rows, width, kind):
    x, y = (torch.randn(rows, width, device=DEVICE, dtype=kind, requires_grad=True) for _ in range(2))
    bias, gain, shift = (torch.randn(width, device=DEVICE, requires_grad=True) for _ in range(3))
    slope = torch.randn(rows, width, device=DEVICE, dtype=kind)
    found = fused_add_and_norm(x, y, bias, gain, shift, 1e-5, 0.0)
    given = (x, y, bias, gain, shift)
    expected = F.layer_norm(
        x.double() + y.double() + bias.double(), (width,), gain.double(), shift.double(), 1e-5
    )
    loose = 20 if kind == HALF else 1  # a sum over many rows that were rounded
    torch.testing.assert_close(found.double(), expected, atol=CLOSE[kind], rtol=CLOSE[kind])
    for mine, its in zip(
        gradients(found, given, slope), gradients(expected, given, slope.double()), strict=True
    ):
        torch.testing.assert_close(
            mine.double(), its.double(), atol=loose * CLOSE[kind], rtol=loose * CLOSE[kind]
        )


def test_dropout_drops_the_same_backwards_as_forwards():
    x, y = torch.zeros(40, 50, device=DEVICE), torch.ones(40, 50, device=DEVICE)
    x.requires_grad_(), y.requires_grad_()
    gain, shift = torch.ones(50, device=DEVICE), torch.zeros(50, device=DEVICE)
    seed = torch.tensor([(7 << 40) + 12345], device=DEVICE)
    out, total, *_ = add_and_norm(x, y, None, gain, shift, seed, 1e-5, 0.25)
    kept = total != 0
    torch.testing.assert_close(total, kept / 0.75)
    expected = F.layer_norm(x + y * kept / 0.75, (50,), gain, shift, 1e-5)
    torch.testing.assert_close(out, expected)
    slope = torch.randn(40, 50, device=DEVICE)
    for mine, its in zip(gradients(out, (x, y), slope), gradients(expected, (x, y), slope), strict=True):
        torch.testing.assert_close(mine, its, atol=2e-5, rtol=1e-4)


def test_dropout_drops_as_often_as_it_should_and_anew_each_time():
    x, y = torch.zeros(300, 64, device=DEVICE), torch.ones(300, 64, device=DEVICE)
    gain, shift = torch.ones(64, device=DEVICE), torch.zeros(64, device=DEVICE)

    def kept(seed):
        return add_and_norm(x, y, None, gain, shift, torch.tensor([seed], device=DEVICE), 1e-5, 0.1)[1] != 0

    first, second, third = kept(1), kept(2), kept(1 + (1 << 32))
    for some in (first, second, third):
        assert abs(some.double().mean().item() - 0.9) < 4 * (0.09 / some.numel()) ** 0.5
        by_column, by_row = some.double().mean(0), some.double().mean(1)
        assert (by_column - 0.9).abs().max() < 5 * (0.09 / 300) ** 0.5
        assert (by_row - 0.9).abs().max() < 5 * (0.09 / 64) ** 0.5
    for one, other in (
        (first, second),
        (first, third),
        (first[1:], first[:-1]),
        (first[:, 1:], first[:, :-1]),
    ):
        assert abs((one == other).double().mean().item() - 0.82) < 0.02  # as often as by chance


def test_a_post_norm_layer_is_the_same_by_its_kernel():
    layer = for_training(PostNorm(FeedForward(6, 10), LayerNorm(6), dropout=0.5)).to(DEVICE).eval()
    x = torch.randn(2, 5, 6, device=DEVICE, requires_grad=True)
    expected = layer(x)
    torch.testing.assert_close(layer.fused(x), expected, atol=1e-5, rtol=1e-5)
    layer.train()
    torch.manual_seed(0)
    one, other = layer.fused(x), layer.fused(x)
    assert not torch.equal(one, other)
    torch.manual_seed(0)
    assert torch.equal(one, layer.fused(x))


def test_custom_operations_are_sound():
    """Torch's own checks of an operation: schema, fake tensors, autograd."""
    from torch.library import opcheck

    q, k, v = (torch.randn(2, 2, S, 4, device=DEVICE, requires_grad=True) for S in (3, 5, 5))
    checks = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_static")
    opcheck(attend_short.default, (q, k, v, None, False, 0.5), test_utils=checks)
    one, other = (torch.randn(2, *shape, device=DEVICE, requires_grad=True) for shape in ((3, 8), (5, 16)))
    opcheck(attend_joined.default, (one, other, 2, None, False, 0.5), test_utils=checks)
    wide = torch.randn(2, 4, 18, device=DEVICE, requires_grad=True)
    opcheck(attend_joined.default, (wide, None, 3, None, True, 0.5), test_utils=checks)
    x, weight = (torch.randn(n, 6, device=DEVICE) for n in (3, 5))
    for act in (RELU, GELU, GELU_TANH):
        bias = torch.randn(5, device=DEVICE)
        opcheck(up_project.default, (x, weight, bias, act), test_utils=checks)
        opcheck(activation_backward.default, (*torch.randn(2, 3, 5, device=DEVICE), act), test_utils=checks)
    x, y = (torch.randn(2, 3, 6, device=DEVICE, requires_grad=True) for _ in range(2))
    gain, shift = (torch.randn(6, device=DEVICE, requires_grad=True) for _ in range(2))
    opcheck(
        add_and_norm.default,
        (
            x,
            y,
            gain.detach().clone().requires_grad_(),
            gain,
            shift,
            torch.tensor([3], device=DEVICE),
            1e-5,
            0.25,
        ),
        test_utils=checks,
    )
    a, b = (torch.randn(4, n, device=DEVICE) for n in (3, 5))
    opcheck(
        join_slopes.default, ([torch.randn(2, 3, 4, n, device=DEVICE) for n in (5, 5, 2)],), test_utils=checks
    )
    opcheck(product_in_full.default, (a, b), test_utils=checks)
    opcheck(add_product.default, (b, a, torch.randn(3, 5, device=DEVICE)), test_utils=checks)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # by torch itself
def test_gradients_that_are_added_in_place_are_so_when_compiled(monkeypatch):
    """The product adds to a gradient that others may still read: torch.compile has to keep their copy."""
    layer = PostNorm(FeedForward(6, 10), LayerNorm(6)).to(DEVICE, HALF)
    x = torch.randn(2, 5, 6, device=DEVICE, dtype=HALF, requires_grad=True)
    slope = torch.randn(2, 5, 6, device=DEVICE, dtype=HALF)

    def twice(x):
        return layer(layer(x)) + x

    leaves = (x, *layer.parameters())
    expected = gradients(twice(x), leaves, slope)
    for_training(layer)
    monkeypatch.setattr(kernels, "trains", lambda x: True)
    compiled = torch.compile(twice, backend="aot_eager", fullgraph=True)
    for mine, its in zip(gradients(compiled(x), leaves, slope), expected, strict=True):
        torch.testing.assert_close(mine, its, atol=5 * CLOSE[HALF], rtol=5 * CLOSE[HALF])
