"""Parse: on which word each word of a sentence hangs, and as what, learned from a treebank (CoNLL-U).

Training asks for each word's head by itself; afterwards the best tree is found (`best_tree`), with one root.
Words that have a tag and a relation in the treebank are taught these too, and all three losses are added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..data.conllu import Sentence
from ..data.lines import hash_of
from ..data.plan import shares
from ..data.report import Report
from ..data.store import Store
from ..data.trees import best_tree
from ..data.vocab import Vocab
from ..errors import NotFinite
from ..models.base.shells import WithHeads
from ..models.syntax import Arcs, Relations
from ..train.loss import NOTHING, Loss, cross_entropy
from .evaluation import EvaluationRequest, Measured, by_length
from .metrics import interval
from .recipe.choices import DataSize
from .recipe.settings import PHRASEBOOK, Recipe
from .task import Corpus, Job, Task, chunks, describe_data
from .words import (
    SYNTAX,
    Labels,
    TreebankData,
    TreebankTraining,
    WordBatch,
    at,
    batch_of,
    check_sources,
    collate,
    device_of,
    held_out_sentences,
    labels_in,
    learn,
    loss_by_frequency,
    plan_of,
    rows_of,
    syntax_config,
    tag_scores,
    tokenized,
    words_of,
)

NEED = ("heads",)
SIGNATURE = "words:gold|punctuation:counted|tree:one root"


# Scores and loss


def arc_scores(arcs: Arcs, words_BWD: Tensor, root_B1D: Tensor, words_B: Tensor) -> Tensor:
    """Scores [B, W, 1 + W] of the root and of each word as a word's head; -inf on itself and in padding."""
    nodes_BND = torch.cat([root_B1D, words_BWD], dim=1)
    scores_BWN = arcs(nodes_BND, arcs)[:, 1:]
    scores_BWN = scores_BWN.to(torch.promote_types(scores_BWN.dtype, torch.float32))
    node_N = torch.arange(nodes_BND.shape[1], device=nodes_BND.device)
    itself_WN = node_N[1:, None] == node_N
    return scores_BWN.masked_fill(itself_WN | (node_N > words_B[:, None, None]), -torch.inf)


