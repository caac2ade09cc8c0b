"""Muon: torch's own algorithm in fp32, all matrices of a shape at once, and updates of equal directions."""

import math

import pytest
import torch
from torch import nn

from heedful.train import optimizer
from heedful.train.muon import COEFFICIENTS, Muon, orthogonalize

SHAPES = [(5, 9), (9, 5), (7, 7), (5, 9), (1, 6), (9, 5), (5, 9)]
RATE, DECAY, MOMENTUM = 0.03, 0.2, 0.9


def newton_schulz(update_AB: torch.Tensor) -> torch.Tensor:
    """torch.optim.Muon's `_zeropower_via_newtonschulz`, without its way through bf16."""
    a, b, c = COEFFICIENTS
    x = update_AB.T if update_AB.shape[0] > update_AB.shape[1] else update_AB
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(5):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if update_AB.shape[0] > update_AB.shape[1] else x


def reference_step(weights, gradients, buffers, rate=RATE) -> None:
    """`_single_tensor_muon` with adjust_lr_fn="match_rms_adamw", matrix by matrix."""
    for weight, gradient, buffer in zip(weights, gradients, buffers, strict=True):
        buffer.lerp_(gradient, 1 - MOMENTUM)
        update = newton_schulz(gradient.lerp(buffer, MOMENTUM))
        weight.mul_(1 - rate * DECAY)
        weight.add_(update, alpha=-rate * 0.2 * math.sqrt(max(weight.shape)))


def matrices(dtype=torch.float64) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    return [nn.Parameter(torch.randn(shape, generator=generator, dtype=dtype)) for shape in SHAPES]


def with_gradients(weights: list[torch.Tensor], seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    for weight in weights:
        weight.grad = torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
    return [weight.grad for weight in weights]


def test_the_steps_are_those_of_the_definition():
    weights = matrices()
    plain = [weight.detach().clone() for weight in weights]
    buffers = [torch.zeros_like(weight) for weight in plain]
    muon = Muon(weights, RATE, DECAY, MOMENTUM)
    for seed in range(4):
        gradients = with_gradients(weights, seed)
        muon.param_groups[0]["lr"] = RATE / (1 + seed)  # as a schedule sets it
        muon.step()
        reference_step(plain, gradients, buffers, RATE / (1 + seed))
        for ours, theirs in zip(weights, plain, strict=True):
            torch.testing.assert_close(ours.detach(), theirs, rtol=1e-10, atol=1e-12)


def test_the_steps_are_those_of_torch_but_for_its_bf16():
    """torch rounds the direction to eight bits; ours must lie within that, and does not round."""
    ours, theirs = matrices(torch.float32), matrices(torch.float32)
    muon = Muon(ours, RATE, DECAY, MOMENTUM)
    other = torch.optim.Muon(
        theirs, lr=RATE, weight_decay=DECAY, momentum=MOMENTUM, adjust_lr_fn="match_rms_adamw"
    )
    for seed in range(3):
        with_gradients(ours, seed)
        with_gradients(theirs, seed)
        muon.step()
        other.step()
    for a, b in zip(ours, theirs, strict=True):
        size = 3 * RATE * 0.2 * math.sqrt(max(a.shape))
        assert (a - b).abs().max() < 0.03 * size


def test_a_matrix_without_a_gradient_stays():
    weights = matrices()
    with_gradients(weights, 0)
    weights[3].grad = None
    before = [weight.detach().clone() for weight in weights]
    muon = Muon(weights, RATE, DECAY)
    muon.step()
    same = [torch.equal(a, b.detach()) for a, b in zip(before, weights, strict=True)]
    assert same == [number == 3 for number in range(len(SHAPES))]
    assert weights[3] not in muon.state and len(muon.state) == len(SHAPES) - 1


@pytest.mark.parametrize("shape", [(3, 16, 16), (4, 24, 40), (2, 40, 24)])
def test_singular_values_come_to_lie_around_one(shape):
    """Jordan's five steps bring all from 0.01 of the norm upwards between 0.68 and 1.21; directions stay."""
    generator = torch.Generator().manual_seed(2)
    u, _, v = torch.linalg.svd(
        torch.randn(shape, generator=generator, dtype=torch.float64), full_matrices=False
    )
    count = min(shape[1:])
    values = torch.logspace(-1.6, 0, count, dtype=torch.float64).expand(shape[0], count)
    found = orthogonalize(7.5 * u @ torch.diag_embed(values) @ v)
    after = torch.linalg.svdvals(found)
    assert 0.68 < after.min() and after.max() < 1.21
    inside = u.mT @ found @ v.mT
    torch.testing.assert_close(inside, torch.diag_embed(torch.diagonal(inside, dim1=1, dim2=2)))
    assert (torch.diagonal(inside, dim1=1, dim2=2) > 0).all()


def test_a_batch_of_matrices_is_each_of_them_alone():
    generator = torch.Generator().manual_seed(1)
    several = torch.randn(6, 5, 8, generator=generator) * torch.logspace(-3, 3, 6)[:, None, None]
    together = orthogonalize(several)
    for number, matrix in enumerate(several):
        torch.testing.assert_close(together[number], orthogonalize(matrix[None])[0], rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(together[number], newton_schulz(matrix), rtol=1e-4, atol=1e-5)
    assert (orthogonalize(torch.zeros(2, 3, 4)) == 0).all()  # a gradient of zero moves nothing


class Small(nn.Module):
    """A block's matrices and what surrounds them."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(11, 6)
        self.blocks = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))
        self.out = nn.Linear(6, 4, bias=False)


def model_and_optimizers() -> tuple[Small, list[torch.optim.Optimizer]]:
    torch.manual_seed(0)
    model = Small()
    return model, optimizer.muon(model, 0.02, 0.1)


def move(model: Small, optimizers: list[torch.optim.Optimizer], seed: int) -> None:
    with_gradients(list(model.parameters()), seed)
    for one in optimizers:
        one.step()


def test_its_state_is_kept_by_name_and_put_back():
    model, optimizers = model_and_optimizers()
    move(model, optimizers, 1)
    tensors = {name: t.clone() for name, t in optimizer.state_tensors(model, optimizers).items()}
    momenta = {name for name in tensors if name.endswith(":momentum_buffer")}
    assert momenta == {f"blocks.{n}.weight:momentum_buffer" for n in range(3)}  # the rest is AdamW's
    weights = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    move(model, optimizers, 2)

    other, again = model_and_optimizers()
    with torch.no_grad():
        for name, weight in other.named_parameters():
            weight.copy_(weights[name])
    optimizer.load_state_tensors(other, again, tensors)
    move(other, again, 2)
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)
    assert all(
        torch.equal(value, optimizer.state_tensors(other, again)[name])
        for name, value in optimizer.state_tensors(model, optimizers).items()
    )


@pytest.mark.parametrize("shape", [(5,), (2, 3, 4), ()])
def test_only_matrices_are_taken(shape):
    with pytest.raises(ValueError, match="Muon is for matrices, not for a weight of shape"):
        Muon([nn.Parameter(torch.zeros(3, 2)), nn.Parameter(torch.zeros(shape))], RATE, DECAY)
