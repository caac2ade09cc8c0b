"""Attention: every query looks at all keys softly and takes home a weighted mean of their values.

First the formula, as on the slide (`attention_weights`, `attend_plain`), then the ways to score a query
against a key. The same by torch's kernels is in fused.py, the layer that holds weights in multihead.py.

H query heads may share G <= H key/value heads (grouped-query attention; G = 1 is multi-query):

    query heads      0 1 2 3 4 5          H = 6
    key/value heads  0 0 0 1 1 1          G = 2
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .view import View

AnyMask = View | Tensor | None  # a tensor is boolean, True = may attend, and broadcasts to [B, H, T, S]


# The formula.


def attention_weights(
    q_BHTK: Tensor,
    k_BGSK: Tensor,
    mask: AnyMask = None,
    bias: Tensor | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """softmax(q k^T / sqrt(K) + bias): how much each query takes from each key.

    Args:
        q_BHTK: Queries of H heads.
        k_BGSK: Keys of G heads; each is shared by H / G query heads.
        mask: Which keys a query may see: a `View`, or a boolean tensor that broadcasts to [B, H, T, S].
        bias: Added to the scores; broadcasts to [B, H, T, S].
        scale: Factor of the scores. None: 1 / sqrt(K).
        dropout: Share of the weights that are set to 0.

    Returns:
        Weights [B, H, T, S]. Rows sum to 1, or to 0 if a query may see nobody.

    Example:
        >>> q, k = torch.zeros(1, 1, 2, 4), torch.zeros(1, 1, 3, 4)
        >>> attention_weights(q, k, mask=torch.tensor([[True, True, False]]))[0, 0, 0]
        tensor([0.5000, 0.5000, 0.0000])
    """
    k_BHSK = repeat_heads(k_BGSK, q_BHTK.shape[1])
    scale = 1 / math.sqrt(q_BHTK.shape[-1]) if scale is None else scale
    scores_BHTS = q_BHTK @ k_BHSK.mT * scale
    return F.dropout(masked_softmax(scores_BHTS, mask, bias), dropout)


def attend_plain(
    q_BHTK: Tensor,
    k_BGSK: Tensor,
    v_BGSL: Tensor,
    mask: AnyMask = None,
    bias: Tensor | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """weights @ values: the formula, with every score in memory.

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
        >>> q, k = torch.zeros(1, 1, 1, 4), torch.zeros(1, 1, 2, 4)
        >>> attend_plain(q, k, torch.tensor([[[[1.0, 0.0], [0.0, 1.0]]]]))
        tensor([[[[0.5000, 0.5000]]]])
    """
    weights_BHTS = attention_weights(q_BHTK, k_BGSK, mask, bias, scale, dropout)
    return weights_BHTS @ repeat_heads(v_BGSL, q_BHTK.shape[1])


def masked_softmax(scores_BHTS: Tensor, mask: AnyMask = None, bias: Tensor | None = None) -> Tensor:
    """Softmax over keys, in fp32 at least; a masked key gets exactly 0, also in a row with nothing else.

    Args:
        scores_BHTS: Scores.
        mask: As in `attention_weights`.
        bias: Added to the scores.

    Returns:
        Weights [B, H, T, S] in the type of the scores.

    Example:
        >>> masked_softmax(torch.zeros(1, 1, 1, 2), mask=torch.tensor([False, False]))
        tensor([[[[0., 0.]]]])
    """
    dtype = scores_BHTS.dtype
    scores_BHTS = scores_BHTS.to(torch.promote_types(dtype, torch.float32))
    if bias is not None:
        scores_BHTS = scores_BHTS + bias
    allowed = mask.allowed(scores_BHTS.shape[1]) if isinstance(mask, View) else mask
    if allowed is None:
        return scores_BHTS.softmax(-1).to(dtype)
    # The lowest finite number, not -inf: a row of -inf would be NaN, forwards and backwards.
    lowest = torch.finfo(scores_BHTS.dtype).min
    weights_BHTS = scores_BHTS.masked_fill(~allowed, lowest).softmax(-1)
    return weights_BHTS.masked_fill(~allowed, 0).to(dtype)


def repeat_heads(x_BGSK: Tensor, H: int) -> Tensor:
    """Hand each of G key/value heads to H / G query heads.

    Args:
        x_BGSK: Keys or values of G heads.
        H: Number of query heads; G divides it.

    Returns:
        The same for each query head, [B, H, S, K].

    Raises:
        ValueError: G does not divide H.

    Example:
        >>> repeat_heads(torch.zeros(1, 2, 5, 4), 6).shape
        torch.Size([1, 6, 5, 4])
    """
    G = x_BGSK.shape[1]
    if H % G:
        raise ValueError(f"{H} query heads cannot share {G} key/value heads evenly")
    return x_BGSK if G == H else x_BGSK.repeat_interleave(H // G, dim=1)


# How to score a query against a key.


class Score(nn.Module):
    """score(q, k) for all pairs. Those that are a dot product in disguise say so and get the fast kernels.

    Example:
        >>> class Cosine(Score):
        ...     def as_dot(self, q_BHTK, k_BGSK):
        ...         return F.normalize(q_BHTK, dim=-1), F.normalize(k_BGSK, dim=-1), 1.0
        >>> x = torch.tensor([[[[3.0, 4.0]]]])
        >>> Cosine()(x, x)  # calls forward
        tensor([[[[1.]]]])
    """

    def forward(self, q_BHTK: Tensor, k_BHSK: Tensor) -> Tensor:
        """The score of every query with every key.

        Args:
            q_BHTK: Queries.
            k_BHSK: Keys of as many heads.

        Returns:
            Scores [B, H, T, S].
        """
        q, k, scale = self.as_dot(q_BHTK, k_BHSK) or (q_BHTK, k_BHSK, 1.0)
        return q @ k.mT * scale

    def as_dot(self, q_BHTK: Tensor, k_BGSK: Tensor) -> tuple[Tensor, Tensor, float] | None:
        """q', k', scale such that score = scale * q' . k'; None if there is no such form.

        Args:
            q_BHTK: Queries.
            k_BGSK: Keys, perhaps of fewer heads.

        Returns:
            Queries, keys and a scale; or None.

        Example:
            >>> *_, scale = ScaledDot().as_dot(torch.zeros(1, 1, 2, 16), torch.zeros(1, 1, 3, 16))
            >>> scale
            0.25
        """
        return q_BHTK, k_BGSK, 1.0

    def prepared(self, k_BHSK: Tensor) -> Tensor:
        """What of the keys needs no query, so that many queries one after another can share it."""
        return k_BHSK

    def between(self, q_BHTK: Tensor, prepared_BHSK: Tensor) -> Tensor:
        """The score of keys that were prepared."""
        return self(q_BHTK, prepared_BHSK)


class Dot(Score):
    """q . k: T5 uses it as it stands; for others large scores saturate the softmax.

    Example:
        >>> x = torch.tensor([[[[3.0, 4.0]]]])
        >>> Dot()(x, x)
        tensor([[[[25.]]]])
    """


class ScaledDot(Score):
    """q . k / sqrt(K): the variance of the sum of K products, brought back to 1 (Vaswani et al. 2017).

    Example:
        >>> x = torch.ones(1, 1, 1, 4)
        >>> ScaledDot()(x, x)
        tensor([[[[2.]]]])
    """

    def as_dot(self, q_BHTK: Tensor, k_BGSK: Tensor) -> tuple[Tensor, Tensor, float]:
        return q_BHTK, k_BGSK, 1 / math.sqrt(q_BHTK.shape[-1])


class ScaledBy(Score):
    """q . k times a number of its own (Gemma's need not be 1 / sqrt(K)).

    Args:
        scale: The number.

    Example:
        >>> x = torch.ones(1, 1, 1, 4)
        >>> ScaledBy(0.5)(x, x)
        tensor([[[[2.]]]])
    """

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def as_dot(self, q_BHTK: Tensor, k_BGSK: Tensor) -> tuple[Tensor, Tensor, float]:
        return q_BHTK, k_BGSK, self.scale


class Bilinear(Score):
    """q W k^T, also called general (Luong et al. 2015): query and key widths may differ.

    Args:
        query_width: Numbers of a query.
        key_width: Numbers of a key.

    Example:
        >>> Bilinear(4, 6)(torch.ones(1, 1, 2, 4), torch.ones(1, 1, 3, 6)).shape
        torch.Size([1, 1, 2, 3])
    """

    def __init__(self, query_width: int, key_width: int) -> None:
        super().__init__()
        self.W = nn.Parameter(torch.empty(query_width, key_width))
        nn.init.xavier_uniform_(self.W)

    def as_dot(self, q_BHTK: Tensor, k_BGSK: Tensor) -> tuple[Tensor, Tensor, float]:
        return q_BHTK @ self.W, k_BGSK, 1.0


class Additive(Score):
    """w . tanh(q W_q + k W_k + b) (Bahdanau et al. 2015): any widths; Luong's concat is the same family.

    Args:
        query_width: Numbers of a query.
        key_width: Numbers of a key.
        hidden: Width of the layer inside.

    Example:
        >>> Additive(4, 6, hidden=8)(torch.ones(1, 1, 2, 4), torch.ones(1, 1, 3, 6)).shape
        torch.Size([1, 1, 2, 3])
    """

    def __init__(self, query_width: int, key_width: int, hidden: int) -> None:
        super().__init__()
        self.query = nn.Linear(query_width, hidden, bias=False)
        self.key = nn.Linear(key_width, hidden)
        self.score = nn.Linear(hidden, 1, bias=False)

    def forward(self, q_BHTK: Tensor, k_BHSK: Tensor) -> Tensor:
        return self.between(q_BHTK, self.prepared(k_BHSK))

    def prepared(self, k_BHSK: Tensor) -> Tensor:
        return self.key(k_BHSK)

    def between(self, q_BHTK: Tensor, prepared_BHSA: Tensor) -> Tensor:
        pairs = self.query(q_BHTK).unsqueeze(-2) + prepared_BHSA.unsqueeze(-3)
        return self.score(torch.tanh(pairs)).squeeze(-1)

    def as_dot(self, q_BHTK: Tensor, k_BGSK: Tensor) -> None:
        return None


# {name: score of queries and keys of one width}
SCORES: dict[str, Callable[[int], Score]] = {
    "scaled": lambda width: ScaledDot(),
    "dot": lambda width: Dot(),
    "bilinear": lambda width: Bilinear(width, width),
    "additive": lambda width: Additive(width, width, width),
}


class SoftCapped(Score):
    """cap * tanh(score / cap): scores that cannot run away (Gemma 2).

    Args:
        score: The score that is capped.
        cap: The number that scores stay below.

    Example:
        >>> x = torch.full((1, 1, 1, 1), 100.0)
        >>> SoftCapped(Dot(), cap=50.0)(x, x)
        tensor([[[[50.]]]])
    """

    def __init__(self, score: Score, cap: float) -> None:
        super().__init__()
        self.score, self.cap = score, cap

    def forward(self, q_BHTK: Tensor, k_BHSK: Tensor) -> Tensor:
        return self.cap * torch.tanh(self.score(q_BHTK, k_BHSK) / self.cap)

    def as_dot(self, q_BHTK: Tensor, k_BGSK: Tensor) -> None:
        return None
