"""The kernel of inputs is embedding, position and dropout. Without a GPU: in Triton's interpreter."""

import pytest
import torch
import torch.nn.functional as F
from helpers.training_kernels import CLOSE, DEVICE, HALF, gradients, with_twins

from heedful.fast import kernels
from heedful.fast.kernels.inputs import EmbedAndDrop
from heedful.parts.embeddings import Inputs, TokenEmbedding
from heedful.parts.layers import LayerNorm
from heedful.parts.positions.absolute import Sinusoidal


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(5)


@pytest.mark.parametrize("kind", [torch.float32, HALF])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize(
    "B, T, D, V",
    [(2, 3, 5, 7), (3, 70, 33, 9), (1, 1, 4, 3), (2, 45, 130, 70000), (30, 150, 16, 3), (6, 200, 12, 2)],
)
def test_inputs_are_the_formula(B, T, D, V, shared, kind):
    """Words that fill many parts, words that fill none, and more words than two bytes can count."""
    table = torch.randn(V, D, device=DEVICE, requires_grad=True)
    encodings = torch.randn(*((T, D) if shared else (B, T, D)), device=DEVICE, requires_grad=True)
    tokens, seed = torch.randint(V, (B, T), device=DEVICE), torch.tensor([1], device=DEVICE)
    slope = torch.randn(B, T, D, device=DEVICE, dtype=kind)
    found = EmbedAndDrop.apply(table, tokens, encodings, seed, 1.7, 0.0, kind)
    expected = F.embedding(tokens, table.double()) * 1.7 + encodings.double()
    torch.testing.assert_close(found.double(), expected, atol=2 * CLOSE[kind], rtol=CLOSE[kind])
    leaves = table, encodings
    for mine, its in zip(
        gradients(found, leaves, slope), gradients(expected, leaves, slope.double()), strict=True
    ):
        torch.testing.assert_close(mine, its, atol=3e-4, rtol=1e-4)


def test_inputs_drop_the_same_backwards_as_forwards():
    table, encodings = torch.ones(6, 40, device=DEVICE), torch.ones(9, 40, device=DEVICE)
    table.requires_grad_(), encodings.requires_grad_()
    tokens, seed = torch.randint(6, (20, 9), device=DEVICE), torch.tensor([(5 << 40) + 77], device=DEVICE)
    out = EmbedAndDrop.apply(table, tokens, encodings, seed, 1.0, 0.25, torch.float32)
    kept = out != 0
    assert abs(kept.double().mean().item() - 0.75) < 0.03
    expected = (F.embedding(tokens, table) + encodings) * kept / 0.75
    torch.testing.assert_close(out, expected)
    slope, leaves = torch.randn(20, 9, 40, device=DEVICE), (table, encodings)
    for mine, its in zip(gradients(out, leaves, slope), gradients(expected, leaves, slope), strict=True):
        torch.testing.assert_close(mine, its, atol=2e-5, rtol=1e-4)


def test_inputs_by_their_kernel_are_for_training_and_plain_ones_only(monkeypatch):
    plain = Inputs(TokenEmbedding(11, 6, 2.0), Sinusoidal(6), dropout=0.5).to(DEVICE)
    tokens, positions = torch.randint(11, (2, 5), device=DEVICE), torch.arange(5, device=DEVICE)
    expected = plain.eval()(tokens, positions)
    monkeypatch.setattr(kernels, "embeds", lambda tokens: True)
    with_twins(plain)
    torch.testing.assert_close(plain(tokens, positions), expected)
    plain.train()
    torch.manual_seed(0)
    one, other = plain(tokens, positions), plain(tokens, positions)
    assert not torch.equal(one, other)
    torch.manual_seed(0)
    assert torch.equal(one, plain(tokens, positions))
    torch.manual_seed(0)
    assert torch.equal(one, plain(tokens, positions[None]))  # positions of a single row are everybody's
    plain.eval()
    torch.testing.assert_close(plain(tokens, positions[:1]), plain.finish(plain.sum(tokens, positions[:1])))
    normed = Inputs(TokenEmbedding(3, 6), Sinusoidal(6), norm=LayerNorm(6))
    double = Inputs(TokenEmbedding(3, 6), Sinusoidal(6)).double()
    dropped = Inputs(TokenEmbedding(3, 6), Sinusoidal(6), dropout=1.0)
    others = [with_twins(other) for other in (normed, double, dropped, Inputs(TokenEmbedding(3, 6)))]
    assert plain.fuses(tokens) and not any(other.fuses(tokens) for other in others)
    monkeypatch.setattr(kernels, "embeds", lambda tokens: False)
    assert not plain.fuses(tokens)
    monkeypatch.setattr(kernels, "embeds", lambda tokens: True)
    plain.tokens.register_forward_hook(lambda *_: None)
    assert not plain.fuses(tokens)


def test_words_that_are_not_there_are_no_numbers_and_touch_nothing():
    table, encodings = torch.ones(6, 4, device=DEVICE, requires_grad=True), torch.zeros(3, 4, device=DEVICE)
    tokens, seed = torch.tensor([[1, 6, -1], [1, 5, 1]], device=DEVICE), torch.tensor([1], device=DEVICE)
    out = EmbedAndDrop.apply(table, tokens, encodings, seed, 1.0, 0.0, torch.float32)
    bad = (tokens < 0) | (tokens > 5)
    assert torch.equal(out.isnan().all(-1), bad) and torch.equal(out.isnan().any(-1), bad)
    (slope,) = gradients(out, [table], torch.ones_like(out))
    assert torch.equal(slope[:, 0], torch.tensor([0.0, 3, 0, 0, 0, 1], device=DEVICE))
