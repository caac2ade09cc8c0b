"""Checks of the loss: that of a fresh model is near ln V, and a run is better than guessing by frequency."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import islice
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...data.report import Report
from ...data.shards import Stream
from ...data.store import Store
from ...errors import BadInput
from ...files import one_line
from ...models import family
from ...models.base.shells import Decoder, EncoderDecoder
from ...tasks import (
    caption,
    choose,
    classify,
    classify_data,
    dpo,
    elmo,
    image_classify,
    instruct,
    lm,
    lm_data,
    mlm,
    parse,
    reward,
    rl,
    span,
    summarize,
    tag,
    task,
    translate,
    translate_data,
)
from ...tasks.evaluation import EvaluationRequest
from ...tasks.metrics import loss_of_frequencies
from ...tasks.origin import FROM, find_origin, vocab_of, vocabulary
from .finding import FAIL, OK, Finding, NotApplicable, finite
from .patient import Patient, chained

NEAR_LN_V = 1.0  # nats
LARGEST = 300_000_000  # parameters of a model that is built a second time
ROWS = 64  # of held-out data


def first_loss(p: Patient) -> Finding:
    """A new model of these sizes guesses: its loss is near ln V."""
    if sum(weight.numel() for weight in p.model.parameters()) > LARGEST:
        raise NotApplicable(f"a second model of more than {LARGEST:,} parameters would take too much memory")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(torch.randint(2**31, (), generator=p.random)))
        fresh = chained(family(p.loaded.architecture).build(p.loaded.config).to(p.device).eval())
    with torch.no_grad():
        scores_NV, what = guesses(p, fresh)
    V = scores_NV.shape[-1]
    targets_N = torch.randint(V, scores_NV.shape[:-1], generator=p.random).to(p.device)
    loss = float(F.cross_entropy(scores_NV.float(), targets_N))
    off = loss - math.log(V)
    summary = f"{loss:.2f} nats per {what}; ln {V} is {math.log(V):.2f}"
    remedy = "initial weights are too large or too small: check the initialization of this architecture"
    return Finding(OK if abs(off) <= NEAR_LN_V else FAIL, finite(off), summary, f"± {NEAR_LN_V:g}", remedy)


def guesses(p: Patient, fresh: nn.Module) -> tuple[Tensor, str]:
    """Scores [N, V] of a fresh model for random inputs, and what they predict."""
    if isinstance(fresh, EncoderDecoder):
        return fresh(p.inputs(8), p.targets(8)).flatten(0, 1), "token"
    if isinstance(fresh, Decoder):
        return fresh(p.targets(8)).flatten(0, 1), "token"
    out = fresh(p.inputs(32))
    if "neighbors" in out:
        return torch.cat(out["neighbors"].flatten(0, 1).chunk(2, -1)), "neighbor"
    if "masked_lm" in out:
        return out["masked_lm"].flatten(0, 1), "masked token"
    for name in ("classify", "classify_mean", "tag", "arcs"):
        if name in out and out[name].shape[-1] > 1:
            what = "head" if name == "arcs" else "label"
            return (out[name].flatten(0, 1) if name in ("tag", "arcs") else out[name]), what
    raise NotApplicable("this model has no head that predicts tokens or labels")


def held_out(p: Patient) -> Finding:
    """The loss on the run's own held-out data is below that of guessing by frequency."""
    if p.recipe is None or p.folder is None:
        raise NotApplicable("only a run has held-out data")
    asked = EvaluationRequest(p.folder, p.recipe)
    try:
        with torch.no_grad():
            loss, guessing = HELD_OUT[p.recipe.task](p, asked)
    except (BadInput, OSError) as error:
        raise NotApplicable(one_line(f"the held-out data cannot be read: {error}")) from None
    off = loss - guessing
    summary = f"held-out loss {loss:.3f}; baseline (frequencies) {guessing:.3f}"
    remedy = "the model has learned nothing yet: "
    remedy += "give it more --steps, or another train.learning_rate (heedful train --find-rate)"
    return Finding(OK if off < 0 else FAIL, finite(off), summary, "below", remedy)


def translation_loss(p: Patient, asked: EvaluationRequest) -> tuple[float, float]:
    d = asked.recipe.data
    vocab = translate_data.vocabs_of(asked.run, asked.recipe)
    pairs = list(islice(translate_data.pairs_of(asked.recipe, "valid", Report(d.bad_lines)), ROWS))
    if not pairs:
        raise BadInput("there is no pair of sentences")
    made = translate.numbers(vocab, translate_data.short_enough(vocab, pairs, d.max_length))
    loss = translate.loss_of(p.model, made.to(p.device))  # type: ignore[arg-type]
    learned = Store.mapped(asked.run / "data")
    return float(loss.nll) / loss.count, translate.by_frequency(learned, [made], vocab)


