"""Classify: a label for a text, or for two, by an encoder at [CLS] or by a decoder at its last token.

encoder    [CLS] A [SEP]      [CLS] A [SEP] B [SEP]     segments 0 and 1 (BERT); or one text, by ELMo's
vectors decoder    [BOS] A [EOS]      [BOS] A [SEP] B [EOS]     with the language-model loss beside (GPT-1,
whose names for
                                                        these are start, delimiter and extract)

Where two texts are alike in what they are (data.both_orders: is this question that one?), a decoder reads
[BOS] A [SEP] B [EOS] and [BOS] B [SEP] A [EOS], and the sum of the two last states is judged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..data.batch import Tensors
from ..data.letters import as_read
from ..data.lines import hash_of
from ..data.plan import BucketPlan, shares
from ..data.report import Report
from ..data.store import Store
from ..errors import BadInput
from ..files import inside, one_line
from ..interop.run_folder import LABELS
from ..models.base.shells import Decoder, DecoderClassifier, WithHeads
from ..models.elmo_reader import ElmoReaderConfig
from ..parts.places import Lengths
from ..train.loss import Loss, cross_entropy
from . import features
from .classify_data import (
    ClassifyData,
    ClassifyTraining,
    LabeledTexts,
    TextRow,
    encoded,
    has_pairs,
    held_out_rows,
    read,
    read_labels,
)
from .configs import config_of, head_dropout, started_config
from .evaluation import EvaluationRequest, Measured, by_length, measured_labels
from .features import penalized
from .metrics import (
    accuracy,
    accuracy_of_majority,
    loss_of_frequencies,
    macro_f1,
)
from .origin import (
    FROM,
    READERS,
    ForeignVocab,
    Origin,
    begin,
    find_origin,
    kind_of,
    special_of,
    starting_from,
    vocabulary,
    with_head,
)
from .recipe.settings import (
    PHRASEBOOK,
    Recipe,
)
from .task import (
    Corpus,
    Job,
    Starts,
    Task,
    VocabLike,
    chunks,
    describe_data,
    label_predictions,
    pad,
    shortened,
    spread,
)
from .tuning import describe_start, tuning_of

SHOWN = 100  # characters of a text that is shown


@dataclass(frozen=True)
class TextBatch(Tensors):
    """Some texts with their labels, padded at the end."""

    tokens_BT: Tensor  # or, of words that are spelled out, [B, T, 1 + letters]
    segments_BT: Tensor
    lengths_B: Tensor
    labels_B: Tensor
    ids: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        return len(self.labels_B)


# Rows: what a model reads of one text or two.

Row = tuple[np.ndarray, np.ndarray]  # tokens and segments
Layout = Callable[[VocabLike, Sequence[int], Sequence[int]], Row]


def encoder_row(vocab: VocabLike, a: Sequence[int], b: Sequence[int]) -> Row:
    middle = getattr(vocab, "between", [vocab.sep])  # RoBERTa has two there
    first, second = [vocab.cls, *a, *(middle if len(b) else [vocab.sep])], [*b, vocab.sep] if len(b) else []
    return np.array(first + second), np.repeat([0, 1], [len(first), len(second)])


def one_segment_row(vocab: VocabLike, a: Sequence[int], b: Sequence[int]) -> Row:
    """The same of an encoder that does not tell segments apart."""
    row, segments = encoder_row(vocab, a, b)
    return row, np.zeros_like(segments)


def row_of(config: Any) -> Layout:
    """The layout of two texts for an encoder: with segments if it has more than one, or by [SEP] alone."""
    return encoder_row if (getattr(config, "segments", None) or 1) > 1 else one_segment_row


def decoder_row(vocab: VocabLike, a: Sequence[int], b: Sequence[int]) -> Row:
    row = np.array([vocab.bos, *a, *([vocab.sep, *b] if len(b) else []), vocab.eos])
    return row, np.zeros_like(row)


def special_tokens(pairs: bool, vocab: VocabLike | None = None) -> int:
    """How many stand in a row, of an encoder as of a decoder."""
    return 2 + len(getattr(vocab, "between", [0])) if pairs else 2


def fit(a: Sequence[int], b: Sequence[int], room: int) -> tuple[Sequence[int], Sequence[int]]:
    """Both cut at their end to fit, the longer one first."""
    second = min(len(b), max(room - len(a), room // 2))
    return a[: room - second], b[:second]


def collate(
    vocab: VocabLike,
    layout: Layout,
    room: int,
    pairs: Sequence[tuple[Sequence[int], Sequence[int]]],
    labels: Sequence[int],
    ids: Sequence[int] = (),
) -> TextBatch:
    """Token ids of texts to a batch."""
    rows = [layout(vocab, *fit(a, b, room)) for a, b in pairs]
    return TextBatch(
        as_read(vocab, pad([tokens for tokens, _ in rows], vocab.pad)),
        pad([segments for _, segments in rows], 0),
        torch.tensor([len(tokens) for tokens, _ in rows]),
        torch.tensor(labels),
        tuple(ids),
    )


def collate_both_orders(
    vocab: VocabLike,
    layout: Layout,
    room: int,
    pairs: Sequence[tuple[Sequence[int], Sequence[int]]],
    labels: Sequence[int],
    ids: Sequence[int] = (),
) -> TextBatch:
    """Two rows for every pair: all in the order given, then all the other way round; a label for each two."""
    cut = [fit(a, b, room - room % 2) for a, b in pairs]  # an even room, so that both orders cut alike
    return collate(vocab, layout, room, [*cut, *((b, a) for a, b in cut)], labels, ids)


# Two kinds of model


def encoder_scores(model: WithHeads, batch: TextBatch) -> Tensor:
    hidden_BTD = model.encoder(batch.tokens_BT, Lengths(batch.lengths_B), batch.segments_BT)
    return model.heads["classify"](hidden_BTD, model.encoder.inputs)


def decoder_scores(model: DecoderClassifier, batch: TextBatch) -> Tensor:
    return scores_at_end(model, model.decoder.hidden(batch.tokens_BT, Lengths(batch.lengths_B)), batch)


def scores_at_end(model: DecoderClassifier, hidden_BTD: Tensor, batch: TextBatch) -> Tensor:
    """Scores [B, labels] from the last state of each row, or from the sum of the states of both orders."""
    states_BD = model.states(hidden_BTD, batch.lengths_B)
    if len(states_BD) == 2 * batch.count:
        states_BD = states_BD.unflatten(0, (2, batch.count)).sum(0)
    return model.judge(states_BD)


def encoder_loss(
    model: WithHeads, batch: TextBatch, smoothing: float = 0.0, mix_penalty: float = 0.0
) -> Loss:
    """The negative log-likelihood of the right labels. mix_penalty: what the weights of ELMo's mixes cost."""
    loss = Loss(*cross_entropy(encoder_scores(model, batch), batch.labels_B, smoothing), batch.count)
    return penalized(loss, model, mix_penalty)


