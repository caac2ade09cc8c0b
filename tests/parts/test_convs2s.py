"""ConvS2S: windows, gates, several steps of attention and their scalings, against the formulas in fp64."""

import math

import pytest
import torch
import torch.nn.functional as F
from helpers.before_cases import build
from helpers.invariant_cases import close, future_leaks, tokens

from heedful.models import convs2s
from heedful.parts.before.convolution import ConvolutionBlock, Faded, GatedConvolution, NormedLinear, gated

B, S, T = 3, 6, 7
HALF = math.sqrt(0.5)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(5)


def test_the_gated_linear_unit_is_bounded_by_what_it_lets_through():
    x = torch.randn(4, 10, dtype=torch.float64)
    a, b = x.chunk(2, -1)
    close(gated(x), a / (1 + (-b).exp()))
    assert (gated(x).abs() <= a.abs()).all()
    close(gated(x), F.glu(x, -1))


@pytest.mark.parametrize("kernel", [1, 2, 3, 4])
def test_a_window_equals_torchs_convolution(kernel):
    window = GatedConvolution(4, 5, kernel).double()
    x = torch.randn(B, S, 4, dtype=torch.float64)
    weight = window.linear.weight.view(10, kernel, 4).transpose(1, 2)
    expected = F.glu(F.conv1d(x.mT, weight, window.linear.bias), 1).mT
    close(window(x), expected)


def test_weights_are_a_length_times_a_direction():
    layer = NormedLinear(4, 3).double()
    before = layer.weight.detach().clone()
    close(before, layer.direction.detach(), 1e-6)
    with torch.no_grad():
        layer.direction.mul_(7)  # its length is of no account
    close(layer.weight.detach(), before)
    with torch.no_grad():
        layer.length.mul_(2)
    close(layer.weight.detach(), 2 * before)


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_a_stack_neither_swells_nor_fades(dropout):
    """Before a gate N(0, sqrt(4 p / n)), and sqrt(1/2) at each sum: variance stays about 1 instead of 256."""
    blocks = [ConvolutionBlock(256, 256, 3, dropout) for _ in range(8)]
    spread = blocks[0].window.linear.direction.detach().std()
    assert abs(float(spread) - math.sqrt(4 * (1 - dropout) / (3 * 256))) < 1e-3
    x = torch.randn(4, 40, 256)
    with torch.no_grad():
        for block in blocks:
            x = block.train().centered(x)
    assert 0.5 < float(x[:, 12:-12].var()) < 10


@pytest.mark.parametrize("layers, kernel", [(1, 3), (2, 3), (3, 2), (2, 4)])
def test_a_decoder_sees_as_many_words_as_its_windows_together(layers, kernel):
    config = convs2s.ConvS2SConfig(
        29,
        29,
        False,
        31,
        layers=layers,
        width=6,
        kernel_size=kernel,
        more_layers=(),
        embedding_width=5,
        output_width=4,
    )
    model = convs2s.build(config).double().eval()
    source, length = tokens(1, S), 12
    leaks = future_leaks(model.decoder, lambda ids: model(source, ids), tokens(1, length))
    distance = torch.arange(length)[:, None] - torch.arange(length)
    assert torch.equal(leaks, (distance >= 0) & (distance < 1 + layers * (kernel - 1)))


def test_an_encoder_sees_as_many_words_on_either_side():
    config = convs2s.ConvS2SConfig(
        29, 29, False, 31, layers=2, width=6, kernel_size=3, more_layers=(), embedding_width=5, output_width=4
    )
    encoder = convs2s.build(config).double().eval().encoder
    x = torch.randn(1, 11, 5, dtype=torch.float64, requires_grad=True)
    encoder.inputs.register_forward_hook(lambda module, given, out: x)
    z = encoder(tokens(1, 11))[0, 5, :5]
    (grad,) = torch.autograd.grad(z.square().sum(), x)
    assert (grad[0].abs().sum(-1) > 0).nonzero()[:, 0].tolist() == [3, 4, 5, 6, 7]


