"""Convolution: each word sees its neighbors in a window, and stacked windows see far (Gehring et al. 2017).

Every layer is normalized by weight (Salimans and Kingma 2016), and every sum of two things of variance 1 is
multiplied by sqrt(1/2), so that a deep stack neither swells nor fades. L layers of kernel k see 1 + L (k - 1)
words.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..attention import Dot
from ..cache import Cache
from ..positions.base import index_of
from ..view import View
from .lookup import Cross, needed
from .recurrent import Rows
from .state_cache import StateCache, StateStack

HALF = math.sqrt(0.5)


def gated(x: Tensor) -> Tensor:
    """v([A ; B]) = A sigmoid(B), the gated linear unit (Dauphin et al. 2017)."""
    a, b = x.chunk(2, -1)
    return a * torch.sigmoid(b)


class NormedLinear(nn.Module):
    """x W + b with W's rows given as a length times a direction, w = g v / |v|."""

    def __init__(self, inputs: int, outputs: int, variance: float = 1.0) -> None:
        """variance: v begins as N(0, sqrt(variance / inputs)).

        It is 1, or 4 p before a gate that follows dropout, where p is the share that dropout keeps.
        """
        super().__init__()
        self.in_features, self.out_features = inputs, outputs
        self.direction = nn.Parameter(torch.empty(outputs, inputs))
        self.length = nn.Parameter(torch.empty(outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))
        self.reset(variance)

    def reset(self, variance: float) -> None:
        """Fresh weights; at first, each direction is as long as it was drawn."""
        nn.init.normal_(self.direction, std=math.sqrt(variance / self.in_features))
        if not self.direction.is_meta:
            with torch.no_grad():
                self.length.copy_(self.direction.norm(dim=1))

    @property
    def weight(self) -> Tensor:
        return self.direction * (self.length / self.direction.norm(dim=1)).unsqueeze(1)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


class GatedConvolution(nn.Module):
    """A gated convolution: kernel words side by side, through one layer to twice the width, and a gate."""

    def __init__(self, inputs: int, width: int, kernel: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.inputs, self.width, self.kernel = inputs, width, kernel
        self.linear = NormedLinear(kernel * inputs, 2 * width, 4 * (1 - dropout))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x_BSI: Tensor) -> Tensor:
        """[B, T + kernel - 1, I] to [B, T, width]: of each window one vector."""
        T = x_BSI.shape[1] - self.kernel + 1
        return gated(self.linear(torch.cat([x_BSI[:, i : i + T] for i in range(self.kernel)], -1)))


def resized(inputs: int, width: int) -> nn.Module:
    """A layer where two widths differ, and nothing where they do not."""
    return nn.Identity() if inputs == width else NormedLinear(inputs, width)