def decoder_loss(
    model: DecoderClassifier, batch: TextBatch, smoothing: float = 0.0, lm_weight: float = 0.5
) -> Loss:
    """The same, and lm_weight times the mean loss of each text's own tokens (GPT-1's L3)."""
    hidden_BTD = model.decoder.hidden(batch.tokens_BT, Lengths(batch.lengths_B))
    scores_BL = scores_at_end(model, hidden_BTD, batch)
    total, nll = cross_entropy(scores_BL, batch.labels_B, smoothing)
    if lm_weight:
        losses_B = text_losses(model.decoder, hidden_BTD, batch.tokens_BT, batch.lengths_B)
        total = total + lm_weight * losses_B.sum() * batch.count / len(losses_B)
    return Loss(total, nll, batch.count)


def text_losses(decoder: Decoder, hidden_BTD: Tensor, tokens_BT: Tensor, lengths_B: Tensor) -> Tensor:
    """The mean loss [B] of predicting each token of a row but the first; padding is told by lengths."""
    answers_BU = tokens_BT[:, 1:]
    scores_BUV = decoder.head(hidden_BTD[:, :-1], decoder.inputs.tokens).float()
    losses_BU = F.cross_entropy(scores_BUV.flatten(0, 1), answers_BU.flatten(), reduction="none")
    losses_BU = losses_BU.view(answers_BU.shape)
    last_B1 = (lengths_B - 1)[:, None]
    real_BU = torch.arange(answers_BU.shape[1], device=answers_BU.device) < last_B1
    return losses_BU.masked_fill(~real_BU, 0).sum(1) / last_B1[:, 0]


