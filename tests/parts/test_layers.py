"""Layers: their formulas, and the places where an implementation likes to go wrong."""

import math

import pytest
import torch
import torch.nn.functional as F

from heedful.parts.blocks import Block, Stack
from heedful.parts.embeddings import Inputs, Tied, TokenEmbedding, Untied
from heedful.parts.layers import (
    ACTIVATIONS,
    FeedForward,
    GatedFeedForward,
    LayerNorm,
    PostNorm,
    PreNorm,
    RMSNorm,
    activation,
    layer_norm,
    rms_norm,
)
from heedful.parts.masks import causal, full
from heedful.parts.multihead import MultiHeadAttention
from heedful.parts.positions.absolute import Concatenated, Learned, Sinusoidal
from heedful.parts.view import View

B, T, S, D, V = 2, 5, 7, 12, 19


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(1)


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def close(found, expected, atol=1e-12):
    torch.testing.assert_close(found, expected, atol=atol, rtol=0)


def test_norms_are_their_formulas_and_torchs():
    x = normal(B, T, D)
    norm, rms = LayerNorm(D, eps=1e-3).double(), RMSNorm(D, eps=1e-3).double()
    for weight in (norm.weight, norm.bias, rms.weight):
        torch.nn.init.normal_(weight)
    close(norm(x), layer_norm(x, norm.weight, norm.bias, 1e-3))
    close(rms(x), rms_norm(x, rms.weight, 1e-3))
    close(norm(x), F.layer_norm(x, (D,), norm.weight, norm.bias, 1e-3))
    by_hand = [(v - x[0, 0].mean()) / math.sqrt(x[0, 0].var(correction=0) + 1e-3) for v in x[0, 0]]
    close(norm(x)[0, 0], torch.stack(by_hand) * norm.weight + norm.bias)


def test_normalized_vectors_have_mean_zero_and_variance_one():
    x = LayerNorm(D, eps=0.0).double()(3 + 5 * normal(B, T, D))
    close(x.mean(-1), torch.zeros(B, T, dtype=torch.float64))
    close(x.var(-1, correction=0), torch.ones(B, T, dtype=torch.float64))


def test_feed_forward_is_the_slides_formula_at_every_position():
    layer = FeedForward(D, 20, "relu").double()
    x = normal(B, T, D)
    W1, b1, W2, b2 = layer.up.weight.T, layer.up.bias, layer.down.weight.T, layer.down.bias
    close(layer(x), torch.clamp(x @ W1 + b1, min=0) @ W2 + b2)
    close(layer(x)[:, 2:3], layer(x[:, 2:3]))


def test_gated_feed_forward_is_its_formula():
    layer = GatedFeedForward(D, 20, "silu").double()
    x = normal(B, T, D)
    W, V_, W2 = layer.gate.weight.T, layer.up.weight.T, layer.down.weight.T
    close(layer(x), ((x @ W) * torch.sigmoid(x @ W) * (x @ V_)) @ W2)


def test_activations_are_their_formulas():
    x = normal(100)
    exact = x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))
    close(ACTIVATIONS["gelu"](x), exact)
    close(
        ACTIVATIONS["gelu_tanh"](x),
        0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    )
    close(ACTIVATIONS["gelu_sigmoid"](x), x / (1 + torch.exp(-1.702 * x)))
    assert 0 < (ACTIVATIONS["gelu_tanh"](x) - exact).abs().max() < 1e-3
    with pytest.raises(ValueError, match='no activation "gelo"'):
        activation("gelo")


def test_residuals_put_the_norm_where_they_say():
    layer, norm = FeedForward(D, 20).double(), LayerNorm(D).double()
    x = normal(B, T, D)
    close(PreNorm(layer, norm)(x), x + layer(norm(x)))
    close(PostNorm(layer, norm)(x), norm(x + layer(x)))


def test_the_skip_carries_a_gradient_of_one():
    layer = FeedForward(D, 20).double()
    torch.nn.init.zeros_(layer.down.weight)
    x = normal(B, T, D).requires_grad_()
    PreNorm(layer, LayerNorm(D).double())(x).sum().backward()
    close(x.grad, torch.ones_like(x))


def test_embeddings_scale_and_tie():
    embedding = TokenEmbedding(V, D, scale=math.sqrt(D)).double()
    ids = torch.randint(V, (B, T))
    close(embedding(ids), embedding.weight[ids] * math.sqrt(D))
    x = normal(B, T, D)
    tied, untied = Tied(), Untied(D, V).double()
    close(tied(x, embedding), x @ embedding.weight.T)
    close(Tied(V, scale=0.5).double()(x, embedding), 0.5 * x @ embedding.weight.T)
    close(untied(x, embedding), x @ untied.linear.weight.T)
    assert list(tied.parameters()) == []


def test_inputs_add_token_segment_and_position_then_norm():
    inputs = Inputs(TokenEmbedding(V, D), Learned(9, D), torch.nn.Embedding(2, D), LayerNorm(D)).double()
    ids, segments = torch.randint(V, (B, T)), torch.randint(2, (B, T))
    expected = inputs.tokens.weight[ids] + inputs.segments.weight[segments] + inputs.position.table[:T]
    close(inputs(ids, torch.arange(T), segments), inputs.norm(expected))
    close(inputs(ids, torch.arange(T)), inputs(ids, torch.arange(T), torch.zeros_like(ids)))


def test_concatenated_positions_widen_the_whole_model():
    position = Concatenated(Sinusoidal(4))
    width = 8 + position.added_width
    inputs = Inputs(TokenEmbedding(V, 8), position)
    block = Block(
        PreNorm(MultiHeadAttention(width, 3), LayerNorm(width)),
        PreNorm(FeedForward(width, 20), LayerNorm(width)),
    )
    x = Stack([block], LayerNorm(width))(
        inputs(torch.randint(V, (B, T)), torch.arange(T)), [View(full(), T, T)]
    )
    assert x.shape == (B, T, 12)


def block(cross: bool = False) -> Block:
    def attention() -> PostNorm:
        return PostNorm(MultiHeadAttention(D, 3), LayerNorm(D))

    return Block(
        attention(), PostNorm(FeedForward(D, 20), LayerNorm(D)), attention() if cross else None
    ).double()


def test_a_block_is_the_lectures_pseudo_code():
    """Encoder: z = norm(attention(x) + x), norm(ffn(z) + z). Decoder: masked, then the source, then ffn."""
    x, source = normal(B, T, D), normal(B, S, D)
    encoder = block()
    z = encoder.attention.norm(encoder.attention.layer(x) + x)
    close(encoder(x), encoder.feed_forward.norm(encoder.feed_forward.layer(z) + z))
    decoder, view = block(cross=True), View(causal(), T, T)
    z = decoder.attention.norm(decoder.attention.layer(x, view) + x)
    z = decoder.cross.norm(decoder.cross.layer(z, None, source) + z)
    close(decoder(x, view, source), decoder.feed_forward.norm(decoder.feed_forward.layer(z) + z))


def test_views_take_turns_over_the_layers():
    stack = Stack([block() for _ in range(3)])
    x, views = normal(B, T, D), [View(causal(), T, T), View(full(), T, T)]
    y = x
    for layer, view in zip(stack.blocks, (views[0], views[1], views[0]), strict=True):
        y = layer(y, view)
    close(stack(x, views), y)
