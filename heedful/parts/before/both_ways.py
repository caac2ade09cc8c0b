"""Two language models over the same words, from the left and from the right, that never see each other.

In a bidirectional network (`BothWays`) a second layer reads what both directions said, so each word knows
itself. Here the directions stay apart up to the top: the left one at word k knows words up to k and can be
asked for the next, the right one for the one before.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..view import View
from .recurrent import Rows, reverse, whole_precision


class ProjectedLSTM(nn.Module):
    """An LSTM with many cells of which a projection is read: h = (o tanh(c)) P (Sak et al. 2014)."""

    def __init__(self, inputs: int, cells: int, width: int) -> None:
        super().__init__()
        self.inputs, self.cells, self.width = inputs, cells, width
        self.kernel = nn.LSTM(inputs, cells, batch_first=True, proj_size=width)

    def forward(self, x_BTI: Tensor) -> Tensor:
        with (
            warnings.catch_warnings()
        ):  # on a CPU, torch says once that oneDNN has no such kernel; it has another
            warnings.filterwarnings("ignore", "LSTM with projections", UserWarning)
            return self.kernel(x_BTI)[0]


class TwoDirections(nn.Module):
    """Both, layer by layer; from the second on, a layer adds to the one below it."""

    def __init__(
        self, forwards: Sequence[ProjectedLSTM], backwards: Sequence[ProjectedLSTM], dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.forwards, self.backwards = nn.ModuleList(forwards), nn.ModuleList(backwards)
        self.dropout = nn.Dropout(dropout)

    @property
    def blocks(self) -> nn.ModuleList:
        """All layers, those that read from the left first."""
        return nn.ModuleList([*self.forwards, *self.backwards])

    def forward(self, x_BTD: Tensor, views: Sequence[View]) -> Tensor:
        """All layers side by side, [B, T, (1 + L) 2 D]: [x ; x], then each [fh_j ; bh_j]; 0 for padding."""
        with whole_precision(x_BTD):
            x_BTD = x_BTD.to(next(self.parameters()).dtype)
            rows = Rows.of(views[0], x_BTD)
            x_NLD = x_BTD if rows is None else rows.split(x_BTD)
            lengths_N = None if rows is None else rows.lengths_N
            from_left = self.through(self.forwards, x_NLD)
            from_right = self.through(self.backwards, reverse(x_NLD, lengths_N))
            layers = [x_NLD, x_NLD]
            for f_NLD, b_NLD in zip(from_left, from_right, strict=True):
                layers += [f_NLD, reverse(b_NLD, lengths_N)]
            out_NLX = torch.cat(layers, -1)
            return out_NLX if rows is None else rows.join(out_NLX)

    def through(self, layers: nn.ModuleList, x_NLD: Tensor) -> list[Tensor]:
        """What each layer says, from its first word on."""
        said: list[Tensor] = []
        for i, layer in enumerate(layers):
            h_NLD = layer(self.dropout(x_NLD) if i else x_NLD)
            x_NLD = h_NLD + x_NLD if i else h_NLD
            said.append(x_NLD)
        return said
