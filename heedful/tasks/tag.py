"""Tag: the part of speech of each word of a sentence, learned from a treebank (CoNLL-U) or the phrasebook."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch.nn.functional as F

from ..data.conllu import Sentence
from ..data.lines import hash_of
from ..data.plan import shares
from ..data.report import Report
from ..data.store import Store
from ..errors import BadInput
from ..files import inside, one_line, read_json
from ..interop.run.read import describe_run
from ..models.base.settings import Range
from ..models.base.shells import WithHeads
from ..models.elmo_reader import ElmoReaderConfig
from ..models.syntax import SyntaxConfig
from ..train.loss import NOTHING, Loss, cross_entropy
from . import features
from .configs import started_config
from .evaluation import EvaluationRequest, Measured, by_length
from .features import penalized
from .metrics import accuracy, interval, label_details, macro_f1
from .origin import ENCODERS, Origin, begin, starting_from, vocabulary, with_head
from .recipe.choices import DataSize
from .recipe.settings import PHRASEBOOK, FineTuning, Recipe
from .spelling import with_unknown
from .task import Corpus, Job, Starts, Task, chunks, describe_data
from .tuning import describe_start, tuning_of
from .words import (
    LARGEST,
    LIMIT,
    SYNTAX,
    USUAL,
    Labels,
    TreebankData,
    TreebankTraining,
    Vocabulary,
    WordBatch,
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
    vocab_in,
    words_of,
)

NEED = ("tags",)
BY_WORD = "each word by its most frequent tag"


def loss_of(
    model: WithHeads, batch: WordBatch, smoothing: float = 0.0, hide: float = 0.0, mix_penalty: float = 0.0
) -> Loss:
    """The negative log-likelihood of the right tags.

    hide: the share of pieces that it does not see in training. mix_penalty: what the weights of ELMo's mixes
    cost.
    """
    words_BWD, _ = words_of(model, batch, hide)
    scores_BWL = tag_scores(model, words_BWD)
    total, nll = cross_entropy(scores_BWL.flatten(0, 1), batch.tags_BW.flatten(), smoothing)
    return penalized(Loss(total, nll, batch.count), model, mix_penalty)


@dataclass(frozen=True)
class TagTraining(TreebankTraining, FineTuning):
    mix_l2: Annotated[float, Range(0, 1000), "L2 penalty on the weights of ELMo's mix, from an elmo"] = 0.001


@dataclass(frozen=True)
class TaggedExamples:
    """What was read: sentences and tags to learn from and held-out ones, and the model to start from."""

    vocab: Vocabulary
    labels: Labels
    usual: dict[str, str]  # each form's usual tag
    train: Store
    held_out: list[Sentence]
    origin: Origin | None

    @property
    def size(self) -> DataSize:
        return DataSize(len(self.train), int(self.train.lengths("pieces").sum()), "sentences")


def read(recipe: Recipe, folder: Path, origin: Origin | None, say: Callable[[str], None]) -> TaggedExamples:
    """Read the treebank, learn a vocabulary and the tags, and tokenize."""
    d, report = recipe.data, Report(recipe.data.bad_lines)
    check_sources(d)
    vocab, labels, usual = learned(recipe, folder, origin)
    if len(labels.tags) < 2:
        raise BadInput(one_line(f"{d.table} has {len(labels.tags)} tags: at least two are needed"))
    train = tokenized(recipe, folder / "data", vocab, labels, report, NEED)
    held_out = held_out_sentences(recipe, "valid", report, NEED)
    if report.counts:
        say(report.sentence())
    return TaggedExamples(vocab, labels, usual, train, held_out, origin)


def job(recipe: Recipe, examples: TaggedExamples) -> Job:
    """Plan the batches, and put together what a run needs."""
    d, t, vocab, labels, origin = (
        recipe.data,
        recipe.train,
        examples.vocab,
        examples.labels,
        examples.origin,
    )
    train, usual = examples.train, examples.usual
    config, featured = model_of(recipe, vocab, labels, origin)
    most = places_of(config)
    there = short_enough(vocab, examples.held_out, most)
    held_out = there[: recipe.evaluate.rows]
    plan = plan_of(recipe, train, most)
    words = sum(map(len, held_out))
    valid = [collate(vocab, rows_of(vocab, labels, some)) for some in chunks(held_out, 64)]

    def batches(step: int, rank: int = 0, world: int = 1) -> list[WordBatch]:
        parts = shares(plan.batch(step), t.accumulation_steps, rank, world)
        return [batch_of(train, vocab, part) for part in parts]

    return Job(
        task="tag",
        architecture=origin.architecture if origin and not featured else recipe.model.architecture,
        config=config,
        vocab=vocab,
        batches=batches,
        steps_per_epoch=plan.batches,
        loss=partial(
            loss_of,
            smoothing=t.label_smoothing,
            hide=0.0 if origin else t.word_dropout,
            mix_penalty=t.mix_l2 if featured else 0.0,
        ),
        evaluate=lambda model: evaluate(model, valid),
        show=lambda model: [
            *show(model, vocab, labels, held_out[: recipe.evaluate.examples]),
            *features.describe_mixes(model),
        ],
        held_out=words,
        baselines={
            "accuracy": (f"accuracy ({BY_WORD})", by_word(usual, labels, held_out)),
            "loss": ("loss (tag frequencies), nats per word", by_frequency(labels, held_out)),
        },
        plan=[
            describe_data(f"{len(train):,} sentences", len(held_out), len(there), plan.padding()),
            *(
                [f"left out: {plan.left_out:,} sentences over data.max_length, {d.max_length} pieces"]
                if plan.left_out
                else []
            ),
            f"tags: {', '.join(labels.tags)} ({len(labels.tags)})",
            f"vocabulary: {vocab.size:,} of {vocab.kind}",
            *([FEATURED.format(t.from_) if featured else describe_start(recipe, True)] if origin else []),
        ],
        begin=partial(features.begin if featured else begin, origin=origin) if origin else None,
        tuning=None if featured else tuning_of(recipe, origin),
        facts={
            "data": train.hash,
            "list of labels": hash_of(list(labels.tags)),
            "held-out data": hash_of([(s.forms, s.tags) for s in held_out]),
            **(origin.facts if origin else {}),
        },
    )


def learned(recipe: Recipe, folder: Path, origin: Origin | None) -> tuple[Vocabulary, Labels, dict[str, str]]:
    """The vocabulary, learned or taken over; the tags; and each form's usual one."""
    if origin is None:
        return learn(recipe, folder, NEED)
    vocab: Any = vocabulary(folder, origin)
    _, labels, usual = learn(recipe, folder, NEED, vocab)
    return with_unknown(vocab, folder) if (folder / "data").is_dir() else vocab, labels, usual


