"""Tag: what part of speech each word of a sentence is, learned from a treebank (CoNLL-U)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch.nn.functional as F

from ..errors import BadInput
from ..interop.files import inside, one_line, read_json
from ..models.shells import WithHeads
from ..recipe import Recipe
from ..text.conllu import Sentence
from ..text.files import Report, hash_of
from ..text.plan import shares
from ..train.loss import NOTHING, Loss, cross_entropy
from . import features
from .features import penalised
from .job import Job
from .judging import Asked, Measured, by_length
from .metrics import accuracy, confusion, interval, macro_f1, scores_by_label
from .origin import Origin, find_origin, vocabulary
from .spelling import with_unknown
from .translate import chunks, data_told
from .words import (
    LIMIT,
    USUAL,
    Labels,
    Vocabulary,
    WordBatch,
    batch_of,
    check_asked,
    collate,
    config_of,
    device_of,
    held_out_sentences,
    labels_in,
    learn,
    plan_of,
    rows_of,
    surprise_by_frequency,
    tag_scores,
    tokenised,
    vocab_in,
    words_of,
)

NEED = ("tags",)
BY_WORD = "each word by its most frequent tag"


def loss_of(
    model: WithHeads, batch: WordBatch, smoothing: float = 0.0, hide: float = 0.0, mix_penalty: float = 0.0
) -> Loss:
    """How surprised the model is by the right tags.

    hide: the share of pieces that it does not see in training. mix_penalty: what the weights of ELMo's mixes cost.
    """
    words_BWD, _ = words_of(model, batch, hide)
    scores_BWL = tag_scores(model, words_BWD)
    total, surprise = cross_entropy(scores_BWL.flatten(0, 1), batch.tags_BW.flatten(), smoothing)
    return penalised(Loss(total, surprise, batch.count), model, mix_penalty)


def make_job(recipe: Recipe, folder: Path, say: Callable[[str], None]) -> Job:
    """Read the treebank, learn a vocabulary and the tags, tokenise, and plan the batches."""
    d, t, report = recipe.data, recipe.train, Report(recipe.data.bad_lines)
    check_asked(d, "tag", ())
    origin = find_origin(t.from_folder, folder) if t.from_folder else None
    vocab, labels, usual = learned(recipe, folder, origin)
    if len(labels.tags) < 2:
        raise BadInput(one_line(f"{d.table} has {len(labels.tags)} tags: at least two are needed"))
    train = tokenised(recipe, folder / "data", vocab, labels, report, NEED)
    there = held_out_sentences(recipe, "valid", report, NEED)
    held_out = there[: recipe.evaluate.rows]
    if report.counts:
        say(report.sentence())
    plan = plan_of(recipe, train)
    words = sum(map(len, held_out))
    valid = [collate(vocab, rows_of(vocab, labels, some)) for some in chunks(held_out, 64)]

    def batches(step: int, rank: int = 0, world: int = 1) -> list[WordBatch]:
        parts = shares(plan.batch(step), t.accumulate, rank, world)
        return [batch_of(train, vocab, part) for part in parts]

    return Job(
        task="tag",
        architecture="elmo_reader" if origin else "syntax",
        config=(
            features.config_of(recipe, origin, ("tag",), len(labels.tags))
            if origin
            else config_of(recipe, vocab.size, ("tag",), labels)
        ),
        vocab=vocab,
        batches=batches,
        steps_per_epoch=plan.batches,
        loss=partial(
            loss_of, smoothing=t.smoothing, hide=t.hide, mix_penalty=t.mix_penalty if origin else 0.0
        ),
        evaluate=lambda model: evaluate(model, valid),
        show=lambda model: [
            *show(model, vocab, labels, held_out[: recipe.evaluate.examples]),
            *features.mixes_told(model),
        ],
        held_out=words,
        baselines={
            "accuracy": (f"accuracy, {BY_WORD}", by_word(usual, labels, held_out)),
            "loss": ("nats a word, every tag at its frequency", by_frequency(labels, held_out)),
        },
        plan=[
            data_told(f"{len(train):,} sentences", len(held_out), len(there), plan.padding()),
            *([f"left out: {plan.left_out:,} sentences over data.longest, {d.longest} pieces"] if plan.left_out else []),
            f"tags: {', '.join(labels.tags)} ({len(labels.tags)})",
            f"vocabulary: {vocab.size:,} of {vocab.kind}",
            *([f"features: {t.from_folder}, its vectors and its vocabulary; its weights stay as they are"] if origin else []),
        ],
        begin=partial(features.begin, origin=origin) if origin else None,
        facts={
            "data": train.hash,
            "list of labels": hash_of(list(labels.tags)),
            "held-out data": hash_of([(s.forms, s.tags) for s in held_out]),
            **(origin.facts if origin else {}),
        },
    )  # fmt: skip


def learned(recipe: Recipe, folder: Path, origin: Origin | None) -> tuple[Vocabulary, Labels, dict[str, str]]:
    """The vocabulary, learned or taken over from an ELMo; the tags; and each form's usual one."""
    if origin is None:
        return learn(recipe, folder, NEED)
    features.check_elmo(origin)
    vocab: Any = vocabulary(folder, origin)
    _, labels, usual = learn(recipe, folder, NEED, vocab)
    return with_unknown(vocab, folder) if (folder / "data").is_dir() else vocab, labels, usual


