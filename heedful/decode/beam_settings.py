"""The settings of a beam search: its width, its penalties, and the rule that stops it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import BadInput
from .options import BEAM, DecodingOptions
from .scores import NEVER

# Length penalties.


def gnmt(length: Tensor, alpha: float) -> Tensor:
    """`((5 + |Y|) / 6)^alpha` (Wu et al. 2016).

    Args:
        length: Lengths of hypotheses.
        alpha: The exponent.

    Returns:
        The divisor of their log-probabilities.

    Example:
        >>> gnmt(torch.tensor([1.0, 7.0]), alpha=1.0)
        tensor([1., 2.])
    """
    return ((5 + length) / 6) ** alpha


def power(length: Tensor, alpha: float) -> Tensor:
    """`|Y|^alpha` (fairseq, Hugging Face): 0 ranks by probability, 1 by the mean log-probability.

    Args:
        length: Lengths of hypotheses.
        alpha: The exponent.

    Returns:
        The divisor of their log-probabilities.

    Example:
        >>> power(torch.tensor([4.0]), alpha=0.5)
        tensor([2.])
    """
    return length**alpha


LENGTH_PENALTIES: dict[str, Callable[[Tensor, float], Tensor]] = {"gnmt": gnmt, "power": power}


# Coverage penalty.


def coverage_penalty(attended_NWS: Tensor) -> Tensor:
    """The sum over the source of log min(attention received, 1): 0 once every word was attended to.

    Wu et al. 2016.

    Args:
        attended_NWS: Attention that each word of the source has received; a negative number marks padding.

    Returns:
        [N, W]: a penalty for each hypothesis.

    Example:
        >>> coverage_penalty(torch.tensor([[[1.0, 2.0, -1.0]]]))
        tensor([[0.]])
    """
    floor = torch.finfo(attended_NWS.dtype).tiny  # what rounds to 0 was attended to a little
    return torch.where(attended_NWS < 0, 1, attended_NWS).clamp(floor, 1).log().sum(-1)


# When to stop: a rule says which of N searches are over.


@dataclass(frozen=True)
class Standing:
    """What a rule may look at."""

    totals_NW: Tensor  # log P of the prefixes still alive
    now_NW: Tensor  # what each would score if it ended as it stands
    worst_N: Tensor  # the score of the worst of W finished hypotheses; -inf before there are W
    ideal_N: Tensor  # the penalty at the length that pays most


def first_B(s: Standing) -> Tensor:
    """As soon as W hypotheses have finished."""
    return s.worst_N > NEVER


def heuristic(s: Standing) -> Tensor:
    """When no live prefix, if it ended as it stands, would beat the worst of W finished ones."""
    return s.now_NW.amax(-1) <= s.worst_N


def exact(s: Standing) -> Tensor:
    """When nothing a live prefix can become would beat the worst of W finished ones.

    The best it can become loses no more probability, covers the whole source, and has the length that pays
    most.
    """
    return s.totals_NW.amax(-1) / s.ideal_N <= s.worst_N


STOPPING: dict[str, Callable[[Standing], Tensor]] = {
    "first_B": first_B,
    "heuristic": heuristic,
    "exact": exact,
}


@dataclass(frozen=True)
class BeamSettings:
    """How wide to search, and what to call good. The defaults are those of Vaswani et al. 2017.

    Attributes:
        width: Hypotheses kept at each step.
        n_best: Answers for each text.
        length_penalty: "gnmt" or "power", the divisor of a log-probability.
        length_alpha: Its exponent.
        coverage_penalty: Weight of the penalty on source words that receive little attention.
        stopping: "heuristic", "first_B" or "exact".
        beam_groups: Groups of diverse beam search.
        diversity_penalty: Cost of a token that an earlier group has written at the same position.

    Example:
        >>> BeamSettings(width=8, length_alpha=1.0).width
        8
    """

    width: int = BEAM  # hypotheses kept alive, in each group
    n_best: int = DecodingOptions.n_best  # hypotheses to return for each sentence
    length_penalty: str = DecodingOptions.length_penalty  # or "power"
    length_alpha: float = DecodingOptions.length_alpha  # its exponent; 0 for none
    coverage_penalty: float = DecodingOptions.coverage_penalty  # the weight of the coverage penalty, beta
    stopping: str = DecodingOptions.stopping  # or "first_B" or "exact"
    beam_groups: int = DecodingOptions.beam_groups  # each made to differ from those before it
    diversity_penalty: float = DecodingOptions.diversity_penalty  # of a token that earlier groups took

    def __post_init__(self) -> None:
        for name, table in (("length_penalty", LENGTH_PENALTIES), ("stopping", STOPPING)):
            if getattr(self, name) not in table:
                raise BadInput(f'{name} "{getattr(self, name)}" does not exist; there are {", ".join(table)}')
        for name in ("width", "n_best", "beam_groups"):
            if getattr(self, name) < 1:
                raise BadInput(f"{name} is {getattr(self, name)}: it must be at least 1")
        for name, least in (("length_alpha", -math.inf), ("coverage_penalty", 0), ("diversity_penalty", 0)):
            if not (least <= getattr(self, name) < math.inf and math.isfinite(getattr(self, name))):
                raise BadInput(
                    f"{name} is {getattr(self, name)}: it must be a finite number, at least {least}"
                )
        if self.n_best > self.width * self.beam_groups:
            raise BadInput(
                f"a beam of {self.width * self.beam_groups} cannot find {self.n_best} hypotheses: "
                f"make it wider"
            )
        if (self.beam_groups > 1) != (self.diversity_penalty > 0):
            raise BadInput(
                "`beam_groups` above 1 and `diversity_penalty` above 0 go together: one alone has no effect"
            )

    def penalty(self, length_N: Tensor, dtype: torch.dtype) -> Tensor:
        """lp(Y)."""
        return LENGTH_PENALTIES[self.length_penalty](length_N.double(), self.length_alpha).to(dtype)
