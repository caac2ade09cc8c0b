"""Heads: what every head of a model does over many texts, and how much the model needs it.

The importance of a head is the change of the loss when its output is replaced by zeros, or by its mean. The
same texts are measured with and without the head, so differences are paired text by text.

    table = heads(loaded, samples_of(loaded, folder, recipe))
    table.text()            # as a table; `.svg()` draws it, `.as_json()` has every number
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor

from ..interop.loaded import ImageEncoder, Loaded
from ..models.base.shells import EncoderDecoder, shells_of
from ..parts.embeddings import Inputs
from ..parts.notebooks import framed
from .ablation import HeadName, MeanOutputs, Means, attentions, count_of, heads_of, parse_by
from .doctor.heads import LayerUse, silent_heads
from .head_pictures import HeadCell, head_grid
from .labels import HeadLabel, HeadTally, repeated, repeated_label
from .measuring import Measurer, SampleAttention
from .patterns import estimate
from .samples import UNITS, Sample, Samples, TokenKinds, grids, word_places

POINTS = 9  # of the curve
REPEATS, HALF = 8, 12  # rows of repeated random tokens, and tokens of a half
SHOWN = 48  # heads in a terminal's table
T = TypeVar("T")


@dataclass(frozen=True)
class HeadProgress:
    """How much of a measurement is done, in pieces of work."""

    done: int
    total: int
    doing: str
    so_far: Callable[[], Any] | None = field(default=None, repr=False, compare=False)  # gives what is known


Steps = Generator[HeadProgress, None, T]


def exhaust(steps: Steps[T]) -> T:
    """Do all of a measurement, and return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


# Results


@dataclass(frozen=True)
class MeasuredHead:
    """One head over all texts.

    Attributes:
        name: The head; it is spelled like "cross.3.2".
        importance: How much the loss rises without it.
        low: Lower end of the 95 % interval of the importance.
        high: Upper end.
        bits: Mutual information between query position and attended key.
        sharpness: Mean of each query's largest weight.
        labels: What the head does, as `HeadLabel`.

    Example:
        >>> from heedful.inside.ablation import HeadName
        >>> str(MeasuredHead(HeadName("self", 1, 2), 0.25, 0.2, 0.3, 1.5, 0.8, []).name)
        'self.1.2'
    """

    name: HeadName
    importance: float
    low: float
    high: float
    bits: float
    sharpness: float
    labels: list[HeadLabel]

    def as_json(self) -> dict[str, Any]:
        return {
            "head": str(self.name),
            "kind": self.name.kind,
            "layer": self.name.layer,
            "number": self.name.head,
            "importance": finite(self.importance),
            "interval": [finite(self.low), finite(self.high)],
            "bits": finite(self.bits),
            "sharpness": finite(self.sharpness),
            "labels": [
                {
                    "name": label.name,
                    "share": label.share,
                    "baseline": finite(label.baseline),
                    "interval": [finite(label.low), finite(label.high)],
                    "rows": label.rows,
                }
                for label in self.labels
            ],
        }


@dataclass(frozen=True)
class CurvePoint:
    """The model without its least important heads.

    Attributes:
        removed: How many heads are removed.
        rise: Rise of the loss.
        low: Lower end of its 95 % interval.
        high: Upper end.

    Example:
        >>> CurvePoint(removed=2, rise=0.25, low=0.125, high=0.375).rise
        0.25
    """

    removed: int
    rise: float
    low: float
    high: float


