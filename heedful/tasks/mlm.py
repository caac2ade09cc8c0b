"""Masked language model: fill in blanks from both sides (BERT). With pairs: also, does this follow that?

Every ordinary token is chosen with probability 15 %; where that chooses none, the one nearest to being chosen
is. Of the chosen, 80 % become [MASK], 10 % another token at random, 10 % stay: the model cannot tell which
words it may trust. Special tokens (an unknown word is one) are never chosen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor

from ..data.batch import Tensors
from ..data.plan import WindowPlan, keyed, shares, splitmix
from ..data.shards import Stream
from ..data.vocab import SPECIALS, Vocab
from ..errors import BadInput
from ..models.base.settings import Part
from ..models.base.shells import WithHeads
from ..train.loss import Loss, cross_entropy
from .configs import config_of, started_config
from .evaluation import EvaluationRequest, Measured
from .lm_data import TextExamples, files_of, frequencies, held_out_text, prepare
from .metrics import BY_FREQUENCY, interval, share_of, unigram_entropy
from .next_sentence import Lines, elsewhere
from .origin import ENCODERS, NO_TOKEN, Origin, begin, special_of, starting_from, vocab_of, with_heads
from .recipe.settings import PHRASEBOOK, STORIES, FineTuning, LearningRate, Recipe, Schedule, TextInRows
from .task import Corpus, Job, Starts, Task, WrittenSample, sample_count
from .tuning import describe_start, tuning_of

CHOSEN, MASKED, REPLACED = 0.15, 0.8, 0.1  # of all tokens; of the chosen; of the chosen
ORDINARY = len(SPECIALS)  # the first number that is no special token
BLANK, PAIR = 0, 1  # what random numbers are for: each purpose has its own
HELD_OUT = -1  # the "step" of evaluations: always the same blanks
SHOWN = 40  # tokens of a window that is shown
SAME_ANSWER = "next sentence (always the same answer)"


@dataclass(frozen=True)
class MaskedBatch(Tensors):
    """Some rows of equal length with blanks in them."""

    tokens_BT: Tensor  # what the model reads
    segments_BT: Tensor
    originals_BT: Tensor  # what stood there
    places_N: Tensor  # the chosen tokens, counted through all rows
    follows_B: Tensor  # 1 where the second span follows the first; empty without pairs
    count: int  # chosen tokens
    pair_weight: float = 0.0  # chosen tokens a pair, over the whole step
    ids: tuple[int, ...] = ()  # where the rows begin in the text


@dataclass(frozen=True)
class Marks:
    """The tokens of a vocabulary that are no words, and those that are."""

    cls: int
    sep: int
    mask: int
    ordinary: np.ndarray  # for each token, whether it is a word
    words: np.ndarray  # numbers of those that are


def marks_of(vocab: Any) -> Marks:
    """Those of a vocabulary, be it heedful's own or another."""
    if isinstance(vocab, Vocab):
        return own_marks(vocab.size)
    if vocab.mask == NO_TOKEN:
        raise BadInput(
            "the vocabulary of the model to start from has no [MASK]: no blank can be made with it"
        )
    ordinary = np.array(vocab.ordinary())
    return Marks(vocab.cls, vocab.sep, vocab.mask, ordinary, np.flatnonzero(ordinary))


@cache
def own_marks(size: int) -> Marks:
    """Those of a vocabulary of heedful's own, which has so many tokens."""
    ordinary = np.arange(size) >= ORDINARY
    return Marks(Vocab.cls, Vocab.sep, Vocab.mask, ordinary, np.flatnonzero(ordinary))


# Random numbers that follow from where they are used.


def draws(count: int, *key: int) -> np.ndarray:
    """Numbers from 0 up to 1, a pure function of the key."""
    return (splitmix(np.arange(count, dtype=np.uint64) ^ np.uint64(keyed(*key))) >> 11) * 2.0**-53


def blanks(row: np.ndarray, vocab: int | Marks, *key: int) -> tuple[np.ndarray, np.ndarray]:
    """The row with its chosen tokens masked, replaced or left, and which places were chosen. vocab: the
    tokens of one's own vocabulary, or which they are."""
    marks = own_marks(vocab) if isinstance(vocab, int) else vocab
    which, what, other = draws(3 * len(row), *key).reshape(3, -1)
    ordinary = marks.ordinary[row]
    (chosen,) = np.nonzero(ordinary & (which <= max(CHOSEN, which[ordinary].min(initial=1.0))))
    read = row.copy()
    random = marks.words[(other * len(marks.words)).astype(np.int64)].astype(row.dtype)
    masked, replaced = what[chosen] < MASKED, what[chosen] >= 1 - REPLACED
    read[chosen[masked]] = marks.mask
    read[chosen[replaced]] = random[chosen[replaced]]
    return read, chosen


