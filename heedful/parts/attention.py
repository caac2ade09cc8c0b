"""Attention: every query looks at all keys softly and takes home a weighted mean of their values.

First the formula, as on the slide (`attention_weights`, `attend_plain`); then the same by fast kernels
(`attend_fused`), with the choice of kernel made in one place; then the ways to score a query against a
key; then the layer that holds weights. Self- and cross-attention are one layer: what differs is where
keys and values come from.

H query heads may share G <= H key/value heads (grouped-query attention; G = 1 is multi-query):

    query heads      0 1 2 3 4 5          H = 6
    key/value heads  0 0 0 1 1 1          G = 2
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..fast import kernels
from ..fast.kernels import HALVES
from .cache import KeysValues, LayerCache
from .layers import hooked
from .long.sparse import attend_gathered, gather_pays
from .masks import full
from .positions.base import NoPosition, Position
from .view import View, without_empty_rows

AnyMask = View | Tensor | None  # a tensor is boolean, True = may attend, and broadcasts to [B, H, T, S]


# The formula.


def attention_weights(
    q_BHTK: Tensor,
    k_BGSK: Tensor,
    mask: AnyMask = None,
    bias: Tensor | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """softmax(q k^T / sqrt(K) + bias): how much each query takes from each key. Rows sum to 1, or to 0 if empty."""
    k_BHSK = repeat_heads(k_BGSK, q_BHTK.shape[1])
    scale = 1 / math.sqrt(q_BHTK.shape[-1]) if scale is None else scale
    scores_BHTS = q_BHTK @ k_BHSK.mT * scale
    return F.dropout(masked_softmax(scores_BHTS, mask, bias), dropout)


def attend_plain(
    q_BHTK: Tensor,
    k_BGSK: Tensor,
    v_BGSL: Tensor,
    mask: AnyMask = None,
    bias: Tensor | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """weights @ values: the formula, with every score in memory."""
    weights_BHTS = attention_weights(q_BHTK, k_BGSK, mask, bias, scale, dropout)
    return weights_BHTS @ repeat_heads(v_BGSL, q_BHTK.shape[1])


def masked_softmax(scores_BHTS: Tensor, mask: AnyMask = None, bias: Tensor | None = None) -> Tensor:
    """softmax over keys, in fp32 at least; what is masked gets exactly 0, also in a row with nothing else."""
    dtype = scores_BHTS.dtype
    scores_BHTS = scores_BHTS.to(torch.promote_types(dtype, torch.float32))
    if bias is not None:
        scores_BHTS = scores_BHTS + bias
    allowed = mask.allowed(scores_BHTS.shape[1]) if isinstance(mask, View) else mask
    if allowed is None:
        return scores_BHTS.softmax(-1).to(dtype)
    # The lowest finite number, not -inf: a row of -inf would be NaN, forwards and backwards.
    lowest = torch.finfo(scores_BHTS.dtype).min
    weights_BHTS = scores_BHTS.masked_fill(~allowed, lowest).softmax(-1)
    return weights_BHTS.masked_fill(~allowed, 0).to(dtype)


def repeat_heads(x_BGSK: Tensor, H: int) -> Tensor:
    """Hand each of G key/value heads to H / G query heads."""
    G = x_BGSK.shape[1]
    if H % G:
        raise ValueError(f"{H} query heads cannot share {G} key/value heads evenly")
    return x_BGSK if G == H else x_BGSK.repeat_interleave(H // G, dim=1)


# The same by fast kernels.


def attend_fused(
    q_BHTK: Tensor,
    k_BGSK: Tensor,
    v_BGSL: Tensor,
    mask: AnyMask = None,
    bias: Tensor | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """`attend_plain` without the table of scores, by the kernel that suits the case."""
    if full_pays(q_BHTK, k_BGSK):
        return attend_in_full(q_BHTK, k_BGSK, v_BGSL, mask, bias, scale, dropout)
    if bias is None and dropout == 0 and short_pays(q_BHTK, k_BGSK, v_BGSL):
        return attend_short(q_BHTK, k_BGSK, v_BGSL, mask, scale)
    if open_pays(q_BHTK, k_BGSK):
        return attend_open(q_BHTK, k_BGSK, v_BGSL, mask, bias, scale, dropout)
    if isinstance(mask, View) and mask.stairs and bias is None:
        return attend_stairs(q_BHTK, k_BGSK, v_BGSL, mask.stairs, scale, dropout)
    flex = flex_pays(q_BHTK, mask, bias, dropout)
    if isinstance(mask, View) and bias is None and not flex and gather_pays(mask, q_BHTK.shape[1]):
        H = q_BHTK.shape[1]
        return attend_gathered(q_BHTK, repeat_heads(k_BGSK, H), repeat_heads(v_BGSL, H), mask, scale, dropout)
    kernel = attend_flex if flex else attend_sdpa
    return kernel(q_BHTK, k_BGSK, v_BGSL, mask, bias, scale, dropout)


def full_pays(q_BHTK: Tensor, k_BGSK: Tensor) -> bool:
    """Sentences in training on a CPU in half precision: the other products gain by it, and torch's kernel for attention loses
    (for 64 tokens it takes 2.5 times as long as in fp32, for 256 as long, and only past that less)."""
    few = max(q_BHTK.shape[2], k_BGSK.shape[2]) <= 2 * SHORT
    return few and q_BHTK.device.type == "cpu" and q_BHTK.dtype in HALVES and torch.is_grad_enabled()


def attend_in_full(
    q_BHTK: Tensor,
    k_BGSK: Tensor,
    v_BGSL: Tensor,
    mask: AnyMask = None,
    bias: Tensor | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """In fp32 whatever the rest is computed in."""
    bias = None if bias is None else bias.float()
    with torch.autocast("cpu", enabled=False):
        out_BHTL = attend_fused(q_BHTK.float(), k_BGSK.float(), v_BGSL.float(), mask, bias, scale, dropout)
    return out_BHTL.to(q_BHTK.dtype)


SHORT = 128  # tokens, and numbers of a head, that one program can hold


def short_pays(q_BHTK: Tensor, k_BGSK: Tensor, v_BGSL: Tensor) -> bool:
    """Sentences in training: all scores of a head fit into one program, and its own kernel is the quickest."""
    few = max(q_BHTK.shape[2], k_BGSK.shape[2]) <= SHORT and max(q_BHTK.shape[3], v_BGSL.shape[3]) <= SHORT
    alike = q_BHTK.dtype == k_BGSK.dtype == v_BGSL.dtype
    return kernels.trains(q_BHTK) and few and alike and k_BGSK.shape[1] == q_BHTK.shape[1]


def safe_table(mask: AnyMask, H: int) -> tuple[Tensor | None, Tensor | None]:
    """Who may look at whom, None if everybody at everybody; and which rows look at nobody, which it lets see everything."""
    if mask is None or isinstance(mask, View) and mask.sees_all:
        return None, None
    return mask.safe(H) if isinstance(mask, View) else without_empty_rows(mask)


def open_pays(q_BHTK: Tensor, k_BGSK: Tensor) -> bool:
    """Sentences in training on a CPU, compiled: the formula's loops become few, and torch's kernel is made for longer ones
    (0.7 of its time for 64 tokens, as much for 256). In half precision that kernel adds up in full, and the formula does not."""
    few = max(q_BHTK.shape[2], k_BGSK.shape[2]) <= SHORT
    on_cpu = q_BHTK.device.type == "cpu" and torch.compiler.is_compiling()
    full = q_BHTK.dtype not in HALVES and not torch.is_autocast_enabled("cpu")
    return few and on_cpu and full and torch.is_grad_enabled()


def attend_open(
    q_BHTK: Tensor,
    k_BGSK: Tensor,
    v_BGSL: Tensor,
    mask: AnyMask = None,
    bias: Tensor | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """`attend_plain` with the mask as numbers that are added: one loop less, forwards and backwards."""
    allowed, empty = safe_table(mask, q_BHTK.shape[1])
    if allowed is not None:
        bias = torch.zeros((), dtype=q_BHTK.dtype, device=q_BHTK.device) if bias is None else bias
        bias = torch.where(allowed, bias, float("-inf"))
    out_BHTL = attend_plain(q_BHTK, k_BGSK, v_BGSL, None, bias, scale, dropout)
    return out_BHTL if empty is None else out_BHTL.masked_fill(empty, 0)


def attend_short(
    q_BHTK: Tensor, k_BHSK: Tensor, v_BHSL: Tensor, mask: AnyMask = None, scale: float | None = None
) -> Tensor:
    """heedful's own kernel for a few tokens."""
    from ..fast.kernels.short import attend_short as kernel

    scale = 1 / math.sqrt(q_BHTK.shape[-1]) if scale is None else scale
    return kernel(q_BHTK, k_BHSK, v_BHSL, *table_of(mask, q_BHTK.shape[1]), scale)


