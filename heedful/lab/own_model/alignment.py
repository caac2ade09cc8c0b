"""Alignment on your own model: does its cross-attention link words to the words they translate?

The phrasebook has reference alignments. Heads are chosen on one half of its sentences, and judged on the
other half.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from ...corpora import phrasebook
from ...inside.ablation import heads_of
from ...inside.corpus import samples_of, with_reference
from ...inside.look.drawing import Drawing
from ...inside.look.layers import kinds_of
from ...inside.measuring import Measurer
from ...inside.samples import Sample, words_of_tokens
from ...interop.loaded import IN_WORDS
from ...models.base.shells import EncoderDecoder
from ...tasks.alignment import Links, links_of, word_of_token
from ...tasks.metrics import alignment_error_rate
from ...tasks.task import spread
from ..figures import DotPanel, MapPanel, figure
from ..rules import CONTRADICTED, SUPPORTED
from .report import OwnModelReport, TriedStatement, directed, refusal

if TYPE_CHECKING:
    from ...use.model import Model

NAME = "alignment"
ASKED = "Does the cross-attention of this model link each word to the word it translates?"
SENTENCES = 128
MARGIN = 0.1  # of the error rate: the diagonal itself has about 0.35 in these short sentences
PREDICTION, INPUT, DIAGONAL = "prediction row", "input row", "diagonal"


@dataclass(frozen=True)
class HeadErrors:
    """Alignment error rates [sentence][head], at the row that predicts a word and at that which reads it."""

    heads: list[str]
    rows: dict[str, list[list[float]]]
    diagonal: list[float]

    def best(self, row: str) -> int:
        """The head with the fewest errors in every other sentence."""
        means = self.means(row, 0)
        return min(range(len(means)), key=means.__getitem__)

    def means(self, row: str, first: int | None = None) -> list[float]:
        """Of each head, over all sentences or every other one."""
        some = self.rows[row] if first is None else self.rows[row][first::2]
        return [statistics.fmean(column) for column in zip(*some, strict=True)]

    def judged(self, row: str) -> list[float]:
        """The best head in the sentences that it was not chosen by."""
        best = self.best(row)
        return [sentence[best] for sentence in self.rows[row][1::2]]


def try_on(model: Model, data: str | None = None) -> OwnModelReport:
    """The claim on a translator, by the reference alignments of the phrasebook."""
    check_translator(model)
    pairs = spread(list(phrasebook.split("valid")), SENTENCES)
    samples = [with_reference(one, pair) for one, pair in zip(read(model, pairs), pairs, strict=True)]
    found = errors(model, samples)
    statements = (against_diagonal(found), against_input(found), knows(model, pairs))
    numbers = {
        head: {PREDICTION: prediction, INPUT: given}
        for head, prediction, given in zip(
            found.heads, found.means(PREDICTION), found.means(INPUT), strict=True
        )
    }
    ranked = dict(sorted(numbers.items(), key=lambda item: item[1][PREDICTION]))
    diagonal = statistics.fmean(found.diagonal)
    return OwnModelReport(
        NAME,
        model.folder,
        ASKED,
        statements,
        finding(found, statements),
        f"{len(pairs)} held-out sentences of the phrasebook: heads chosen on one half, judged on the other",
        "error rate",
        {DIAGONAL: {PREDICTION: diagonal}, **ranked},
        draw(found),
    )


def check_translator(model: Model) -> None:
    """Refuse models that have no cross-attention between texts, and runs of other sentences."""
    if model.kind is not EncoderDecoder:
        raise refusal(
            NAME, model, f"it is {IN_WORDS[model.kind]}, and cross-attention joins an encoder and a decoder"
        )
    if "cross" not in kinds_of(model.model):
        raise refusal(NAME, model, "its decoder has no cross-attention")
    if model.tokenizer is None:
        raise refusal(NAME, model, "it has no tokenizer")
    recipe = model.recipe
    if recipe is not None and (recipe.task != "translate" or recipe.data.corpus != "phrasebook"):
        raise refusal(
            NAME,
            model,
            "reference alignments are those of the phrasebook, and it was trained on other data: "
            "`heedful demo` trains a model of the phrasebook",
        )


def read(model: Model, pairs: Sequence[phrasebook.Pair], shift: int = 0) -> list[Sample]:
    """Sentence pairs as the model gets them. shift: how far targets are moved, to go with other sources."""
    targets = [*pairs[shift:], *pairs[:shift]]
    texts = [(one.source, other.target) for one, other in zip(pairs, targets, strict=True)]
    return samples_of(model.loaded, texts=texts, count=len(texts)).samples


# Links.


def errors(model: Model, samples: Sequence[Sample]) -> HeadErrors:
    """The error rates of all heads in all sentences."""
    heads = [str(name) for name in heads_of(model.model) if name.kind == "cross"]
    prediction: dict[int, list[float]] = {}
    given: dict[int, list[float]] = {}
    for batch in Measurer(model.loaded, samples).batches:
        for seen in batch.attention():
            source, target = word_places(model, seen.sample)
            weights_NTS = seen.kinds["cross"][0][:, :, [s for s, word in enumerate(source) if word >= 0]]
            words = [word for word in source if word >= 0]
            gold = set(seen.sample.gold or ())
            for kept, rows in ((prediction, weights_NTS), (given, weights_NTS[:, 1:])):
                kept[seen.index] = [error(weights_TS, words, target, gold) for weights_TS in rows]
    order = range(len(samples))
    found = {PREDICTION: [prediction[i] for i in order], INPUT: [given[i] for i in order]}
    return HeadErrors(heads, found, [diagonal_error(sample) for sample in samples])


def word_places(model: Model, sample: Sample) -> tuple[list[int], list[int]]:
    """The word of each token of the source, -1 for special tokens, and of the target."""
    written = model.target_tokenizer or model.tokenizer
    assert sample.tree is not None and written is not None
    return words_of_tokens(model.loaded, sample.tree, len(sample.ids)), word_of_token(written, sample.target)


def error(weights_TS: Tensor, source: Sequence[int], target: Sequence[int], gold: Links) -> float:
    return alignment_error_rate(links_of(weights_TS, source, target[: len(weights_TS)]), gold)


def diagonal_error(sample: Sample) -> float:
    """The error rate if the first word is linked to the first, the last to the last, and so on."""
    S, T = (len(phrasebook.words(text)) for text in (sample.text, sample.target))
    links = {(round(t * (S - 1) / max(T - 1, 1)), t) for t in range(T)}
    return alignment_error_rate(links, set(sample.gold or ()))


# Judging.


def against_diagonal(found: HeadErrors) -> TriedStatement:
    best = zip(found.diagonal[1::2], found.judged(PREDICTION), strict=True)
    ruling = directed([diagonal - head for diagonal, head in best], "sentences", MARGIN)
    says = (
        f"The best head has fewer wrong links than the diagonal, by more than {MARGIN:g} of the error rate."
    )
    return TriedStatement(says, ruling.verdict, ruling.why)


def against_input(found: HeadErrors) -> TriedStatement:
    both = zip(found.judged(INPUT), found.judged(PREDICTION), strict=True)
    ruling = directed([given - prediction for given, prediction in both], "sentences")
    says = "The row that predicts a word has fewer wrong links than the row that reads it."
    return TriedStatement(says, ruling.verdict, ruling.why)


def knows(model: Model, pairs: Sequence[phrasebook.Pair]) -> TriedStatement:
    """A control: the model translates these sentences, however well."""
    right, wrong = (target_losses(model, read(model, pairs, shift)) for shift in (0, 1))
    moved = [*right[1:], *right[:1]]  # the same targets as with wrong sources
    ruling = directed([other - own for other, own in zip(wrong, moved, strict=True)], "sentences")
    says = "The model predicts a translation better from its own source than from another one."
    return TriedStatement(says, ruling.verdict, ruling.why, control=True)


def target_losses(model: Model, samples: Sequence[Sample]) -> list[float]:
    """Nats per token of each target."""
    measurer = Measurer(model.loaded, samples)
    found = [0.0] * len(samples)
    for batch in measurer.batches:
        for i, loss in zip(batch.indices, batch.losses([()])[0].tolist(), strict=True):
            found[i] = loss / len(samples[i].answers)
    return found


def finding(found: HeadErrors, statements: tuple[TriedStatement, ...]) -> str:
    best, other = found.best(PREDICTION), found.best(INPUT)
    rates = {row: statistics.fmean(found.judged(row)) for row in (PREDICTION, INPUT)}
    diagonal = statistics.fmean(found.diagonal[1::2])
    if statements[2].verdict != SUPPORTED:
        return (
            "Nothing can be said: this model does not translate the phrasebook (English to French), so there "
            "is nothing to align. `heedful demo` trains a model that does."
        )
    scale = f"error rate {rates[PREDICTION]:.2f}; 0 is right; the diagonal has {diagonal:.2f}"
    start = f"Head {found.heads[best]} aligns best ({scale})."
    if statements[0].verdict == SUPPORTED:
        start = f"Yes: {start[0].lower()}{start[1:]}"
    elif statements[0].verdict == CONTRADICTED:
        start = f"No: even the best head is not much better than the diagonal. {start}"
    row = f"Read at the row where a word goes in, the best head ({found.heads[other]}) has {rates[INPUT]:.2f}"
    mean = statistics.fmean(found.means(PREDICTION))
    return f"{start} {row}. The mean over all heads is {mean:.2f}."


def draw(found: HeadErrors) -> Drawing:
    layers: dict[str, list[float]] = {}
    for head, rate in zip(found.heads, found.means(PREDICTION), strict=True):
        layers.setdefault(head.rpartition(".")[0], []).append(rate)
    wide = max(map(len, layers.values()))
    table = [[*some, *[0.0] * (wide - len(some))] for some in layers.values()]
    dots = {
        PREDICTION: found.means(PREDICTION),
        INPUT: found.means(INPUT),
        DIAGONAL: [statistics.fmean(found.diagonal)],
    }
    return figure(
        "Cross-attention of this model, compared with reference alignments",
        [
            DotPanel(
                "alignment error of every head",
                "error rate: 0 is right, 1 is no link in common",
                dots,
                dot="head",
            ),
            MapPanel(
                "error by head: pale is right", "heads across, layers down; prediction row", table, cell=22
            ),
        ],
        [
            "Dots: heads, over all sentences. Bar: their mean, with its 95 % interval.",
            "The diagonal links words by their place alone.",
        ],
    )
