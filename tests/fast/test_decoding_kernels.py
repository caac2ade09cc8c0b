"""The kernels of the decoding step are what the parts compute, and a step made of them decodes the same text.

Without a GPU they run in Triton's interpreter, number by number: sizes are very small.
"""

import math

import pytest
import torch
import torch.nn.functional as F
from helpers.kernel_cases import (
    DEVICE,
    shaken,
)

from heedful.decode.greedy import greedy
from heedful.decode.step import step_of
from heedful.fast.cuda_graph import RunnerPool
from heedful.fast.gpu_decoder import GPUDecoder, NoKernel, gpu_decoder_of, norm_of
from heedful.fast.kernels import attend as attend_kernels
from heedful.fast.kernels import beam as beam_kernels
from heedful.fast.kernels import linear as linear_kernels
from heedful.fast.kernels import loss as loss_kernels
from heedful.fast.kernels.attend import HALVES, INTERLEAVED, attend_cached, attend_source
from heedful.fast.kernels.beam import Beams, best_words, extend_beams
from heedful.fast.kernels.folded import fold
from heedful.fast.kernels.linear import linear, linear_sum, shared_tiles
from heedful.fast.kernels.loss import LinearCrossEntropy
from heedful.fast.kernels.norms import LAYER, NO_NORM, NONE, RMS, Norm
from heedful.models import gpt2, transformer
from heedful.parts.layers import LayerNorm, PostNorm, RMSNorm, activation
from heedful.parts.positions.rotary import Rotary
from heedful.train.loss import NOTHING, cross_entropy

pytestmark = pytest.mark.filterwarnings(
    "ignore:overflow encountered in exp"
)  # the interpreter's: 1 / (1 + inf) is 0


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(3)


def random(*shape):
    return torch.randn(*shape, device=DEVICE)


# One kernel at a time


@pytest.mark.parametrize("rows", [1, 3, 19, 70])
@pytest.mark.parametrize("kind", [LayerNorm, RMSNorm])
def test_linear_is_norm_matrix_activation_and_sum(rows, kind):
    norm, after = shaken(kind(24)), shaken(kind(37))
    x, w, b, kept = random(rows, 24) + 1, random(37, 24), random(37), random(rows, 37) - 1
    for name in ("relu", "gelu", "gelu_tanh", "gelu_sigmoid", "silu", "relu_squared"):
        found = linear(
            x, w, b, norm=norm_of(norm), activation=name, residual_MN=kept, residual_norm=norm_of(after)
        )
        expected = activation(name)(F.linear(norm(x), w, b)) + after(kept)
        torch.testing.assert_close(found, expected.detach(), rtol=2e-5, atol=2e-5)
    torch.testing.assert_close(linear(x, w), F.linear(x, w), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 2])