# Judging


def judged(model: WithHeads, batches: Iterable[WordBatch]) -> tuple[list[int], list[int], float]:
    """(tags found, right tags, loss): of every word; the loss is in nats a word, of tags that training knows."""
    found: list[int] = []
    right: list[int] = []
    surprise, known = 0.0, 0
    for batch in batches:
        words_BWD, _ = words_of(model, batch.to(device_of(model)))
        scores_BWL = tag_scores(model, words_BWD).float().cpu()
        surprise += float(
            F.cross_entropy(
                scores_BWL.flatten(0, 1), batch.tags_BW.flatten(), ignore_index=NOTHING, reduction="sum"
            )
        )
        known += int((batch.tags_BW != NOTHING).sum())
        for scores_WL, tags_W, count in zip(scores_BWL, batch.tags_BW, batch.words_B.tolist(), strict=True):
            found += scores_WL[:count].argmax(-1).tolist()
            right += tags_W[:count].tolist()
    return found, right, surprise / max(1, known)


def evaluate(model: WithHeads, batches: list[WordBatch]) -> dict[str, float]:
    """Held-out loss (nats a word) and the share of words that are tagged right."""
    found, right, loss = judged(model, batches)
    return {"loss": loss, "accuracy": accuracy(found, right)}


def measure(model: WithHeads, asked: Asked) -> Measured:
    """Accuracy and F1, of all tags together and of each, on all held-out words."""
    report, vocab = Report(asked.recipe.data.bad_lines), vocab_in(asked.run)
    labels, usual = labels_in(asked.run), read_json(inside(asked.run, USUAL), LIMIT)
    sentences = held_out_sentences(asked.recipe, asked.split, report, NEED)
    rows = rows_of(vocab, labels, sentences)
    alike = by_length([row.length for row in rows], asked.rows)
    batches = (collate(vocab, [rows[i] for i in some]) for some in asked.track(alike, "tagging"))
    found, right, loss = judged(model, batches)
    share, known = accuracy(found, right), [(a, b) for a, b in zip(found, right, strict=True) if b != NOTHING]
    names, judged_ones = list(labels.tags), ([a for a, _ in known], [b for _, b in known])
    each, table = scores_by_label(*judged_ones, len(names)), confusion(*judged_ones)
    return Measured(
        examples=len(right),
        unit="words",
        per="word",
        metrics={"accuracy": share, "macro_f1": macro_f1(*judged_ones), "loss": loss},
        intervals={"accuracy": interval(share, len(right))},
        baselines={"accuracy": (BY_WORD, by_word(usual, labels, sentences))},
        signature={"accuracy": "words:gold|punctuation:counted", "macro_f1": "average:macro|zero_division:0"},
        details={
            "labels": {name: asdict(scores) for name, scores in zip(names, each, strict=True)},
            "confusion": {names[b]: {names[a]: n for a, n in row.items()} for b, row in table.items()},
        },
        counts={"sentences": len(sentences)},
        report=report,
    )


def by_word(usual: dict[str, str], labels: Labels, sentences: Sequence[Sentence]) -> float:
    """How often a word's most frequent tag is right; of an unknown word, the most frequent tag of all."""
    most = max(labels.tags, key=labels.tags.__getitem__)
    guesses = [
        usual.get(form, most) == tag for s in sentences for form, tag in zip(s.forms, s.tags, strict=True)
    ]
    return float(np.mean(guesses))


def by_frequency(labels: Labels, sentences: Sequence[Sentence]) -> float:
    """The loss of guessing every tag by how often it occurs in the training sentences."""
    return surprise_by_frequency(labels.tags, (tag for sentence in sentences for tag in sentence.tags))


def held_out_loss(model: WithHeads, asked: Asked, rows: int) -> tuple[float, float]:
    """The loss on some held-out sentences, and that of guessing."""
    vocab, labels = vocab_in(asked.run), labels_in(asked.run)
    sentences = held_out_sentences(asked.recipe, "valid", Report(asked.recipe.data.bad_lines), NEED)[:rows]
    made = collate(vocab, rows_of(vocab, labels, sentences))
    return judged(model, [made])[2], by_frequency(labels, sentences)


def show(model: WithHeads, vocab: Vocabulary, labels: Labels, sentences: Sequence[Sentence]) -> list[str]:
    """A few sentences with the tags the model gives them; of a wrong one, what was expected."""
    if not sentences:
        return []
    found, right, _ = judged(model, [collate(vocab, rows_of(vocab, labels, sentences))])
    names, mine = list(labels.tags), iter(zip(found, right, strict=True))
    lines = []
    for sentence in sentences:
        told = []
        for form, tag in zip(sentence.forms, sentence.tags, strict=True):
            guess, answer = next(mine)
            told.append(f"{form}/{names[guess]}" + ("" if guess == answer else f" (expected: {tag})"))
        lines.append(f"    {' '.join(told)}")
    return lines