# The task.


def job(recipe: Recipe, examples: LabeledTexts) -> Job:
    """Plan the batches, and put together what a run needs."""
    d, t, origin = recipe.data, recipe.train, examples.origin
    labels, counts, vocab, train = examples.labels, examples.counts, examples.vocab, examples.train
    config, kind = model_of(recipe, vocab, origin, len(labels))
    featured = isinstance(config, ElmoReaderConfig)
    room = room_of(d, config.context, vocab)
    held_out = spread(examples.held_out, recipe.evaluate.rows)
    texts = train.lengths("first") + train.lengths("second")
    lengths = np.minimum(texts, room) + special_tokens(has_pairs(d), vocab)
    lengths = lengths * 2 if d.both_orders else lengths
    plan = BucketPlan(lengths, t.batch_tokens, t.seed, int(lengths.max()))
    make = partial(kind.collate, vocab, kind.layout, room)
    valid = [numbers(vocab, make, some) for some in chunks(held_out, 64)]

    def batches(step: int, rank: int = 0, world: int = 1) -> list[TextBatch]:
        parts = shares(plan.batch(step), t.accumulation_steps, rank, world)
        return [batch_of(train, make, part) for part in parts]

    right = [row.number for row in held_out]
    started = FEATURED.format(t.from_) if featured else describe_start(recipe, True)
    return Job(
        task="classify",
        architecture=origin.architecture if origin and not featured else recipe.model.architecture,
        config=config,
        vocab=vocab,
        batches=batches,
        steps_per_epoch=plan.batches,
        loss=kind.loss,
        evaluate=lambda model: evaluate(model, kind, valid),
        show=lambda model: show(model, kind, make, vocab, labels, held_out[: recipe.evaluate.examples]),
        held_out=len(held_out),
        baselines={
            "accuracy": ("accuracy (always the most frequent label)", accuracy_of_majority(counts, right)),
            "loss": ("loss (label frequencies), nats per text", loss_of_frequencies(counts, right)),
        },
        plan=[
            describe_data(f"{len(train):,} rows", len(held_out), len(examples.held_out), plan.padding()),
            f"labels: {', '.join(labels[:10])}{' ...' if len(labels) > 10 else ''} ({len(labels)})",
            f"texts: at most {room} tokens, to which {int((texts > room).sum()):,} rows are cut",
            f"vocabulary: {vocab.size:,} of {vocab.kind}",
            *([started] if origin else []),
        ],
        labels=len(labels) if kind.layout is decoder_row else 0,
        special=marks_of(vocab) if kind.layout is decoder_row else {},
        head_dropout=head_dropout(recipe),
        begin=partial(features.begin if featured else begin, origin=origin) if origin else None,
        tuning=None if featured else tuning_of(recipe, origin),
        facts={
            "data": train.hash,
            "list of labels": hash_of(labels),
            "held-out data": hash_of(held_out),
            **(origin.facts if origin else {}),
        },
    )


FEATURED = "features: {}, its vectors and its vocabulary; its weights stay as they are"


@dataclass(frozen=True)
class ClassifierKind:
    """How a kind of model reads texts and is judged."""

    layout: Layout
    scores: Callable[[Any, TextBatch], Tensor]
    loss: Callable[[Any, TextBatch], Loss]
    collate: Callable[..., TextBatch] = collate