class ConvolutionBlock(nn.Module):
    """(v(conv(x)) + x) sqrt(1/2); in a decoder also what it takes home from the source."""

    def __init__(
        self, inputs: int, width: int, kernel: int, dropout: float, source: int | None = None
    ) -> None:
        """source: width of the embedding, for a block that attends to a source."""
        super().__init__()
        self.window = GatedConvolution(inputs, width, kernel, dropout)
        self.skip = resized(inputs, width)
        self.cross = None if source is None else AttentionStep(width, source)

    def centered(self, x_BTI: Tensor) -> Tensor:
        """An encoder's: as many words on either side."""
        k = self.window.kernel
        x_BSI = F.pad(self.window.dropout(x_BTI), (0, 0, (k - 1) // 2, k // 2))
        return (self.window(x_BSI) + self.skip(x_BTI)) * HALF

    def causal(
        self, x_BTI: Tensor, g_BTE: Tensor, source: Any, view: View, cache: Cache | None, i: int
    ) -> Tensor:
        """A decoder's: the k - 1 words before; and one step of its attention to the source."""
        assert self.cross is not None
        k, dropped_BTI = self.window.kernel, self.window.dropout(x_BTI)
        before_BRI = dropped_BTI.new_zeros(len(x_BTI), k - 1, x_BTI.shape[-1])
        if isinstance(cache, StateCache):
            layer = cache.layers[i]
            x_BSI = layer.add(layer.before(before_BRI), dropped_BTI)
        else:
            x_BSI = torch.cat([before_BRI, dropped_BTI], 1)
        y_BTD = self.window(x_BSI)
        y_BTD = (y_BTD + self.cross(y_BTD, g_BTE, source, view, cache, i)) * HALF
        return (y_BTD + self.skip(x_BTI)) * HALF


class AttentionStep(nn.Module):
    """One of the several steps of attention: d = (h W_d + b_d + g) sqrt(1/2), a = softmax(d .

    z), c = sqrt(m) a (z + e).

    m is the number of words in the source: an even mean of m things has their variance divided by m.
    """

    def __init__(self, width: int, embedding: int) -> None:
        super().__init__()
        self.query = NormedLinear(width, embedding)
        self.lookup = Cross(Dot())
        self.out = resized(embedding, width)

    def forward(
        self,
        h_BTD: Tensor,
        g_BTE: Tensor,
        source: tuple[Tensor, Tensor],
        view: View,
        cache: Cache | None,
        i: int,
    ) -> Tensor:
        d_BTE = (self.query(h_BTD) + g_BTE) * HALF
        c_BTE = self.lookup(d_BTE, self.lookup.source(*source, cache, i), view)
        return self.out(c_BTE * words(view, c_BTE).sqrt())


def words(view: View, like: Tensor) -> Tensor:
    """How many words each source has, [B or 1, 1, 1]."""
    real = torch.atleast_2d(index_of(view.k_pos)) >= 0
    return real.sum(-1).to(like.dtype)[:, None, None]


class Faded(torch.autograd.Function):
    """The same numbers forwards, and a smaller gradient backwards."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, share: float) -> Tensor:
        ctx.share = share
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad * ctx.share, None


class ConvolutionEncoder(nn.Module):
    """Blocks between an embedding and what a decoder attends to: z to find, (z + e) sqrt(1/2) to take home.

    The gradient of z is divided by twice the number of decoder layers that attend to it, since all of them
    send gradients.
    """

    def __init__(
        self, embedding: int, widths: Sequence[int], kernels: Sequence[int], dropout: float, attends: int
    ) -> None:
        """attends: how many decoder layers attend to this."""
        super().__init__()
        ins = [widths[0], *widths]
        self.enter = NormedLinear(embedding, widths[0])
        self.blocks = nn.ModuleList(
            ConvolutionBlock(i, d, k, dropout) for i, d, k in zip(ins, widths, kernels, strict=False)
        )
        self.leave = NormedLinear(widths[-1], embedding)
        self.share = 1 / (2 * attends)

    def forward(self, e_BTE: Tensor, views: Sequence[View]) -> Tensor:
        """[z ; (z + e) sqrt(1/2)], [B, T, 2 E]."""
        padding = None if views[0].in_order else (torch.atleast_2d(index_of(views[0].q_pos)) < 0)[..., None]

        def real(x_BTD: Tensor) -> Tensor:
            """Padding is as empty as what lies beyond a sentence."""
            return x_BTD if padding is None else x_BTD.masked_fill(padding, 0)

        x_BTD = self.enter(e_BTE)
        for block in self.blocks:
            x_BTD = block.centered(real(x_BTD))  # type: ignore[operator]
        z_BTE = Faded.apply(real(self.leave(x_BTD)), self.share)
        return torch.cat([z_BTE, (z_BTE + e_BTE) * HALF], -1)


class ConvolutionDecoder(StateStack):
    """Causal blocks, each of which attends to the source."""

    def __init__(
        self, embedding: int, widths: Sequence[int], kernels: Sequence[int], dropout: float, out: int
    ) -> None:
        super().__init__()
        ins = [widths[0], *widths]
        self.enter = NormedLinear(embedding, widths[0])
        self.blocks = nn.ModuleList(
            ConvolutionBlock(i, d, k, dropout, embedding)
            for i, d, k in zip(ins, widths, kernels, strict=False)
        )
        self.leave = NormedLinear(widths[-1], out)
        self.dropout = nn.Dropout(dropout)

    def growing_cache(self) -> StateCache:
        """The last k - 1 inputs of each layer."""
        return StateCache([block.window.kernel - 1 for block in list[Any](self.blocks)])

    def forward(
        self,
        g_BTE: Tensor,
        views: Sequence[View],
        source_BSD: Tensor | None = None,
        source_view: View | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        source, rows = needed(source_BSD).chunk(2, -1), Rows.of(views[0], g_BTE)
        assert source_view is not None
        g_BTE = g_BTE if rows is None else rows.split(g_BTE)
        x_BTD = self.enter(g_BTE)
        for i, block in enumerate(self.blocks):
            x_BTD = block.causal(x_BTD, g_BTE, source, source_view, cache, i)  # type: ignore[operator]
        out_BTD = self.dropout(self.leave(x_BTD))
        return out_BTD if rows is None else rows.join(out_BTD)