# From places in the text to rows.


def room_of(context: int, pairs: bool) -> int:
    """Tokens of text in a row: [CLS] window [SEP], or [CLS] A [SEP] B [SEP]."""
    room = context - (3 if pairs else 2)
    if room < (2 if pairs else 1):
        raise BadInput(f"model.context is {context}, which leaves no room for text beside [CLS] and [SEP]")
    return room


def window_row(
    stream: Stream, start: int, room: int, cls: int = Vocab.cls, sep: int = Vocab.sep
) -> tuple[np.ndarray, np.ndarray, int]:
    """(tokens, segments, 1): a window between its two special tokens."""
    row = np.concatenate(([cls], stream[start : start + room], [sep])).astype(np.int64)
    return row, np.zeros_like(row), 1


def pair_row(
    stream: Stream,
    start: int,
    room: int,
    *key: int,
    cls: int = Vocab.cls,
    sep: int = Vocab.sep,
    lines: Lines | None = None,
) -> tuple[np.ndarray, np.ndarray, int]:
    """(tokens, segments, whether B follows A): A and B share the room, at least a quarter of it each.

    B begins with a line, if the window has one in its middle half, and anywhere otherwise.
    """
    where, half, place = draws(3, *key)
    follows = half < 0.5
    found = lines.places(start, room, where, place) if lines else None
    if found:
        cut, other = found
    else:
        cut = start + min(max(1, int(room * (0.25 + 0.5 * where))), room - 1)
        other = elsewhere(len(stream), start, room, start + room - cut, place)
    there, size, rest = cut if follows else other, cut - start, start + room - cut
    a, b = stream[start:cut], stream[there : there + rest]
    row = np.concatenate(([cls], a, [sep], b, [sep])).astype(np.int64)
    return row, np.repeat([0, 1], [size + 2, rest + 1]), int(follows)


def batch_of(
    stream: Stream,
    starts: Sequence[int],
    room: int,
    pairs: bool,
    vocab: int | Marks,
    seed: int,
    step: int,
    lines: Lines | None = None,
) -> MaskedBatch:
    """The rows that begin at `starts`; every random choice follows from (seed, step, start)."""
    keys = [(seed, step, start) for start in starts]
    marks = own_marks(vocab) if isinstance(vocab, int) else vocab
    if pairs:
        rows = [
            pair_row(stream, key[-1], room, *key, PAIR, cls=marks.cls, sep=marks.sep, lines=lines)
            for key in keys
        ]
    else:
        rows = [window_row(stream, start, room, marks.cls, marks.sep) for start in starts]
    originals_BT, segments_BT = (torch.from_numpy(np.stack([row[i] for row in rows])) for i in (0, 1))
    masked = [blanks(row[0], marks, *key, BLANK) for row, key in zip(rows, keys, strict=True)]
    length = originals_BT.shape[1]
    places = np.concatenate([chosen + i * length for i, (_, chosen) in enumerate(masked)])
    return MaskedBatch(
        torch.from_numpy(np.stack([read for read, _ in masked])),
        segments_BT,
        originals_BT,
        torch.from_numpy(places),
        torch.tensor([row[2] for row in rows] if pairs else [], dtype=torch.int64),
        len(places),
        len(places) / len(rows),
        tuple(starts),
    )


def step_of(parts: list[MaskedBatch], step: list[MaskedBatch] | None = None) -> list[MaskedBatch]:
    """Micro-batches with the weight of a pair in the whole step. step: all of its batches, if given."""
    step = parts if step is None else step
    weight = sum(part.count for part in step) / sum(len(part.ids) for part in step)
    return [replace(part, pair_weight=weight) for part in parts]


# Loss


def scores_of(model: WithHeads, batch: MaskedBatch) -> tuple[Tensor, Tensor | None]:
    """Scores for every chosen token, and, with pairs, for not following and following."""
    # All rows are full: nothing is padding, so no lengths are needed.
    hidden_BTD = model.encoder(batch.tokens_BT, segments_BT=batch.segments_BT)
    inputs = model.encoder.inputs
    words_NV = model.heads["masked_lm"](hidden_BTD.flatten(0, 1)[batch.places_N], inputs)
    return words_NV, model.heads["next_sentence"](hidden_BTD, inputs) if len(batch.follows_B) else None


