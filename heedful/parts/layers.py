"""Layers: embeddings, feed-forward, normalization, and the residual connection around each sub-layer."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..fast import kernels
from .aux_loss import Aux
from .positions.absolute import Absolute
from .positions.base import NoPosition, Position, Positions


def gelu_sigmoid(x: Tensor) -> Tensor:
    """x sigmoid(1.702 x)."""
    return x * torch.sigmoid(1.702 * x)


def gelu_tanh(x: Tensor) -> Tensor:
    """x (1 + tanh u) / 2 for u = sqrt(2 / pi) (x + 0.044715 x^3).

    The share is also sigmoid 2u, whose exponential torch's compiler writes for CPUs in half the time of tanh: for training.
    """
    if torch.compiler.is_compiling() and x.device.type == "cpu" and torch.is_grad_enabled():
        return x * torch.sigmoid(math.sqrt(8 / math.pi) * (x + 0.044715 * (x * x * x)))
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


RISES = {
    ACTIVATIONS[name]: name.upper() for name in ("relu", "gelu", "gelu_tanh")
}  # known to kernels/rise.py


def activation(name: str) -> Callable[[Tensor], Tensor]:
    """An activation by name."""
    if name not in ACTIVATIONS:
        raise ValueError(f'there is no activation "{name}"; there are {", ".join(ACTIVATIONS)}')
    return ACTIVATIONS[name]


# Embeddings, and the way back to words.


class TokenEmbedding(nn.Module):
    """One vector a word; `scale` multiplies it (the Transformer's sqrt(D), which keeps it level with positions)."""

    def __init__(self, vocab: int, width: int, scale: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab, width))
        self.scale = scale
        nn.init.normal_(self.weight, std=1 / math.sqrt(width))

    def forward(self, tokens_BT: Tensor) -> Tensor:
        x_BTD = F.embedding(tokens_BT, self.weight)
        return x_BTD if self.scale == 1 else x_BTD * self.scale


class Inputs(nn.Module):
    """What the first block sees: token embedding, position, and (BERT) segment; then norm and dropout."""

    def __init__(
        self,
        tokens: TokenEmbedding,
        position: Position | None = None,
        segments: nn.Embedding | None = None,
        norm: nn.Module | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.tokens = tokens
        self.position = position or NoPosition()
        self.segments = segments
        self.norm = norm or nn.Identity()
        self.dropout = nn.Dropout(dropout)
        self.by_kernel = ""  # "cuda": in training there, do all of it at once; it pays in steps that are compiled or recorded

    def length(self, tokens_BT: Tensor) -> int:
        return tokens_BT.shape[1]

    def forward(self, tokens_BT: Tensor, positions: Positions, segments_BT: Tensor | None = None) -> Tensor:
        if segments_BT is None and torch.is_grad_enabled() and self.fuses(tokens_BT):
            return self.at_once(tokens_BT, positions)
        return self.finished(self.summed(tokens_BT, positions, segments_BT))

    def fuses(self, tokens_BT: Tensor) -> bool:
        """Whether there is a kernel for it: a vector a word and one a position, and nobody wants to see what is between."""
        if self.by_kernel != tokens_BT.device.type:
            return False
        alone = type(self) is Inputs and self.segments is None and isinstance(self.norm, nn.Identity)
        known = type(self.tokens) is TokenEmbedding and isinstance(self.position, Absolute)
        unseen = not any(map(hooked, (self.tokens, self.position, self.dropout)))
        (V, D), kind = self.tokens.weight.shape, self.tokens.weight.dtype
        small = max(tokens_BT.numel(), V) * D < kernels.MOST and D <= kernels.WIDEST
        return alone and known and unseen and small and kind != torch.float64 and self.dropout.p < 1

    def at_once(self, tokens_BT: Tensor, positions: Positions) -> Tensor:
        from ..fast.kernels.inputs import embedded

        table_VD, dropout = self.tokens.weight, self.dropout.p if self.training else 0.0
        position: Any = self.position
        encodings = position.encode(positions).to(table_VD.dtype)
        return embedded(table_VD, tokens_BT, encodings, self.tokens.scale, dropout, within(table_VD))

    def summed(self, tokens_BT: Tensor, positions: Positions, segments_BT: Tensor | None = None) -> Tensor:
        """What is looked up, together."""
        x_BTD = self.tokens(tokens_BT)
        if self.segments is not None:
            x_BTD = x_BTD + self.segments(torch.zeros_like(tokens_BT) if segments_BT is None else segments_BT)
        return self.position.embed(x_BTD, positions)

    def finished(self, x_BTD: Tensor) -> Tensor:
        """Norm and dropout: what torch.compile makes one kernel. It keeps away from looking vectors up, whose gradients it
        would add up in an order that differs from run to run."""
        return halved(self.dropout(self.norm(x_BTD)))


def halved(x: Tensor) -> Tensor:
    """Under bf16 autocast, what runs through the blocks is bf16 too: half the memory to move between products."""
    return x.to(within(x))


def within(x: Tensor) -> torch.dtype:
    """What x is to be, running through the blocks. fp16 has no room for it: a sum over layers may pass its largest number."""
    kind = x.device.type
    half = torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind) == torch.bfloat16
    return torch.bfloat16 if half else x.dtype