FEATURED = "features: {}, its vectors and its vocabulary; its weights stay as they are"


def model_of(recipe: Recipe, vocab: Vocabulary, labels: Labels, origin: Origin | None) -> tuple[Any, bool]:
    """(config, whether it reads an ELMo's vectors): of the recipe's sizes, or of the model to start from."""
    tags = len(labels.tags)
    if origin is None:
        return syntax_config(recipe, vocab.size, ("tag",), labels), False
    features.check_start(recipe, origin)
    if origin.architecture == "elmo":
        return features.reader_config(recipe, origin, ("tag",), tags), True
    return started_config(recipe, with_head(origin, "tag", tags)), False


def places_of(config: Any) -> int:
    """Pieces of a sentence, with its two ends, that a model has places for."""
    learned = not isinstance(config, SyntaxConfig | ElmoReaderConfig)
    return config.context if learned else LARGEST


def short_enough(vocab: Vocabulary, sentences: Sequence[Sentence], most: int) -> list[Sentence]:
    """The sentences that a model has places for."""
    if most == LARGEST:
        return list(sentences)
    rows = rows_of(vocab, Labels({}, {}), sentences)
    found = [sentence for sentence, row in zip(sentences, rows, strict=True) if row.length <= most]
    if not found:
        raise BadInput(
            f"all {len(sentences)} held-out sentences have more than the {most} pieces that the model reads"
        )
    return found


# Evaluation


def predict_tags(model: WithHeads, batches: Iterable[WordBatch]) -> tuple[list[int], list[int], float]:
    """(tags found, right tags, loss) of every word; the loss is in nats per word, of known tags."""
    found: list[int] = []
    right: list[int] = []
    nll, known = 0.0, 0
    for batch in batches:
        words_BWD, _ = words_of(model, batch.to(device_of(model)))
        scores_BWL = tag_scores(model, words_BWD).float().cpu()
        nll += float(
            F.cross_entropy(
                scores_BWL.flatten(0, 1), batch.tags_BW.flatten(), ignore_index=NOTHING, reduction="sum"
            )
        )
        known += int((batch.tags_BW != NOTHING).sum())
        for scores_WL, tags_W, count in zip(scores_BWL, batch.tags_BW, batch.words_B.tolist(), strict=True):
            found += scores_WL[:count].argmax(-1).tolist()
            right += tags_W[:count].tolist()
    return found, right, nll / max(1, known)