@dataclass(frozen=True)
class HeadTable:
    """All heads of a model, measured on some texts, as `Model.heads` finds them.

    Attributes:
        architecture: The architecture of the model.
        samples: The texts.
        objective: What importance is measured by, such as "tokens" or "labels".
        by: What replaces a head's output: "zero" or "mean".
        loss: The loss of the whole model.
        heads: The heads.
        curve: The loss without the least important heads.

    Example:
        >>> table = heedful.load("runs/lm").heads(["The old king is sad.", "She eats a fish."], points=2)
        >>> table.ranked[0].importance >= table.ranked[-1].importance
        True
        >>> str(table["self.1.1"].name), table.curve[0].removed, table.text().split()[0]
        ('self.1.1', 0, 'head')
    """

    architecture: str
    samples: Samples = field(repr=False)
    objective: str
    by: str
    loss: float
    heads: list[MeasuredHead]
    curve: list[CurvePoint]

    @property
    def ranked(self) -> list[MeasuredHead]:
        """The heads, the most important first."""
        return sorted(self.heads, key=lambda head: -head.importance)

    def __getitem__(self, name: str) -> MeasuredHead:
        """One head, by its spelling, such as cross.3.2."""
        return next(head for head in self.heads if str(head.name) == name)

    @property
    def sentence(self) -> str:
        """What was measured, on what."""
        other = "zeros" if self.by == "zero" else "its mean output"
        if self.objective == "vectors":
            return (
                f"importance: relative change of the output vectors when the head's output is replaced by "
                f"{other}, on {self.samples.described}; this model predicts no tokens or labels here"
            )
        return (
            f"importance: rise of the loss in {UNITS[self.objective]} when the head's output is replaced by "
            f"{other}; loss of the whole model {self.loss:.4f}, on {self.samples.described}"
        )

    def text(self, shown: int = SHOWN) -> str:
        """A table for a terminal, the most important head first.

        Args:
            shown: Heads to show at most.

        Returns:
            The lines.
        """
        ranked = self.ranked
        wide = max(len(str(head.name)) for head in ranked)
        lines = [f"{'head':<{wide}}  importance   ± 95 %   bits  sharp  what it does"]
        for head in ranked[:shown]:
            half = (head.high - head.low) / 2
            numbers = f"{head.importance:>+10.4f}  {half:>7.4f}  {head.bits:>5.2f}  {head.sharpness:>5.2f}"
            lines.append(f"{head.name!s:<{wide}}  {numbers}  {', '.join(map(str, head.labels))}".rstrip())
        if len(ranked) > shown:
            lines.append(f"and {len(ranked) - shown} less important heads; --json has all")
        rises = ", ".join(f"{point.removed}: {point.rise:+.4f}" for point in self.curve)
        what = "change of the vectors" if self.objective == "vectors" else "rise of the loss"
        return "\n".join(
            [
                *lines,
                "",
                f"{what} without the k least important heads, k: {what.split()[0]}",
                f"  {rises}",
                "",
                f"{self.sentence}.",
                "± 95 %: interval over texts, Student's t of the paired differences",
                "bits: mutual information between query position and attended key",
                "sharp: mean of each row's largest weight",
                "what it does: share of its attention, at least 0.4 and 0.25 above shuffled keys",
            ]
        )

    def as_json(self) -> dict[str, Any]:
        """All the numbers."""
        return {
            "architecture": self.architecture,
            "samples": len(self.samples),
            "unit": self.samples.unit,
            "source": self.samples.source,
            "sentence": self.sentence,
            "objective": self.objective,
            "measured_in": UNITS[self.objective],
            "by": self.by,
            "loss": finite(self.loss),
            "interval": "Student's t of paired differences over texts, 95 %",
            "heads": [head.as_json() for head in self.ranked],
            "curve": [
                {"removed": p.removed, "rise": finite(p.rise), "interval": [finite(p.low), finite(p.high)]}
                for p in self.curve
            ],
        }

    def svg(self) -> str:
        """A grid of heads colored by importance, as the text of an SVG file."""
        cells = [
            HeadCell(
                head.name,
                head.importance,
                f"{head.low:+.4f} to {head.high:+.4f}",
                list(map(str, head.labels)),
            )
            for head in self.heads
        ]
        return head_grid(cells, f"Importance of {len(cells)} heads", self.sentence)

    def _repr_html_(self) -> str:
        return framed(self.svg())


def finite(number: float) -> float | None:
    """A number that JSON can hold; None for one that is not finite."""
    return number if math.isfinite(number) else None


# Measuring


def heads(loaded: Loaded, samples: Samples, by: str = "zero", points: int = POINTS) -> HeadTable:
    """Every head of a model: its importance, what it does, and the curve of removing the least important.

    samples: the texts, as `samples_of` reads them. by: "zero" or "mean", what replaces a head's output.
    points: of the curve, spread evenly from no head to all; 0 for none.
    """
    return exhaust(measure_heads(loaded, samples, by, points))