def answers_of(batch: MaskedBatch) -> Tensor:
    return batch.originals_BT.flatten()[batch.places_N]


def loss_of(model: WithHeads, batch: MaskedBatch, smoothing: float = 0.0) -> Loss:
    """The loss of the chosen tokens; with pairs, total / count over a step is the sum of both mean losses.

    A pair counts as much as the chosen tokens of a row, so that dividing by all chosen tokens leaves its
    mean.
    """
    words_NV, next_B2 = scores_of(model, batch)
    total, nll = cross_entropy(words_NV, answers_of(batch), smoothing)
    if next_B2 is not None:
        total = total + batch.pair_weight * cross_entropy(next_B2, batch.follows_B)[0]
    return Loss(total, nll, batch.count)


# The task.


@dataclass(frozen=True)
class MlmData(TextInRows):
    """Running text, with blanks."""

    pairs: Annotated[bool, "also predict whether one span of text follows another"] = False


@dataclass(frozen=True)
class MlmTraining(FineTuning):
    learning_rate: LearningRate = 5e-4
    schedule: Annotated[Schedule, "learning rate after the warm-up"] = "linear"
    label_smoothing: Annotated[Part, "share of the target spread over all tokens"] = 0.0


def read(recipe: Recipe, folder: Path, origin: Origin | None, say: Callable[[str], None]) -> TextExamples:
    """Read the text, learn a vocabulary, and tokenize."""
    vocab, train, valid = prepare(recipe, folder, origin, say)
    return TextExamples(vocab, train, valid, files_of(recipe), origin)