def test_linear_can_be_gated(rows):
    x, w, v, b, c = random(rows, 20), random(9, 20), random(9, 20), random(9), random(9)
    expected = F.silu(F.linear(x, w, b)) * F.linear(x, v, c)
    torch.testing.assert_close(
        linear(x, w, b, activation="silu", gated=(v, c)), expected, rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("kind", [NONE, LAYER, RMS])
@pytest.mark.parametrize("rows, inner, width", [(2, 300, 20), (5, 1100, 33), (70, 520, 16), (3, 40, 12)])
def test_programs_that_share_a_tile_add_up(rows, inner, width, kind):
    """x W^T + b + residual, and its norm: the sum in several parts, or of few columns in one."""
    x, w, b, r = random(rows, inner), random(width, inner), random(width), random(rows, width)
    gain, shift = random(width), random(width)
    norm = Norm(kind, gain, shift if kind == LAYER else None, 1e-5) if kind else NO_NORM
    parts = shared_tiles(rows, width, inner, x.dtype)[3]
    assert parts > 1 if inner >= 300 else parts == 1
    for bias in (b, None):
        found, normed = linear_sum(x, w, bias, r, norm)
        expected = F.linear(x, w, bias) + r
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
        apply = {
            NONE: lambda y: y,
            LAYER: lambda y: F.layer_norm(y, (width,), gain, shift),
            RMS: lambda y: F.rms_norm(y, (width,), gain, 1e-5),
        }[kind]
        torch.testing.assert_close(normed, apply(expected), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("layout", [None, "halves", "interleaved"])
def test_attention_reads_the_cache_and_writes_to_it(layout):
    R, H, G, S, K = 3, 4, 2, 16, 6
    lengths, scale = torch.tensor([5, 0, 11], device=DEVICE), 0.4
    qkv, keys, values = random(R, (H + 2 * G) * K), random(R, G, S, K), random(R, G, S, K)
    before = keys.clone(), values.clone()
    rotary, turn = None, lambda x, position: x
    if layout:
        part = Rotary(K, layout)
        angles = torch.arange(S, device=DEVICE)[:, None] * (
            10000.0 ** -(torch.arange(0, K, 2, device=DEVICE) / K)
        )
        rotary = (HALVES if layout == "halves" else INTERLEAVED, angles.cos(), angles.sin())

        def turn(x, position):
            return part.rotate(x[None, :, None], torch.tensor([position], device=DEVICE))[0, :, 0]

    found = attend_cached(qkv, keys, values, lengths, heads=H, scale=scale, rotary=rotary)
    for r, length in enumerate(lengths.tolist()):
        q, k, v = (x.view(-1, K) for x in qkv[r].split([H * K, G * K, G * K]))
        q, k = turn(q, length), turn(k, length)
        k_all = torch.cat([before[0][r, :, :length], k[:, None]], 1).repeat_interleave(H // G, 0)
        v_all = torch.cat([before[1][r, :, :length], v[:, None]], 1).repeat_interleave(H // G, 0)
        weights = (torch.einsum("hk,hsk->hs", q, k_all) * scale).softmax(-1)
        expected = torch.einsum("hs,hsk->hk", weights, v_all).flatten()
        torch.testing.assert_close(found[r], expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(keys[r, :, length], k, rtol=1e-5, atol=1e-5)
        assert torch.equal(values[r, :, length], v)
        untouched = torch.arange(S, device=DEVICE) != length
        assert torch.equal(keys[r][:, untouched], before[0][r][:, untouched])


def test_a_row_can_have_its_past_in_other_rows():
    R, H, S, K = 3, 2, 8, 4
    lengths = torch.tensor([5, 5, 5], device=DEVICE)
    qkv, keys, values = random(R, 3 * H * K), random(R, H, S, K), random(R, H, S, K)
    origin = torch.tensor([[0, 2, 2, 1, 0, 0, 0, 0], [1] * 8, [2, 0, 1, 2, 2, 2, 2, 2]], device=DEVICE)
    at = torch.arange(S, device=DEVICE)
    own_keys, own_values = (
        x.transpose(1, 2)[origin, at].transpose(1, 2).contiguous() for x in (keys, values)
    )
    expected = attend_cached(qkv, own_keys, own_values, lengths, heads=H, scale=0.5)
    found = attend_cached(qkv, keys, values, lengths, heads=H, scale=0.5, origin_RS=origin.int())
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("lengths", [(0, 5), (23, 40), (39, 1)])
def test_programs_may_share_a_past(lengths, monkeypatch):
    """The last to end puts the shares together, and leaves the counts at zero for the next kernel."""
    monkeypatch.setattr(attend_kernels, "SHARE", 10)
    monkeypatch.setattr(attend_kernels, "stretch", lambda programs, slots: {"BS": 8})
    monkeypatch.setattr(attend_kernels, "SHARED", {"BS": 8})
    R, H, G, K, S = 2, 6, 3, 4, 41
    qkv, scale = random(R, (H + 2 * G) * K), 0.4
    keys, values = random(R, G, S, K), random(R, G, S, K)
    own = keys.clone(), values.clone()
    ended = torch.zeros(R, H, dtype=torch.int32, device=DEVICE)
    lengths = torch.tensor(lengths, device=DEVICE)
    assert attend_kernels.shares_of(R * H, S) == 4
    for _ in range(2):
        expected = attend_cached(qkv, *own, lengths, heads=H, scale=scale)
        found = attend_cached(qkv, keys, values, lengths, heads=H, scale=scale, ended_RH=ended)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
        assert not ended.any() and torch.equal(keys, own[0]) and torch.equal(values, own[1])


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("kind", [None, LayerNorm, RMSNorm])
def test_one_row_in_half_precision_folds_the_norm_into_the_matrix(kind, gated):
    """The same numbers as the formula with these weights in fp64, but for rounding what comes out."""
    half = {"dtype": torch.bfloat16, "device": DEVICE}
    norm = NO_NORM if kind is None else norm_of(shaken(kind(40)).to(**half))
    x, w, v = torch.randn(1, 40, **half) + 1, torch.randn(19, 40, **half), torch.randn(19, 40, **half)
    b, c, r = torch.randn(19, **half), torch.randn(19, **half), torch.randn(1, 19, **half)
    pairs = [(w, b), (v, c)] if gated else [(w, b)]
    folded = tuple(one for pair in pairs if (one := fold(*pair, norm)) is not None)
    assert len(folded) == (0 if kind is None else len(pairs))
    found = linear(
        x, w, b, norm=norm, folded=folded, activation="silu", gated=(v, c) if gated else None, residual_MN=r
    )
    z = x.double()
    if kind is not None:
        z = z - z.mean(-1, keepdim=True) if kind is LayerNorm else z
        z = z / (z.square().mean(-1, keepdim=True) + norm.eps).sqrt() * norm.gain.double()
        z = z if norm.shift is None else z + norm.shift.double()
    expected = F.silu(F.linear(z, w.double(), b.double()))
    expected = expected * F.linear(z, v.double(), c.double()) if gated else expected
    torch.testing.assert_close(found.double(), expected + r.double(), rtol=1e-2, atol=1e-2)
    plain = linear(x, w, b, norm=norm, residual_norm=Norm(RMS, r[0], None, 1e-5), residual_MN=r * 0)
    torch.testing.assert_close(plain.double(), F.linear(z, w.double(), b.double()), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("rows", [2, 17, 64])
@pytest.mark.parametrize("gated", [False, True])
def test_a_product_may_be_turned(rows, gated, monkeypatch):
    """W x^T in half precision is x W^T: wide products, and narrow ones in parts."""
    monkeypatch.setattr(linear_kernels, "TURNED_FROM", 60)
    monkeypatch.setattr(linear_kernels, "NARROW_FROM", (60, 70))
    half = {"dtype": torch.float16, "device": DEVICE}  # the interpreter multiplies no bf16
    x, w, v = torch.randn(rows, 290, **half), torch.randn(70, 290, **half), torch.randn(70, 290, **half)
    b, c, r = torch.randn(70, **half), torch.randn(70, **half), torch.randn(rows, 70, **half)
    wide = linear(x, w, b, activation="relu", gated=(v, c) if gated else None)
    expected = F.relu(F.linear(x.double(), w.double(), b.double()))
    expected = expected * F.linear(x.double(), v.double(), c.double()) if gated else expected
    torch.testing.assert_close(wide.double(), expected, rtol=1e-2, atol=1e-2)
    y, normed = linear_sum(x, w, b, r, NO_NORM)
    expected = F.linear(x.double(), w.double(), b.double()) + r.double()
    torch.testing.assert_close(y.double(), expected, rtol=1e-2, atol=1e-2)
    assert torch.equal(y, normed)


def test_attention_to_a_source():
    B, R, H, S, K = 2, 3, 2, 7, 4
    q, keys, values = random(R, H * K), random(B, H, S, K), random(B, H, S, K)
    sources, lengths = torch.tensor([1, 0, 1], device=DEVICE), torch.tensor([7, 3], device=DEVICE)
    found = attend_source(q, keys, values, sources, lengths, heads=H, scale=0.3)
    for r, b in enumerate(sources.tolist()):
        length = int(lengths[b])
        weights = (torch.einsum("hk,hsk->hs", q[r].view(H, K), keys[b, :, :length]) * 0.3).softmax(-1)
        expected = torch.einsum("hs,hsk->hk", weights, values[b, :, :length]).flatten()
        torch.testing.assert_close(found[r], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("biased", [False, True])
def test_linear_cross_entropy_is_both(smoothing, biased):
    N, D, V = 5, 8, 37
    x, w = random(N, D).requires_grad_(), random(V, D).requires_grad_()
    b = (random(V) - 300).requires_grad_() if biased else None  # far below what fills the vocabulary up
    answers = torch.tensor([3, NOTHING, 36, 0, 11], device=DEVICE)
    learned = [x, w, b] if biased else [x, w]
    found = LinearCrossEntropy.apply(x, w, b, answers, smoothing, torch.float32)
    mine = torch.autograd.grad(0.25 * found[0], learned)
    expected = cross_entropy(F.linear(x, w, b), answers, smoothing)
    theirs = torch.autograd.grad(0.25 * expected[0], learned)
    for one, other in zip([*found, *mine], [*expected, *theirs], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    assert not found[1].requires_grad


@pytest.mark.filterwarnings("ignore:All-NaN", "ignore:invalid value encountered")
@pytest.mark.parametrize("blocks", [((32, 4), (16, 4)), ((128, 4), (16, 4))])
def test_scores_of_many_words_are_added_up_block_by_block(blocks, monkeypatch):
    """A vocabulary of several blocks, long and short; a row that is not needed may hold anything."""
    monkeypatch.setattr(loss_kernels, "BLOCKS", blocks)
    N, D, V = 4, 6, 127
    x, w = random(N, D), random(V, D)
    answers = torch.tensor([126, NOTHING, 31, 0], device=DEVICE)
    x[1] = float("inf")
    for one in (x, w):
        one.requires_grad_()
    found = LinearCrossEntropy.apply(x, w, None, answers, 0.1, torch.float32)[0]
    (mine,) = torch.autograd.grad(found, x)
    asked = [0, 2, 3]
    expected = cross_entropy(F.linear(x[asked], w), answers[asked], 0.1)[0]
    (its,) = torch.autograd.grad(expected, x)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(mine[asked], its[asked], rtol=1e-5, atol=1e-5)


def test_a_decoder_wide_enough_shares_its_tiles(monkeypatch):
    """The same text, with the last products of layers in several parts; norms before layers, and after."""
    torch.manual_seed(4)
    sizes = {"vocab": 23, "layers": 2, "width": 136, "heads": 2, "ffn_width": 200}
    more = {"decoder_layers": 2, "decoder_heads": 2, "decoder_ffn_width": 200, "target_vocab": 23}
    summed, real = [], linear_kernels.sum_kernel
    monkeypatch.setattr(linear_kernels, "sum_kernel", Counted(real, summed))
    prompts, source = torch.randint(23, (3, 2), device=DEVICE), torch.randint(23, (3, 5), device=DEVICE)
    for model in (
        gpt2.build(gpt2.GPT2Config(**sizes, context=16)),
        transformer.build(transformer.TransformerConfig(**sizes, **more)),
        transformer.build(transformer.TransformerConfig(**sizes, **more, norm="pre")),
    ):
        model = model.to(DEVICE).eval()
        given = () if model.__class__.__name__ == "Decoder" else (source,)
        decoder, encoder = (model, None) if not given else (model.decoder, model.encoder)
        runners = RunnerPool(gpu_decoder_of(decoder), encoder)
        before = len(summed)
        quick = greedy(runners.step(9, *given), prompts, longest=3)
        assert len(summed) > before
        plain = greedy(step_of(model, *given), prompts, longest=3)
        assert [a.tokens for a in quick] == [b.tokens for b in plain]


class Counted:
    """A kernel that says when it is launched."""

    def __init__(self, kernel, calls):
        self.kernel, self.calls = kernel, calls

    def __getitem__(self, grid):
        self.calls.append(grid)
        return self.kernel[grid]


def test_norms_before_some_layers_and_after_others_have_no_kernel():
    config = gpt2.GPT2Config(vocab=11, layers=2, width=8, heads=2, ffn_width=12, context=7)
    model = gpt2.build(config).eval()
    feed = model.stack.blocks[0].feed_forward
    model.stack.blocks[0].feed_forward = PostNorm(feed.layer, feed.norm).eval()
    with pytest.raises(NoKernel, match="before some layers and after others"):
        GPUDecoder(model)


@pytest.mark.filterwarnings("ignore:invalid value encountered")
@pytest.mark.parametrize("sign", [1, -1])
def test_a_beam_says_when_a_score_is_no_number(sign):
    beams = Beams.room(
        2, 2, "heuristic", True, torch.tensor([0], device=DEVICE), torch.ones(8, device=DEVICE), 1, 9
    )
    for filled, value in ((beams.limits_N, 6), (beams.totals_NW, -1), (beams.scores_NF, -torch.inf)):
        filled.fill_(value)
    scores, lengths = random(4, 9), torch.ones(4, dtype=torch.long, device=DEVICE)
    scores[1] = torch.tensor(torch.nan).copysign(torch.tensor(float(sign)))
    extend_beams(scores, lengths.clone(), torch.zeros(4, 3, dtype=torch.int32, device=DEVICE), lengths, beams)
    assert beams.best_HN.isnan().tolist() == [[True, False]]


@pytest.mark.parametrize("V, count", [(21, 6), (8, 8), (3, 5), (40, 12)])
def test_the_best_words_come_first_and_of_equals_the_first(V, count, monkeypatch):
    """Groups of four, two in a stretch; what is no number comes before everything."""
    monkeypatch.setattr(beam_kernels, "GROUP", 4)
    monkeypatch.setattr(beam_kernels, "STRETCH", 2)
    scores = torch.randint(-3, 3, (4, V + 3), device=DEVICE).float()[
        :, :V
    ]  # rows further apart than they are long
    scores[0, 1], scores[1, 2], scores[2, : V - 1] = torch.nan, -torch.inf, -1.5
    best, tops, sums = best_words(scores, 4, count)
    for row, words, top, total in zip(
        scores.tolist(), best.tolist(), tops.tolist(), sums.tolist(), strict=True
    ):
        order = sorted(range(V), key=lambda v: (0 if math.isnan(row[v]) else 1, -row[v], v))
        found = [0x7FFFFFFF - (word & 0x7FFFFFFF) for word in words]
        assert found[: min(V, count)] == order[:count]
        assert words[V:] == [-0x7FFFFFFFFFFFFFFF] * max(0, count - V)
        if not any(map(math.isnan, row)):
            assert top == max(row) and total == pytest.approx(sum(math.exp(z - top) for z in row))