def measure_heads(
    loaded: Loaded, samples: Samples, by: str = "zero", points: int = POINTS
) -> Steps[HeadTable]:
    """The same as a generator, which yields after each piece of work."""
    mean = parse_by(by)
    measurer, names = Measurer(loaded, samples.samples), heads_of(loaded.model)
    single: list[Collection[HeadName]] = [(), *({name} for name in names)]
    removed = sorted({round(i * len(names) / (points - 1)) for i in range(points)} if points > 1 else set())
    total = len(samples) + 1 + (len(measurer.batches) if mean else 0)
    total += pieces(measurer, len(single)) + pieces(measurer, len(removed))
    done = 0
    yield HeadProgress(done, total, "reading attention")
    tallies: dict[str, HeadTally] = {}
    uses: dict[tuple[str, int], LayerUse] = {}
    kinds = TokenKinds(loaded)
    for batch in measurer.batches:
        for seen in batch.attention():
            tally_sample(measurer, kinds, seen, tallies, uses)
            done += 1
            yield HeadProgress(done, total, "reading attention")
    induction = repeated_labels(loaded, kinds)
    done += 1
    yield HeadProgress(done, total, "reading attention")
    means: Means | None = None
    if mean:
        outputs = MeanOutputs(loaded.model)
        for batch in measurer.batches:
            batch.collect(outputs)
            done += 1
            yield HeadProgress(done, total, "computing mean outputs")
        means = outputs.means()
    losses_RI = yield from remove(measurer, single, means, done, total, "removing heads one by one")
    done += pieces(measurer, len(single))
    counts_I = measurer.counts
    rise = estimate((losses_RI[1:] - losses_RI[0]).mT, counts_I[:, None])
    order = [names[i] for i in rise.mean.argsort().tolist()]
    sets = [order[:k] for k in removed]
    without_RI = yield from remove(measurer, sets, means, done, total, "removing the least important heads")
    curve = []
    if sets:
        risen = estimate((without_RI - losses_RI[0]).mT, counts_I[:, None])
        curve = [CurvePoint(k, *risen.at(i)) for i, k in enumerate(removed)]
    labels = labels_of(loaded, names, tallies, uses, induction)
    bits, sharp = (
        {
            name: float(number)
            for kind, tally in tallies.items()
            for name, number in zip(
                of_kind(names, kind), torch.stack(getattr(tally, what)).mean(0), strict=True
            )
        }
        for what in ("bits", "sharp")
    )
    measured = [
        MeasuredHead(name, *rise.at(i), bits[name], sharp[name], labels[name]) for i, name in enumerate(names)
    ]
    loss = float(losses_RI[0].sum() / counts_I.sum())
    return HeadTable(loaded.architecture, samples, measurer.objective, by, loss, measured, curve)


def pieces(measurer: Measurer, sets: int) -> int:
    """Pieces of work that so many sets of removed heads take."""
    return sum(math.ceil(sets / batch.copies) for batch in measurer.batches)


def remove(
    measurer: Measurer,
    sets: Sequence[Collection[HeadName]],
    means: Means | None,
    done: int,
    total: int,
    doing: str,
) -> Steps[Tensor]:
    """The summed loss [R, I] of each sample without each set of heads."""
    losses_RI = torch.zeros(len(sets), len(measurer.samples), dtype=torch.double)
    for batch in measurer.batches:
        for start in range(0, len(sets), batch.copies):
            some = sets[start : start + batch.copies]
            losses_RI[start : start + len(some), batch.indices] = batch.losses(some, means)
            done += 1
            yield HeadProgress(done, total, doing)
        batch.forget()
    return losses_RI


def of_kind(names: Sequence[HeadName], kind: str) -> list[HeadName]:
    return [name for name in names if name.kind == kind]


# What heads do


