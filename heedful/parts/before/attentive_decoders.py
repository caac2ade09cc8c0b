"""Recurrent decoders that attend to the source: at every word, each asks which source words it is about.

`Searching` asks with the state before the new word (Bahdanau et al. 2015), `Attentive` with the state after
it (Luong et al. 2015). What was looked up is part of the next step, so words are computed one after another,
in training too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..attention import Score
from ..cache import Cache, KeysValues
from ..view import View
from .lookup import Cross, at_first_word, needed, one_query
from .recurrent import CandidateGRU, Recurrence, Rows, read_on, whole_precision
from .state_cache import StateCache, StateStack


def maxout(x: Tensor) -> Tensor:
    """The larger of each pair of neighbors (Goodfellow et al. 2013)."""
    return x.unflatten(-1, (-1, 2)).amax(-1)


class Searching(StateStack):
    """The decoder of Bahdanau et al. 2015, from embedded words to what their scores are made of.

    c_i = lookup(s_{i-1}, h);  s_i = GRU(E y_{i-1}, s_{i-1}, c_i);  t_i = maxout(s_{i-1} U_o + E y_{i-1} V_o +
    c_i C_o)
    """

    def __init__(
        self, block: CandidateGRU, score: Score, annotation: int, readout: int, dropout: float = 0.0
    ) -> None:
        """annotation: width of the source vectors, whose second half was read from the right."""
        super().__init__()
        self.blocks = nn.ModuleList([block])
        self.cross = Cross(score)
        self.start = nn.Linear(annotation - annotation // 2, block.width)  # W_s
        self.from_state = nn.Linear(block.width, 2 * readout)  # U_o
        self.from_word = nn.Linear(block.inputs, 2 * readout, bias=False)  # V_o
        self.from_context = nn.Linear(annotation, 2 * readout, bias=False)  # C_o
        self.dropout = nn.Dropout(dropout)

    def growing_cache(self) -> StateCache:
        return StateCache([1])

    def forward(
        self,
        x_BTD: Tensor,
        views: Sequence[View],
        source_BSD: Tensor | None = None,
        source_view: View | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        with whole_precision(x_BTD):
            x_BTD, source_BSD = (x.to(self.start.weight.dtype) for x in (x_BTD, needed(source_BSD)))
            rows = Rows.of(views[0], x_BTD)
            x_BTD = x_BTD if rows is None else rows.split(x_BTD)
            source, view = (
                self.cross.source(source_BSD, source_BSD, cache),
                one_query(source_view, source_BSD),
            )
            first_BX = self.first(source_BSD, source_view)
            layer = cache.layers[0] if isinstance(cache, StateCache) else None
            state_BX = first_BX if layer is None else layer.before(first_BX[:, None])[:, 0]
            states_BTX, context_BTC = self.search(x_BTD, state_BX, source, view)
            before_BTX = torch.cat([state_BX[:, None], states_BTX[:, :-1]], 1)
            if layer is not None:
                layer.add(state_BX[:, None], states_BTX)
            self.cross.show(before_BTX, source, source_view or view)
            sum_BTM = self.from_state(before_BTX) + self.from_word(x_BTD) + self.from_context(context_BTC)
            out_BTM = self.dropout(maxout(sum_BTM))
            return out_BTM if rows is None else rows.join(out_BTM)

    def first(self, source_BSD: Tensor, source_view: View | None) -> Tensor:
        """s_0 = tanh(bh_1 W_s)."""
        annotation_BD = at_first_word(source_BSD, source_view)
        return torch.tanh(self.start(annotation_BD[:, annotation_BD.shape[-1] // 2 :]))

    def search(
        self, x_BTD: Tensor, state_BX: Tensor, source: KeysValues, view: View
    ) -> tuple[Tensor, Tensor]:
        """The state after each word, and the context that it was reached with."""
        block, states, contexts = self.blocks[0], [], []
        for read_BG in block.input(x_BTD).unbind(1):  # type: ignore[operator]
            contexts.append(self.cross.unwatched(state_BX[:, None], source, view)[:, 0])
            state_BX = block(read_BG, state_BX, contexts[-1])
            states.append(state_BX)
        return torch.stack(states, 1), torch.stack(contexts, 1)


class Attentive(StateStack):
    """The decoder of Luong et al. 2015.

    s_i = RNN([E y_{i-1} ; s^_{i-1}], s_{i-1});  c_i = lookup(s_i, h);  s^_i = tanh([c_i ; s_i] W_c)
    """

    def __init__(
        self,
        blocks: Sequence[Recurrence],
        score: Score,
        annotation: int,
        dropout: float = 0.0,
        input_feeding: bool = True,
    ) -> None:
        """input_feeding: s^ is an input beside the next word; without it, all words are read at once."""
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.widths = [block.state_width for block in blocks]
        self.cross = Cross(score)
        self.start = nn.Linear(annotation - annotation // 2, sum(self.widths))
        self.combine = nn.Linear(annotation + blocks[-1].width, blocks[-1].width, bias=False)  # W_c
        self.dropout, self.input_feeding = nn.Dropout(dropout), input_feeding

    def growing_cache(self) -> StateCache:
        """The states of all layers, and s^."""
        return StateCache([1] * (len(self.blocks) + self.input_feeding))

    def forward(
        self,
        x_BTD: Tensor,
        views: Sequence[View],
        source_BSD: Tensor | None = None,
        source_view: View | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        with whole_precision(x_BTD):
            x_BTD, source_BSD = (x.to(self.start.weight.dtype) for x in (x_BTD, needed(source_BSD)))
            rows = Rows.of(views[0], x_BTD)
            x_BTD = x_BTD if rows is None else rows.split(x_BTD)
            source = self.cross.source(source_BSD, source_BSD, cache)
            first = self.first(source_BSD, source_view)
            view = one_query(source_view, source_BSD)
            if self.input_feeding:
                state_BTD, out_BTD = self.feed(x_BTD, first, source, view, cache)
            else:
                state_BTD = self.read(x_BTD, first, cache)
                out_BTD = self.combined(
                    state_BTD, self.cross.unwatched(state_BTD, source, source_view or view)
                )
            self.cross.show(state_BTD, source, source_view or view)
            out_BTD = self.dropout(out_BTD)
            return out_BTD if rows is None else rows.join(out_BTD)

    def first(self, source_BSD: Tensor, source_view: View | None) -> list[Tensor]:
        """Each layer's state before the first word.

        The paper copies its encoder's last states. Here the encoder reads both ways, and what has read the
        whole sentence is mapped to them, as Bahdanau's is.
        """
        annotation_BD = at_first_word(source_BSD, source_view)
        states_BX = torch.tanh(self.start(annotation_BD[:, annotation_BD.shape[-1] // 2 :]))
        return list(states_BX.split(self.widths, -1))

    def combined(self, state: Tensor, context: Tensor) -> Tensor:
        return torch.tanh(self.combine(torch.cat([context, state], -1)))

    def read(self, x_BTD: Tensor, first: list[Tensor], cache: Cache | None) -> Tensor:
        """The top layer's states of all words, by kernels."""
        for i, block in enumerate(self.blocks):
            x_BTD = self.dropout(x_BTD) if i else x_BTD
            x_BTD = read_on(block, x_BTD, first[i], cache, i)  # type: ignore[arg-type]
        return x_BTD

    def feed(
        self, x_BTD: Tensor, first: list[Tensor], source: KeysValues, view: View, cache: Cache | None
    ) -> tuple[Tensor, Tensor]:
        """The top layer's states of all words, and s^, one after another."""
        top: Any = self.blocks[-1]
        first = [*first, first[-1].new_zeros(len(x_BTD), top.width)]
        layers = cache.layers if isinstance(cache, StateCache) else []
        *states, out_BD = [
            layer.before(f[:, None])[:, 0] for layer, f in zip(layers, first, strict=False)
        ] or first
        kept: list[list[Tensor]] = [[state[:, None]] for state in (*states, out_BD)]
        tops = []
        for x_BD in x_BTD.unbind(1):
            x_BD = torch.cat([x_BD, out_BD], -1)
            for i, block in enumerate(self.blocks):
                states[i] = block.step(self.dropout(x_BD) if i else x_BD, states[i])  # type: ignore[operator]
                x_BD = block.output(states[i])  # type: ignore[operator]
            tops.append(x_BD)
            out_BD = self.combined(x_BD, self.cross.unwatched(x_BD[:, None], source, view)[:, 0])
            for some, state in zip(kept, (*states, out_BD), strict=True):
                some.append(state[:, None])
        for layer, (before_B1X, *new) in zip(layers, kept, strict=False):
            layer.add(before_B1X, torch.cat(new, 1))
        return torch.stack(tops, 1), torch.cat(kept[-1][1:], 1)
