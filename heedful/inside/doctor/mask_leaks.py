"""Leaks of one mask: its table has nothing above the diagonal, and every kernel that can compute it ignores
later keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ...parts.attention import attend_plain
from ...parts.fused import attend_flex, attend_fused, attend_sdpa
from ...parts.long.pieces import attend_in_pieces, repeats
from ...parts.long.sparse import attend_gathered, layouts_of
from ...parts.masks import Mask, PerHead
from ...parts.view import View
from .finding import ROUNDING, apart
from .lengths import length_for_mask
from .proof import rules_in

STRIP = 1 << 24  # pairs of a table that are looked at together
FARTHEST = 1 << 14  # positions
KERNEL_TOKENS = 1024  # of the kernels' own check, at most
WIDTH = 4  # of its queries and keys

Kernel = Callable[..., Tensor]


def heads_of(mask: Mask) -> int:
    """Heads that show every rule of a mask."""
    groups = [getattr(rule, "head_groups", 1) for rule in rules_in(mask)]
    groups += [len(rule.masks) for rule in rules_in(mask) if isinstance(rule, PerHead)]
    return 2 * max(groups) if mask.by_head else 2


def table_leak(mask: Mask, context: int) -> str | None:
    """The first later key that a rule allows within the context, in words."""
    size, heads = min(context, mask.longest or context, FARTHEST), heads_of(mask)
    k_S = torch.arange(size)
    for q_T in k_S.split(max(1, STRIP // (size * heads))):
        later_BHTS = mask.dense(q_T, k_S, heads) & (k_S > q_T[:, None])
        if later_BHTS.any():
            _, _, row, key = later_BHTS.nonzero()[0].tolist()
            return f"which lets token {int(q_T[row])} see token {key}"
    return None


def kernels_of(mask: Mask, heads: int) -> Iterator[tuple[str, Kernel]]:
    """{name: kernel} of those that can compute a mask."""
    yield "the formula", attend_plain
    yield "the fused kernel", attend_fused
    yield "scaled_dot_product_attention", attend_sdpa
    yield "FlexAttention", attend_flex
    found = [layouts_of(mask, head) or () for head in range(heads if mask.by_head else 1)]
    if all(found):
        yield "the gathering kernel", attend_gathered
    if all(repeats(mask, layouts) for layouts in found):
        yield "attention in pieces", attend_in_pieces


@torch.no_grad()
def kernel_leak(mask: Mask) -> str | None:
    """The first kernel whose output depends on later keys, in words."""
    length, heads = length_for_mask(mask, KERNEL_TOKENS), heads_of(mask)
    random = torch.Generator().manual_seed(length)
    q, *as_it_is = torch.randn(3, 1, heads, length, WIDTH, generator=random)
    other = torch.randn(2, 1, heads, length, WIDTH, generator=random)
    view = View(mask, length, length)
    for cut in sorted({length // 3, max(0, length - 2)}):
        after_N1 = torch.arange(length)[:, None] > cut
        changed = [torch.where(after_N1, b, a) for a, b in zip(as_it_is, other, strict=True)]
        for name, kernel in kernels_of(mask, heads):
            expected, found = (kernel(q, *some, view)[:, :, : cut + 1] for some in (as_it_is, changed))
            if not apart(found, expected) <= ROUNDING:
                return f"which {name} computes with keys after token {cut}"
    return None