def table_of(mask: AnyMask, H: int) -> tuple[Tensor | None, bool]:
    """(who may look at whom, whether the past is all that is seen): the first is None where the second says enough."""
    if not isinstance(mask, View):
        return mask, False
    if mask.is_causal or mask.sees_all:
        return None, mask.is_causal
    return mask.allowed(H), False


def flex_pays(q_BHTK: Tensor, mask: AnyMask, bias: Tensor | None, dropout: float) -> bool:
    """The one choice between kernels: FlexAttention where it can skip empty blocks, SDPA for the rest.

    FlexAttention has no dropout, trains on CUDA only, and is compiled for each kind of mask; it wins by
    leaving out blocks that a sparse mask keeps empty (1.0 to 5.8 x SDPA from 2048 keys on, and 0.5 to 0.8 x where
    there is nothing to leave out: benchmarks/RESULTS.md). A dense bias would be read element by element.
    """
    sparse = isinstance(mask, View) and mask.mask.sparse and mask.T >= 1024 and mask.S >= 2048
    return sparse and q_BHTK.is_cuda and bias is None and dropout == 0


def attend_sdpa(
    q_BHTK: Tensor,
    k_BGSK: Tensor,
    v_BGSL: Tensor,
    mask: AnyMask = None,
    bias: Tensor | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """torch's scaled_dot_product_attention (flash, cuDNN, memory-efficient), kept safe from empty rows.

    Backends differ on a row with nothing to attend to (zeros or NaN). So no kernel ever sees one: such a
    row is let see everything, and its output is then set to 0, which makes its gradient 0 too.
    """
    H, causal, table, empty = q_BHTK.shape[1], False, bias, None
    if isinstance(mask, View) and mask.is_causal and bias is None:
        causal = True
    else:
        allowed, empty = safe_table(mask, H)
        if allowed is not None:
            table = allowed if bias is None else bias.masked_fill(~allowed, float("-inf"))
    if table is not None and table.dtype != torch.bool:
        table = table.to(q_BHTK.dtype)
    grouped = k_BGSK.shape[1] != H
    if grouped and table is not None:  # CUDA's masked kernels know no groups
        k_BGSK, v_BGSL, grouped = repeat_heads(k_BGSK, H), repeat_heads(v_BGSL, H), False
    with backends(q_BHTK, table):
        out_BHTL = F.scaled_dot_product_attention(
            q_BHTK, k_BGSK, v_BGSL, table, dropout, is_causal=causal, scale=scale, enable_gqa=grouped
        )
    return out_BHTL if empty is None else out_BHTL.masked_fill(empty, 0)


def attend_stairs(
    q_BHTK: Tensor,
    k_BGSK: Tensor,
    v_BGSL: Tensor,
    rate: int,
    scale: float | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Attention to keys that stand for `rate` tokens each: query i sees the first 1 + (i + 1) // rate of them.

        queries     .  0     1  2  3     4  5  6        rate = 3: those of a group see the same
        keys        0        0  1        0  1  2        as many as there are groups so far

    As heads of their own, the first of each group, the second and the third see a plain triangle: no table is needed.
    """
    (H, T), S = q_BHTK.shape[1:3], k_BGSK.shape[2]
    groups_BHSRK = F.pad(q_BHTK, (0, 0, 1, S * rate - 1 - T)).unflatten(2, (S, rate))
    q_BXSK = groups_BHSRK.transpose(2, 3).flatten(1, 2)
    shares = q_BHTK.is_cuda and q_BHTK.dtype in HALVES  # then kernels know of keys that several heads share
    k_BYSK, v_BYSL = (k_BGSK, v_BGSL) if shares else (repeat_heads(x, H * rate) for x in (k_BGSK, v_BGSL))
    out_BXSL = F.scaled_dot_product_attention(
        q_BXSK, k_BYSK, v_BYSL, dropout_p=dropout, is_causal=True, scale=scale, enable_gqa=shares
    )
    return out_BXSL.unflatten(1, (H, rate)).transpose(2, 3).flatten(2, 3)[:, :, 1 : T + 1]


def backends(q_BHTK: Tensor, table: Tensor | None) -> AbstractContextManager[object]:
    """Keep cuDNN away from masked fp16: its backward gives NaN there (seen with cuDNN 9.19 on an H200)."""
    if table is None or not q_BHTK.is_cuda or q_BHTK.dtype != torch.float16:
        return nullcontext()
    from torch.nn.attention import SDPBackend, sdpa_kernel

    return sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH])


def attend_flex(
    q_BHTK: Tensor,
    k_BGSK: Tensor,
    v_BGSL: Tensor,
    mask: AnyMask = None,
    bias: Tensor | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """torch's FlexAttention: skips the blocks of the score table that a symbolic mask leaves empty."""
    if dropout:
        raise ValueError("FlexAttention has no dropout: use attend_fused, which knows where to send it")
    (B, H, T, _), S = q_BHTK.shape, k_BGSK.shape[-2]
    if isinstance(mask, Tensor) or bias is not None:
        allowed = mask.allowed(H) if isinstance(mask, View) else mask
        score_mod = _table_lookup(B, H, T, S, allowed, bias)
        blocks = None
    else:
        score_mod, blocks = None, mask.blocks(B, H) if mask is not None else None
    kernel = _flex_kernel(q_BHTK)
    return kernel(q_BHTK, k_BGSK, v_BGSL, score_mod, blocks, scale, enable_gqa=k_BGSK.shape[1] != H)


def _table_lookup(
    B: int, H: int, T: int, S: int, allowed: Tensor | None, bias: Tensor | None
) -> Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]:
    """A mask or bias that exists only as numbers, as a score_mod."""
    allowed_BHTS = None if allowed is None else allowed.expand(B, H, T, S)
    bias_BHTS = None if bias is None else bias.expand(B, H, T, S)

    def score_mod(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        if bias_BHTS is not None:
            score = score + bias_BHTS[b, h, q, k]
        return score if allowed_BHTS is None else torch.where(allowed_BHTS[b, h, q, k], score, float("-inf"))

    return score_mod


def _flex_kernel(q_BHTK: Tensor) -> Callable[..., Tensor]:
    from torch.nn.attention.flex_attention import flex_attention

    if torch.compiler.is_compiling():  # then it is fused with its surroundings
        return flex_attention
    return _compiled_flex() if q_BHTK.is_cuda else _eager_flex


@cache
def _compiled_flex() -> Callable[..., Tensor]:
    """One kernel a shape: a kernel for any shape is half as fast. fullgraph, so that one shape too many is an
    error and not a silent fall back to the open formula; and more shapes than dynamo's usual 8."""
    from torch.nn.attention.flex_attention import flex_attention

    torch._dynamo.config.recompile_limit = max(64, torch._dynamo.config.recompile_limit)
    return torch.compile(flex_attention, dynamic=False, fullgraph=True)


def _eager_flex(*args: Any, **kwargs: Any) -> Tensor:
    from torch.nn.attention.flex_attention import flex_attention

    with warnings.catch_warnings():  # it warns that it is slow here; on the CPU it only serves as a check
        warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")
        return flex_attention(*args, **kwargs)


# How to score a query against a key.


class Score(nn.Module):
    """score(q, k) for all pairs. Those that are a dot product in disguise say so and get the fast kernels."""

    def forward(self, q_BHTK: Tensor, k_BHSK: Tensor) -> Tensor:
        q, k, scale = self.as_dot(q_BHTK, k_BHSK) or (q_BHTK, k_BHSK, 1.0)
        return q @ k.mT * scale

    def as_dot(self, q_BHTK: Tensor, k_BGSK: Tensor) -> tuple[Tensor, Tensor, float] | None:
        """q', k', scale such that score = scale * q' . k'; None if there is no such form."""
        return q_BHTK, k_BGSK, 1.0

    def prepared(self, k_BHSK: Tensor) -> Tensor:
        """What of the keys needs no query, so that many queries one after another can share it."""
        return k_BHSK

    def between(self, q_BHTK: Tensor, prepared_BHSK: Tensor) -> Tensor:
        """The score of keys that were prepared."""
        return self(q_BHTK, prepared_BHSK)


class Dot(Score):
    """q . k: T5 uses it as it stands; for others large scores saturate the softmax."""


class ScaledDot(Score):
    """q . k / sqrt(K): the variance of the sum of K products, brought back to 1 (Vaswani et al. 2017)."""

    def as_dot(self, q_BHTK: Tensor, k_BGSK: Tensor) -> tuple[Tensor, Tensor, float]:
        return q_BHTK, k_BGSK, 1 / math.sqrt(q_BHTK.shape[-1])


class Bilinear(Score):
    """q W k^T, also called general (Luong et al. 2015): query and key widths may differ."""

    def __init__(self, query_width: int, key_width: int) -> None:
        super().__init__()
        self.W = nn.Parameter(torch.empty(query_width, key_width))
        nn.init.xavier_uniform_(self.W)

    def as_dot(self, q_BHTK: Tensor, k_BGSK: Tensor) -> tuple[Tensor, Tensor, float]:
        return q_BHTK @ self.W, k_BGSK, 1.0


class Additive(Score):
    """w . tanh(q W_q + k W_k + b) (Bahdanau et al. 2015): any widths; Luong's concat is the same family."""

    def __init__(self, query_width: int, key_width: int, hidden: int) -> None:
        super().__init__()
        self.query = nn.Linear(query_width, hidden, bias=False)
        self.key = nn.Linear(key_width, hidden)
        self.score = nn.Linear(hidden, 1, bias=False)

    def forward(self, q_BHTK: Tensor, k_BHSK: Tensor) -> Tensor:
        return self.between(q_BHTK, self.prepared(k_BHSK))

    def prepared(self, k_BHSK: Tensor) -> Tensor:
        return self.key(k_BHSK)

    def between(self, q_BHTK: Tensor, prepared_BHSA: Tensor) -> Tensor:
        pairs = self.query(q_BHTK).unsqueeze(-2) + prepared_BHSA.unsqueeze(-3)
        return self.score(torch.tanh(pairs)).squeeze(-1)

    def as_dot(self, q_BHTK: Tensor, k_BGSK: Tensor) -> None:
        return None


class SoftCapped(Score):
    """cap * tanh(score / cap): scores that cannot run away (Gemma 2)."""

    def __init__(self, score: Score, cap: float) -> None:
        super().__init__()
        self.score, self.cap = score, cap

    def forward(self, q_BHTK: Tensor, k_BHSK: Tensor) -> Tensor:
        return self.cap * torch.tanh(self.score(q_BHTK, k_BHSK) / self.cap)

    def as_dot(self, q_BHTK: Tensor, k_BGSK: Tensor) -> None:
        return None


# The layer.


class MultiHeadAttention(nn.Module):
    """Several attentions side by side, each in its own K coordinates, concatenated and mixed by W^O.

    Widths are free: queries come from vectors of `width`, keys and values from vectors of `source_width`.
    Queries and keys share `key_width`, unless the score says otherwise (bilinear, additive: `query_width`).
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
        """Self-attention, or cross-attention if a source is given. Without a view, everyone sees everyone."""
        return self.out(self.inside(x_BTD, view, source_BSD, cache))

    @property
    def last(self) -> nn.Linear:
        """What the layer ends with."""
        return self.out

    def inside(
        self,
        x_BTD: Tensor,
        view: View | None = None,
        source_BSD: Tensor | None = None,
        cache: LayerCache | None = None,
    ) -> Tensor:
        """What comes before that: the heads' weighted means, side by side."""
        return self.inside_beside(x_BTD, view, source_BSD, cache, beside=False)[0]

    def inside_beside(
        self,
        x_BTD: Tensor,
        view: View | None = None,
        source_BSD: Tensor | None = None,
        cache: LayerCache | None = None,
        *,
        beside: bool = True,
    ) -> tuple[Tensor, Tensor]:
        """The same, and x as it goes on around the layer, if it does: a kernel may add up both of its gradients."""
        if view is None:
            S = x_BTD.shape[1] if source_BSD is None else source_BSD.shape[1]
            view = View(full(), x_BTD.shape[1], S, x_BTD.device)
        if cache is None and self.joins(x_BTD, source_BSD):
            return self.attend_joined(x_BTD, view, source_BSD, beside)
        if source_BSD is None:
            (q_BHTK, k_BGSK, v_BGSL), x_BTD = self.project(x_BTD, beside)
            k_BGSK = self.position.rotate(self.key_norm(k_BGSK), view.q_pos, view.memo)
            if cache is not None:
                k_BGSK, v_BGSL = cache.append(k_BGSK, v_BGSL)
        else:
            q_BHTK = split_heads(self.query(x_BTD), self.heads)
            k_BGSK, v_BGSL = self.of_source(source_BSD, view, cache)
        q_BHTK = self.position.rotate(self.query_norm(q_BHTK), view.q_pos, view.memo)
        return join_heads(self.attend(q_BHTK, k_BGSK, v_BGSL, view)), x_BTD

    def project(self, x_BTD: Tensor, beside: bool) -> tuple[tuple[Tensor, ...], Tensor]:
        """Heads of queries, keys and values of the same text, and x; in training on a GPU by kernels, where nothing is special."""
        layers, heads = [self.query, self.key, self.value], (self.heads, self.kv_heads, self.kv_heads)
        if not (kernels.trains(x_BTD) and can_join(layers)):
            apart = zip(together(layers, x_BTD), heads, strict=True)
            return tuple(split_heads(x, H) for x, H in apart), x_BTD
        from ..fast.kernels.heads import Heads
        from ..fast.kernels.product import Product

        weight, bias = joint(layers)
        added = None if bias is None else bias.detach()  # its gradient comes from the heads'
        joined_BTX, x_BTD = Product.apply(x_BTD, weight, added, beside)
        widths = tuple(layer.out_features // H for layer, H in zip(layers, heads, strict=True))
        return Heads.apply(joined_BTX, bias, heads, widths), x_BTD

    def joins(self, x_BTD: Tensor, source_BSD: Tensor | None) -> bool:
        """Whether nothing stands between the projections and a kernel that reads them side by side: sentences in training."""
        if not kernels.trains(x_BTD):
            return False
        few = max(x_BTD.shape[1], 0 if source_BSD is None else source_BSD.shape[1]) <= SHORT
        small = self.heads == self.kv_heads and self.key_width == self.value_width <= SHORT
        plain = type(self.score) is ScaledDot and type(self.position) is NoPosition
        bare = isinstance(self.query_norm, nn.Identity) and not (self.dropout and self.training)
        return few and small and plain and bare and can_join([self.query, self.key, self.value])

    def attend_joined(
        self, x_BTD: Tensor, view: View, source_BSD: Tensor | None, beside: bool
    ) -> tuple[Tensor, Tensor]:
        from ..fast.kernels.product import Product
        from ..fast.kernels.short import attend_joined

        layers, scale = [self.query, self.key, self.value], 1 / math.sqrt(self.key_width)
        mine, other_BSY = layers if source_BSD is None else layers[:1], None
        one_BTX, x_BTD = Product.apply(x_BTD, *joint(mine), beside)
        if source_BSD is not None:
            other_BSY, _ = Product.apply(source_BSD.to(x_BTD.dtype), *joint(layers[1:]), False)
        table = table_of(view, self.heads)
        return attend_joined(one_BTX, other_BSY, self.heads, *table, scale), x_BTD

    def split_keys_values(self, k_BSY: Tensor, v_BSZ: Tensor) -> KeysValues:
        return self.key_norm(split_heads(k_BSY, self.kv_heads)), split_heads(v_BSZ, self.kv_heads)

    def of_source(self, source_BSD: Tensor, view: View, cache: LayerCache | None) -> KeysValues:
        """Keys and values of a source, once for all steps if there is a cache."""

        def compute() -> KeysValues:
            k_BGSK, v_BGSL = self.split_keys_values(*together([self.key, self.value], source_BSD))
            return self.position.rotate(k_BGSK, view.k_pos), v_BGSL

        return compute() if cache is None else cache.source(compute)

    def attend(self, q_BHTK: Tensor, k_BGSK: Tensor, v_BGSL: Tensor, view: View) -> Tensor:
        """By a kernel where one exists for this score and position; else openly. `watch` puts `attend_recorded` here."""
        dot = None if self.position.uses_values else self.score.as_dot(q_BHTK, k_BGSK)
        if dot is None:
            return self.attend_recorded(q_BHTK, k_BGSK, v_BGSL, view)
        bias = self.position.bias(q_BHTK, k_BGSK, view.q_pos, view.k_pos, view.memo)
        q_BHTK, k_BGSK, scale = dot
        dropout = self.dropout if self.training else 0.0
        return attend_fused(q_BHTK, k_BGSK, v_BGSL, view, bias, scale, dropout)

    def attend_recorded(
        self,
        q_BHTK: Tensor,
        k_BGSK: Tensor,
        v_BGSL: Tensor,
        view: View,
        record: Callable[..., None] | None = None,
    ) -> Tensor:
        """The formula, step by step: scores, weights, weighted values; each can be recorded."""
        k_BHSK, v_BHSL = repeat_heads(k_BGSK, self.heads), repeat_heads(v_BGSL, self.heads)
        scores_BHTS = self.score(q_BHTK, k_BHSK)
        bias = self.position.bias(q_BHTK, k_BGSK, view.q_pos, view.k_pos, view.memo)
        weights_BHTS = masked_softmax(scores_BHTS, view, bias)
        if record is not None:
            record(view, q=q_BHTK, k=k_BHSK, v=v_BHSL, scores=scores_BHTS, weights=weights_BHTS)
        weights_BHTS = F.dropout(weights_BHTS, self.dropout, self.training)
        out_BHTL = weights_BHTS @ v_BHSL
        extra = self.position.values(weights_BHTS, view.q_pos, view.k_pos, view.memo)
        return out_BHTL if extra is None else out_BHTL + extra


def together(layers: list[nn.Linear], x_BTD: Tensor) -> tuple[Tensor, ...]:
    """Several linear layers of the same vectors. In training, one product: joining the weights costs nothing beside it,
    and a wide product runs faster than narrow ones (on a CPU, where torch.compile does the joining)."""
    pays = x_BTD.is_cuda or torch.compiler.is_compiling()
    if not (pays and torch.is_grad_enabled() and can_join(layers)):
        return tuple(layer(x_BTD) for layer in layers)
    return joined(layers, x_BTD).split([layer.out_features for layer in layers], dim=-1)


def can_join(layers: list[nn.Linear]) -> bool:
    """Whether linear layers are nothing more than that, and all have a bias or none has."""
    plain = all(type(layer) is nn.Linear and not hooked(layer) for layer in layers)
    return plain and len({layer.bias is None for layer in layers}) == 1


def joined(layers: list[nn.Linear], x_BTD: Tensor) -> Tensor:
    """Linear layers that are alike as one product, their outputs side by side."""
    return F.linear(x_BTD, *joint(layers))


def joint(layers: list[nn.Linear]) -> tuple[Tensor, Tensor | None]:
    """Their matrices as one, and their biases."""
    bias = None if layers[0].bias is None else torch.cat([layer.bias for layer in layers])
    return torch.cat([layer.weight for layer in layers]), bias


def split_heads(x_BTD: Tensor, heads: int) -> Tensor:
    """[B, T, H * K] to [B, H, T, K]."""
    return x_BTD.unflatten(-1, (heads, -1)).transpose(1, 2)


def join_heads(x_BHTK: Tensor) -> Tensor:
    """[B, H, T, K] to [B, T, H * K]."""
    return x_BHTK.transpose(1, 2).flatten(2)
