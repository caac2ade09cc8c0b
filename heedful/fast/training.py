"""Fast twins of the parts, for training: the same weights, names and results, by fewer and larger operations.

`for_training` gives each module of a model its twin, a subclass of the module's own class. A twin that has no
kernel for a case (another device, another precision, nobody asks for gradients, somebody watches) takes the
plain way.

A residual connection uses its input twice: in the layer, and around it. So some kernels take x and give it
back ("residual" below): then one kernel can add up both gradients of x.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..parts.attention import AnyMask, ScaledDot
from ..parts.aux_loss import Aux
from ..parts.blocks import Block, Stack
from ..parts.cache import Cache, LayerCache
from ..parts.embeddings import Inputs, TokenEmbedding, residual_dtype
from ..parts.layers import (
    ACTIVATIONS,
    FeedForward,
    GatedFeedForward,
    LayerNorm,
    PostNorm,
    PreNorm,
    gelu_tanh,
)
from ..parts.multihead import MultiHeadAttention, join_heads, split_heads, unmasked
from ..parts.positions.absolute import Absolute
from ..parts.positions.base import NoPosition, Position, Positions
from ..parts.view import View
from . import kernels

GRAPHS = 64  # of a block
SHORT = 128  # tokens, and dimensions of a head, that one program of kernels/short.py can hold

Model = TypeVar("Model", bound=nn.Module)


# The entry.


def for_training(model: Model, compiled: bool = False, several: bool = False) -> Model:
    """The same model, whose modules have their fast twins from now on.

    compiled: let torch.compile make one graph of each block. Blocks are alike, so one or two graphs serve all
    of them, and a deep model compiles as fast as a shallow one; a graph of the whole stack is 1 % faster. On
    a GPU another graph is made of what is done to vectors after they were looked up, unless several processes
    share the weights, which then come and go.
    """
    for module in model.modules():
        for plain, twin in TWINS.items():
            if isinstance(module, plain) and not isinstance(module, twin):
                module.__class__ = twin_class(twin, plain_class(module))
        if compiled and isinstance(module, Stack):
            module.__class__ = twin_class(TrainingStack, plain_class(module))
        if compiled and isinstance(module, Block):
            module.compile()
        if compiled and not several and isinstance(module, Inputs):
            module.__class__ = twin_class(TrainingInputs, plain_class(module))
            if module.tokens.weight.is_cuda:
                module.finish = torch.compile(module.finish)  # type: ignore[method-assign]
    if compiled:  # blocks of an encoder and of a decoder, in training and in evaluation, of a few shapes
        torch._dynamo.config.recompile_limit = max(GRAPHS, torch._dynamo.config.recompile_limit)
    return model


@cache
def twin_class(twin: Any, plain: Any) -> Any:
    """The twin of a class: the one that is written here, or for a subclass one that inherits from both."""
    if issubclass(twin, plain):
        return twin
    return type(f"Training{plain.__name__}", (twin, plain), {"plain": plain, "__module__": __name__})


def plain_class(module: nn.Module) -> Any:
    """The class that a module had before `for_training`."""
    return getattr(type(module), "plain", type(module))


# Attention.


class TrainingAttention(MultiHeadAttention):
    """Attention whose projections are one product, and which reads sentences by kernels of its own."""

    plain: type[nn.Module] = MultiHeadAttention

    @property
    def last(self) -> nn.Linear:
        """The product that the layer ends with."""
        return self.out

    def forward(
        self,
        x_BTD: Tensor,
        view: View | None = None,
        source_BSD: Tensor | None = None,
        cache: LayerCache | None = None,
    ) -> Tensor:
        return self.out(self.inside(x_BTD, view, source_BSD, cache, residual=False)[0])

    def inside(
        self,
        x_BTD: Tensor,
        view: View | None = None,
        source_BSD: Tensor | None = None,
        cache: LayerCache | None = None,
        *,
        residual: bool = True,
    ) -> tuple[Tensor, Tensor]:
        """(the heads' weighted means side by side, which `last` mixes; x, as it goes on around the layer)."""
        view = view or unmasked(x_BTD, source_BSD)
        if cache is None and self.attends_joined(x_BTD, source_BSD):
            return self.attend_joined(x_BTD, view, source_BSD, residual)
        if cache is not None or not self.projects_jointly(x_BTD, source_BSD):
            q_BHTK = self.queries(x_BTD, view)
            k_BGSK, v_BGSL = self.keys_values(x_BTD, view, source_BSD, cache)
        elif source_BSD is not None:
            q_BHTK = self.queries(x_BTD, view)
            k_BGSK, v_BGSL = self.split_keys_values(*project_jointly([self.key, self.value], source_BSD))
            k_BGSK = self.position.rotate(k_BGSK, view.k_pos)
        else:
            (q_BHTK, k_BGSK, v_BGSL), x_BTD = self.project(x_BTD, residual)
            q_BHTK = self.position.rotate(self.query_norm(q_BHTK), view.q_pos, view.memo)
            k_BGSK = self.position.rotate(self.key_norm(k_BGSK), view.q_pos, view.memo)
        return join_heads(self.attend(q_BHTK, k_BGSK, v_BGSL, view)), x_BTD

    def projects_jointly(self, x_BTD: Tensor, source_BSD: Tensor | None) -> bool:
        """Whether projections of the same vectors are one product: a wide one is faster than narrow ones.

        On a CPU that pays only where torch.compile does the joining.
        """
        pays = x_BTD.is_cuda or torch.compiler.is_compiling() or kernels.trains(x_BTD)
        layers = [self.key, self.value] if source_BSD is not None else [self.query, self.key, self.value]
        return pays and torch.is_grad_enabled() and can_join(layers)

    def project(self, x_BTD: Tensor, residual: bool) -> tuple[tuple[Tensor, ...], Tensor]:
        """Heads of queries, keys and values by one product; and x."""
        layers, heads = [self.query, self.key, self.value], (self.heads, self.kv_heads, self.kv_heads)
        if not kernels.trains(x_BTD):
            apart = zip(project_jointly(layers, x_BTD), heads, strict=True)
            return tuple(split_heads(x, H) for x, H in apart), x_BTD
        from .kernels.heads import Heads
        from .kernels.product import Product

        weight, bias = joined_weights(layers)
        added = None if bias is None else bias.detach()  # its gradient comes from the heads'
        joined_BTX, x_BTD = Product.apply(x_BTD, weight, added, residual)
        widths = tuple(layer.out_features // H for layer, H in zip(layers, heads, strict=True))
        return Heads.apply(joined_BTX, bias, heads, widths), x_BTD

    def attends_joined(self, x_BTD: Tensor, source_BSD: Tensor | None) -> bool:
        """Whether a kernel can read the joined projections of sentences: nothing may stand in between."""
        if not kernels.trains(x_BTD):
            return False
        few = max(x_BTD.shape[1], 0 if source_BSD is None else source_BSD.shape[1]) <= SHORT
        small = self.heads == self.kv_heads and self.key_width == self.value_width <= SHORT
        plain = type(self.score) is ScaledDot and type(self.position) is NoPosition
        bare = isinstance(self.query_norm, nn.Identity) and not (self.dropout and self.training)
        return few and small and plain and bare and can_join([self.query, self.key, self.value])

    def attend_joined(
        self, x_BTD: Tensor, view: View, source_BSD: Tensor | None, residual: bool
    ) -> tuple[Tensor, Tensor]:
        """`inside` by a kernel that reads the joined projections of x, and of a source if there is one."""
        from .kernels.product import Product
        from .kernels.short import attend_joined

        layers, scale = [self.query, self.key, self.value], 1 / math.sqrt(self.key_width)
        own, source_BSY = layers if source_BSD is None else layers[:1], None
        own_BTX, x_BTD = Product.apply(x_BTD, *joined_weights(own), residual)
        if source_BSD is not None:
            source_BSY, _ = Product.apply(source_BSD.to(x_BTD.dtype), *joined_weights(layers[1:]), False)
        table = table_of(view, self.heads)
        return attend_joined(own_BTX, source_BSY, self.heads, *table, scale), x_BTD

    def attend(self, q_BHTK: Tensor, k_BGSK: Tensor, v_BGSL: Tensor, view: View) -> Tensor:
        dropped = bool(self.dropout and self.training)
        biased = type(self.position).bias is not Position.bias or self.position.uses_values
        if dropped or biased or not short_pays(q_BHTK, k_BGSK, v_BGSL):
            return super().attend(q_BHTK, k_BGSK, v_BGSL, view)
        dot = self.score.as_dot(q_BHTK, k_BGSK)
        if dot is None:
            return super().attend(q_BHTK, k_BGSK, v_BGSL, view)
        q_BHTK, k_BHSK, scale = dot
        return attend_short(q_BHTK, k_BHSK, v_BGSL, view, scale)


def short_pays(q_BHTK: Tensor, k_BGSK: Tensor, v_BGSL: Tensor) -> bool:
    """Whether kernels/short.py is the fastest: one program must hold all scores of a head."""
    few = max(q_BHTK.shape[2], k_BGSK.shape[2]) <= SHORT and max(q_BHTK.shape[3], v_BGSL.shape[3]) <= SHORT
    alike = q_BHTK.dtype == k_BGSK.dtype == v_BGSL.dtype
    return kernels.trains(q_BHTK) and few and alike and k_BGSK.shape[1] == q_BHTK.shape[1]


def attend_short(q_BHTK: Tensor, k_BHSK: Tensor, v_BHSL: Tensor, mask: AnyMask, scale: float) -> Tensor:
    """Attention among a few tokens, by kernels/short.py."""
    from .kernels.short import attend_short as kernel

    return kernel(q_BHTK, k_BHSK, v_BHSL, *table_of(mask, q_BHTK.shape[1]), scale)


def table_of(mask: AnyMask, H: int) -> tuple[Tensor | None, bool]:
    """(who may look at whom, whether the mask is the causal triangle); no table where none is needed."""
    if not isinstance(mask, View):
        return mask, False
    if mask.is_causal or mask.sees_all:
        return None, mask.is_causal
    return mask.allowed(H), False


def project_jointly(layers: list[nn.Linear], x_BTD: Tensor) -> tuple[Tensor, ...]:
    """The outputs of several linear layers for the same vectors, by one product."""
    joined_BTX = F.linear(x_BTD, *joined_weights(layers))
    return joined_BTX.split([layer.out_features for layer in layers], dim=-1)


def joined_weights(layers: list[nn.Linear]) -> tuple[Tensor, Tensor | None]:
    """The matrices of several linear layers as one, and their biases."""
    bias = None if layers[0].bias is None else torch.cat([layer.bias for layer in layers])
    return torch.cat([layer.weight for layer in layers]), bias


def can_join(layers: list[nn.Linear]) -> bool:
    """Whether linear layers are nothing more than that, and all have a bias or none has."""
    plain = all(type(layer) is nn.Linear and not hooked(layer) for layer in layers)
    return plain and len({layer.bias is None for layer in layers}) == 1


def hooked(module: nn.Module) -> bool:
    """Whether somebody wants to know when the module itself is called."""
    return bool(module._forward_hooks or module._forward_pre_hooks or module._backward_hooks)


# Feed-forward.


def gelu_by_sigmoid(x: Tensor) -> Tensor:
    """`gelu_tanh` as x sigmoid(2u), which is the same as x (1 + tanh u) / 2.

    torch.compile makes code for CPUs of it that takes half the time.
    """
    return x * torch.sigmoid(math.sqrt(8 / math.pi) * (x + 0.044715 * (x * x * x)))


def activate(layer: FeedForward | GatedFeedForward, x: Tensor) -> Tensor:
    """A layer's activation, in the form that is the fastest."""
    compiled = torch.compiler.is_compiling() and x.device.type == "cpu" and torch.is_grad_enabled()
    return gelu_by_sigmoid(x) if compiled and layer.activation is gelu_tanh else layer.activation(x)


class TrainingFeedForward(FeedForward):
    """Feed-forward whose first product and activation are one kernel, with ReLU or GELU on a GPU."""

    plain: type[nn.Module] = FeedForward

    @property
    def last(self) -> nn.Linear:
        """The product that the layer ends with."""
        return self.down

    def forward(self, x_BTD: Tensor, aux: Aux | None = None) -> Tensor:
        return self.down(self.inside(x_BTD, residual=False)[0])

    def inside(
        self, x_BTD: Tensor, aux: Aux | None = None, *, residual: bool = True
    ) -> tuple[Tensor, Tensor]:
        """What `last` is given; and x, as it goes on around the layer."""
        known = self.activation in WITH_KERNEL and self.up.bias is not None and type(self.up) is nn.Linear
        if not (known and not hooked(self.up) and kernels.trains(x_BTD)):
            return self.dropout(activate(self, self.up(x_BTD))), x_BTD
        from .kernels import up_projection

        kind = getattr(up_projection, WITH_KERNEL[self.activation])
        given = (x_BTD, self.up.weight, self.up.bias, kind, residual)
        hidden_BTF, x_BTD = up_projection.UpProjection.apply(*given)
        return self.dropout(hidden_BTF), x_BTD


WITH_KERNEL = {ACTIVATIONS[name]: name.upper() for name in ("relu", "gelu", "gelu_tanh")}


class TrainingGatedFeedForward(GatedFeedForward):
    """Gated feed-forward with the fastest form of its activation."""

    plain: type[nn.Module] = GatedFeedForward

    def forward(self, x_BTD: Tensor, aux: Aux | None = None) -> Tensor:
        return self.down(self.dropout(activate(self, self.gate(x_BTD)) * self.up(x_BTD)))


# Residual connections.


def has_kernel(norm: nn.Module, x_BTD: Tensor) -> bool:
    """Whether kernels/residual.py can do a norm: its programs hold whole rows, and hooks are not called."""
    small = x_BTD.numel() < kernels.MOST and x_BTD.shape[-1] <= kernels.WIDEST
    return type(norm) is LayerNorm and small and not hooked(norm)


class TrainingPreNorm(PreNorm):
    """x + dropout(layer(norm(x))), whose norm adds up both gradients of x."""

    plain: type[nn.Module] = PreNorm

    def forward(self, x_BTD: Tensor, *args: object, **kwargs: object) -> Tensor:
        if not (kernels.trains(x_BTD) and has_kernel(self.norm, x_BTD)):
            return super().forward(x_BTD, *args, **kwargs)
        from .kernels.residual import NormAndResidual

        norm: Any = self.norm
        normed_BTD, x_BTD = NormAndResidual.apply(x_BTD, norm.weight, norm.bias, norm.eps)
        return x_BTD + self.dropout(self.layer(normed_BTD, *args, **kwargs))


class TrainingPostNorm(PostNorm):
    """norm(x + dropout(layer(x))), whose bias, dropout, sum and norm are one kernel."""

    plain: type[nn.Module] = PostNorm

    def forward(self, x_BTD: Tensor, *args: object, **kwargs: object) -> Tensor:
        if not (kernels.trains(x_BTD) and self.fuses(x_BTD)):
            return super().forward(x_BTD, *args, **kwargs)
        return self.fused(x_BTD, *args, **kwargs)

    def fuses(self, x_BTD: Tensor) -> bool:
        """Whether there is a kernel for what is in it, and nobody wants to see what is between."""
        if not isinstance(self.layer, TrainingAttention | TrainingFeedForward):
            return False
        last = self.layer.last
        plain = type(last) is nn.Linear and has_kernel(self.norm, x_BTD) and self.dropout.p < 1
        return plain and not any(map(hooked, (self.layer, last, self.dropout)))

    def fused(self, x_BTD: Tensor, *args: object, **kwargs: object) -> Tensor:
        from .kernels.product import Product
        from .kernels.residual import fused_add_and_norm

        layer: Any = self.layer
        norm: Any = self.norm
        last, dropout = layer.last, self.dropout.p if self.training else 0.0
        inside, x_BTD = layer.inside(x_BTD, *args, **kwargs)
        y_BTD, _ = Product.apply(inside, last.weight, None, False)
        bias = None if last.bias is None else last.bias.to(y_BTD.dtype)
        return fused_add_and_norm(x_BTD, y_BTD, bias, norm.weight, norm.bias, norm.eps, dropout)


# Stacks.


class TrainingStack(Stack):
    """A stack of compiled blocks: what they share is made before the first, so that one graph serves all."""

    plain: type[nn.Module] = Stack

    def forward(
        self,
        x_BTD: Tensor,
        views: Sequence[View],
        source_BSD: Tensor | None = None,
        source_view: View | None = None,
        cache: Cache | None = None,
        aux: Aux | None = None,
    ) -> Tensor:
        for i, block in enumerate(self.blocks):
            share(block.attention, x_BTD, views[i % len(views)])
            share(block.cross, x_BTD, source_view)
        return super().forward(x_BTD, views, source_BSD, source_view, cache, aux)


def share(branch: Any, x_BTD: Tensor, view: View | None) -> None:
    """Make the angles and the table that a layer needs; its view keeps them for the other layers."""
    if branch is None or view is None or not isinstance(branch.layer, MultiHeadAttention):
        return
    layer = branch.layer
    layer.position.rotate(x_BTD.new_empty(0, 1, view.T, layer.key_width), view.q_pos, view.memo)
    if max(view.T, view.S) <= SHORT and not view.sees_all:
        view.safe(layer.heads)


# Inputs.


class TrainingInputs(Inputs):
    """Embedding, position and dropout by one kernel, on a GPU in steps that are compiled or recorded.

    torch.compile keeps away from looking vectors up: it would add up their gradients in an order that differs
    from run to run. It compiles `finish` where there is no kernel.
    """

    plain: type[nn.Module] = Inputs

    def forward(self, tokens_BT: Tensor, positions: Positions, segments_BT: Tensor | None = None) -> Tensor:
        if segments_BT is None and torch.is_grad_enabled() and self.fuses(tokens_BT):
            return self.fused(tokens_BT, positions)
        return super().forward(tokens_BT, positions, segments_BT)

    def fuses(self, tokens_BT: Tensor) -> bool:
        """Whether there is a kernel: for one vector per token and one per position, without hooks."""
        if not kernels.embeds(tokens_BT):
            return False
        alone = plain_class(self) is Inputs and self.segments is None and isinstance(self.norm, nn.Identity)
        known = type(self.tokens) is TokenEmbedding and isinstance(self.position, Absolute)
        unseen = not any(map(hooked, (self.tokens, self.position, self.dropout)))
        (V, D), kind = self.tokens.weight.shape, self.tokens.weight.dtype
        small = max(tokens_BT.numel(), V) * D < kernels.MOST and D <= kernels.WIDEST
        return alone and known and unseen and small and kind != torch.float64 and self.dropout.p < 1

    def fused(self, tokens_BT: Tensor, positions: Positions) -> Tensor:
        from .kernels.inputs import embedded

        table_VD, dropout = self.tokens.weight, self.dropout.p if self.training else 0.0
        position: Any = self.position
        encodings = position.encode(positions).to(table_VD.dtype)
        return embedded(table_VD, tokens_BT, encodings, self.tokens.scale, dropout, residual_dtype(table_VD))


# Loss.


def can_fuse_loss(hidden_ND: Tensor) -> bool:
    """Whether scores and their cross-entropy are one kernel for these vectors."""
    return hidden_ND.is_cuda and kernels.THERE


def fused_cross_entropy(
    hidden_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, answers_N: Tensor, smoothing: float
) -> tuple[Tensor, Tensor]:
    """(smoothed, plain) cross-entropy of the scores hidden W^T + b, in one kernel with them."""
    from .kernels.loss import LinearCrossEntropy

    half = torch.is_autocast_enabled("cuda")
    dtype = torch.get_autocast_dtype("cuda") if half else hidden_ND.dtype
    return LinearCrossEntropy.apply(hidden_ND, weight_VD, bias_V, answers_N, smoothing, dtype)


TWINS: dict[Any, Any] = {
    MultiHeadAttention: TrainingAttention,
    FeedForward: TrainingFeedForward,
    GatedFeedForward: TrainingGatedFeedForward,
    PreNorm: TrainingPreNorm,
    PostNorm: TrainingPostNorm,
}
