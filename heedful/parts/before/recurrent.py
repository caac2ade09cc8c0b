"""Recurrence: a state that reads one token after another, and is all that is known of those before.

First the formulas (`elman`, `gru`, `lstm`); then layers that read whole sequences by torch's kernels and
single tokens by its cells; then stacks of them, from left to right and both ways. Two distant words meet only
after as many steps as lie between them, and no step can begin before the last has ended: what attention was
to cure.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from ..cache import Cache
from ..masks import AllOf
from ..packed_masks import Document
from ..positions.base import index_of
from ..view import View
from .state_cache import StateCache, StateStack

# The formulas: one step, from an input x and the state h before it. W reads the input, U the state.


def elman(x: Tensor, h: Tensor, W: Tensor, U: Tensor, b: Tensor) -> Tensor:
    """tanh(x W + h U + b) (Elman 1990).

    Args:
        x: Input [B, I].
        h: State [B, H].
        W: Weights of the input.
        U: Weights of the state.
        b: Bias.

    Returns:
        The next state [B, H].

    Example:
        >>> elman(torch.ones(1, 2), torch.zeros(1, 3), torch.zeros(2, 3), torch.zeros(3, 3), torch.zeros(3))
        tensor([[0., 0., 0.]])
    """
    return torch.tanh(x @ W + h @ U + b)


def gru(x: Tensor, h: Tensor, W: Tensor, U: Tensor, b: Tensor, b_h: Tensor) -> Tensor:
    """(1 - z) n + z h, as torch has it: z = 1 keeps the old state, and r is applied after the product with U.

    Cho et al. 2014 mean 1 - z by z, and write tanh(x W + (r h) U); `CandidateGRU` below is their GRU.

    Args:
        x: Input [B, I].
        h: State [B, H].
        W: Weights of the input, [I, 3 H].
        U: Weights of the state, [H, 3 H].
        b: Bias of the input's product.
        b_h: Bias of the state's product.

    Returns:
        The next state [B, H].

    Example:
        >>> x, h = torch.ones(1, 2), torch.ones(1, 3)
        >>> gru(x, h, torch.zeros(2, 9), torch.zeros(3, 9), torch.zeros(9), torch.zeros(9))  # z = 1/2
        tensor([[0.5000, 0.5000, 0.5000]])
    """
    x_r, x_z, x_n = (x @ W + b).chunk(3, -1)
    h_r, h_z, h_n = (h @ U + b_h).chunk(3, -1)
    r, z = torch.sigmoid(x_r + h_r), torch.sigmoid(x_z + h_z)
    n = torch.tanh(x_n + r * h_n)
    return (1 - z) * n + z * h


def lstm(x: Tensor, h: Tensor, c: Tensor, W: Tensor, U: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """c' = f c + i g, h' = o tanh(c') (Hochreiter and Schmidhuber 1997, with Gers' forget gate).

    Args:
        x: Input [B, I].
        h: State [B, H].
        c: Cell [B, H].
        W: Weights of the input, [I, 4 H].
        U: Weights of the state, [H, 4 H].
        b: Bias.

    Returns:
        The next state and cell.

    Example:
        >>> x, h, c = torch.ones(1, 2), torch.ones(1, 3), torch.ones(1, 3)
        >>> lstm(x, h, c, torch.zeros(2, 12), torch.zeros(3, 12), torch.zeros(12))[1]  # f = 1/2
        tensor([[0.5000, 0.5000, 0.5000]])
    """
    i, f, g, o = (x @ W + h @ U + b).chunk(4, -1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


# Layers.


class Recurrence(nn.Module, ABC):
    """One layer, in one direction.

    A state is one vector; its first `width` numbers are what the layer says.
    """

    def __init__(self, kernel: nn.RNNBase, states: int) -> None:
        """states: vectors that a state is made of (an LSTM's cell is a second one)."""
        super().__init__()
        self.kernel = kernel
        self.inputs, self.width, self.state_width = (
            kernel.input_size,
            kernel.hidden_size,
            states * kernel.hidden_size,
        )

    @property
    def weights(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        k = self.kernel
        return k.weight_ih_l0, k.weight_hh_l0, k.bias_ih_l0, k.bias_hh_l0  # type: ignore[return-value]

    @abstractmethod
    def forward(self, x_BTI: Tensor, state_BX: Tensor) -> Tensor:
        """What the layer says after each token [B, T, width], by the kernel."""

    @abstractmethod
    def step(self, x_BI: Tensor, state_BX: Tensor) -> Tensor:
        """The state after one more token, by the cell."""

    @abstractmethod
    def states(self, x_BTI: Tensor, state_BX: Tensor) -> Tensor:
        """The state after each token [B, T, state_width]."""

    @abstractmethod
    def read(self, x_BTI: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        """(what the layer says after each token, each row's state after its last real one)."""

    def output(self, states: Tensor) -> Tensor:
        return states[..., : self.width]

    def nothing(self, x_BTI: Tensor) -> Tensor:
        """The state before the first token."""
        return x_BTI.new_zeros(len(x_BTI), self.state_width)


class PlainState(Recurrence, ABC):
    """A state is what the layer says, so its kernel gives all of them."""

    def forward(self, x_BTI: Tensor, state_BX: Tensor) -> Tensor:
        return self.kernel(x_BTI, state_BX[None].contiguous())[0]

    def states(self, x_BTI: Tensor, state_BX: Tensor) -> Tensor:
        return self.step(x_BTI[:, 0], state_BX)[:, None] if x_BTI.shape[1] == 1 else self(x_BTI, state_BX)

    def read(self, x_BTI: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        out_BTD = self(x_BTI, self.nothing(x_BTI))
        rows_B = torch.arange(len(x_BTI), device=x_BTI.device)
        last_BX = out_BTD[rows_B, (lengths_B - 1).clamp(min=0)]
        return out_BTD, last_BX * (lengths_B > 0)[:, None]


class Elman(PlainState):
    """`elman`."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__(nn.RNN(inputs, width, batch_first=True), 1)

    def step(self, x_BI: Tensor, state_BX: Tensor) -> Tensor:
        return torch.rnn_tanh_cell(x_BI, state_BX, *self.weights)


class GRU(PlainState):
    """`gru`."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__(nn.GRU(inputs, width, batch_first=True), 1)

    def step(self, x_BI: Tensor, state_BX: Tensor) -> Tensor:
        return torch.gru_cell(x_BI, state_BX, *self.weights)


class LSTM(Recurrence):
    """`lstm`; a state is [h ; c]."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__(nn.LSTM(inputs, width, batch_first=True), 2)

    def forward(self, x_BTI: Tensor, state_BX: Tensor) -> Tensor:
        h_BD, c_BD = state_BX.chunk(2, -1)
        return self.kernel(x_BTI, (h_BD[None].contiguous(), c_BD[None].contiguous()))[0]

    def step(self, x_BI: Tensor, state_BX: Tensor) -> Tensor:
        return torch.cat(torch.lstm_cell(x_BI, state_BX.chunk(2, -1), *self.weights), -1)

    def states(self, x_BTI: Tensor, state_BX: Tensor) -> Tensor:
        """One by one: the kernel tells only the last cell."""
        states = []
        for x_BI in x_BTI.unbind(1):
            state_BX = self.step(x_BI, state_BX)
            states.append(state_BX)
        return torch.stack(states, 1)

    def read(self, x_BTI: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        packed = pack_padded_sequence(x_BTI, lengths_B.clamp(min=1).cpu(), True, enforce_sorted=False)
        out, (h_1BD, c_1BD) = self.kernel(packed)
        out_BTD, _ = pad_packed_sequence(out, True, total_length=x_BTI.shape[1])
        return out_BTD, torch.cat([h_1BD[0], c_1BD[0]], -1) * (lengths_B > 0)[:, None]


CELLS: dict[str, type[Elman | GRU | LSTM]] = {"rnn": Elman, "gru": GRU, "lstm": LSTM}


class CandidateGRU(nn.Module):
    """The decoder's GRU of Bahdanau et al. 2015, which also reads a context, with their sense of z:

    s~ = tanh(x W + (r s) U + c C),  s' = (1 - z) s + z s~
    """

    def __init__(self, inputs: int, context: int, width: int) -> None:
        super().__init__()
        self.inputs, self.width, self.state_width = inputs, width, width
        self.input = nn.Linear(inputs, 3 * width)  # W_z, W_r, W
        self.context = nn.Linear(context, 3 * width, bias=False)  # C_z, C_r, C
        self.gates = nn.Linear(width, 2 * width, bias=False)  # U_z, U_r
        self.candidate = nn.Linear(width, width, bias=False)  # U

    def forward(self, read_BG: Tensor, state_BX: Tensor, context_BC: Tensor) -> Tensor:
        """The next state. read: `input` of the token, which can be computed for all tokens at once."""
        z_BX, r_BX, n_BX = (read_BG + self.context(context_BC)).chunk(3, -1)
        s_z_BX, s_r_BX = self.gates(state_BX).chunk(2, -1)
        z_BX, r_BX = torch.sigmoid(z_BX + s_z_BX), torch.sigmoid(r_BX + s_r_BX)
        return torch.lerp(state_BX, torch.tanh(n_BX + self.candidate(r_BX * state_BX)), z_BX)


# Rows: a kernel reads from the first slot on, so each sentence gets a row of its own that begins with it.


@dataclass(frozen=True)
class Rows:
    """Where each token of a batch goes: without padding, and with a row for each document of a packed row."""

    row_BT: Tensor
    place_BT: Tensor
    real_BT: Tensor
    lengths_N: Tensor

    @classmethod
    def of(cls, view: View, x_BTD: Tensor) -> Rows | None:
        """None if every row already is one sentence without padding."""
        (B, T, _), documents_BT = x_BTD.shape, documents_of(view)
        if documents_BT is None and (view.in_order or index_of(view.q_pos).ndim == 1):
            return None
        slots_T = torch.arange(T, device=x_BTD.device)
        if documents_BT is None:
            real_BT = index_of(view.q_pos).expand(B, T) >= 0
            row_BT, place_BT, N = (
                torch.arange(B, device=x_BTD.device)[:, None].expand(B, T),
                real_BT.cumsum(-1) - 1,
                B,
            )
        else:
            documents_BT = documents_BT.expand(B, T)
            real_BT = torch.ones_like(documents_BT, dtype=torch.bool)
            changes_BT = torch.cat([real_BT[:, :1], documents_BT.diff(dim=1) != 0], 1)
            row_BT = changes_BT.flatten().cumsum(0).view(B, T) - 1
            place_BT = slots_T - torch.where(changes_BT, slots_T, 0).cummax(-1).values
            N = int(row_BT[-1, -1]) + 1
        place_BT = torch.where(real_BT, place_BT, T)
        lengths_N = torch.zeros(N, dtype=torch.long, device=x_BTD.device)
        lengths_N = lengths_N.index_add(0, row_BT.flatten(), real_BT.flatten().long())
        return cls(row_BT, place_BT, real_BT, lengths_N)

    def split(self, x_BTD: Tensor) -> Tensor:
        """[B, T, D] to [N, L, D], each row from its first slot on, zeros at its end."""
        L = x_BTD.shape[1]
        spare = x_BTD.new_zeros(len(self.lengths_N), L + 1, x_BTD.shape[-1])  # padding goes to the last slot
        return spare.index_put((self.row_BT, self.place_BT), x_BTD)[:, :L]

    def join(self, x_NLD: Tensor) -> Tensor:
        """Back to where the tokens were; zeros in the padding."""
        found_BTD = x_NLD[self.row_BT, self.place_BT.clamp(max=x_NLD.shape[1] - 1)]
        return found_BTD.masked_fill(~self.real_BT[..., None], 0)


def documents_of(view: View) -> Tensor | None:
    """Which document each token belongs to, if rows have several."""
    masks = view.mask.masks if isinstance(view.mask, AllOf) else (view.mask,)
    return next((mask.ids for mask in masks if isinstance(mask, Document)), None)


def reverse(x_BTD: Tensor, lengths_B: Tensor | None) -> Tensor:
    """Each row backwards from its own end; padding stays where it is."""
    if lengths_B is None:
        return x_BTD.flip(1)
    slots_T = torch.arange(x_BTD.shape[1], device=x_BTD.device)
    at_BT = torch.where(slots_T < lengths_B[:, None], lengths_B[:, None] - 1 - slots_T, slots_T)
    return x_BTD.gather(1, at_BT[..., None].expand_as(x_BTD))


def whole_precision(x: Tensor) -> AbstractContextManager[object]:
    """A context in which recurrence keeps the precision of its weights.

    A state is rounded once per token, and the errors of half precision would add up.
    """
    return torch.autocast(x.device.type, enabled=False)


# Stacks.


class BothWays(nn.Module):
    """[fh ; bh]: one layer that reads from the left beside one that reads from each row's own end."""

    def __init__(self, from_left: Recurrence, from_right: Recurrence) -> None:
        super().__init__()
        self.from_left, self.from_right = from_left, from_right
        self.width = from_left.width + from_right.width

    def forward(self, x_NLD: Tensor, lengths_N: Tensor | None) -> Tensor:
        right_NLD = reverse(x_NLD, lengths_N)
        right_NLD = reverse(self.from_right(right_NLD, self.from_right.nothing(x_NLD)), lengths_N)
        return torch.cat([self.from_left(x_NLD, self.from_left.nothing(x_NLD)), right_NLD], -1)


class BidirectionalStack(nn.Module):
    """An encoder: every word gets an annotation that knows the words on both sides of it."""

    def __init__(self, blocks: Sequence[BothWays], dropout: float = 0.0) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x_BTD: Tensor, views: Sequence[View]) -> Tensor:
        """Annotations [B, T, 2 H]."""
        with whole_precision(x_BTD):
            x_BTD = x_BTD.to(next(self.parameters()).dtype)
            rows = Rows.of(views[0], x_BTD)
            x_NLD = x_BTD if rows is None else rows.split(x_BTD)
            for i, block in enumerate(self.blocks):
                x_NLD = block(self.dropout(x_NLD) if i else x_NLD, None if rows is None else rows.lengths_N)
            return x_NLD if rows is None else rows.join(x_NLD)


class LastStates(nn.Module):
    """An encoder whose output is its last states: one vector per sentence, as a source of length 1."""

    def __init__(self, blocks: Sequence[Recurrence], dropout: float = 0.0, backwards: bool = False) -> None:
        """backwards: read from the last word to the first (Sutskever et al. 2014)."""
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.dropout, self.backwards = nn.Dropout(dropout), backwards

    def forward(self, x_BTD: Tensor, views: Sequence[View]) -> Tensor:
        """The states of all layers, one after another: [B, 1, sum of their widths]."""
        with whole_precision(x_BTD):
            x_BTD = x_BTD.to(next(self.parameters()).dtype)
            rows, states = Rows.of(views[0], x_BTD), []
            x_NLD = x_BTD if rows is None else rows.split(x_BTD)
            B, T, _ = x_BTD.shape
            lengths_N = torch.full((B,), T, device=x_BTD.device) if rows is None else rows.lengths_N
            x_NLD = reverse(x_NLD, lengths_N) if self.backwards else x_NLD
            for i, block in enumerate(self.blocks):
                x_NLD = self.dropout(x_NLD) if i else x_NLD
                x_NLD, last_NX = block.read(x_NLD, lengths_N)  # type: ignore[operator]
                states.append(last_NX)
            return torch.cat(states, -1)[:, None]


class RecurrentStack(StateStack):
    """A decoder: layers from left to right.

    With a source, its states begin as an encoder's ended (`LastStates`).
    """

    def __init__(self, blocks: Sequence[Recurrence], dropout: float = 0.0, every_step: bool = False) -> None:
        """every_step: each token is read beside what the encoder's top layer said last (Cho et al. 2014)."""
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.dropout, self.every_step = nn.Dropout(dropout), every_step

    def growing_cache(self) -> StateCache:
        return StateCache([1] * len(self.blocks))

    def forward(
        self,
        x_BTD: Tensor,
        views: Sequence[View],
        source_BSD: Tensor | None = None,
        source_view: View | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        with whole_precision(x_BTD):
            x_BTD = x_BTD.to(next(self.parameters()).dtype)
            rows = Rows.of(views[0], x_BTD)
            x_NLD = x_BTD if rows is None else rows.split(x_BTD)
            first = self.first(x_NLD, source_BSD)
            if self.every_step:
                top_ND = self.blocks[-1].output(first[-1])  # type: ignore[operator]
                x_NLD = torch.cat([x_NLD, top_ND[:, None].expand(-1, x_NLD.shape[1], -1)], -1)
            for i, block in enumerate(self.blocks):
                x_NLD = self.dropout(read_on(block, x_NLD, first[i], cache, i))  # type: ignore[arg-type]
            return x_NLD if rows is None else rows.join(x_NLD)

    def first(self, x_NLD: Tensor, source_BSD: Tensor | None) -> list[Tensor]:
        """Each layer's state before the first token."""
        if source_BSD is None:
            return [block.nothing(x_NLD) for block in self.blocks]  # type: ignore[operator]
        widths = [block.state_width for block in self.blocks]
        return list(source_BSD[:, 0].to(x_NLD.dtype).split(widths, -1))


def read_on(block: Recurrence, x_BTI: Tensor, first_BX: Tensor, cache: Cache | None, i: int) -> Tensor:
    """What layer i says of these tokens, from its state before them on."""
    if cache is None:
        return block(x_BTI, first_BX)
    assert isinstance(cache, StateCache)
    layer = cache.layers[i]
    before_B1X = layer.before(first_BX[:, None])
    states_BTX = block.states(x_BTI, before_B1X[:, 0])
    layer.add(before_B1X, states_BTX)
    return block.output(states_BTX)


# Fresh weights.


def orthogonal_(model: nn.Module) -> None:
    """Glorot-uniform for what reads inputs, an orthogonal matrix for each gate that reads a state, biases 0.

    An LSTM's forget gate starts open, at a bias of 1 (Jozefowicz et al. 2015).
    """
    for module in model.modules():
        if isinstance(module, nn.RNNBase):
            nn.init.zeros_(module.bias_ih_l0)  # type: ignore[arg-type]
            nn.init.zeros_(module.bias_hh_l0)  # type: ignore[arg-type]
            for gate in module.weight_ih_l0.split(module.hidden_size):  # type: ignore[operator]
                nn.init.xavier_uniform_(gate)
            square(module.weight_hh_l0)  # type: ignore[arg-type]
            if isinstance(module, nn.LSTM):
                forget = slice(module.hidden_size, 2 * module.hidden_size)
                nn.init.ones_(module.bias_ih_l0[forget])  # type: ignore[index]
        elif isinstance(module, CandidateGRU):
            square(module.gates.weight)
            square(module.candidate.weight)


def square(weight: Tensor) -> None:
    """Each square part orthogonal.

    torch decomposes matrices for it, which one without numbers has no use for.
    """
    if not weight.is_meta:
        for part in weight.split(weight.shape[1]):
            nn.init.orthogonal_(part)
