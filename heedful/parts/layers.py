"""Layers: feed-forward, normalization, and the residual connection around each sub-layer."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .aux_loss import Aux


def gelu_sigmoid(x: Tensor) -> Tensor:
    """x sigmoid(1.702 x)."""
    return x * torch.sigmoid(1.702 * x)


def gelu_tanh(x: Tensor) -> Tensor:
    """x (1 + tanh u) / 2 for u = sqrt(2 / pi) (x + 0.044715 x^3)."""
    return F.gelu(x, approximate="tanh")


def relu_squared(x: Tensor) -> Tensor:
    """max(x, 0)^2."""
    return F.relu(x).square()


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "relu_squared": relu_squared,  # So et al. 2021
    "gelu": F.gelu,  # x Phi(x), exact: BERT, ViT
    "gelu_tanh": gelu_tanh,  # the approximation GPT-1 and GPT-2 were trained with
    "gelu_sigmoid": gelu_sigmoid,  # the rougher one of the Sparse Transformer
    "silu": F.silu,
    "tanh": torch.tanh,
}


def activation(name: str) -> Callable[[Tensor], Tensor]:
    """An activation by name.

    Args:
        name: "relu", "gelu", "silu" and others: the keys of `ACTIVATIONS`.

    Returns:
        A function of a tensor.

    Example:
        >>> activation("relu")(torch.tensor([-1.0, 2.0]))
        tensor([0., 2.])
    """
    if name not in ACTIVATIONS:
        raise ValueError(f'there is no activation "{name}"; there are {", ".join(ACTIVATIONS)}')
    return ACTIVATIONS[name]


# Feed-forward: attention only re-averages; this is where each position thinks for itself.


class FeedForward(nn.Module):
    """activation(x W1 + b1) W2 + b2, the same at every position.

    Args:
        width: Width D of input and output.
        hidden: Width F inside.
        activation_name: As in `activation`.
        bias: Whether there are biases.
        dropout: Share of the hidden numbers that are set to 0 in training.

    Example:
        >>> FeedForward(width=8, hidden=32)(torch.randn(2, 5, 8)).shape
        torch.Size([2, 5, 8])
    """

    def __init__(
        self, width: int, hidden: int, activation_name: str = "relu", bias: bool = True, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.up = nn.Linear(width, hidden, bias=bias)
        self.down = nn.Linear(hidden, width, bias=bias)
        self.activation = activation(activation_name)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x_BTD: Tensor, aux: Aux | None = None) -> Tensor:
        """aux: for experts, which may stand in this place; one layer alone has nothing to say."""
        return self.down(self.dropout(self.activation(self.up(x_BTD))))


class GatedFeedForward(nn.Module):
    """(activation(x W) * (x V)) W2 (Shazeer 2020): SwiGLU with silu, GEGLU with gelu.

    Args:
        width: Width D of input and output.
        hidden: Width F inside.
        activation_name: As in `activation`.
        bias: Whether there are biases.
        dropout: Share of the hidden numbers that are set to 0 in training.

    Example:
        >>> GatedFeedForward(width=8, hidden=32)(torch.randn(2, 5, 8)).shape
        torch.Size([2, 5, 8])
    """

    def __init__(
        self, width: int, hidden: int, activation_name: str = "silu", bias: bool = False, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=bias)
        self.up = nn.Linear(width, hidden, bias=bias)
        self.down = nn.Linear(hidden, width, bias=bias)
        self.activation = activation(activation_name)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x_BTD: Tensor, aux: Aux | None = None) -> Tensor:
        return self.down(self.dropout(self.activation(self.gate(x_BTD)) * self.up(x_BTD)))


# Normalization: each vector brought to a common size.


def layer_norm(x: Tensor, gain: Tensor, bias: Tensor, eps: float) -> Tensor:
    """gain * (x - mean) / sqrt(variance + eps) + bias over the last axis (Ba et al. 2016).

    The variance is the biased one.

    Args:
        x: Vectors.
        gain: One factor for each coordinate.
        bias: One summand for each coordinate.
        eps: Keeps the divisor above 0.

    Returns:
        Vectors of the same shape.

    Example:
        >>> layer_norm(torch.tensor([1.0, 3.0]), torch.ones(2), torch.zeros(2), eps=0.0)
        tensor([-1.,  1.])
    """
    centered = x - x.mean(-1, keepdim=True)
    return gain * centered / (centered.square().mean(-1, keepdim=True) + eps).sqrt() + bias


def rms_norm(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    """gain * x / sqrt(mean(x^2) + eps): no centering, no bias (Zhang and Sennrich 2019).

    Args:
        x: Vectors.
        gain: One factor for each coordinate.
        eps: Keeps the divisor above 0.

    Returns:
        Vectors of the same shape.

    Example:
        >>> rms_norm(torch.tensor([3.0, 3.0]), torch.ones(2), eps=0.0)
        tensor([1., 1.])
    """
    return gain * x / (x.square().mean(-1, keepdim=True) + eps).sqrt()


class LayerNorm(nn.Module):
    """`layer_norm` with learned gain and bias, by torch's kernel.

    Args:
        width: Coordinates of a vector.
        eps: Keeps the divisor above 0.

    Example:
        >>> LayerNorm(2)(torch.tensor([1.0, 3.0])).tolist()[0] < 0
        True
    """

    def __init__(self, width: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps).to(x.dtype)


class GainLayerNorm(nn.Module):
    """`layer_norm` with learned gain and no bias, by torch's kernel (ModernBERT)."""

    def __init__(self, width: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.weight.shape, self.weight, None, self.eps).to(x.dtype)


