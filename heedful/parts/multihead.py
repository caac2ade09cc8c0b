"""The attention layer: project, rotate, attend, mix.

Self- and cross-attention are one layer: what differs is where keys and values come from.
"""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from .attention import ScaledDot, Score, masked_softmax, repeat_heads
from .cache import KeysValues, LayerCache
from .fused import attend_fused
from .masks import full
from .positions.base import NoPosition, Position
from .view import View
from .watch import Watchable, is_watched, observe


class MultiHeadAttention(Watchable):
    """Several attentions side by side, each in its own K coordinates, concatenated and mixed by W^O.

    Self- and cross-attention are one layer: what differs is where keys and values come from. Widths are free.

    Args:
        width: Width D of the vectors that queries come from, and of the output.
        heads: Query heads H.
        kv_heads: Key/value heads G; None: as many as query heads.
        query_width: Numbers of a query; None: `key_width`. Others need a score such as `Bilinear`.
        key_width: Numbers of a key; None: width / heads.
        value_width: Numbers of a value; None: `key_width`.
        source_width: Width of the vectors that keys and values come from; None: `width`.
        bias: Whether the projections have biases.
        out_bias: Whether W^O has one; None: as `bias`.
        dropout: Share of the weights that are set to 0 in training.
        score: How a query is scored against a key; None: `ScaledDot`.
        position: A scheme that acts within attention, such as `Rotary`; None: none.
        qk_norm: Makes a norm of a width, for queries and keys; None: none.

    Example:
        >>> from heedful.parts.positions.rotary import Rotary
        >>> layer = MultiHeadAttention(width=32, heads=4, kv_heads=2, position=Rotary(8))
        >>> layer(torch.randn(2, 5, 32)).shape  # calls forward
        torch.Size([2, 5, 32])
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        kv_heads: int | None = None,
        query_width: int | None = None,
        key_width: int | None = None,
        value_width: int | None = None,
        source_width: int | None = None,
        bias: bool = True,
        out_bias: bool | None = None,
        dropout: float = 0.0,
        score: Score | None = None,
        position: Position | None = None,
        qk_norm: Callable[[int], nn.Module] | None = None,
    ) -> None:
        super().__init__()
        if key_width is None and width % heads:
            raise ValueError(f"a width of {width} cannot be divided into {heads} heads")
        self.heads, self.kv_heads = heads, kv_heads or heads
        if self.heads % self.kv_heads:
            raise ValueError(f"{heads} query heads cannot share {self.kv_heads} key/value heads evenly")
        self.key_width = key_width or width // heads
        self.value_width = value_width or self.key_width
        source_width = source_width or width
        query_width = query_width or self.key_width
        self.query = nn.Linear(width, heads * query_width, bias=bias)
        self.key = nn.Linear(source_width, self.kv_heads * self.key_width, bias=bias)
        self.value = nn.Linear(source_width, self.kv_heads * self.value_width, bias=bias)
        self.out = nn.Linear(heads * self.value_width, width, bias=bias if out_bias is None else out_bias)
        self.query_norm = qk_norm(query_width) if qk_norm else nn.Identity()
        self.key_norm = qk_norm(self.key_width) if qk_norm else nn.Identity()
        self.score = score or ScaledDot()
        self.position = position or NoPosition()
        self.dropout = dropout

    def forward(
        self,
        x_BTD: Tensor,
        view: View | None = None,
        source_BSD: Tensor | None = None,
        cache: LayerCache | None = None,
    ) -> Tensor:
        """Self-attention, or cross-attention if a source is given.

        Args:
            x_BTD: Vectors that ask.
            view: Who may see whom. None: everyone sees everyone.
            source_BSD: Vectors that are asked. None: x itself.
            cache: Keys and values of earlier tokens; those of x are added.

        Returns:
            Vectors [B, T, D].
        """
        view = view or unmasked(x_BTD, source_BSD)
        q_BHTK = self.queries(x_BTD, view)
        k_BGSK, v_BGSL = self.keys_values(x_BTD, view, source_BSD, cache)
        out_BHTL = self.attend(q_BHTK, k_BGSK, v_BGSL, view)
        return self.out(join_heads(out_BHTL))

    def queries(self, x_BTD: Tensor, view: View) -> Tensor:
        """x W^Q by heads, rotated to where each token stands."""
        q_BHTK = self.query_norm(split_heads(self.query(x_BTD), self.heads))
        return self.position.rotate(q_BHTK, view.q_pos, view.memo)

    def keys_values(
        self,
        x_BTD: Tensor,
        view: View,
        source_BSD: Tensor | None = None,
        cache: LayerCache | None = None,
    ) -> KeysValues:
        """Keys and values of x, after those in a cache; or of a source, computed once if there is a cache."""
        if source_BSD is not None:

            def compute() -> KeysValues:
                k_BGSK, v_BGSL = self.split_keys_values(self.key(source_BSD), self.value(source_BSD))
                return self.position.rotate(k_BGSK, view.k_pos), v_BGSL

            return compute() if cache is None else cache.source(compute)
        k_BGTK, v_BGTL = self.split_keys_values(self.key(x_BTD), self.value(x_BTD))
        k_BGTK = self.position.rotate(k_BGTK, view.q_pos, view.memo)
        return (k_BGTK, v_BGTL) if cache is None else cache.append(k_BGTK, v_BGTL)

    def split_keys_values(self, k_BSY: Tensor, v_BSZ: Tensor) -> KeysValues:
        return self.key_norm(split_heads(k_BSY, self.kv_heads)), split_heads(v_BSZ, self.kv_heads)

    def attend(self, q_BHTK: Tensor, k_BGSK: Tensor, v_BGSL: Tensor, view: View) -> Tensor:
        """By a kernel where one exists for this score and position; else, or if watched, by the formula."""
        open_only = self.position.uses_values or is_watched(self)
        dot = None if open_only else self.score.as_dot(q_BHTK, k_BGSK)
        if dot is None:
            return self.attend_recorded(q_BHTK, k_BGSK, v_BGSL, view)
        bias = self.position.bias(q_BHTK, k_BGSK, view.q_pos, view.k_pos, view.memo)
        q_BHTK, k_BGSK, scale = dot
        return attend_fused(q_BHTK, k_BGSK, v_BGSL, view, bias, scale, self.dropout if self.training else 0.0)

    def attend_recorded(self, q_BHTK: Tensor, k_BGSK: Tensor, v_BGSL: Tensor, view: View) -> Tensor:
        """The formula, step by step: scores, weights, weighted values.

        `watch` records them and may change weights.
        """
        k_BHSK, v_BHSL = repeat_heads(k_BGSK, self.heads), repeat_heads(v_BGSL, self.heads)
        scores_BHTS = self.score(q_BHTK, k_BHSK)
        bias = self.position.bias(q_BHTK, k_BGSK, view.q_pos, view.k_pos, view.memo)
        weights_BHTS = masked_softmax(scores_BHTS, view, bias)
        others = {"q": q_BHTK, "k": k_BHSK, "v": v_BHSL, "scores": scores_BHTS, "bias": bias}
        weights_BHTS = observe(self, view, weights_BHTS, **others)
        weights_BHTS = F.dropout(weights_BHTS, self.dropout, self.training)
        out_BHTL = weights_BHTS @ v_BHSL
        extra = self.position.values(weights_BHTS, view.q_pos, view.k_pos, view.memo)
        return out_BHTL if extra is None else out_BHTL + extra


def unmasked(x_BTD: Tensor, source_BSD: Tensor | None) -> View:
    """The view in which everyone sees everyone."""
    S = x_BTD.shape[1] if source_BSD is None else source_BSD.shape[1]
    return View(full(), x_BTD.shape[1], S, x_BTD.device)


def split_heads(x_BTD: Tensor, heads: int) -> Tensor:
    """[B, T, H * K] to [B, H, T, K].

    Args:
        x_BTD: Vectors with all heads side by side.
        heads: Number of heads H.

    Returns:
        The vectors of each head.

    Example:
        >>> split_heads(torch.zeros(2, 5, 12), heads=3).shape
        torch.Size([2, 3, 5, 4])
    """
    return x_BTD.unflatten(-1, (heads, -1)).transpose(1, 2)


def join_heads(x_BHTK: Tensor) -> Tensor:
    """[B, H, T, K] to [B, T, H * K].

    Args:
        x_BHTK: The vectors of each head.

    Returns:
        Vectors with all heads side by side.

    Example:
        >>> join_heads(torch.zeros(2, 3, 5, 4)).shape
        torch.Size([2, 5, 12])
    """
    return x_BHTK.transpose(1, 2).flatten(2)