def tally_sample(
    measurer: Measurer,
    kinds: TokenKinds,
    seen: SampleAttention,
    tallies: dict[str, HeadTally],
    uses: dict[tuple[str, int], LayerUse],
) -> None:
    """Add the attention of a sample to what is known of each kind, and of each layer."""
    sample, model = seen.sample, measurer.model
    tables = grids(kinds, sample, measurer.pair)
    for kind, (weights_NTS, allowed_NTS) in seen.kinds.items():
        tally = tallies.setdefault(kind, HeadTally())
        tally.add(weights_NTS, allowed_NTS, tables[kind])
        if kind == "cross" and sample.gold is not None:
            tally.add_alignment(weights_NTS, word_places(measurer.loaded, sample), set(sample.gold))
        start = 0
        for place, path in attentions(model).items():
            if place[0] == kind:
                end = start + count_of(model.get_submodule(path))
                allowed_TS = allowed_NTS[start if len(allowed_NTS) > 1 else 0]
                uses.setdefault(place, LayerUse()).add(weights_NTS[start:end], allowed_TS)
                start = end


def repeated_labels(loaded: Loaded, kinds: TokenKinds) -> dict[str, list[list[HeadLabel]]]:
    """By kind: which heads find the token after an earlier occurrence, in random tokens that stand there
    twice."""
    if loaded.kind is ImageEncoder:
        return {}
    shells = shells_of(loaded.model)
    pair = isinstance(loaded.model, EncoderDecoder)
    longest = min(
        (s.inputs.position.longest for s in shells.values() if s.inputs.position.longest), default=99
    )
    half = min(HALF, longest // 2)
    sides = []
    for shell, special in zip(shells.values(), (kinds.special_read, kinds.special_written), strict=False):
        assert isinstance(shell.inputs, Inputs)
        size = shell.inputs.tokens.weight.shape[0]
        sides.append(repeated(half, [n for n in range(size) if n not in special], REPEATS))
    if min(side.shape[1] for side in sides) < 6:
        return {}
    written = sides[-1].tolist() if pair else [[]] * REPEATS
    rows = [Sample("", ids, written=other) for ids, other in zip(sides[0].tolist(), written, strict=True)]
    measurer = Measurer(loaded, rows)
    found = [seen for batch in measurer.batches for seen in batch.attention()]
    labels = {}
    for kind in found[0].kinds:
        if kind != "cross":
            tokens_BT = sides[-1] if kind == "self" else sides[0]
            every_BNTS = torch.stack([seen.kinds[kind][0] for seen in found])
            order = tokens_BT[[seen.index for seen in found]]
            labels[kind] = repeated_label(every_BNTS, found[0].kinds[kind][1], order)
    return labels


def labels_of(
    loaded: Loaded,
    names: Sequence[HeadName],
    tallies: dict[str, HeadTally],
    uses: dict[tuple[str, int], LayerUse],
    induction: dict[str, list[list[HeadLabel]]],
) -> dict[HeadName, list[HeadLabel]]:
    """All labels of every head."""
    found: dict[HeadName, list[HeadLabel]] = {name: [] for name in names}
    for kind, tally in tallies.items():
        some = of_kind(names, kind)
        for name, *lists in zip(some, tally.labels(), induction.get(kind, [[]] * len(some)), strict=True):
            found[name] += [label for labels in lists for label in labels]
    for (kind, layer), path in attentions(loaded.model).items():
        use = uses[kind, layer]
        for h, label in unused(use, silent_heads(loaded.model.get_submodule(path))):
            found[HeadName(kind, layer, h + 1)].append(label)
    return found


def unused(use: LayerUse, silent: Sequence[int]) -> list[tuple[int, HeadLabel]]:
    """The labels `idle` and `twin` of a layer's heads."""
    nan = math.nan

    def label(name: str, share: float) -> HeadLabel:
        return HeadLabel(name, share, nan, nan, nan, use.rows)

    idle = {h: use.place_share(h) for h in use.dead()} | {h: use.spread_share(h) for h in use.uniform()}
    idle |= {h: 1.0 for h in silent}
    found = [(h, label("idle", share)) for h, share in sorted(idle.items())]
    for a, b in use.twins():
        same = 1 - float(use.apart_HH[a, b]) / use.rows
        found += [(a, label(f"twin of {b + 1}", same)), (b, label(f"twin of {a + 1}", same))]
    return found
