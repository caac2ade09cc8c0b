"""The vocabulary in parts: each process looks up, scores and judges some of the words."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from .regions import enter, largest, leave, share_of, together


class SplitEmbedding(nn.Module):
    """Looks up the words it has; the others' vectors are 0 here, so the sum over processes is right."""

    tensor_mesh: DeviceMesh
    weight: Any

    def forward(self, tokens_BT: Tensor) -> Tensor:
        own = share_of(len(self._parameters["weight"]), self.tensor_mesh)  # type: ignore[arg-type]
        here_BT = (tokens_BT >= own.start) & (tokens_BT < own.stop)
        x_BTD = super().forward((tokens_BT - own.start).masked_fill(~here_BT, 0))
        return leave(x_BTD * here_BT[..., None], self.tensor_mesh)


class SplitHead(nn.Module):
    """Scores some of the words."""

    tensor_mesh: DeviceMesh
    vocab: int

    def part(self, x_BTD: Tensor, embedding: nn.Module) -> Tensor:
        """The scores of this process's words."""
        return super().forward(enter(x_BTD, self.tensor_mesh), embedding)

    def forward(self, x_BTD: Tensor, embedding: nn.Module) -> Tensor:
        return together(self.part(x_BTD, embedding), self.tensor_mesh, -1, self.vocab)

    def matrix(self, embedding: nn.Module) -> tuple[Tensor, Tensor | None]:
        """The whole matrix and its bias."""
        matrix, bias = super().matrix(embedding)  # type: ignore[misc]
        mesh, vocab = self.tensor_mesh, self.vocab
        return together(matrix, mesh, 0, vocab), None if bias is None else together(bias, mesh, 0, vocab)

    def cross_entropy(
        self, hidden_ND: Tensor, embedding: nn.Module, answers_N: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        """(smoothed, plain) negative log-likelihood, summed; scores of all words never lie in one process."""
        own = share_of(self.vocab, self.tensor_mesh)
        return split_cross_entropy(
            self.part(hidden_ND, embedding), answers_N, own, self.vocab, self.tensor_mesh, smoothing
        )


def split_cross_entropy(
    scores_NV: Tensor, answers_N: Tensor, own: range, vocab: int, mesh: DeviceMesh, smoothing: float = 0.0
) -> tuple[Tensor, Tensor]:
    """`train.loss.cross_entropy` of scores that are in parts. own: the words whose scores are here.

    log sum exp, the answer's score and the mean score are all made of sums over words, so one sum over
    processes is enough, after the largest score is known.
    """
    scores_NV = scores_NV.float() if scores_NV.dtype != torch.float64 else scores_NV
    asked_N = answers_N >= 0  # negative: no answer
    here_N = (answers_N >= own.start) & (answers_N < own.stop)
    highest_N = largest(scores_NV.amax(-1), mesh)
    at_N1 = (answers_N - own.start).masked_fill(~here_N, 0)[:, None]
    answer_N = scores_NV.gather(1, at_N1)[:, 0] * here_N
    sums = [(scores_NV - highest_N[:, None]).exp().sum(-1), answer_N, scores_NV.sum(-1)]
    mass_N, answer_N, total_N = leave(torch.stack(sums if smoothing else [*sums[:2], sums[1]]), mesh).unbind()
    log_mass_N = highest_N + mass_N.log()
    plain = (log_mass_N - answer_N).masked_fill(~asked_N, 0).sum()
    if not smoothing:
        return plain, plain
    uniform = (log_mass_N - total_N / vocab).masked_fill(~asked_N, 0).sum()
    return (1 - smoothing) * plain + smoothing * uniform, plain
