"""Weights of 8 bits on a GPU: packed products and steps equal those of the same weights, rounded in place.

Without a GPU the kernels run in Triton's interpreter, number by number: sizes are very small.
"""

import copy

import pytest
import torch
import torch.nn.functional as F
from helpers import tiny
from helpers.kernel_cases import DEVICE, MODELS, Eager, plain, shaken

from heedful.decode.prompts import pad
from heedful.errors import BadInput
from heedful.fast.cuda_graph import RunnerPool
from heedful.fast.decoding import packed_runners
from heedful.fast.gpu_decoder import GPUDecoder, norm_of
from heedful.fast.kernels import linear as linear_kernels
from heedful.fast.kernels.folded import fold
from heedful.fast.kernels.linear import linear, linear_sum
from heedful.fast.kernels.norms import NO_NORM
from heedful.fast.kernels.packed import KINDS, packed, unpacked
from heedful.fast.rounding import round_weights
from heedful.models.base.shells import decoder_of
from heedful.parts.embeddings import Tied, Untied
from heedful.parts.layers import LayerNorm, RMSNorm

pytestmark = pytest.mark.filterwarnings(
    "ignore:overflow encountered in exp"
)  # the interpreter's: 1 / (1 + inf) is 0
HALF = {"dtype": torch.float16, "device": DEVICE}  # the interpreter multiplies no bf16


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(3)


@pytest.mark.parametrize("kind", KINDS)
def test_a_weight_stays_within_half_a_step(kind):
    """Steps of int8 are equal; those of fp8 are an eighth of the power of two below, and end at 2^-9."""
    weight = torch.randn(7, 40) * torch.logspace(-4, 4, 7)[:, None]
    weight[3] = 0
    largest = weight.abs().amax(1, keepdim=True)
    found = unpacked(packed(weight, kind))
    scale = largest / KINDS[kind][1]
    half_step = scale / 2 if kind == "int8" else torch.maximum(weight.abs() / 16, scale * 2**-10)
    assert ((found - weight).abs() <= half_step * (1 + 1e-5)).all()
    torch.testing.assert_close(found.abs().amax(1, keepdim=True), largest)
    assert packed(weight, kind).numbers_NK.element_size() == 1


@pytest.mark.parametrize("rows", [1, 3, 19, 70])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_product_is_that_of_the_rounded_weight(dtype, kind, rows):
    how, near = {"dtype": dtype, "device": DEVICE}, 1e-4 if dtype == torch.float32 else 1e-2
    norm = norm_of(shaken(LayerNorm(40)).to(**how))
    weight, other = (packed(torch.randn(37, 40, **how), kind) for _ in range(2))
    x, b, c, kept = (torch.randn(*some, **how) for some in ((rows, 40), (37,), (37,), (rows, 37)))
    W, V, z = unpacked(weight), unpacked(other), x.float()
    close = {"rtol": near, "atol": 10 * near}
    found = linear(x, weight, dtype=torch.float32)
    torch.testing.assert_close(found, F.linear(z, W), **close)
    found = linear(x, weight, b, activation="silu", gated=(other, c))
    expected = F.silu(F.linear(z, W, b.float())) * F.linear(z, V, c.float())
    torch.testing.assert_close(found.float(), expected, **close)
    folded = tuple(one for one in (fold(weight, b, norm),) if one is not None)
    found = linear(x, weight, b, norm=norm, folded=folded, activation="gelu_tanh", residual_MN=kept)
    read = F.layer_norm(z, (40,), norm.gain.float(), norm.shift.float(), norm.eps)
    expected = F.gelu(F.linear(read, W, b.float()), approximate="tanh") + kept.float()
    torch.testing.assert_close(found.float(), expected, **close)