def evaluate(model: WithHeads, batches: list[WordBatch]) -> dict[str, float]:
    """Held-out loss (nats per word) and the share of words that are tagged right."""
    found, right, loss = predict_tags(model, batches)
    return {"loss": loss, "accuracy": accuracy(found, right)}


def measure(model: WithHeads, asked: EvaluationRequest) -> Measured:
    """Accuracy and F1, of all tags together and of each, on all held-out words."""
    report, vocab = Report(asked.recipe.data.bad_lines), vocab_in(asked.run)
    labels, usual = labels_in(asked.run), read_json(inside(asked.run, USUAL), LIMIT)
    there = held_out_sentences(asked.recipe, asked.split, report, NEED)
    sentences = short_enough(vocab, there, places_of(describe_run(asked.run)[1]))
    rows = rows_of(vocab, labels, sentences)
    alike = by_length([row.length for row in rows], asked.rows)
    batches = (collate(vocab, [rows[i] for i in some]) for some in asked.track(alike, "tagging"))
    found, right, loss = predict_tags(model, batches)
    share, known = accuracy(found, right), [(a, b) for a, b in zip(found, right, strict=True) if b != NOTHING]
    judged_ones = [a for a, _ in known], [b for _, b in known]
    return Measured(
        examples=len(right),
        unit="words",
        per="word",
        metrics={"accuracy": share, "macro_f1": macro_f1(*judged_ones), "loss": loss},
        intervals={"accuracy": interval(share, len(right))},
        baselines={"accuracy": (BY_WORD, by_word(usual, labels, sentences))},
        signature={"accuracy": "words:gold|punctuation:counted", "macro_f1": "average:macro|zero_division:0"},
        details=label_details(*judged_ones, list(labels.tags)),
        counts={"sentences": len(sentences), "too long": len(there) - len(sentences)},
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
    return loss_by_frequency(labels.tags, (tag for sentence in sentences for tag in sentence.tags))


def held_out_loss(model: WithHeads, asked: EvaluationRequest, rows: int) -> tuple[float, float]:
    """The loss on some held-out sentences, and that of guessing."""
    vocab, labels = vocab_in(asked.run), labels_in(asked.run)
    sentences = held_out_sentences(asked.recipe, "valid", Report(asked.recipe.data.bad_lines), NEED)[:rows]
    sentences = short_enough(vocab, sentences, places_of(describe_run(asked.run)[1]))
    made = collate(vocab, rows_of(vocab, labels, sentences))
    return predict_tags(model, [made])[2], by_frequency(labels, sentences)


def show(model: WithHeads, vocab: Vocabulary, labels: Labels, sentences: Sequence[Sentence]) -> list[str]:
    """A few sentences with the tags the model gives them; of a wrong one, what was expected."""
    if not sentences:
        return []
    found, right, _ = predict_tags(model, [collate(vocab, rows_of(vocab, labels, sentences))])
    names, mine = list(labels.tags), iter(zip(found, right, strict=True))
    lines = []
    for sentence in sentences:
        told = []
        for form, tag in zip(sentence.forms, sentence.tags, strict=True):
            guess, answer = next(mine)
            told.append(f"{form}/{names[guess]}" + ("" if guess == answer else f" (expected: {tag})"))
        lines.append(f"    {' '.join(told)}")
    return lines


def check(recipe: Recipe) -> None:
    """Refuse to hide pieces of words from a model that is started from."""
    if recipe.train.from_ and "train.word_dropout" in (recipe.given or ()):
        raise BadInput(
            "train.word_dropout hides words from a model that learns from scratch: leave out --from"
        )


TASK = Task(
    name="tag",
    data=TreebankData,
    train=TagTraining,
    architectures={"syntax": SYNTAX},
    corpora={"phrasebook": Corpus(("valid", "test", "combinations", "long"), PHRASEBOOK)},
    starts=Starts(
        find=starting_from(ENCODERS),
        published={"train.optimizer": "adamw", "train.learning_rate": 5e-5},
        own={"train.learning_rate": 3e-4},
        elmo={
            "model.reader_layers": 2,
            "train.optimizer": "adamw",
            "train.learning_rate": 4e-3,
            "train.weight_decay": 0.01,
        },
    ),
    read=read,
    job=job,
    measure=measure,
    metric="accuracy",
    own_data=({"data": ("data.valid_table",)},),
    next=('tag {path} "your own words ."',),
    check=check,
)