def model_of(
    recipe: Recipe, vocab: VocabLike, origin: Origin | None, labels: int
) -> tuple[Any, ClassifierKind]:
    """The config and the kind: an encoder of the recipe's sizes, or what the run starts from."""
    t, heads = recipe.train, ("pooled", "classify")
    encoder = ClassifierKind(encoder_row, encoder_scores, partial(encoder_loss, smoothing=t.label_smoothing))
    pairs = has_pairs(recipe.data)
    if recipe.data.both_orders and not pairs:
        raise BadInput(
            "data.both_orders is of pairs: name the second text's column by --set data.pair_column=NAME"
        )
    if origin is None:
        refuse_both_orders(recipe, "a model without --from")
        config = config_of(recipe, vocab=vocab.size, prediction_heads=heads, labels=labels)
        return config, encoder
    if origin.architecture == "elmo" and pairs:
        raise BadInput(one_line(f"{origin.folder} reads sentences one by one: it cannot read pairs"))
    features.check_start(recipe, origin)
    if origin.architecture == "elmo":
        loss = partial(encoder_loss, smoothing=t.label_smoothing, mix_penalty=t.mix_l2)
        config = features.reader_config(recipe, origin, ("classify",), labels)
        return config, ClassifierKind(encoder_row, encoder_scores, loss)
    if kind_of(origin) is not WithHeads:
        loss = partial(decoder_loss, smoothing=t.label_smoothing, lm_weight=t.lm_loss_weight)
        both = recipe.data.both_orders
        kind = ClassifierKind(decoder_row, decoder_scores, loss, collate_both_orders if both else collate)
        return marked(recipe, vocab, origin), kind
    refuse_both_orders(recipe, origin.folder)
    layout = row_of(origin.config)
    if pairs and origin.architecture == "bert" and layout is one_segment_row:
        raise BadInput(one_line(f"{origin.folder} knows one segment only: it cannot read pairs"))
    config = started_config(recipe, with_head(origin, "classify", labels))
    return config, replace(encoder, layout=layout)


def refuse_both_orders(recipe: Recipe, whose: str) -> None:
    if recipe.data.both_orders:
        raise BadInput(
            one_line(
                f"data.both_orders is for a decoder, and {whose} is an encoder, which sees both texts at "
                "once: leave it out"
            )
        )


def marked(recipe: Recipe, vocab: VocabLike, origin: Origin) -> Any:
    """The config of a decoder that has a token each to start, to separate and to end with, as GPT-1 was given
    when it was fine-tuned. One that knows fewer gets new ones, if all of it learns; they are no words, so no
    text ever has them."""
    config, rows = started_config(recipe, origin.config), origin.config.vocab
    if not isinstance(vocab, ForeignVocab) or recipe.train.tune != "whole":  # new vectors cannot be learned
        return config
    if len({vocab.bos, vocab.sep, vocab.eos}) < 3:
        vocab.bos, vocab.sep, vocab.eos, vocab.size = rows, rows + 1, rows + 2, rows + 3
    has_new = vocab.bos == rows  # from here, or from a job that was made of the same vocabulary before
    return replace(config, vocab=rows + 3) if has_new else config


def marks_of(vocab: VocabLike) -> dict[str, int]:
    """The ids of a decoder's special tokens for config.json, where its vocabulary came with another model."""
    if not isinstance(vocab, ForeignVocab):
        return {}
    return special_of(vocab) | {"bos": vocab.bos, "sep": vocab.sep, "eos": vocab.eos}


def room_of(d: ClassifyData, context: int, vocab: VocabLike | None = None) -> int:
    """Tokens of text in a row, beside the special ones."""
    pairs = has_pairs(d)
    room = min(d.max_length, context) - special_tokens(pairs, vocab)
    if room < (2 if pairs else 1):
        raise BadInput(
            f"data.max_length is {d.max_length} and the context {context}: that leaves no room for text"
        )
    return room


def batch_of(store: Store, make: Callable[..., TextBatch], ids: np.ndarray) -> TextBatch:
    pairs = [(store.row("first", int(i)).tolist(), store.row("second", int(i)).tolist()) for i in ids]
    return make(pairs, [int(store.row("label", int(i))[0]) for i in ids], ids.tolist())