@pytest.mark.parametrize("kind", [LayerNorm, RMSNorm])
def test_one_row_of_a_gated_layer_folds_the_norm_into_both_packed_matrices(kind):
    norm = norm_of(shaken(kind(40)).to(**HALF))
    x, both = torch.randn(1, 40, **HALF) + 1, [packed(torch.randn(19, 40, **HALF), "int8") for _ in range(2)]
    folded = tuple(fold(one, None, norm) for one in both)
    found = linear(x, both[0], norm=norm, folded=folded, activation="silu", gated=(both[1], None))
    own = shaken(kind(40)).double()
    own.weight.data.copy_(norm.gain)
    if norm.shift is not None:
        own.bias.data.copy_(norm.shift)
    first, second = (F.linear(own(x.double()), unpacked(one).double()) for one in both)
    torch.testing.assert_close(found.double(), F.silu(first) * second, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("rows", [2, 19])
@pytest.mark.parametrize("kind", KINDS)
def test_programs_that_share_a_tile_of_a_packed_weight_add_up(kind, rows, monkeypatch):
    grids, kernel = [], linear_kernels.matrix_kernel
    monkeypatch.setattr(linear_kernels, "matrix_kernel", Counted(kernel, grids))
    weight = packed(torch.randn(33, 600, **HALF), kind)
    x, b, kept = (torch.randn(*some, **HALF) for some in ((rows, 600), (33,), (rows, 33)))
    found, normed = linear_sum(x, weight, b, kept, NO_NORM)
    expected = F.linear(x.float(), unpacked(weight), b.float()) + kept.float()
    torch.testing.assert_close(found.float(), expected, rtol=2e-2, atol=0.1)
    assert torch.equal(found, normed) and grids[0][2] > 1


class Counted:
    """A kernel that says how it is launched."""

    def __init__(self, kernel, grids):
        self.kernel, self.grids = kernel, grids

    def __getitem__(self, grid):
        self.grids.append(grid)
        return self.kernel[grid]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("rows", [1, 3])
def test_steps_compute_what_the_parts_compute_with_rounded_weights(name, kind, rows):
    model = shaken(MODELS[name]())
    exact = copy.deepcopy(model)
    round_weights(exact, kind)
    source = None if name in ("gpt2", "llama") else [[3, 4, 5, 6, 7], [8, 9], [10, 11, 12]][:rows]
    given = () if source is None else pad(source, DEVICE)
    gpu = GPUDecoder(decoder_of(model), kind)
    step = Eager(RunnerPool(gpu, None if source is None else model.encoder), 8, *given)
    other = plain(exact, source)
    start, more = torch.randint(23, (rows, 1), device=DEVICE), torch.randint(23, (rows, 3), device=DEVICE)
    unrounded = step.last(start).clone()
    step.runner.buffers.lengths_R.zero_()  # once more: the model's own weights read the prompt
    expected = other.last(start)
    found = step.last(start)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert (unrounded - expected).abs().max() > 1e-3
    for i in range(3):
        token = more[:, i : i + 1]
        torch.testing.assert_close(step.last(token), other.last(token), rtol=1e-4, atol=1e-4)


def test_embeddings_and_what_reads_the_source_are_not_rounded():
    model = shaken(MODELS["transformer"]())
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    tied = isinstance(model.decoder.head, Tied)
    round_weights(model, "fp8")
    after = dict(model.named_parameters())
    changed = {name for name in before if name in after and not torch.equal(before[name], after[name])}
    steps = ("attention.layer.", "cross.layer.query", "cross.layer.out", "feed_forward.layer.")
    expected = {
        name
        for name, weight in before.items()
        if name.startswith("decoder.stack.") and weight.ndim == 2 and any(part in name for part in steps)
    }
    assert tied and changed == expected
    assert isinstance(model.decoder.head, Untied)


def test_a_model_without_kernels_is_refused():
    with pytest.raises(
        BadInput, match='weights="int8" on a GPU needs kernels for every part of the model, .* none for'
    ):
        packed_runners(tiny.build(tiny.DECODERS["modern"]).eval(), "int8")
