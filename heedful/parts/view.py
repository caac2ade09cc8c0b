"""A view: one mask at the places of one call, and the forms of it that kernels ask for."""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache

import torch
from torch import Tensor

from .masks import Causal, Full, Mask
from .positions.base import IN_ORDER, Memo, Positions, index_of, once


def right_padded(lengths: Tensor, size: int) -> Tensor:
    """Positions of rows whose padding comes last: 0 1 2 -1 -1."""
    slots_T = torch.arange(size, device=lengths.device)
    return torch.where(slots_T < lengths[:, None], slots_T, -1)


def left_padded(lengths: Tensor, size: int) -> Tensor:
    """Positions of rows whose padding comes first: -1 -1 0 1 2."""
    slots_T = torch.arange(size, device=lengths.device)
    return (slots_T - (size - lengths[:, None])).clamp(min=-1)


class View:
    """One attention's view: T queries, S keys, their positions, and the mask between them.

    Made once a forward and handed to every layer, so that what is derived from it (the boolean table,
    the block table of a sparse kernel) is made once. Without positions, the S keys are 0..S-1 and the
    queries are the last T of them: then `causal` and `full` stay recognizable for kernels.

    Args:
        mask: The rule.
        T: Number of queries.
        S: Number of keys.
        device: Where its tensors are.
        q_pos: Positions of queries, if they are not in order.
        k_pos: Positions of keys, if they are not in order.
        stairs: If the positions come to this, that query i sees the first 1 + (i + 1) // stairs keys; 0: no.

    Example:
        >>> from heedful.parts.masks import causal
        >>> View(causal(), T=1, S=3).allowed(H=1)[0, 0].tolist()  # the newest of three tokens
        [[True, True, True]]
    """

    def __init__(
        self,
        mask: Mask,
        T: int,
        S: int,
        device: torch.device | str | None = None,
        q_pos: Positions | None = None,
        k_pos: Positions | None = None,
        stairs: int = 0,
    ) -> None:
        """stairs: if the positions come to this, that query i sees the first 1 + (i + 1) // stairs keys."""
        self.mask, self.T, self.S, self.stairs = mask, T, S, stairs
        self.in_order = q_pos is None and k_pos is None
        self.all_present = k_pos is None
        self.q_pos: Positions = torch.arange(S - T, S, device=device) if q_pos is None else q_pos
        self.k_pos: Positions = torch.arange(S, device=device) if k_pos is None else k_pos
        self.memo: Memo = {IN_ORDER: self.in_order}  # what the layers of this call share

    @property
    def sees_all(self) -> bool:
        """No score is masked: a kernel needs no mask at all."""
        if self.mask == Full():
            return self.all_present
        return self.in_order and self.mask == Causal() and self.T == 1

    @property
    def is_causal(self) -> bool:
        """The square lower triangle that kernels know by name."""
        return self.in_order and self.mask == Causal() and self.T == self.S

    def allowed(self, H: int) -> Tensor:
        """Who may look at whom, as booleans that broadcast to [B, H, T, S]."""
        return once(
            self.memo, ("allowed", H), lambda: self.mask.dense(index_of(self.q_pos), index_of(self.k_pos), H)
        )

    def safe(self, H: int) -> tuple[Tensor, Tensor | None]:
        """`allowed` with empty rows that see everything, and which rows those are ([.., T, 1] or None)."""
        return once(
            self.memo,
            ("safe", H),
            lambda: without_empty_rows(self.allowed(H), self.in_order and self.mask.sees_self),
        )

    def blocks(self, B: int, H: int) -> object:
        """The block table FlexAttention skips by."""
        return once(self.memo, ("blocks", B, H), lambda: self._make_blocks(B, H))

    def _make_blocks(self, B: int, H: int) -> object:
        heads = H if self.mask.by_head else None
        q_pos, k_pos = index_of(self.q_pos), index_of(self.k_pos)
        known = self.in_order and not self.mask.batch and isinstance(self.mask, Hashable)
        if known and not torch.compiler.is_compiling():
            return blocks_in_order(self.mask, heads, self.T, self.S, k_pos.device)
        per_row = self.mask.batch or any(p.ndim == 2 and len(p) > 1 for p in (q_pos, k_pos))
        return make_blocks(self.mask, B if per_row else None, heads, q_pos, k_pos)


@lru_cache(maxsize=16)
def blocks_in_order(mask: Mask, heads: int | None, T: int, S: int, device: torch.device) -> object:
    """The block table of plain windows, kept between calls: making it takes as long as a small step."""
    with torch.inference_mode(False):  # it may be made while writing, and be wanted for training
        q_pos, k_pos = torch.arange(S - T, S, device=device), torch.arange(S, device=device)
        return make_blocks(mask, None, heads, q_pos, k_pos)


STRIP = 1 << 25  # pairs that are looked at together to find the blocks that a rule leaves empty


def make_blocks(mask: Mask, rows: int | None, heads: int | None, q_pos: Tensor, k_pos: Tensor) -> object:
    """FlexAttention's block table.

    Made strip by strip of the queries: the whole table of pairs, which sparse attention is there to avoid,
    would take 40 GiB for 65,536 tokens.
    """
    from torch.nn.attention.flex_attention import BlockMask, create_block_mask

    rule, T, S = mask.flex(q_pos, k_pos), q_pos.shape[-1], k_pos.shape[-1]
    step = max(1, STRIP // ((rows or 1) * (heads or 1) * S * 128)) * 128

    def strip(first: int) -> BlockMask:
        def mask_mod(b: Tensor, h: Tensor, q_slot: Tensor, k_slot: Tensor) -> Tensor:
            return rule(b, h, q_slot + first, k_slot)

        return create_block_mask(mask_mod, rows, heads, min(step, T - first), S, device=q_pos.device)

    if step >= T or torch.compiler.is_compiling():  # a compiler never makes the table
        return create_block_mask(rule, rows, heads, T, S, device=q_pos.device)
    strips = [strip(first) for first in range(0, T, step)]
    some, where, full, full_where = (
        torch.cat([getattr(one, name) for one in strips], dim=2)
        for name in ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices")
    )
    return BlockMask.from_kv_blocks(some, where, full, full_where, mask_mod=rule, seq_lengths=(T, S))


def without_empty_rows(allowed: Tensor, known_full: bool = False) -> tuple[Tensor, Tensor | None]:
    """Let queries that may look at nobody look at everybody, and say which they are, so that a kernel never
    meets an empty row; whoever asks sets their output to 0."""
    if known_full:
        return allowed, None
    empty = ~allowed.any(-1, keepdim=True)
    if allowed.device.type == "cpu" and not torch.compiler.is_compiling() and not empty.any():
        return allowed, None
    return allowed | empty, empty
