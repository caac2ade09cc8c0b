"""Memory-compressed attention (Liu et al. 2018): a convolution of 3 with stride 3 shortens keys and values.

    tokens      0  1  2  3  4  5  6  7          query i sees slot b if it has seen all of it: 3b + 2 <= i
    slots       first    [0 1 2]  [3 4 5]       the first token stands for itself, so that nobody sees nothing

A strided convolution is a linear layer over three tokens side by side. Queries stay as they are, so the table
of scores has a third of the columns, and a cache a third of the rows. A slot stands where its last token
stands: then the causal rule is the whole mask. tensor2tensor compresses the layer's input instead, before
keys and values are made of it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..cache import KeysValues
from ..masks import AllOf, Causal, Mask
from ..multihead import MultiHeadAttention, split_heads
from ..packed_masks import Document
from ..positions.base import index_of, once
from ..view import View
from .windowed_cache import SLACK, OwnLayer, Remembering, mixed, positions_of

RATE = 3  # tokens that become one


def compressed(x_BSD: Tensor, layer: nn.Linear) -> Tensor:
    """[B, S, D] to [B, S // 3, D]: every three tokens as one; what is left over waits (Liu et al. 2018).

    Args:
        x_BSD: Vectors.
        layer: A linear layer over three vectors side by side.

    Returns:
        A third of the vectors.

    Example:
        >>> compressed(torch.randn(2, 7, 4), torch.nn.Linear(12, 4)).shape
        torch.Size([2, 2, 4])
    """
    whole = x_BSD.shape[1] // RATE
    return layer(x_BSD[:, : whole * RATE].unflatten(1, (whole, RATE)).flatten(2))


class CompressedAttention(Remembering):
    """Attention to three tokens at a time; what of them is compressed is the subclass."""

    def __init__(self, inner: MultiHeadAttention, widths: Sequence[int]) -> None:
        super().__init__()
        self.inner = inner
        self.compress = nn.ModuleList(nn.Linear(RATE * width, width) for width in widths)

    @property
    def convolutions(self) -> list[nn.Linear]:
        return list(self.compress)  # type: ignore[arg-type]

    @abstractmethod
    def raw(self, x_BTD: Tensor) -> tuple[Tensor, ...]:
        """What is to be compressed of every token."""

    @abstractmethod
    def keys_values(self, slots: Sequence[Tensor]) -> KeysValues:
        """Keys and values, [B, S, heads * width], of what was."""

    def layer_cache(self) -> CompressedLayer:
        return CompressedLayer(self.convolutions)

    def remembered(self, length: int) -> int:
        return (1 + length // RATE) * sum(conv.out_features for conv in self.convolutions)

    def forward(
        self,
        x_BTD: Tensor,
        view: View,
        source_BSD: Tensor | None = None,
        cache: CompressedLayer | None = None,
    ) -> Tensor:
        raw, B = self.raw(x_BTD), len(x_BTD)
        if cache is not None:
            slots, k_pos_BS = cache.extend(raw, positions_of(view, B))
            seen = View(view.mask, view.T, k_pos_BS.shape[1], x_BTD.device, view.q_pos, k_pos_BS)
        elif view.in_order and view.mask == Causal():
            slots = [
                with_first(each, compressed(each, conv))
                for each, conv in zip(raw, self.convolutions, strict=True)
            ]
            seen = once(view.memo, "compressed", lambda: slots_view(view))
        else:
            slots, seen = self.everywhere(raw, view)
        k_BGSK, v_BGSL = self.inner.split_keys_values(*self.keys_values(slots))
        return mixed(self.inner, split_heads(self.inner.query(x_BTD), self.inner.heads), k_BGSK, v_BGSL, seen)

    def everywhere(self, raw: Sequence[Tensor], view: View) -> tuple[list[Tensor], View]:
        """Slots of tokens that stand anywhere (padding, packed rows): one at every token, most of them empty.

        This is the definition, at three times the cost.
        """
        place_BT = places(view, len(raw[0]))
        first_BT1 = (place_BT == 0)[..., None]
        slots = [
            torch.where(first_BT1, each, sliding(each, conv))
            for each, conv in zip(raw, self.convolutions, strict=True)
        ]
        there_BT = (place_BT == 0) | ((place_BT >= 0) & (place_BT % RATE == RATE - 1))
        k_pos_BT = torch.where(there_BT, torch.atleast_2d(index_of(view.k_pos)), -1)
        return slots, View(view.mask, view.T, view.S, raw[0].device, view.q_pos, k_pos_BT)


class CompressedKeys(CompressedAttention):
    """As in the paper: keys and values, by a convolution each, over all heads together."""

    def __init__(self, inner: MultiHeadAttention) -> None:
        super().__init__(inner, (inner.key.out_features, inner.value.out_features))

    def raw(self, x_BTD: Tensor) -> tuple[Tensor, ...]:
        return self.inner.key(x_BTD), self.inner.value(x_BTD)

    def keys_values(self, slots: Sequence[Tensor]) -> KeysValues:
        k_BSY, v_BSZ = slots
        return k_BSY, v_BSZ


class CompressedInput(CompressedAttention):
    """As in tensor2tensor: the layer's input, once; keys and values are made of that."""

    def __init__(self, inner: MultiHeadAttention) -> None:
        super().__init__(inner, (inner.key.in_features,))

    def raw(self, x_BTD: Tensor) -> tuple[Tensor, ...]:
        return (x_BTD,)

    def keys_values(self, slots: Sequence[Tensor]) -> KeysValues:
        (x_BSD,) = slots
        return self.inner.key(x_BSD), self.inner.value(x_BSD)


KINDS: dict[str, type[CompressedKeys | CompressedInput]] = {"kv": CompressedKeys, "input": CompressedInput}


def with_first(x_BTD: Tensor, slots_BSD: Tensor) -> Tensor:
    """The first token before the slots."""
    return torch.cat([x_BTD[:, :1], slots_BSD], dim=1)


def slots_view(view: View) -> View:
    """The first token and the slots of T tokens that stand in order, as those tokens see them."""
    k_pos_S = ends_of_slots(1 + view.T // RATE, index_of(view.q_pos).device)
    return View(view.mask, view.T, len(k_pos_S), q_pos=view.q_pos, k_pos=k_pos_S, stairs=RATE)


def sliding(x_BTD: Tensor, layer: nn.Linear) -> Tensor:
    """The slot that would end at every token."""
    padded = F.pad(x_BTD, (0, 0, RATE - 1, 0))
    return layer(torch.cat([padded[:, i : i + x_BTD.shape[1]] for i in range(RATE)], dim=-1))


def places(view: View, B: int) -> Tensor:
    """Each token's place in its own text, [B, T]; -1 for padding."""
    place_BT = torch.atleast_2d(index_of(view.k_pos)).expand(B, view.S)
    ids_BT = documents_of(view.mask)
    if ids_BT is None:
        return place_BT
    starts_BT = F.pad(ids_BT[:, 1:] != ids_BT[:, :-1], (1, 0), value=True)
    return place_BT - torch.where(starts_BT, place_BT, 0).cummax(-1).values


def documents_of(mask: Mask) -> Tensor | None:
    """The document of each token, if rows pack several; refuses all masks but this and the causal one."""
    members = mask.masks if isinstance(mask, AllOf) else (mask,)
    rest = [member for member in members if not isinstance(member, Document)]
    if rest != [Causal()]:
        raise ValueError(f"compressed attention is causal, and cannot follow {mask!r}")
    return next((member.ids for member in members if isinstance(member, Document)), None)


# The cache.


class CompressedLayer(OwnLayer):
    """The cache of one layer: the first token, a slot for every three, and the last few tokens as they are.

    The last tokens are those of the next slot, and some more to be rewound to. Slot b of a row holds its
    tokens 3b to 3b + 2, however long the other rows are.
    """

    def __init__(self, convolutions: Sequence[nn.Linear]) -> None:
        super().__init__()
        self.convolutions = convolutions
        self.state: Remembered | None = None
        self.pending: Remembered | None = None

    def extend(self, new: Sequence[Tensor], q_pos_BT: Tensor) -> tuple[list[Tensor], Tensor]:
        """The slots and their positions, the new tokens included."""
        B, T = q_pos_BT.shape
        old = self.state or Remembered([], [], q_pos_BT[:, :0], q_pos_BT.new_zeros(B), 0)
        raw = [torch.cat(pair, dim=1) for pair in zip(old.raw, new, strict=True)] if old.raw else list(new)
        pos_BR = torch.cat([old.pos_BR, q_pos_BT], dim=1)
        more = (T + RATE - 1) // RATE  # slots that a row completes at most
        size = 1 + old.tokens // RATE + more
        slots = [
            filled(
                old.slots[i] if old.slots else None, raw[i], pos_BR, old.lengths_B, more, size, convolution
            )
            for i, convolution in enumerate(self.convolutions)
        ]
        lengths_B = torch.maximum(old.lengths_B, q_pos_BT.amax(-1) + 1)
        self.pending = Remembered(slots, raw, pos_BR, lengths_B, old.tokens + T)
        place_S = ends_of_slots(size, q_pos_BT.device)
        return slots, torch.where(place_S < lengths_B[:, None], place_S, -1)

    def advance(self) -> None:
        self.state, self.pending = self.pending or self.state, None
        if self.state is not None and self.state.pos_BR.shape[1] > 2 * SLACK:
            self.state = self.state.without_far()

    def reorder(self, rows: Tensor) -> None:
        self.state = None if self.state is None else self.state.of_rows(rows)

    def rewind(self, lengths_B: Tensor) -> None:
        self.state = None if self.state is None else self.state.cut(lengths_B)


@dataclass(frozen=True)
class Remembered:
    """What a compressed memory holds: of each thing that is compressed, slots and the last tokens."""

    slots: list[Tensor]  # [B, 1 + slots, X]: the first token, then the slots
    raw: list[Tensor]  # [B, R, X]
    pos_BR: Tensor
    lengths_B: Tensor
    tokens: int  # in the longest row, or more: a number that no device need be asked for

    def without_far(self) -> Remembered:
        """Without the first tokens, as far as no row needs them any more."""
        first = int((self.pos_BR >= self.lengths_B[:, None] - SLACK).any(0).long().argmax())
        raw = [each[:, first:].contiguous() for each in self.raw]
        return replace(self, raw=raw, pos_BR=self.pos_BR[:, first:])

    def of_rows(self, rows: Tensor) -> Remembered:
        slots, raw = ([each[rows] for each in some] for some in (self.slots, self.raw))
        return Remembered(slots, raw, self.pos_BR[rows], self.lengths_B[rows], self.tokens)

    def cut(self, lengths_B: Tensor) -> Remembered:
        """The first lengths[b] tokens of each row; the next slot is made again, of tokens still there."""
        pos_BR = torch.where(self.pos_BR < lengths_B[:, None], self.pos_BR, -1)
        there_B = (pos_BR >= (lengths_B // RATE * RATE)[:, None]).sum(-1)
        if not torch.equal(there_B, lengths_B % RATE):
            raise ValueError(f"a compressed memory can be rewound by {SLACK} tokens at most")
        return replace(self, pos_BR=pos_BR, lengths_B=lengths_B, tokens=int(lengths_B.max()))


def ends_of_slots(S: int, device: torch.device) -> Tensor:
    """Where S - 1 slots after the first token stand: 0, 2, 5, 8, .."""
    return (torch.arange(S, device=device) * RATE - 1).clamp(min=0)


def filled(
    slots_BSX: Tensor | None,
    raw_BRX: Tensor,
    pos_BR: Tensor,
    before_B: Tensor,
    new: int,
    size: int,
    layer: nn.Linear,
) -> Tensor:
    """`size` slots, with at most `new` more in every row from the one it is at.

    What a row has not completed yet is written too, and is nobody's as long as the row's length does not
    reach it.
    """
    B, _, X = raw_BRX.shape
    block_B1 = (before_B // RATE)[:, None]
    at_BR = pos_BR - RATE * block_B1
    at_BR = torch.where((pos_BR >= 0) & (at_BR >= 0) & (at_BR < RATE * new), at_BR, RATE * new)
    made_BNX = compressed(scattered(raw_BRX.new_zeros(B, RATE * new + 1, X), at_BR, raw_BRX)[:, :-1], layer)
    room = raw_BRX.new_zeros(B, 1 + new, X) if slots_BSX is None else F.pad(slots_BSX, (0, 0, 0, new))
    room = scattered(room, 1 + block_B1 + torch.arange(new, device=block_B1.device), made_BNX)
    is_first_BR = pos_BR == 0
    first_BX = torch.where(is_first_BR[..., None], raw_BRX, 0).sum(1)
    first_BX = torch.where(is_first_BR.any(1, keepdim=True), first_BX, room[:, 0])
    return torch.cat([first_BX[:, None], room[:, 1:size]], dim=1)


def scattered(room_BSX: Tensor, at_BN: Tensor, x_BNX: Tensor) -> Tensor:
    """room with x[b, n] in slot at[b, n] of row b."""
    return room_BSX.scatter(1, at_BN[..., None].expand_as(x_BNX), x_BNX)
