"""States: what a model without self-attention remembers, which does not grow with the text.

A recurrent layer remembers its newest state, a convolution its last k - 1 inputs. So that a few tokens can
also be forgotten again (speculative decoding), a cache keeps a log of what was fed lately and by which rows;
nothing is copied for it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ...errors import BadInput
from ..cache import Cache, KeysValues, check_rows, count_on, is_order

KEPT = 256  # tokens that can be forgotten again


class StateLayer:
    """One layer's newest `reach` vectors, and what it made of the source."""

    def __init__(self, reach: int) -> None:
        self.reach = reach
        self.tail_BRX: Tensor | None = None
        self.pending_BSX: Tensor | None = None
        self.source_kv: KeysValues | None = None

    def before(self, first_BRX: Tensor) -> Tensor:
        """The newest vectors; `first` before anything was fed."""
        return first_BRX if self.tail_BRX is None else self.tail_BRX

    def add(self, before_BRX: Tensor, new_BTX: Tensor) -> Tensor:
        """Note the vectors of the new tokens; get them after those from before."""
        self.pending_BSX = torch.cat([before_BRX.to(new_BTX.dtype), new_BTX], 1)
        return self.pending_BSX

    def source(self, compute: Callable[[], KeysValues]) -> KeysValues:
        """Keys and values of the source: computed at the first call, remembered after."""
        if self.source_kv is None:
            self.source_kv = compute()
        return self.source_kv


@dataclass(frozen=True)
class Fed:
    """One call: for each layer the vectors before it and its own, and how many tokens each row had before."""

    joined: list[Tensor]  # [B, R + T, X]
    before_B: Tensor
    T: int


class StateStack(nn.Module, ABC):
    """Layers of a decoder that keep states: their cache has one size, however many tokens were read."""

    @abstractmethod
    def growing_cache(self) -> StateCache:
        """A cache of the states that each layer looks back at."""

    def static_cache(self, batch: int, capacity: int, device: torch.device, dtype: torch.dtype) -> StateCache:
        return self.growing_cache()


class StateCache(Cache):
    """What a recurrent or a convolutional decoder remembers: a few vectors a layer, however long the text."""

    layers: list[StateLayer]  # type: ignore[assignment]  # they remember states, not keys and values

    def __init__(self, reaches: Sequence[int]) -> None:
        """reaches: how many vectors each layer looks back at."""
        self.layers = [StateLayer(reach) for reach in reaches]
        self.size = 0  # tokens in the longest row
        self.lengths_B: Tensor | None = None  # once rows differ
        self.log: list[Fed | Tensor] = []  # calls, and orders of rows between them
        self.pending: tuple[Tensor | None, int] = None, 0

    @property
    def tail(self) -> Tensor | None:
        return self.layers[0].tail_BRX

    def lengths(self) -> Tensor:
        """Tokens in each row; an empty cache has no rows yet."""
        if self.lengths_B is not None:
            return self.lengths_B
        if self.tail is None:
            return torch.zeros(0, dtype=torch.long)
        return torch.full((len(self.tail),), self.size, device=self.tail.device)

    def next_positions(self, T: int, lengths_B: Tensor | None = None) -> Tensor | None:
        if self.lengths_B is None and lengths_B is None:
            return None
        start_B = (
            torch.zeros_like(lengths_B) if lengths_B is not None and self.tail is None else self.lengths()
        )
        return count_on(start_B, T, lengths_B)

    def begin(self, q_pos: Tensor | None, B: int, T: int) -> tuple[int, Tensor | None]:
        if self.tail is not None:
            check_rows(B, len(self.tail), "the cache")
        if q_pos is None and self.lengths_B is not None:
            raise ValueError("rows of this cache have different lengths: positions must be given")
        counts_B = (q_pos >= 0).sum(-1).expand(B) if q_pos is not None and q_pos.ndim == 2 else None
        self.pending = counts_B, T
        return self.size + T, q_pos

    def advance(self) -> None:
        counts_B, T = self.pending
        joined = [layer.pending_BSX for layer in self.layers if layer.pending_BSX is not None]
        B, device = len(joined[0]), joined[0].device
        before_B = (
            self.lengths() if self.tail is not None else torch.zeros(B, dtype=torch.long, device=device)
        )
        for layer, joined_BSX in zip(self.layers, joined, strict=True):
            layer.tail_BRX = (
                joined_BSX[:, T:] if counts_B is None else part(joined_BSX, counts_B, layer.reach)
            )
            layer.pending_BSX = None
        self.log.append(Fed(joined, before_B, T))
        self.forget_the_oldest()
        self.size += T  # or less, of padded rows: exact only where it matters
        if counts_B is not None or self.lengths_B is not None:
            self.lengths_B = before_B + (T if counts_B is None else counts_B)

    def forget_the_oldest(self) -> None:
        """Keep what the last `KEPT` tokens need, and no more."""
        newer = 0
        for i in range(len(self.log) - 1, -1, -1):
            entry = self.log[i]
            if newer >= KEPT:
                del self.log[: i + 1]
                return
            newer += entry.T if isinstance(entry, Fed) else 0

    def reorder(self, rows: Tensor) -> None:
        if self.tail is None or is_order(rows, len(self.tail)):
            return
        for layer in self.layers:
            assert layer.tail_BRX is not None
            layer.tail_BRX = layer.tail_BRX[rows]
            if layer.source_kv is not None:
                layer.source_kv = (layer.source_kv[0][rows], layer.source_kv[1][rows])
        self.lengths_B = None if self.lengths_B is None else self.lengths_B[rows]
        self.log.append(rows)

    def rewind(self, lengths_B: Tensor) -> None:
        if self.tail is None:
            return
        kept_B = torch.minimum(self.lengths(), lengths_B)
        if torch.equal(kept_B, self.lengths()):
            return
        rows, missing_B = torch.arange(len(kept_B), device=kept_B.device), kept_B < self.lengths()
        tails = [layer.tail_BRX for layer in self.layers if layer.tail_BRX is not None]
        for entry in reversed(self.log):
            if isinstance(entry, Tensor):
                rows = entry[rows]
                continue
            offset_B = kept_B - entry.before_B[rows]
            found_B = missing_B & (offset_B >= 0)  # the latest call that began no later than there
            for i, (layer, joined_BSX) in enumerate(zip(self.layers, entry.joined, strict=True)):
                then_BRX = part(joined_BSX[rows], offset_B.clamp(0, entry.T), layer.reach)
                tails[i] = torch.where(found_B[:, None, None], then_BRX, tails[i])
            missing_B = missing_B & ~found_B
        if bool(missing_B.any()):
            raise BadInput(
                f"this model keeps a state, not its text, and can take back about {KEPT} tokens: "
                "ask for fewer at a time"
            )
        for layer, tail_BRX in zip(self.layers, tails, strict=True):
            layer.tail_BRX = tail_BRX
        self.lengths_B, self.size = kept_B, int(kept_B.max())


def part(x_BSX: Tensor, start_B: Tensor, size: int) -> Tensor:
    """`size` vectors of each row, from a place of its own on."""
    at_BR = start_B[:, None] + torch.arange(size, device=start_B.device)
    return x_BSX.gather(1, at_BR[..., None].expand(-1, -1, x_BSX.shape[-1]))