def job(recipe: Recipe, examples: TextExamples) -> Job:
    """Plan the windows, and put together what a run needs."""
    d, seed, vocab, origin = recipe.data, recipe.train.seed, examples.vocab, examples.origin
    marks, heads = marks_of(vocab), ("pooled", "masked_lm", "next_sentence") if d.pairs else ("masked_lm",)
    if origin is not None:
        config = started_config(recipe, with_heads(origin, heads))
    else:
        config = config_of(recipe, vocab=vocab.size, prediction_heads=heads)
    context = min(d.max_length or config.context, config.context)
    stream, held_out = examples.train.stream("text"), examples.valid.stream("text")
    room = room_of(context, d.pairs)
    check_sizes(examples.files, len(stream), len(held_out), room, d.pairs)
    plan = WindowPlan(len(stream), room, max(1, recipe.train.batch_tokens // context), seed)
    sides = examples.train, examples.valid
    lines, known = (lines_of(s.stream("text"), s.lengths("text"), vocab, d.pairs) for s in sides)
    tried = held_out_batches(held_out, room, d.pairs, marks, seed, recipe.evaluate.rows, known)
    unit = "pairs" if d.pairs else "windows"

    def masked(starts: np.ndarray, step: int) -> MaskedBatch:
        return batch_of(stream, starts.tolist(), room, d.pairs, marks, seed, step, lines)

    def batches(step: int, rank: int = 0, world: int = 1) -> list[MaskedBatch]:
        starts, micros = plan.batch(step), recipe.train.accumulation_steps
        mine = [masked(part, step) for part in shares(starts, micros, rank, world)]
        return step_of(mine, None if world == 1 else [masked(starts, step)])

    return Job(
        task="mlm",
        architecture=origin.architecture if origin else recipe.model.architecture,
        config=config,
        vocab=vocab,
        batches=batches,
        steps_per_epoch=plan.batches,
        loss=lambda model, batch: loss_of(model, batch, recipe.train.label_smoothing),
        evaluate=lambda model: evaluate(model, tried),
        samples=lambda model: samples(model, vocab, held_out, room, recipe),
        baselines={
            "loss": (BY_FREQUENCY, unigram_entropy(stream, held_out, vocab.size)),
            **({"next_sentence": (SAME_ANSWER, share_of_larger(tried))} if d.pairs else {}),
        },
        plan=[
            f"data: {len(stream):,} tokens, {len(held_out):,} held out",
            f"rows: {unit} of {room} tokens, {CHOSEN:.0%} of them to be filled in",
            f"vocabulary: {vocab.size:,} of {vocab.kind}",
            *([describe_start(recipe, "masked_lm" not in origin.config.prediction_heads)] if origin else []),
        ],
        facts={
            "data": examples.train.hash,
            "held-out data": examples.valid.hash,
            **(origin.facts if origin else {}),
        },
        begin=partial(begin, origin=origin) if origin else None,
        tuning=tuning_of(recipe, origin),
        special=special_of(vocab),
    )


def lines_of(stream: Stream, lengths: np.ndarray, vocab: Any, pairs: bool) -> Lines | None:
    """Where pairs are cut."""
    return Lines.of(stream, lengths, vocab.eos) if pairs else None


def check_sizes(files: str, tokens: int, held_out: int, room: int, pairs: bool) -> None:
    """Refuse texts without a window to learn from and one to evaluate by, or too short for pairs."""
    needed = 3 * room if pairs else room + 1
    if tokens < needed or held_out < (needed if pairs else 1):
        raise BadInput(
            f"{files} has {tokens:,} tokens to learn from and {held_out:,} held out: "
            f"{'pairs' if pairs else 'windows'} of {room} need {needed:,}"
        )


def held_out_batches(
    stream: Stream,
    room: int,
    pairs: bool,
    vocab: int | Marks,
    seed: int,
    most: int,
    lines: Lines | None = None,
) -> list[MaskedBatch]:
    """Held-out windows that do not overlap (all, or `most` spread evenly), always masked alike."""
    room = min(room, len(stream))
    starts = window_starts(len(stream), room)
    if most and len(starts) > most:
        starts = starts[np.linspace(0, len(starts) - 1, most).astype(int)]
    parts = np.split(starts, range(32, len(starts), 32))
    return [batch_of(stream, part.tolist(), room, pairs, vocab, seed, HELD_OUT, lines) for part in parts]


def window_starts(tokens: int, room: int) -> np.ndarray:
    """Where windows begin that do not overlap."""
    return np.arange(0, tokens - room + 1, room)


def share_of_larger(batches: list[MaskedBatch]) -> float:
    """How often the more frequent of the two answers about pairs is right."""
    share = float(torch.cat([batch.follows_B for batch in batches]).double().mean())
    return max(share, 1 - share)


def evaluate(model: WithHeads, batches: Iterable[MaskedBatch]) -> dict[str, float]:
    """Loss, perplexity and accuracy of the chosen tokens; with pairs, accuracy of telling what follows."""
    nll = right = count = right_pairs = pairs = 0.0
    for batch in batches:
        batch = batch.to(model.encoder.inputs.tokens.weight.device)
        words_NV, next_B2 = scores_of(model, batch)
        answers_N = answers_of(batch)
        nll += float(cross_entropy(words_NV, answers_N)[1])
        right += float((words_NV.argmax(-1) == answers_N).sum())
        count += batch.count
        if next_B2 is not None:
            right_pairs += float((next_B2.argmax(-1) == batch.follows_B).sum())
            pairs += len(next_B2)
    loss = nll / max(1, count)
    scores = {"loss": loss, "perplexity": math.exp(min(loss, 700)), "accuracy": right / max(1, count)}
    return scores | ({"next_sentence": right_pairs / pairs} if pairs else {})


def measure(model: WithHeads, asked: EvaluationRequest) -> Measured:
    """Loss, perplexity and accuracy of the blanks in all full windows of the held-out text."""
    recipe, vocab, blank = asked.recipe, vocab_of(asked.run, asked.recipe), 0
    pairs, seed, marks = recipe.data.pairs, recipe.train.seed, marks_of(vocab)
    room = room_of(context_of(model, recipe), pairs)
    text = held_out_text(asked, vocab, 3 * room if pairs else 1)
    stream, lines = text.stream, lines_of(text.stream, text.lengths, vocab, pairs)
    room = min(room, len(stream))
    starts = window_starts(len(stream), room)

    def batches() -> Iterator[MaskedBatch]:
        nonlocal blank
        parts = np.split(starts, range(asked.rows, len(starts), asked.rows))
        for part in asked.track(parts, "filling in the blanks"):
            batch = batch_of(stream, part.tolist(), room, pairs, marks, seed, HELD_OUT, lines)
            blank += batch.count
            yield batch

    scores = evaluate(model, batches())
    if not blank:
        raise BadInput("the held-out text has no word that the vocabulary knows: there is nothing to fill in")
    shares = {"accuracy": blank, "next_sentence": len(starts)}
    return Measured(
        examples=len(starts),
        unit="pairs" if pairs else "windows",
        per="blank",
        metrics={**scores, "unknown": share_of(stream, vocab.unk)},
        intervals={name: interval(scores[name], count) for name, count in shares.items() if name in scores},
        baselines=frequencies(asked, stream, vocab),
        signature={
            "loss": f"blanks:{CHOSEN:.0%}|seed:{seed}|windows:apart|room:{room}|"
            f"vocab:{vocab.kind}|size:{vocab.size}"
        },
        counts={"tokens": len(stream), "bytes": text.bytes, "blanks": blank},
        report=text.report,
    )


def samples(model: WithHeads, vocab: Vocab, stream: Stream, room: int, recipe: Recipe) -> list[WrittenSample]:
    """The first held-out windows with blanks, and what the model put in them."""
    size, marks = min(room, SHOWN, len(stream)), marks_of(vocab)
    most = min(sample_count(recipe.evaluate.examples) * size, len(stream) - size + 1)
    rows = {at: window_row(stream, at, size, marks.cls, marks.sep)[0] for at in range(0, most, size)}
    return [
        filled(model, vocab, row, blanks(row, marks, recipe.train.seed, HELD_OUT, start, BLANK)[1])
        for start, row in rows.items()
    ]


def context_of(model: WithHeads, recipe: Recipe) -> int:
    """Tokens that a row has: the recipe's, or as many as the model has places for."""
    places = recipe.model.sizes.get("context") or model.encoder.inputs.position.longest
    return min(recipe.data.max_length or places, places)


def filled(model: WithHeads, vocab: Vocab, row: np.ndarray, chosen: np.ndarray) -> WrittenSample:
    """A window with the model's words; the log says [word] if right, [“word” for “that”] if wrong."""
    read_1T = torch.tensor(row)[None]
    read_1T[0, chosen] = vocab.mask
    scores_1TV = model(read_1T.to(model.encoder.inputs.tokens.weight.device))["masked_lm"]
    guesses, answers = scores_1TV[0, chosen].argmax(-1).tolist(), row[chosen].tolist()
    mine, true = ([vocab.decode([n]) or "?" for n in ids] for ids in (guesses, answers))
    pairs = zip(mine, true, guesses, answers, strict=True)
    words = [f"[{x}]" if guess == answer else f"[“{x}” for “{y}”]" for x, y, guess, answer in pairs]
    runs = np.split(row, chosen)
    texts = [vocab.decode((run if i == 0 else run[1:]).tolist()) for i, run in enumerate(runs)]
    joiner = " " if vocab.kind in ("word", "wordpiece") else ""  # their tokens lose their space when alone
    blank, output, reference, told = (
        joined(texts, fillers, joiner) for fillers in (["___"] * len(words), mine, true, words)
    )
    return WrittenSample(blank, output, reference, f"    {blank!r}\n  → {told!r}")


def joined(texts: list[str], words: list[str], joiner: str) -> str:
    """Texts with words between them."""
    pieces = [piece for pair in zip(texts, [*words, ""], strict=True) for piece in pair]
    return joiner.join(piece for piece in pieces if piece)


# With the learning rate of other tasks, a masked language model learns the frequencies of words and no more.
SLOWER = {
    "train.optimizer": "adamw",
    "train.learning_rate": 1e-3,
    "train.warmup_steps": 200,
    "train.batch_tokens": 2048,
    "model.context": 64,
}

# Short rows give many pairs a step: what follows what is learned late, once most masked words are.
SHORT_ROWS = {
    "train.optimizer": "muon",
    "train.learning_rate": 2e-3,
    "train.warmup_steps": 100,
    "train.batch_tokens": 1536,
    "train.steps": 3000,
    "model.context": 48,
}

TASK = Task(
    name="mlm",
    data=MlmData,
    train=MlmTraining,
    architectures={"bert": {}},
    corpora={
        "pylib": Corpus(("valid",), {"data.vocab_size": 4000}),
        "stories": Corpus(("valid", "test"), STORIES | SLOWER | SHORT_ROWS),
        "phrasebook": Corpus(("valid", "test", "combinations", "long"), PHRASEBOOK | SLOWER),
    },
    starts=Starts(
        find=starting_from(ENCODERS),
        published={"train.learning_rate": 5e-5, "data.max_length": 256},
        own={"data.max_length": 256},
    ),
    read=read,
    job=job,
    measure=measure,
    metric="loss",
    own_data=({"text": ("data.valid_text", "data.text")},),
    columns=("text",),
    next=(
        'fill {path} "once upon a [MASK]"',
        "train classify --data a.tsv --valid-data b.tsv --from {path}",
    ),
)