def next_token_loss(p: Patient, asked: EvaluationRequest) -> tuple[float, float]:
    if asked.recipe.model.architecture == "elmo":
        return elmo.held_out_loss(p.model, asked)  # type: ignore[arg-type]
    vocab = vocab_of(asked.run, asked.recipe)
    text = lm_data.held_out_text(asked, vocab, 2)
    stream = text.stream
    context = lm.context_of(p.model, asked.recipe, stream)  # type: ignore[arg-type]
    rows = lm.ROWS[asked.recipe.data.pack](stream, context, text.lengths)
    loss = lm.evaluate(p.model, rows, text.bytes / rows.tokens, ROWS // 4, 4)["loss"]  # type: ignore[arg-type]
    return loss, by_frequency(asked, stream, vocab)


def blank_loss(p: Patient, asked: EvaluationRequest) -> tuple[float, float]:
    recipe, vocab = asked.recipe, vocab_of(asked.run, asked.recipe)
    pairs = recipe.data.pairs
    room = mlm.room_of(mlm.context_of(p.model, recipe), pairs)  # type: ignore[arg-type]
    text = lm_data.held_out_text(asked, vocab, 3 * room if pairs else 1)
    stream, lines = text.stream, mlm.lines_of(text.stream, text.lengths, vocab, pairs)
    made = mlm.held_out_batches(stream, room, pairs, mlm.marks_of(vocab), recipe.train.seed, ROWS // 4, lines)
    return mlm.evaluate(p.model, made)["loss"], by_frequency(asked, stream, vocab)  # type: ignore[arg-type]


def by_frequency(asked: EvaluationRequest, stream: Stream, vocab: Any) -> float:
    found = lm_data.frequencies(asked, stream, vocab)
    if not found:
        raise BadInput("the text that was learned from is gone")
    return found["loss"][1]


def label_loss(p: Patient, asked: EvaluationRequest) -> tuple[float, float]:
    recipe, run = asked.recipe, asked.run
    for name in (classify.LABELS, FROM) if recipe.train.from_ else (classify.LABELS,):
        if not (run / name).is_file():
            raise BadInput(f"{run / name} is missing")
    labels, counts = classify_data.read_labels(recipe, run)
    origin = find_origin(recipe.train.from_, run) if recipe.train.from_ else None
    vocab = vocabulary(run, origin) if origin else asked.vocab()
    config, kind = classify.model_of(recipe, vocab, origin, len(labels))
    rows = task.spread(classify_data.held_out_rows(recipe, labels, Report(recipe.data.bad_lines)), ROWS)
    room = classify.room_of(recipe.data, config.context, vocab)
    made = kind.collate(
        vocab, kind.layout, room, classify_data.encoded(vocab, rows), [row.number for row in rows]
    )
    _, _, loss = classify.predict_labels(p.model, kind, [made])
    return loss, loss_of_frequencies(counts, [row.number for row in rows])


HELD_OUT: dict[str, Callable[[Patient, EvaluationRequest], tuple[float, float]]] = {
    "translate": translation_loss,
    "lm": next_token_loss,
    "elmo": next_token_loss,
    "mlm": blank_loss,
    "classify": label_loss,
    "tag": lambda p, asked: tag.held_out_loss(p.model, asked, ROWS),  # type: ignore[arg-type]
    "parse": lambda p, asked: parse.held_out_loss(p.model, asked, ROWS),  # type: ignore[arg-type]
    "span": lambda p, asked: span.held_out_loss(p.model, asked, ROWS),  # type: ignore[arg-type]
    "choose": lambda p, asked: choose.held_out_loss(p.model, asked, ROWS),
    "summarize": lambda p, asked: summarize.held_out_loss(p.model, asked, ROWS),
    "instruct": lambda p, asked: instruct.held_out_loss(p.model, asked, ROWS),  # type: ignore[arg-type]
    "rl": lambda p, asked: rl.held_out_loss(p.model, asked, ROWS),  # type: ignore[arg-type]
    "dpo": lambda p, asked: dpo.held_out_loss(p.model, asked, ROWS),  # type: ignore[arg-type]
    "reward": lambda p, asked: reward.held_out_loss(p.model, asked, ROWS),  # type: ignore[arg-type]
    "image-classify": lambda p, asked: image_classify.held_out_loss(p.model, asked, ROWS),
    "caption": lambda p, asked: caption.held_out_loss(p.model, asked, ROWS),  # type: ignore[arg-type]
}
