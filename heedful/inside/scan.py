"""Scan: which heads follow a pattern over many texts, and in which texts they do so most and least."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..errors import BadInput
from ..interop.loaded import Loaded
from .ablation import HeadName, heads_of
from .heads import HeadProgress, Steps, exhaust, finite
from .labels import FEWEST
from .measuring import Measurer
from .patterns import AttentionPattern, Estimate, estimate, parse_pattern, shares
from .samples import Sample, Samples, TokenKinds, grids

SHOWN = 12  # heads of a pattern in a terminal's table
TEXTS = 10  # texts where a head follows a pattern most, and least
WIDEST = 76  # characters of such a text


@dataclass(frozen=True)
class FoundText:
    """A text, and the share of a head's attention that follows a pattern there."""

    share: float
    text: str
    target: str = ""


@dataclass(frozen=True, eq=False)
class PatternScan:
    """The share of every head's attention that follows each pattern, over all texts and in each.

    Axes: I texts, P patterns, N heads.
    """

    samples: Samples = field(repr=False)
    patterns: list[str]
    heads: list[HeadName]
    share: Estimate  # [P, N]
    baseline: Estimate
    sums_IPN: Tensor
    rows_IPN: Tensor

    def ranked(self, pattern: str) -> list[HeadName]:
        """The heads that follow a pattern most, first; those it does not apply to are left out."""
        p = self.patterns.index(pattern)
        rows_N = self.rows_IPN[:, p].sum(0)
        known = [n for n in range(len(self.heads)) if rows_N[n] >= FEWEST]
        return [self.heads[n] for n in sorted(known, key=lambda n: -float(self.share.mean[p, n]))]

    def row(self, pattern: str, head: HeadName) -> tuple[float, float, float, float]:
        """The share of a head, the ends of its 95 % interval, and the baseline."""
        p, n = self.patterns.index(pattern), self.heads.index(head)
        return *self.share.at(p, n), float(self.baseline.mean[p, n])

    def extremes(
        self, pattern: str, head: HeadName, count: int = TEXTS
    ) -> tuple[list[FoundText], list[FoundText]]:
        """The texts where a head follows a pattern most, and those where it does so least."""
        p, n = self.patterns.index(pattern), self.heads.index(head)
        found = [
            FoundText(float(sums / rows), sample.text, sample.target)
            for sample, sums, rows in zip(
                self.samples.samples, self.sums_IPN[:, p, n], self.rows_IPN[:, p, n], strict=True
            )
            if rows > 0
        ]
        ordered = sorted(found, key=lambda each: -each.share)
        return ordered[:count], ordered[::-1][:count]

    def text(self) -> str:
        """A table for each pattern, and the texts where its best head follows it most and least."""
        return "\n\n".join("\n".join(self.lines(pattern)) for pattern in self.patterns)

    def lines(self, pattern: str) -> list[str]:
        """One pattern for a terminal."""
        ranked = self.ranked(pattern)
        if not ranked:
            return [f"pattern {pattern}: it does not occur in {self.samples.described}"]
        wide = max(len(str(head)) for head in ranked)
        lines = [
            f"pattern {pattern}, in {self.samples.described}",
            f"{'head':<{wide}}  share  ± 95 %  shuffled",
        ]
        for head in ranked[:SHOWN]:
            share, low, high, chance = self.row(pattern, head)
            lines.append(f"{head!s:<{wide}}  {share:>5.2f}  {(high - low) / 2:>6.2f}  {chance:>8.2f}")
        if len(ranked) > SHOWN:
            lines.append(f"and {len(ranked) - SHOWN} heads with a smaller share; --json has all")
        most, least = self.extremes(pattern, ranked[0])
        for name, some in (("most", most), ("least", least)):
            lines += [
                f"where {ranked[0]} does it {name}:",
                *(f"  {each.share:.2f}  {told(each)}" for each in some),
            ]
        return lines

    def as_json(self) -> dict[str, Any]:
        """All the numbers."""
        return {
            "samples": len(self.samples),
            "source": self.samples.source,
            "patterns": [
                {
                    "pattern": pattern,
                    "heads": [self.head_json(pattern, head) for head in self.ranked(pattern)],
                }
                for pattern in self.patterns
            ],
        }

    def head_json(self, pattern: str, head: HeadName) -> dict[str, Any]:
        share, low, high, chance = self.row(pattern, head)
        most, least = ([vars(each) for each in side] for side in self.extremes(pattern, head))
        interval = [finite(low), finite(high)]
        return {
            "head": str(head),
            "share": share,
            "interval": interval,
            "baseline": chance,
            "most": most,
            "least": least,
        }


def told(found: FoundText) -> str:
    """A text in a line, with its target if it has one."""
    line = " ".join(f"{found.text}  →  {found.target}".split() if found.target else found.text.split())
    return line if len(line) <= WIDEST else f"{line[: WIDEST - 1]}…"


def scan(loaded: Loaded, samples: Samples, patterns: Sequence[str]) -> PatternScan:
    """The share of every head's attention that follows each pattern.

    patterns: spelled as `parse_pattern` reads them, such as offset:-1, same, after-same, words>marks, gold.
    """
    return exhaust(scan_patterns(loaded, samples, patterns))


def scan_patterns(loaded: Loaded, samples: Samples, patterns: Sequence[str]) -> Steps[PatternScan]:
    """The same as a generator, which yields after each text."""
    wanted = [parse_pattern(spelling) for spelling in patterns]
    check_data(wanted, samples.samples)
    measurer, kinds = Measurer(loaded, samples.samples), TokenKinds(loaded)
    names = heads_of(loaded.model)
    sums, base, rows = (
        torch.zeros(len(samples), len(wanted), len(names), dtype=torch.double) for _ in range(3)
    )
    spelled = [pattern.name for pattern in wanted]

    def so_far() -> PatternScan:  # a text that is not read yet has no rows, so it does not count
        return PatternScan(samples, spelled, names, estimate(sums, rows), estimate(base, rows), sums, rows)

    yield HeadProgress(0, len(samples), "reading attention")
    done = 0
    for batch in measurer.batches:
        for seen in batch.attention():
            tables = grids(kinds, seen.sample, measurer.pair)
            for kind, (weights_NTS, allowed_NTS) in seen.kinds.items():
                found = shares(weights_NTS, allowed_NTS, tables[kind], wanted)
                columns = [n for n, name in enumerate(names) if name.kind == kind]
                sums[seen.index][:, columns] = found.weights_PN
                base[seen.index][:, columns] = found.baseline_PN
                rows[seen.index][:, columns] = found.rows_PN
            done += 1
            yield HeadProgress(done, len(samples), "reading attention", so_far)
    return so_far()


def check_data(patterns: Sequence[AttentionPattern], samples: Sequence[Sample]) -> None:
    """Refuse patterns that need more than these texts have."""
    names = {pattern.name for pattern in patterns}
    if "gold" in names and not any(each.gold for each in samples):
        raise BadInput("the pattern gold needs reference alignments, which a run of the phrasebook has")
    if names & {"parent", "child"} and not any(each.tree for each in samples):
        raise BadInput(
            "the patterns parent and child need dependency trees: give --data, a CoNLL-U file (.conllu)"
        )