class Tied(nn.Module):
    """Scores for the next word with the embedding's own matrix: no second copy exists, so it stays tied.

    `scale` multiplies what comes in (T5's D^-1/2).
    """

    def __init__(self, vocab: int | None = None, scale: float = 1.0) -> None:
        """vocab: gives the scores a bias of that size."""
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(vocab)) if vocab else None
        self.scale = scale

    def forward(self, x_BTD: Tensor, embedding: TokenEmbedding) -> Tensor:
        return F.linear(x_BTD if self.scale == 1 else x_BTD * self.scale, *self.matrix(embedding))

    def matrix(self, embedding: TokenEmbedding) -> tuple[Tensor, Tensor | None]:
        """The matrix and its bias."""
        return embedding.weight, self.bias


class Untied(nn.Module):
    """Scores for the next word with a matrix of its own."""

    def __init__(self, width: int, vocab: int, bias: bool = False, scale: float = 1.0) -> None:
        super().__init__()
        self.linear = nn.Linear(width, vocab, bias=bias)
        self.scale = scale

    def forward(self, x_BTD: Tensor, embedding: TokenEmbedding) -> Tensor:
        return self.linear(x_BTD if self.scale == 1 else x_BTD * self.scale)

    def matrix(self, embedding: TokenEmbedding) -> tuple[Tensor, Tensor | None]:
        """The matrix and its bias."""
        return self.linear.weight, self.linear.bias


# Feed-forward: attention only re-averages; this is where each position thinks for itself.


class FeedForward(nn.Module):
    """activation(x W1 + b1) W2 + b2, the same at every position."""

    def __init__(
        self, width: int, hidden: int, activation_name: str = "relu", bias: bool = True, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.up = nn.Linear(width, hidden, bias=bias)
        self.down = nn.Linear(hidden, width, bias=bias)
        self.activation = activation(activation_name)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x_BTD: Tensor, aux: Aux | None = None) -> Tensor:
        """aux: for experts, which may stand in this place; one layer alone has nothing to tell."""
        return self.down(self.inside(x_BTD))

    @property
    def last(self) -> nn.Linear:
        """What the layer ends with."""
        return self.down

    def inside(self, x_BTD: Tensor, aux: Aux | None = None) -> Tensor:
        """What comes before that."""
        return self.dropout(self.rise(x_BTD, beside=False)[0])

    def inside_beside(self, x_BTD: Tensor, aux: Aux | None = None) -> tuple[Tensor, Tensor]:
        """The same, and x as it goes on around the layer: a kernel may add up both of its gradients."""
        inside_BTF, x_BTD = self.rise(x_BTD, beside=True)
        return self.dropout(inside_BTF), x_BTD

    def rise(self, x_BTD: Tensor, beside: bool) -> tuple[Tensor, Tensor]:
        """activation(x W1 + b1), and x; in training with ReLU or GELU on a GPU, by kernels that leave out what they can."""
        plain = self.activation in RISES and self.up.bias is not None and type(self.up) is nn.Linear
        plain = plain and not hooked(self.up)
        if not (plain and kernels.trains(x_BTD)):
            return self.activation(self.up(x_BTD)), x_BTD
        from ..fast.kernels import up_projection as rise

        kind = getattr(rise, RISES[self.activation])
        return rise.Rise.apply(x_BTD, self.up.weight, self.up.bias, kind, beside)


class GatedFeedForward(nn.Module):
    """(activation(x W) * (x V)) W2 (Shazeer 2020): SwiGLU with silu, GEGLU with gelu."""

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
    """gain * (x - mean) / sqrt(variance + eps) + bias, over the last axis, biased variance (Ba et al. 2016)."""
    centered = x - x.mean(-1, keepdim=True)
    return gain * centered / (centered.square().mean(-1, keepdim=True) + eps).sqrt() + bias