def numbers(vocab: VocabLike, make: Callable[..., TextBatch], rows: Sequence[TextRow]) -> TextBatch:
    """Rows as a batch."""
    return make(encoded(vocab, rows), [row.number for row in rows])


# Files


# Evaluation


def guesses(model: nn.Module, kind: ClassifierKind, batch: TextBatch) -> Tensor:
    """Scores [B, labels]."""
    return kind.scores(model, batch.to(next(model.parameters()).device)).float()


def predict_labels(
    model: nn.Module, kind: ClassifierKind, batches: Iterable[TextBatch]
) -> tuple[list[int], list[int], float]:
    """(labels found, right labels, loss): the loss is in nats per text."""
    return label_predictions((guesses(model, kind, batch).cpu(), batch.labels_B) for batch in batches)


def evaluate(model: nn.Module, kind: ClassifierKind, batches: list[TextBatch]) -> dict[str, float]:
    """Held-out loss (nats per text), accuracy and macro F1."""
    found, right, loss = predict_labels(model, kind, batches)
    return {"loss": loss, "accuracy": accuracy(found, right), "macro_f1": macro_f1(found, right)}


def measure(model: nn.Module, asked: EvaluationRequest) -> Measured:
    """Accuracy and F1, of all labels together and of each, on all held-out rows."""
    recipe, run, report = asked.recipe, asked.run, Report(asked.recipe.data.bad_lines)
    for name in (LABELS, FROM) if recipe.train.from_ else (LABELS,):
        inside(run, name)  # missing, it would be made again, and a run is not to be changed
    labels, counts = read_labels(recipe, run)
    origin = find_origin(recipe.train.from_, run) if recipe.train.from_ else None
    vocab = vocabulary(run, origin) if origin else asked.vocab()
    config, kind = model_of(recipe, vocab, origin, len(labels))
    rows = held_out_rows(recipe, labels, report, asked.split)
    room = room_of(recipe.data, config.context, vocab)
    lengths = [min(room, len(a) + len(b)) for a, b in encoded(vocab, rows)]
    alike = [[rows[i] for i in some] for some in by_length(lengths, asked.rows)]
    make = partial(kind.collate, vocab, kind.layout, room)
    batches = (numbers(vocab, make, some) for some in asked.track(alike, "classifying"))
    predicted = predict_labels(model, kind, batches)
    return measured_labels(predicted, labels, counts, "row", report)


def show(
    model: nn.Module,
    kind: ClassifierKind,
    make: Callable[..., TextBatch],
    vocab: VocabLike,
    labels: list[str],
    rows: list[TextRow],
) -> list[str]:
    """A few texts with the label the model gives them."""
    if not rows:
        return []
    found = guesses(model, kind, numbers(vocab, make, rows)).argmax(-1).tolist()
    return [
        f"    {shown_text(row)} → {labels[mine]}"
        + ("" if mine == row.number else f"    (expected: {row.label})")
        for row, mine in zip(rows, found, strict=True)
    ]


def shown_text(row: TextRow) -> str:
    texts = [row.first, row.second] if row.second else [row.first]
    return " | ".join(shortened(text, SHOWN) for text in texts)


TUNED = {"train.label_smoothing": 0.0, "train.ema_decay": 0.0}  # where a model is started from

TASK = Task(
    name="classify",
    data=ClassifyData,
    train=ClassifyTraining,
    architectures={"bert": {"dropout": 0.4}},
    corpora={
        "phrasebook": Corpus(("valid", "test", "combinations", "long"), PHRASEBOOK | {"train.steps": 600})
    },
    starts=Starts(
        find=starting_from(READERS),
        published=TUNED | {"train.learning_rate": 5e-5},
        own=TUNED | {"train.learning_rate": 3e-4},
        elmo=TUNED | {"model.reader_layers": 2, "train.learning_rate": 4e-3},
    ),
    read=read,
    job=job,
    measure=measure,
    metric="accuracy",
    own_data=({"data": ("data.valid_table",)},),
    columns=("text", "pair", "label"),
    next=('classify {path} "your own text"',),
)
