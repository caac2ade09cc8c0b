"""The paired bootstrap: whether one system's sentence scores are better than another's (Koehn 2004).

    bootstrap([31.2, 40.8, 25.0], [30.1, 38.0, 26.5]).text()

Sentences are drawn again and again with replacement, the same ones for both systems, and the difference of
the mean scores is taken each time. The middle 95 % of these differences are the interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..errors import BadInput

AT_ONCE = 1 << 22  # drawn numbers in memory


@dataclass(frozen=True)
class PairedBootstrap:
    """The difference of two mean scores (first minus second), with its interval of 95 %.

    Attributes:
        difference: The difference.
        low: Lower end of the interval.
        high: Upper end of the interval.
        p: Two-sided: how often the difference of a draw lies on the other side of 0, or on it.
        wins: Sentences that the first system scores higher.
        ties: Sentences with equal scores.
        losses: Sentences that the second system scores higher.
        draws: How often sentences were drawn.

    Example:
        >>> bootstrap([1.0, 2.0], [1.0, 2.0]).ties
        2
    """

    difference: float
    low: float
    high: float
    p: float
    wins: int
    ties: int
    losses: int
    draws: int

    @property
    def distinguishable(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.low > 0 or self.high < 0

    def text(self) -> str:
        """One line."""
        counts = f"{self.wins} wins, {self.ties} ties, {self.losses} losses"
        interval = f"95 % interval {self.low:+.3g} to {self.high:+.3g}"
        return f"difference {self.difference:+.3g} ({interval}, p = {self.p:.2g}): {counts}"

    def as_json(self) -> dict[str, Any]:
        """All the numbers."""
        return asdict(self)


def bootstrap(a: Sequence[float], b: Sequence[float], draws: int = 2000, seed: int = 0) -> PairedBootstrap:
    """Compare the scores of two systems on the same sentences by the paired bootstrap.

    Args:
        a: The first system's score for each sentence.
        b: The second system's, in the same order.
        draws: How often sentences are drawn.
        seed: Seed of the draws; one seed gives one result.

    Returns:
        A `PairedBootstrap`.

    Example:
        >>> found = bootstrap([3.0, 4.0, 5.0, 6.0], [1.0, 2.0, 4.0, 4.0])
        >>> found.difference, found.distinguishable, (found.wins, found.ties, found.losses)
        (1.75, True, (4, 0, 0))
    """
    if len(a) != len(b) or len(a) < 2:
        raise BadInput(
            f"the bootstrap compares two scores of each of two or more sentences, not {len(a)} and {len(b)}"
        )
    if draws < 1:
        raise BadInput(f"draws is 1 or more, not {draws}")
    differences = np.asarray(a, np.float64) - np.asarray(b, np.float64)
    if not np.isfinite(differences).all():
        raise BadInput("the bootstrap needs finite scores: leave out the sentences without one")
    means = drawn_means(differences, draws, np.random.default_rng(seed))
    low, high = np.quantile(means, [0.025, 0.975])
    sides = (np.count_nonzero(means <= 0), np.count_nonzero(means >= 0))
    p = min(1.0, 2 * (min(sides) + 1) / (draws + 1))
    wins, losses = int(np.count_nonzero(differences > 0)), int(np.count_nonzero(differences < 0))
    mean, ties = float(differences.mean()), len(differences) - wins - losses
    return PairedBootstrap(mean, float(low), float(high), p, wins, ties, losses, draws)


def drawn_means(differences: np.ndarray, draws: int, rng: np.random.Generator) -> np.ndarray:
    """The mean difference of each draw; a few draws at once, so that memory stays small."""
    count = len(differences)
    some = max(1, AT_ONCE // count)
    sizes = [min(some, draws - start) for start in range(0, draws, some)]
    return np.concatenate([differences[rng.integers(count, size=(n, count))].mean(1) for n in sizes])
