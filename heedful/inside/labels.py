"""Labels of heads: what a head does, as a measured share of its attention, never a judgment.

A label is given where the share is at least 0.4 and at least 0.25 above the same share with each query's
allowed keys shuffled. Several labels may hold for one head, and each stands with its share.

    itself           the query's own position
    one before       the token before; also one after, and "3 back" for the best distance from 2 to 8
    the first        the first key
    marks            special tokens and punctuation
    same word        an earlier occurrence of the query's token
    after the same   the token after an earlier occurrence (induction)
    broad            the entropy of its rows is at least 0.9 of the largest possible
    aligner          cross-attention: alignment error at most 0.5, and 0.2 below that of the diagonal
    idle, twin       as `heedful doctor` finds them: no use of the text, or the same as another head
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..tasks.alignment import Links, links_of
from ..tasks.metrics import alignment_error_rate
from .look.heads import entropy, informations, sharpnesses
from .patterns import (
    AttentionGrid,
    AttentionPattern,
    Estimate,
    Shares,
    classes,
    estimate,
    offset,
    parse_pattern,
    shares,
)

SHARE, ABOVE = 0.4, 0.25  # of attention, and above the baseline
BROAD = 0.9  # of the entropy of uniform attention
AER, BELOW = 0.5, 0.2  # alignment error, and below the diagonal's
FEWEST = 3  # queries that a share needs
FREE = 3  # keys that a query must be allowed to count for the entropy, as in `heedful doctor`
BACK = range(2, 9)

LABELED: dict[str, AttentionPattern] = {
    "itself": offset(0),
    "one before": offset(-1),
    "one after": offset(1),
    **{f"{k} back": offset(-k) for k in BACK},
    "the first": parse_pattern("first"),
    "marks": classes("any", "marks"),
    "same word": parse_pattern("same"),
    "after the same": parse_pattern("after-same"),
}
REPEATED = "after the same, repeated"  # the same, in random tokens that stand there twice


@dataclass(frozen=True)
class HeadLabel:
    """What a head does: a share of its attention, beside the share of chance.

    Attributes:
        name: Such as "one before" or "aligner".
        share: Share of the attention.
        baseline: The same share with shuffled keys.
        low: Lower end of the 95 % interval of the share; not a number for a single text.
        high: Upper end.
        rows: Queries that were counted.

    Example:
        >>> str(HeadLabel("one before", 0.75, 0.25, 0.5, 1.0, rows=40))
        'one before 0.75'
    """

    name: str
    share: float
    baseline: float
    low: float
    high: float
    rows: int

    def __str__(self) -> str:
        return f"{self.name} {self.share:.2f}"


@dataclass
class HeadTally:
    """What N heads of one kind of attention do, text by text."""

    texts: list[Shares] = field(default_factory=list)
    spread: list[tuple[Tensor, Tensor]] = field(default_factory=list)  # share of the largest entropy, rows
    bits: list[Tensor] = field(default_factory=list)
    sharp: list[Tensor] = field(default_factory=list)
    errors: list[tuple[Tensor, float]] = field(default_factory=list)  # alignment error, and the diagonal's

    def add(self, weights_NTS: Tensor, allowed_NTS: Tensor, grid: AttentionGrid) -> None:
        """One more text."""
        self.texts.append(shares(weights_NTS, allowed_NTS, grid, list(LABELED.values())))
        keys_NT = allowed_NTS.sum(-1)
        free_NT = (keys_NT >= FREE).expand(weights_NTS.shape[:2])
        entropy_NT = entropy(weights_NTS.double())
        part_NT = entropy_NT / keys_NT.clamp(min=2).log2()
        self.spread.append(((part_NT * free_NT).sum(-1), free_NT.sum(-1)))
        self.bits.append(informations(weights_NTS, entropy_NT))
        self.sharp.append(sharpnesses(weights_NTS))

    def add_alignment(self, weights_NTS: Tensor, places: tuple[list[int], list[int]], gold: Links) -> None:
        """One more text whose reference alignment is known. places: the word of each source and target
        token."""
        found = [alignment_error_rate(links_of(head.float(), *places), gold) for head in weights_NTS]
        size = min(max(side) for side in places) + 1
        diagonal = alignment_error_rate({(i, i) for i in range(size)}, gold)
        self.errors.append((torch.tensor(found), diagonal))

    def measured(self) -> tuple[Estimate, Estimate, Tensor]:
        """Shares [P, N] over all texts, their baselines, and how many queries were counted."""
        sums_IPN, base_IPN, rows_IPN = (
            torch.stack([getattr(text, name) for text in self.texts])
            for name in ("weights_PN", "baseline_PN", "rows_PN")
        )
        return estimate(sums_IPN, rows_IPN), estimate(base_IPN, rows_IPN), rows_IPN.sum(0)

    def breadth(self) -> Estimate:
        """The share [N] of the largest entropy that rows have."""
        sums, rows = (torch.stack(side) for side in zip(*self.spread, strict=True))
        return estimate(sums, rows)

    def labels(self) -> list[list[HeadLabel]]:
        """Of each head, those that hold."""
        share, base, rows_PN = self.measured()
        broad = self.breadth()
        found = []
        for n in range(rows_PN.shape[1]):
            every = {
                name: HeadLabel(
                    name, share.at(p, n)[0], base.at(p, n)[0], *share.at(p, n)[1:], int(rows_PN[p, n])
                )
                for p, name in enumerate(LABELED)
            }
            held = nearest_back([label for label in every.values() if holds(label)])
            if broad.at(n)[0] >= BROAD:
                rows = int(sum(rows[n] for _, rows in self.spread))
                held.append(HeadLabel("broad", broad.at(n)[0], 1.0, *broad.at(n)[1:], rows))
            found.append([*held, *self.aligner(n)])
        return found

    def aligner(self, n: int) -> list[HeadLabel]:
        """Whether a head aligns words: its share is 1 - AER."""
        if not self.errors:
            return []
        right_I = 1 - torch.tensor([float(found_N[n]) for found_N, _ in self.errors]).double()
        diagonal = 1 - sum(error for _, error in self.errors) / len(self.errors)
        mean, low, high = estimate(right_I, torch.ones(len(right_I))).at()
        if mean < 1 - AER or mean < diagonal + BELOW:
            return []
        return [HeadLabel("aligner", mean, diagonal, low, high, len(right_I))]


def holds(label: HeadLabel) -> bool:
    """Whether a share is large, well above chance, and of enough queries."""
    enough = label.rows >= FEWEST
    return enough and label.share >= SHARE and label.share >= label.baseline + ABOVE


def nearest_back(held: list[HeadLabel]) -> list[HeadLabel]:
    """At most one distance back, the best, and the largest shares first."""
    back = [label for label in held if label.name.endswith(" back")]
    best = max(back, key=lambda label: label.share, default=None)
    kept = [label for label in held if label not in back or label is best]
    return sorted(kept, key=lambda label: -label.share)


def label(weights_TS: Tensor, grid: AttentionGrid, allowed_TS: Tensor | None = None) -> list[HeadLabel]:
    """What one head does in one text.

    allowed: the keys that each query may attend to; all, unless said. `idle` and `twin` need all heads of a
    layer: see `heedful.inside.heads`.
    """
    tally = HeadTally()
    allowed_TS = torch.ones(grid.shape, dtype=torch.bool) if allowed_TS is None else allowed_TS
    tally.add(weights_TS[None], allowed_TS[None], grid)
    return tally.labels()[0]


# Induction on random tokens


def repeated(size: int, ordinary: Sequence[int], rows: int, seed: int = 0) -> Tensor:
    """Rows [B, 2 * size] of random tokens, each row twice in succession; no token occurs twice in a half."""
    random = torch.Generator().manual_seed(seed)
    known = torch.tensor(ordinary)
    size = min(size, len(known))
    half = torch.stack([known[torch.randperm(len(known), generator=random)[:size]] for _ in range(rows)])
    return half.repeat(1, 2)


def repeated_label(weights_BNTS: Tensor, allowed_NTS: Tensor, tokens_BT: Tensor) -> list[list[HeadLabel]]:
    """Whether heads attend to the token after the earlier occurrence, in the second half of repeated rows.

    Each query has exactly one such key, so the share of chance is one over the keys that are allowed.
    """
    none = torch.zeros(tokens_BT.shape[1], dtype=torch.bool)
    found = [
        shares(
            weights_NTS, allowed_NTS, AttentionGrid("self", row, row, none, none), [LABELED["after the same"]]
        )
        for weights_NTS, row in zip(weights_BNTS, tokens_BT, strict=True)
    ]
    sums, base, rows = (
        torch.stack([getattr(each, name)[0] for each in found])
        for name in ("weights_PN", "baseline_PN", "rows_PN")
    )
    share, chance = estimate(sums, rows), estimate(base, rows)
    labels = []
    for n, counted in enumerate(rows.sum(0).tolist()):
        mean, low, high = share.at(n)
        one = HeadLabel(REPEATED, mean, chance.at(n)[0], low, high, int(counted))
        labels.append([one] if holds(one) else [])
    return labels
