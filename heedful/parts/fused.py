"""The formula of attention.py by torch's kernels, and the one choice between them (`attend_fused`).

This is the only file of the parts that asks which device computes and whether torch.compile is at work.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .attention import AnyMask, attend_plain, repeat_heads
from .long.flash import attend_flash, flash_pays
from .long.pieces import PAIRS, attend_in_pieces, pieces_pay
from .long.sparse import attend_gathered, gather_pays
from .view import View, without_empty_rows

HALVES = (torch.bfloat16, torch.float16)
MANY_PAIRS = 1 << 24  # scores at a time on a GPU, where small pieces leave most of it idle
SHORT = 128  # tokens of a sentence: for more, torch's kernels are faster than the open formula


def attend_fused(
    q_BHTK: Tensor,
    k_BGSK: Tensor,
    v_BGSL: Tensor,
    mask: AnyMask = None,
    bias: Tensor | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """`attend_plain` without the table of scores, by the kernel that suits the case.

    Args:
        q_BHTK: Queries of H heads.
        k_BGSK: Keys of G heads.
        v_BGSL: Values of G heads.
        mask: As in `attention_weights`.
        bias: As in `attention_weights`.
        scale: As in `attention_weights`.
        dropout: As in `attention_weights`.

    Returns:
        The weighted mean of the values for each query, [B, H, T, L].

    Example:
        >>> from heedful.parts.attention import attend_plain
        >>> q, k, v = torch.randn(3, 2, 4, 5, 8)
        >>> bool(torch.allclose(attend_fused(q, k, v), attend_plain(q, k, v), atol=1e-5))
        True
    """
    if full_pays(q_BHTK, k_BGSK):
        return attend_in_full(q_BHTK, k_BGSK, v_BGSL, mask, bias, scale, dropout)
    if open_pays(q_BHTK, k_BGSK):
        return attend_open(q_BHTK, k_BGSK, v_BGSL, mask, bias, scale, dropout)
    if isinstance(mask, View) and bias is None:
        if mask.stairs:
            return attend_stairs(q_BHTK, k_BGSK, v_BGSL, mask.stairs, scale, dropout)
        if flex_pays(q_BHTK, mask, bias, dropout):
            return attend_flex(q_BHTK, k_BGSK, v_BGSL, mask, bias, scale, dropout)
        H = q_BHTK.shape[1]
        if flash_pays(q_BHTK, v_BGSL, mask, dropout):
            return attend_flash(q_BHTK, repeat_heads(k_BGSK, H), repeat_heads(v_BGSL, H), mask, scale)
        if pieces_pay(mask, H, dropout):
            k_BHSK, v_BHSL = repeat_heads(k_BGSK, H), repeat_heads(v_BGSL, H)
            most = MANY_PAIRS if q_BHTK.is_cuda else PAIRS
            return attend_in_pieces(q_BHTK, k_BHSK, v_BHSL, mask, scale, most)
        if gather_pays(mask, H):
            k_BHSK, v_BHSL = repeat_heads(k_BGSK, H), repeat_heads(v_BGSL, H)
            return attend_gathered(q_BHTK, k_BHSK, v_BHSL, mask, scale, dropout)
    return attend_sdpa(q_BHTK, k_BGSK, v_BGSL, mask, bias, scale, dropout)


def full_pays(q_BHTK: Tensor, k_BGSK: Tensor) -> bool:
    """Whether attention is to be computed in fp32: for sentences, in training on a CPU in half precision.

    Half precision makes the other products faster but torch's CPU kernel for attention slower: for 64 tokens
    it takes 2.5 times as long as in fp32, for 256 as long, and only past that less.
    """
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
    """`attend_fused` in fp32, whatever the rest is computed in."""
    bias = None if bias is None else bias.float()
    with torch.autocast("cpu", enabled=False):
        out_BHTL = attend_fused(q_BHTK.float(), k_BGSK.float(), v_BGSL.float(), mask, bias, scale, dropout)
    return out_BHTL.to(q_BHTK.dtype)


def open_pays(q_BHTK: Tensor, k_BGSK: Tensor) -> bool:
    """Whether the open formula is faster than torch's kernel: for sentences, in compiled training on a CPU.

    torch.compile makes few loops of the formula, which then takes 0.7 of the kernel's time for 64 tokens and
    as long for 256. In half precision the kernel sums in fp32 and the formula does not, so the formula is
    left alone.
    """
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


def safe_table(mask: AnyMask, H: int) -> tuple[Tensor | None, Tensor | None]:
    """(who may look at whom, None if all see all; the empty rows, which the table lets see all)."""
    if mask is None or isinstance(mask, View) and mask.sees_all:
        return None, None
    return mask.safe(H) if isinstance(mask, View) else without_empty_rows(mask)


def backends(q_BHTK: Tensor, table: Tensor | None) -> AbstractContextManager[object]:
    """Keep cuDNN away from masked fp16: its backward gives NaN there (seen with cuDNN 9.19 on an H200)."""
    if table is None or not q_BHTK.is_cuda or q_BHTK.dtype != torch.float16:
        return nullcontext()
    from torch.nn.attention import SDPBackend, sdpa_kernel

    return sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH])


def attend_stairs(
    q_BHTK: Tensor,
    k_BGSK: Tensor,
    v_BGSL: Tensor,
    rate: int,
    scale: float | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Attention to keys that stand for `rate` tokens each: query i sees the first 1 + (i + 1) // rate keys.

        queries     .  0     1  2  3     4  5  6        rate = 3: those of a group see the same
        keys        0        0  1        0  1  2        as many as there are groups so far

    As heads of their own, the first of each group, the second and the third see a plain triangle: no table
    needed.
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


def flex_pays(q_BHTK: Tensor, mask: AnyMask, bias: Tensor | None, dropout: float) -> bool:
    """Whether FlexAttention is faster than SDPA: where it can skip empty blocks.

    FlexAttention has no dropout, trains on CUDA only, and is compiled for each kind of mask; it wins by
    leaving out blocks that a sparse mask keeps empty (1.0 to 5.8 x SDPA from 2048 keys on, and 0.5 to 0.8 x
    where there is nothing to leave out: benchmarks/RESULTS.md). A dense bias would be read element by
    element.
    """
    sparse = isinstance(mask, View) and mask.mask.sparse and mask.T >= 1024 and mask.S >= 2048
    return sparse and q_BHTK.is_cuda and bias is None and dropout == 0


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
