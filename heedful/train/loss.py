"""Loss: the negative log-likelihood of the right word, in fp32 whatever the rest is computed in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ..fast.training import can_fuse_loss, fused_cross_entropy
from ..models.base.shells import Decoder
from ..parts.aux_loss import Aux
from ..parts.embeddings import Tied, TokenEmbedding, Untied

NOTHING = -100  # the answer at a position that has none: padding, or a word that was not masked


@dataclass(frozen=True)
class Loss:
    """Sums over target tokens, not means: micro-batches and processes can then be added up exactly.

    Attributes:
        total: What is minimized: smoothed.
        nll: The plain negative log-likelihood, which perplexity is made of.
        count: Target tokens.
        expert_load_LE: Tokens that each expert of each layer got, in a model that has some.

    Example:
        >>> loss = Loss(torch.tensor(6.0), torch.tensor(4.0), count=2)
        >>> float(loss.nll / loss.count)
        2.0
    """

    total: Tensor
    nll: Tensor
    count: int
    expert_load_LE: Tensor | None = None


def with_aux(loss: Loss, aux: Aux | None) -> Loss:
    """The loss, and what parts of the model want minimized as well.

    Theirs is one number for the whole micro-batch, not a sum over its tokens: it counts as often as there are
    target tokens, so that over micro-batches and processes it becomes the mean of theirs, weighted by their
    tokens.
    """
    told = None if aux is None else aux.close()
    if told is None:
        return loss
    return replace(loss, total=loss.total + loss.count * told.loss, expert_load_LE=told.expert_load_LE)


def cross_entropy(scores_NV: Tensor, answers_N: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
    """(smoothed, plain) negative log-likelihood, summed over positions that have an answer.

    The target distribution is (1 - smoothing) one-hot + smoothing uniform over all words (Szegedy et al.
    2016, torch's convention). Perplexity is to be computed from the plain one.

    Args:
        scores_NV: Scores of N positions.
        answers_N: The right tokens; -100 where there is none.
        smoothing: Share of the target that is spread over all words.

    Returns:
        Two sums in nats.

    Example:
        >>> smoothed, plain = cross_entropy(torch.zeros(2, 4), torch.tensor([1, -100]), smoothing=0.1)
        >>> round(float(plain), 4)  # ln 4
        1.3863
    """
    scores_NV = scores_NV.float() if scores_NV.dtype != torch.float64 else scores_NV
    plain = F.cross_entropy(scores_NV, answers_N, ignore_index=NOTHING, reduction="sum")
    if not smoothing:
        return plain, plain
    here_N = answers_N != NOTHING
    uniform = (torch.logsumexp(scores_NV, -1) - scores_NV.mean(-1)).masked_fill(~here_N, 0).sum()
    return (1 - smoothing) * plain + smoothing * uniform, plain


@dataclass(frozen=True)
class Scores:
    """From hidden vectors to the scores of every word, as `scores_of` gives it.

    Args:
        head: The output head.
        embedding: The embedding, whose matrix a tied head uses.

    Example:
        >>> score = scores_of(heedful.load("runs/lm").model)
        >>> score(torch.zeros(1, 2, 32)).shape[:2]
        torch.Size([1, 2])
    """

    head: Tied | Untied
    embedding: TokenEmbedding

    def __call__(self, hidden: Tensor) -> Tensor:
        return self.head(hidden, self.embedding)

    def matrix(self) -> tuple[Tensor, Tensor | None] | None:
        """The matrix and its bias, if that is all there is to them."""
        return self.head.matrix(self.embedding) if self.head.scale == 1 else None

    @property
    def split(self) -> Callable[..., tuple[Tensor, Tensor]] | None:
        """The head's own cross-entropy, if each process has some of the words (train/parallel)."""
        return getattr(self.head, "cross_entropy", None)


def scores_of(decoder: Decoder) -> Scores:
    """From hidden vectors to the scores of every word, by a decoder's own output matrix.

    Args:
        decoder: The decoder.

    Returns:
        A function, for `sequence_loss`.

    Example:
        >>> decoder = heedful.load("runs/lm").model
        >>> tokens_BT = torch.tensor([[1, 9, 12]])
        >>> loss = sequence_loss(scores_of(decoder), decoder.hidden(tokens_BT), tokens_BT, count=3)
        >>> loss.count
        3
    """
    return Scores(decoder.head, decoder.inputs.tokens)  # type: ignore[arg-type]


def sequence_loss(
    score: Callable[[Tensor], Tensor],
    hidden_BTD: Tensor,
    answers_BT: Tensor,
    count: int,
    smoothing: float = 0.0,
    chunk: int | None = None,
) -> Loss:
    """The loss of every position of a batch that has an answer.

    Args:
        score: From hidden vectors to scores.
        hidden_BTD: Hidden vectors.
        answers_BT: The right tokens; -100 where there is none.
        count: Number of answers.
        smoothing: As in `cross_entropy`.
        chunk: Score this many positions at a time and again in the backward pass, so that the scores of a
            whole batch (the largest tensor of a small model) never exist at once. On a GPU, scores and loss
            are one kernel.

    Returns:
        A `Loss` of sums.

    Example:
        >>> head = torch.nn.Linear(4, 10)
        >>> loss = sequence_loss(head, torch.zeros(1, 3, 4), torch.tensor([[1, 2, -100]]), count=2)
        >>> loss.count, bool(loss.total == loss.nll)
        (2, True)
    """
    hidden_ND, answers_N = hidden_BTD.flatten(0, 1), answers_BT.flatten()
    if hidden_ND.device.type == "cpu" and count < len(answers_N):  # elsewhere, this would wait for the device
        here = answers_N != NOTHING
        hidden_ND, answers_N = hidden_ND[here], answers_N[here]

    split = score.split if isinstance(score, Scores) else None

    def part(hidden_ND: Tensor, answers_N: Tensor) -> tuple[Tensor, Tensor]:
        if isinstance(score, Scores) and split is not None:
            return split(hidden_ND, score.embedding, answers_N, smoothing)
        return cross_entropy(score(hidden_ND), answers_N, smoothing)

    matrix = score.matrix() if isinstance(score, Scores) and split is None else None
    if matrix is not None and chunk is None and can_fuse_loss(hidden_ND):
        return Loss(*fused_cross_entropy(hidden_ND, *matrix, answers_N, smoothing), count)
    if chunk is None or len(hidden_ND) <= chunk:
        return Loss(*part(hidden_ND, answers_N), count)
    pieces = zip(hidden_ND.split(chunk), answers_N.split(chunk), strict=True)
    parts = [checkpoint(part, *piece, use_reentrant=False) for piece in pieces]
    return Loss(sum(p[0] for p in parts), sum(p[1] for p in parts), count)