def rms_norm(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    """gain * x / sqrt(mean(x^2) + eps): no centring, no bias (Zhang and Sennrich 2019)."""
    return gain * x / (x.square().mean(-1, keepdim=True) + eps).sqrt()


class LayerNorm(nn.Module):
    """`layer_norm` with learned gain and bias, by torch's kernel."""

    def __init__(self, width: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps).to(x.dtype)


class RMSNorm(nn.Module):
    """`rms_norm` with learned gain, by torch's kernel."""

    def __init__(self, width: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight.to(x.dtype), self.eps)


def hooked(module: nn.Module) -> bool:
    """Whether somebody wants to be told when the module itself is called."""
    return bool(module._forward_hooks or module._forward_pre_hooks or module._backward_hooks)


def has_kernel(norm: nn.Module, x_BTD: Tensor) -> bool:
    """Whether kernels/residual.py knows how to do it: its programs hold whole rows, and nobody wants to see what it gives."""
    small = x_BTD.numel() < kernels.MOST and x_BTD.shape[-1] <= kernels.WIDEST
    return type(norm) is LayerNorm and small and not hooked(norm)


# Residual connections: X + Layer(X), with the norm before the layer or after the sum.


class PreNorm(nn.Module):
    """x + dropout(layer(norm(x))): the skip is never normalized, so deep stacks train (GPT-2, ViT, LLaMA)."""

    def __init__(self, layer: nn.Module, norm: nn.Module, dropout: float = 0.0) -> None:
        super().__init__()
        self.layer, self.norm, self.dropout = layer, norm, nn.Dropout(dropout)

    def forward(self, x_BTD: Tensor, *args: object, **kwargs: object) -> Tensor:
        normed_BTD, x_BTD = self.normed_beside(x_BTD)
        return x_BTD + self.dropout(self.layer(normed_BTD, *args, **kwargs))

    def normed_beside(self, x_BTD: Tensor) -> tuple[Tensor, Tensor]:
        """norm(x), and x as it goes on: in training on a GPU, a kernel adds up both of its gradients."""
        if not (kernels.trains(x_BTD) and has_kernel(self.norm, x_BTD)):
            return self.norm(x_BTD), x_BTD
        from ..fast.kernels.residual import NormBeside

        norm: Any = self.norm
        return NormBeside.apply(x_BTD, norm.weight, norm.bias, norm.eps)


class PostNorm(nn.Module):
    """norm(x + dropout(layer(x))): the paper's order (Vaswani et al. 2017; GPT-1, BERT)."""

    def __init__(self, layer: nn.Module, norm: nn.Module, dropout: float = 0.0) -> None:
        super().__init__()
        self.layer, self.norm, self.dropout = layer, norm, nn.Dropout(dropout)

    def forward(self, x_BTD: Tensor, *args: object, **kwargs: object) -> Tensor:
        if self.fuses(x_BTD):
            return self.at_once(x_BTD, *args, **kwargs)
        return self.norm(x_BTD + self.dropout(self.layer(x_BTD, *args, **kwargs)))

    def fuses(self, x_BTD: Tensor) -> bool:
        """Whether there is a kernel for bias, sum, dropout and norm, and nobody wants to see what is between them."""
        if not (kernels.trains(x_BTD) and hasattr(self.layer, "inside_beside")):
            return False
        last: Any = self.layer.last
        plain = type(last) is nn.Linear and has_kernel(self.norm, x_BTD) and self.dropout.p < 1
        return plain and not any(map(hooked, (self.layer, last, self.dropout)))

    def at_once(self, x_BTD: Tensor, *args: object, **kwargs: object) -> Tensor:
        from ..fast.kernels.product import Product
        from ..fast.kernels.residual import fused_add_and_norm

        layer: Any = self.layer
        last, norm, dropout = layer.last, self.norm, self.dropout.p if self.training else 0.0
        inside, x_BTD = layer.inside_beside(x_BTD, *args, **kwargs)
        y_BTD, _ = Product.apply(inside, last.weight, None, False)
        bias = None if last.bias is None else last.bias.to(y_BTD.dtype)
        return fused_add_and_norm(x_BTD, y_BTD, bias, norm.weight, norm.bias, norm.eps, dropout)  # type: ignore[arg-type]


RESIDUALS: dict[str, type[PreNorm | PostNorm]] = {"pre": PreNorm, "post": PostNorm}