def test_the_whole_model_equals_the_formulas():
    model = build("convs2s")
    source, target = tokens(1, S), tokens(1, T)
    found = model(source, target)[0]

    def linear(layer, x):
        if isinstance(layer, torch.nn.Identity):
            return x
        w = layer.direction * (layer.length / layer.direction.square().sum(1).sqrt())[:, None]
        return x @ w.T + layer.bias

    def embedded(shell, ids):
        return shell.inputs.tokens.weight[ids] + shell.inputs.position.table[: len(ids)]

    def windows(x, kernel, before):
        after = kernel - 1 - before
        x = torch.cat([x.new_zeros(before, x.shape[1]), x, x.new_zeros(after, x.shape[1])])
        return torch.stack([x[i : i + kernel].flatten() for i in range(len(x) - kernel + 1)])

    encoder, decoder = model.encoder.stack, model.decoder.stack
    e = embedded(model.encoder, source[0])
    h = linear(encoder.enter, e)
    for block in encoder.blocks:
        a, b = linear(
            block.window.linear, windows(h, block.window.kernel, (block.window.kernel - 1) // 2)
        ).chunk(2, -1)
        h = (a * torch.sigmoid(b) + linear(block.skip, h)) * HALF
    z = linear(encoder.leave, h)

    g = embedded(model.decoder, target[0])
    h = linear(decoder.enter, g)
    for block in decoder.blocks:
        a, b = linear(block.window.linear, windows(h, block.window.kernel, block.window.kernel - 1)).chunk(
            2, -1
        )
        v = a * torch.sigmoid(b)
        d = (linear(block.cross.query, v) + g) * HALF
        weights = (d @ z.T).exp()
        weights = weights / weights.sum(-1, keepdim=True)
        c = S * math.sqrt(1 / S) * (weights @ ((z + e) * HALF))
        v = (v + linear(block.cross.out, c)) * HALF
        h = (v + linear(block.skip, h)) * HALF
    close(found, linear(model.decoder.head.linear, linear(decoder.leave, h)))


def test_equal_widths_need_no_layer_between_them():
    config = convs2s.ConvS2SConfig(
        29, 29, False, 31, layers=2, width=6, more_layers=(), embedding_width=6, output_width=4
    )
    block = convs2s.build(config).decoder.stack.blocks[1]
    assert isinstance(block.skip, torch.nn.Identity) and isinstance(block.cross.out, torch.nn.Identity)


def test_the_encoders_gradient_is_divided_among_the_steps():
    x = torch.randn(4, requires_grad=True)
    y = Faded.apply(x, 0.25)
    assert torch.equal(y, x)
    y.sum().backward()
    assert torch.equal(x.grad, torch.full((4,), 0.25))
    stack = build("convs2s").encoder.stack
    assert stack.share == 1 / (2 * 4)
    leave = [build("convs2s") for _ in range(2)]
    leave[1].encoder.stack.share = 1.0
    source, target = tokens(B, S), tokens(B, T)
    grads = []
    for model in leave:
        model(source, target).square().sum().backward()
        grads.append(model.encoder.stack.leave.bias.grad)
    close(8 * grads[0], grads[1], 1e-9)


def test_the_papers_architecture():
    config = convs2s.PRESETS["convs2s-en-de"]
    assert config.widths == [512] * 9 + [1024] * 4 + [2048] * 2
    assert config.kernels == [3] * 13 + [1] * 2
    for further in ((8,), (8, 0), (8, "3")):
        with pytest.raises(ValueError, match="more_layers"):
            convs2s.ConvS2SConfig(more_layers=further)


def test_fresh_embeddings_are_small():
    torch.manual_seed(1)
    config = convs2s.ConvS2SConfig(
        500, 500, False, 200, layers=1, width=6, more_layers=(), embedding_width=32, output_width=4
    )
    inputs = convs2s.build(config).encoder.inputs
    for weight in (inputs.tokens.weight, inputs.position.table):
        assert abs(float(weight.detach().std()) - 0.1) < 0.005