def arc_loss(scores_BWN: Tensor, heads_BW: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
    """(smoothed, plain) loss of the right heads, summed; smoothing is over the heads that a word may have."""
    here_BW = heads_BW != NOTHING
    may_BWN = torch.isfinite(scores_BWN)
    safe_BWN = torch.where(here_BW[..., None], scores_BWN, 0.0)  # a row of padding knows no head at all
    log_p_BWN = safe_BWN.log_softmax(-1)
    right_BW = log_p_BWN.gather(-1, heads_BW.clamp(min=0)[..., None])[..., 0]
    plain = -right_BW.masked_fill(~here_BW, 0).sum()
    if not smoothing:
        return plain, plain
    mean_BW = log_p_BWN.masked_fill(~may_BWN, 0).sum(-1) / may_BWN.sum(-1).clamp(min=1)
    return (1 - smoothing) * plain - smoothing * mean_BW.masked_fill(~here_BW, 0).sum(), plain


def relation_scores(relations: Relations, words_BWD: Tensor, root_B1D: Tensor, heads_BW: Tensor) -> Tensor:
    """Scores [B, W, L] of what each word is to its head, given the heads (from 1; 0 is the root)."""
    heads_BWD = at(torch.cat([root_B1D, words_BWD], dim=1), heads_BW.clamp(min=0))
    found_NL = relations.of(words_BWD.flatten(0, 1), heads_BWD.flatten(0, 1))
    return found_NL.unflatten(0, words_BWD.shape[:2])


def loss_of(model: WithHeads, batch: WordBatch, smoothing: float = 0.0, hide: float = 0.0) -> Loss:
    """The negative log-likelihood of the right heads, and by relations and tags where it learns them."""
    words_BWD, root_B1D = words_of(model, batch, hide)
    losses = list(losses_of(model, batch, words_BWD, root_B1D, smoothing))
    totals, plains = zip(*losses, strict=True)
    return Loss(sum(totals), sum(plains), batch.count)


def losses_of(
    model: WithHeads, batch: WordBatch, words_BWD: Tensor, root_B1D: Tensor, smoothing: float
) -> Iterable[tuple[Tensor, Tensor]]:
    """(smoothed, plain) loss of each head of the model, summed over words."""
    heads: Any = model.heads
    scores_BWN = arc_scores(heads["arcs"], words_BWD, root_B1D, batch.words_B)
    yield arc_loss(scores_BWN, batch.heads_BW, smoothing)
    if "relations" in heads:
        scores_BWL = relation_scores(heads["relations"], words_BWD, root_B1D, batch.heads_BW)
        yield cross_entropy(scores_BWL.flatten(0, 1), batch.relations_BW.flatten(), smoothing)
    if "tag" in heads:
        scores_BWL = tag_scores(model, words_BWD)
        yield cross_entropy(scores_BWL.flatten(0, 1), batch.tags_BW.flatten(), smoothing)


# Trees


@dataclass(frozen=True)
class ParseResult:
    """A sentence's parse. heads: counted from 0, -1 is the root; relations and tags: numbers of labels."""

    heads: list[int]
    relations: list[int] = field(default_factory=list)
    tags: list[int] = field(default_factory=list)


@torch.no_grad()
def parse(model: WithHeads, batch: WordBatch) -> list[ParseResult]:
    """The best tree of each sentence, what each word is in it, and its tag."""
    words_BWD, root_B1D = words_of(model, batch)
    return trees_of(model, batch, words_BWD, root_B1D)


@torch.no_grad()
def trees_of(model: WithHeads, batch: WordBatch, words_BWD: Tensor, root_B1D: Tensor) -> list[ParseResult]:
    heads: Any = model.heads
    counts = batch.words_B.tolist()
    scores_BWN = arc_scores(heads["arcs"], words_BWD, root_B1D, batch.words_B).cpu().numpy()
    trees = [
        best_heads(scores[:count, : count + 1]) for scores, count in zip(scores_BWN, counts, strict=True)
    ]
    relations = tags = [[] for _ in counts]  # type: list[list[int]]
    if "relations" in heads:
        heads_BW = torch.zeros_like(batch.heads_BW)
        for row, tree in zip(heads_BW, trees, strict=True):
            row[: len(tree)] = torch.tensor([head + 1 for head in tree], device=row.device)
        scores_BWL = relation_scores(heads["relations"], words_BWD, root_B1D, heads_BW)
        relations = best_labels(scores_BWL, counts)
    if "tag" in heads:
        tags = best_labels(tag_scores(model, words_BWD), counts)
    return [ParseResult(*found) for found in zip(trees, relations, tags, strict=True)]


def best_heads(scores_WN: np.ndarray) -> list[int]:
    """The heads of the best tree, by scores of the root and of the words; no word is its own head."""
    if np.isnan(scores_WN).any():
        raise NotFinite("scores of heads are not numbers: heedful doctor says which weights are none")
    scores = np.where(np.isneginf(scores_WN), 0.0, scores_WN)
    return best_tree(np.concatenate([scores[:, 1:], scores[:, :1]], axis=1).astype(np.float64))


def best_labels(scores_BWL: Tensor, counts: Sequence[int]) -> list[list[int]]:
    found = scores_BWL.argmax(-1).tolist()
    return [row[:count] for row, count in zip(found, counts, strict=True)]


# From a recipe to a job.


@dataclass(frozen=True)
class ParsedExamples:
    """What was read: sentences and trees to learn from, and held-out ones."""

    vocab: Vocab
    labels: Labels
    train: Store
    held_out: list[Sentence]

    @property
    def size(self) -> DataSize:
        return DataSize(len(self.train), int(self.train.lengths("pieces").sum()), "sentences")


def read(recipe: Recipe, folder: Path, origin: None, say: Callable[[str], None]) -> ParsedExamples:
    """Read the treebank, learn a vocabulary, and tokenize."""
    report = Report(recipe.data.bad_lines)
    check_sources(recipe.data)
    vocab, labels, _ = learn(recipe, folder, NEED)
    train = tokenized(recipe, folder / "data", vocab, labels, report, NEED)
    held_out = held_out_sentences(recipe, "valid", report, NEED)
    if report.counts:
        say(report.sentence())
    return ParsedExamples(vocab, labels, train, held_out)


def job(recipe: Recipe, examples: ParsedExamples) -> Job:
    """Plan the batches, and put together what a run needs."""
    d, t, vocab, labels, train = (
        recipe.data,
        recipe.train,
        examples.vocab,
        examples.labels,
        examples.train,
    )
    there = examples.held_out
    held_out = there[: recipe.evaluate.rows]
    plan = plan_of(recipe, train)
    valid = [collate(vocab, rows_of(vocab, labels, some)) for some in chunks(held_out, 64)]
    heads = (*(["tag"] if labels.tags else []), "arcs", *(["relations"] if labels.relations else []))
    taught = ["heads", *(["relations"] if labels.relations else []), *(["tags"] if labels.tags else [])]
    before, after = neighbors(held_out)

    def batches(step: int, rank: int = 0, world: int = 1) -> list[WordBatch]:
        parts = shares(plan.batch(step), t.accumulation_steps, rank, world)
        return [batch_of(train, vocab, part) for part in parts]

    return Job(
        task="parse",
        architecture=recipe.model.architecture,
        config=syntax_config(recipe, vocab.size, heads, labels),
        vocab=vocab,
        batches=batches,
        steps_per_epoch=plan.batches,
        loss=partial(loss_of, smoothing=t.label_smoothing, hide=t.word_dropout),
        evaluate=lambda model: evaluate(model, valid),
        show=lambda model: show(model, vocab, labels, held_out[: recipe.evaluate.examples]),
        held_out=sum(map(len, held_out)),
        baselines={
            "uas": (
                f"UAS (every word on the one {'before' if before > after else 'after'} it)",
                max(before, after),
            ),
            "loss": (
                f"loss ({' and '.join(taught)} by frequency), nats per word",
                by_frequency(labels, held_out),
            ),
        },
        plan=[
            describe_data(f"{len(train):,} sentences", len(held_out), len(there), plan.padding()),
            *(
                [f"left out: {plan.left_out:,} sentences over data.max_length, {d.max_length} pieces"]
                if plan.left_out
                else []
            ),
            f"learned of each word: {', '.join(taught)}",
            f"vocabulary: {vocab.size:,} of {vocab.kind}",
        ],
        facts={
            "data": train.hash,
            "list of labels": hash_of([list(labels.tags), list(labels.relations)]),
            "held-out data": hash_of([(s.forms, s.heads, s.relations, s.tags) for s in held_out]),
        },
    )


# Evaluation


@dataclass
class ParseScore:
    """Words, how many of them hang where they should, with the right relation too, and with the right tag."""

    words: int = 0
    heads: int = 0
    labeled: int = 0
    tags: int = 0
    nll: float = 0.0

    def add(self, found: ParseResult, heads: list[int], relations: list[int], tags: list[int]) -> None:
        hang = [mine + 1 == right for mine, right in zip(found.heads, heads, strict=True)]
        called = [mine == right for mine, right in zip(found.relations, relations, strict=False)]
        self.words += len(heads)
        self.heads += sum(hang)
        self.labeled += sum(a and b for a, b in zip(hang, called, strict=False))
        self.tags += sum(mine == right for mine, right in zip(found.tags, tags, strict=False))


def score_parses(model: WithHeads, batches: Iterable[WordBatch]) -> ParseScore:
    """What a model gets right of some sentences."""
    score = ParseScore()
    for batch in batches:
        moved = batch.to(device_of(model))
        words_BWD, root_B1D = words_of(model, moved)
        score.nll += sum(float(plain) for _, plain in losses_of(model, moved, words_BWD, root_B1D, 0.0))
        answers = zip(*(t.tolist() for t in (batch.heads_BW, batch.relations_BW, batch.tags_BW)), strict=True)
        for found, rows in zip(trees_of(model, moved, words_BWD, root_B1D), answers, strict=True):
            score.add(found, *(row[: len(found.heads)] for row in rows))
    return score


def scores_in(score: ParseScore, model: WithHeads) -> dict[str, float]:
    """Shares of words, 0 to 1."""
    return {
        "loss": score.nll / score.words,
        "uas": score.heads / score.words,
        **({"las": score.labeled / score.words} if "relations" in model.heads else {}),
    }


def evaluate(model: WithHeads, batches: list[WordBatch]) -> dict[str, float]:
    """Held-out loss (nats per word, of all that is learned), UAS, and LAS where relations are learned."""
    return scores_in(score_parses(model, batches), model)


def measure(model: WithHeads, asked: EvaluationRequest) -> Measured:
    """Attachment scores on all held-out words: without relations (UAS), with them (LAS), and of tags."""
    report, vocab, labels = Report(asked.recipe.data.bad_lines), asked.vocab(), labels_in(asked.run)
    sentences = held_out_sentences(asked.recipe, asked.split, report, NEED)
    rows = rows_of(vocab, labels, sentences)
    alike = by_length([row.length for row in rows], asked.rows)
    score = score_parses(model, (collate(vocab, [rows[i] for i in s]) for s in asked.track(alike, "parsing")))
    metrics = scores_in(score, model)
    if "tag" in model.heads:
        metrics["accuracy"] = score.tags / score.words
    before, after = neighbors(sentences)
    which = "before" if before > after else "after"
    return Measured(
        examples=score.words,
        unit="words",
        per="word",
        metrics=metrics,
        intervals={n: interval(metrics[n], score.words) for n in ("uas", "las", "accuracy") if n in metrics},
        baselines={"uas": (f"every word on the one {which} it", max(before, after))},
        signature={
            "uas": SIGNATURE,
            **({"las": f"{SIGNATURE}|relations:with subtypes"} if "las" in metrics else {}),
        },
        counts={"sentences": len(sentences)},
        report=report,
    )


def neighbors(sentences: Sequence[Sentence]) -> tuple[float, float]:
    """The shares of words whose head is the word before, and the word after (the root at the ends)."""
    words = sum(map(len, sentences))
    before = sum(head == word - 1 for s in sentences for word, head in enumerate(s.heads))
    ends = [[*range(1, len(s)), -1] for s in sentences]
    after = sum(
        a == b for s, end in zip(sentences, ends, strict=True) for a, b in zip(s.heads, end, strict=True)
    )
    return before / words, after / words


def by_frequency(labels: Labels, sentences: Sequence[Sentence]) -> float:
    """The loss of guessing: every head alike, tags and relations by how often they were learned from."""
    heads = sum(len(s) * np.log(len(s)) for s in sentences) / sum(map(len, sentences))
    tags = loss_by_frequency(labels.tags, (tag for s in sentences for tag in s.tags))
    return (
        float(heads) + tags + loss_by_frequency(labels.relations, (r for s in sentences for r in s.relations))
    )


def held_out_loss(model: WithHeads, asked: EvaluationRequest, rows: int) -> tuple[float, float]:
    """The loss on some held-out sentences, and that of guessing."""
    vocab, labels = asked.vocab(), labels_in(asked.run)
    sentences = held_out_sentences(asked.recipe, "valid", Report(asked.recipe.data.bad_lines), NEED)[:rows]
    score = score_parses(model, [collate(vocab, rows_of(vocab, labels, sentences))])
    return score.nll / score.words, by_frequency(labels, sentences)


def show(model: WithHeads, vocab: Vocab, labels: Labels, sentences: Sequence[Sentence]) -> list[str]:
    """A few sentences as word→head; of a wrong one, what was expected."""
    if not sentences:
        return []
    batch = collate(vocab, rows_of(vocab, labels, sentences)).to(device_of(model))
    lines = []
    for sentence, found in zip(sentences, parse(model, batch), strict=True):
        told = []
        for form, mine, right in zip(sentence.forms, found.heads, sentence.heads, strict=True):
            hangs, should = (sentence.forms[head] if head >= 0 else "root" for head in (mine, right))
            told.append(f"{form}→{hangs}" + ("" if mine == right else f" (expected: {should})"))
        lines.append(f"    {' '.join(told)}")
    return lines


TASK = Task(
    name="parse",
    data=TreebankData,
    train=TreebankTraining,
    architectures={"syntax": SYNTAX},
    corpora={"phrasebook": Corpus(("valid", "test", "combinations", "long"), PHRASEBOOK)},
    read=read,
    job=job,
    measure=measure,
    metric="uas",
    own_data=({"data": ("data.valid_table",)},),
    next=('parse {path} "your own words ."',),
)