class RMSNorm(nn.Module):
    """`rms_norm` with learned gain, by torch's kernel.

    Args:
        width: Coordinates of a vector.
        eps: Keeps the divisor above 0.

    Example:
        >>> RMSNorm(2)(torch.tensor([[3.0, 3.0]])).shape
        torch.Size([1, 2])
    """

    def __init__(self, width: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight.to(x.dtype), self.eps)


class OffsetRMSNorm(nn.Module):
    """`rms_norm` with a gain of 1 + weight: weights of zero change nothing (Gemma)."""

    def __init__(self, width: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        full = x.to(torch.promote_types(x.dtype, torch.float32))
        return F.rms_norm(full, self.weight.shape, 1 + self.weight.to(full.dtype), self.eps).to(x.dtype)


class BareLayerNorm(nn.Module):
    """(x - mean) / sqrt(variance + eps): no gain and no bias (OLMo)."""

    def __init__(self, width: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.width, self.eps = width, eps

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, (self.width,), eps=self.eps).to(x.dtype)


class BareRMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps): no gain."""

    def __init__(self, width: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.width, self.eps = width, eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, (self.width,), eps=self.eps)


# {name: (with gain and bias, without)}
NORMS: dict[str, tuple[type[nn.Module], type[nn.Module]]] = {
    "layernorm": (LayerNorm, BareLayerNorm),
    "rmsnorm": (RMSNorm, BareRMSNorm),
}


# Residual connections: X + Layer(X), with the norm before the layer or after the sum.


class PreNorm(nn.Module):
    """x + dropout(layer(norm(x))): the skip is never normalized, so deep stacks train (GPT-2, ViT, LLaMA).

    Args:
        layer: Attention or feed-forward.
        norm: What stands before it, such as `LayerNorm`.
        dropout: Share of the layer's output that is set to 0 in training.

    Example:
        >>> PreNorm(FeedForward(8, 32), LayerNorm(8))(torch.randn(2, 5, 8)).shape
        torch.Size([2, 5, 8])
    """

    def __init__(self, layer: nn.Module, norm: nn.Module, dropout: float = 0.0) -> None:
        super().__init__()
        self.layer, self.norm, self.dropout = layer, norm, nn.Dropout(dropout)

    def forward(self, x_BTD: Tensor, *args: object, **kwargs: object) -> Tensor:
        return x_BTD + self.dropout(self.layer(self.norm(x_BTD), *args, **kwargs))


class PostNorm(nn.Module):
    """norm(x + dropout(layer(x))): the paper's order (Vaswani et al. 2017; GPT-1, BERT).

    Args:
        layer: Attention or feed-forward.
        norm: What stands after the sum.
        dropout: Share of the layer's output that is set to 0 in training.

    Example:
        >>> PostNorm(FeedForward(8, 32), LayerNorm(8))(torch.randn(2, 5, 8)).shape
        torch.Size([2, 5, 8])
    """

    def __init__(self, layer: nn.Module, norm: nn.Module, dropout: float = 0.0) -> None:
        super().__init__()
        self.layer, self.norm, self.dropout = layer, norm, nn.Dropout(dropout)

    def forward(self, x_BTD: Tensor, *args: object, **kwargs: object) -> Tensor:
        return self.norm(x_BTD + self.dropout(self.layer(x_BTD, *args, **kwargs)))


class Branch(nn.Module):
    """dropout(layer(norm(x))): what one of several layers side by side adds to x (`ParallelBlock`).

    Args:
        layer: Attention or feed-forward.
        norm: What stands before it.
        dropout: Share of the output that is set to 0 in training.

    Example:
        >>> Branch(FeedForward(8, 32), LayerNorm(8))(torch.randn(2, 5, 8)).shape
        torch.Size([2, 5, 8])
    """

    def __init__(self, layer: nn.Module, norm: nn.Module, dropout: float = 0.0) -> None:
        super().__init__()
        self.layer, self.norm, self.dropout = layer, norm, nn.Dropout(dropout)

    def forward(self, x_BTD: Tensor, *args: object, **kwargs: object) -> Tensor:
        return self.dropout(self.layer(self.norm(x_BTD), *args, **kwargs))


class SandwichNorm(nn.Module):
    """x + dropout(after(layer(norm(x)))): a norm before the layer and one after it (CogView, Gemma).

    Args:
        layer: Attention or feed-forward.
        norm: What stands before it.
        after: The norm of its output.
        dropout: Share of the output that is set to 0 in training.

    Example:
        >>> SandwichNorm(FeedForward(8, 32), RMSNorm(8), RMSNorm(8))(torch.randn(2, 5, 8)).shape
        torch.Size([2, 5, 8])
    """

    def __init__(self, layer: nn.Module, norm: nn.Module, after: nn.Module, dropout: float = 0.0) -> None:
        super().__init__()
        self.layer, self.norm, self.after, self.dropout = layer, norm, after, nn.Dropout(dropout)

    def forward(self, x_BTD: Tensor, *args: object, **kwargs: object) -> Tensor:
        return x_BTD + self.dropout(self.after(self.layer(self.norm(x_BTD), *args, **kwargs)))


RESIDUALS: dict[str, type[PreNorm | PostNorm]] = {"pre": PreNorm, "post": PostNorm}
