"""Caption: look at a picture, write a sentence about it (Vec2Seq), shifted right as a translation is.

The decoder sees the picture as a grid of patches, or as one vector (`model.source`). In the corpus shapes a
caption is right if it says what the true one says, whichever thing it names first; elsewhere, if it is the
same to the letter.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor

from ..corpora.shapes import parse_caption
from ..data.images.augment import moved, moves
from ..data.images.gallery import Gallery
from ..data.images.prepare import normal
from ..data.plan import RowPlan, shares
from ..data.report import Report
from ..data.vocab import Vocab
from ..decode.greedy import greedy
from ..decode.step import step_of
from ..errors import BadInput
from ..models.base.settings import Part, Range
from ..models.base.shells import EncoderDecoder
from ..models.captioner import CaptionerConfig
from ..train.loss import Loss, scores_of, sequence_loss
from .captioned import (
    DATA,
    CaptionTokens,
    PictureBatch,
    captions_of,
    describe_data,
    in_parts,
    spread,
    vocabulary_of,
)
from .configs import config_of
from .evaluation import EvaluationRequest, Measured
from .galleries import describe_augmentation, galleries
from .image_classify import check_patches, evaluation_rows
from .metrics import BY_FREQUENCY, bleu, interval, translation_scores, unigram_entropy
from .recipe.settings import (
    AugmentedPictures,
    BatchTokens,
    LearningRate,
    NormalizedPictures,
    Optimizer,
    Recipe,
    SmoothedTraining,
    Steps,
    WarmupSteps,
    WeightDecay,
)
from .task import Corpus, DataSize, Job, Task, WrittenSample, chunks, sample_count
from .text_to_image.judge import compare
from .translate_rows import collate

VALID = "valid"
NOBODY = np.empty(0, dtype=np.int64)  # a picture has no words to read


@dataclass(frozen=True)
class CaptionData(AugmentedPictures, CaptionTokens):
    """Pictures with captions."""

    vocab_size: Annotated[int, Range(8, 1_000_000), "tokens in the vocabulary, at most"] = 10000
    max_length: Annotated[int, Range(1, 1_000_000), "tokens of a caption; longer ones are left out"] = 64


@dataclass(frozen=True)
class CaptionTraining(SmoothedTraining):
    steps: Steps = 2000
    batch_tokens: BatchTokens = 2048
    optimizer: Optimizer = "muon"
    learning_rate: LearningRate = 6e-3
    warmup_steps: WarmupSteps = 100
    weight_decay: WeightDecay = 0.05
    label_smoothing: Annotated[Part, "share of the target spread over all tokens"] = 0.0


@dataclass(frozen=True, kw_only=True)
class CaptionBatch(PictureBatch):
    """Pictures with their captions, padded at the end; in training, how each picture is moved."""

    pixels_BHWC: Tensor
    target_BT: Tensor  # begins with bos
    answers_BT: Tensor  # ends with eos; NOTHING in the padding
    count: int  # tokens of the captions, eos included
    patches: int  # tokens of a picture, the class token included
    moves_B23: Tensor | None = None


def batch_of(
    pixels_BHWC: Tensor,
    captions: Sequence[Sequence[int]],
    config: CaptionerConfig,
    ids: Sequence[int] = (),
    moves_B23: Tensor | None = None,
) -> CaptionBatch:
    """Pictures and the tokens of their captions to a batch."""
    rows = [np.asarray(caption, dtype=np.int64) for caption in captions]
    pairs = collate([NOBODY] * len(rows), rows, Vocab.bos, Vocab.eos, Vocab.pad, ids)
    return CaptionBatch(
        pixels_BHWC=pixels_BHWC,
        target_BT=pairs.target_BT,
        answers_BT=pairs.answers_BT,
        count=pairs.count,
        patches=patches_of(config),
        moves_B23=moves_B23,
        length=pairs.target_BT.shape[1],
        ids=pairs.ids,
    )


def caption_loss(
    model: EncoderDecoder, batch: CaptionBatch, data: NormalizedPictures, smoothing: float = 0.0
) -> Loss:
    """The loss of the captions. No mask hides their padding: it lies in the future of every real token."""
    x_BCHW = moved(normal(batch.pixels_BHWC, data), batch.moves_B23)
    hidden_BTD = model.decoder.hidden(batch.target_BT, source=model.read(x_BCHW))
    return sequence_loss(scores_of(model.decoder), hidden_BTD, batch.answers_BT, batch.count, smoothing)


# From a recipe to a job.


@dataclass(frozen=True)
class CaptionExamples:
    """What was read: pictures, and the tokens of their captions."""

    train: Gallery
    valid: Gallery
    vocab: Vocab
    tokens: list[list[int]]  # of the captions to learn from
    kept: np.ndarray  # the pictures that these belong to
    length: int  # patches of a picture, and the class token

    @property
    def size(self) -> DataSize:
        return DataSize(len(self.kept), len(self.kept) * self.length, "pictures")


def read(recipe: Recipe, folder: Path, origin: None, say: Callable[[str], None]) -> CaptionExamples:
    """Read the pictures once, learn a vocabulary from their captions, and tokenize them."""
    d = recipe.data
    report = Report(d.bad_lines, "image")
    found = galleries(d, folder / DATA, True, report)
    if report.counts:
        say(report.sentence())
    train, there = found["train"], found[VALID]
    vocab = vocabulary_of(recipe, folder, captions_of(train))
    tokens, kept = short_enough(vocab, captions_of(train), d.max_length, "captions")
    length = patches_of(config_of(recipe, vocab=vocab.size))
    return CaptionExamples(train, there, vocab, tokens, kept, length)


def job(recipe: Recipe, examples: CaptionExamples) -> Job:
    """Plan the batches, and put together what a run needs."""
    d, t, train, there, vocab = recipe.data, recipe.train, examples.train, examples.valid, examples.vocab
    tokens, kept = examples.tokens, examples.kept
    some = spread(len(there), recipe.evaluate.rows)
    texts = [there.caption(int(i)) for i in some]
    told, tried = short_enough(vocab, texts, d.max_length, "held-out captions")
    valid, texts = some[tried], [texts[i] for i in tried]
    config = config_of(recipe, vocab=vocab.size)
    plan = RowPlan(len(kept), max(1, t.batch_tokens // examples.length), t.seed)

    def batches(step: int, rank: int = 0, world: int = 1) -> list[CaptionBatch]:
        ids = plan.batch(step)
        all_moves = moves(d, t.seed, step, len(ids))
        return [
            batch_of(
                train.pixels(kept[ids[part]]),
                [tokens[i] for i in ids[part]],
                config,
                kept[ids[part]].tolist(),
                None if all_moves is None else all_moves[part],
            )
            for part in shares(np.arange(len(ids)), t.accumulation_steps, rank, world)
        ]

    held_out = [
        batch_of(there.pixels(valid[part]), [told[i] for i in part], config)
        for part in in_parts(np.arange(len(valid)))
    ]
    frequent, _ = Counter(captions_of(train)).most_common(1)[0]
    return Job(
        task="caption",
        architecture="captioner",
        config=config,
        vocab=vocab,
        batches=batches,
        steps_per_epoch=plan.batches,
        loss=partial(caption_loss, data=d, smoothing=t.label_smoothing),
        evaluate=lambda model: evaluate(model, vocab, d, held_out, texts),
        samples=lambda model: samples(
            model, vocab, d, there, valid[: sample_count(recipe.evaluate.examples)], texts
        ),
        held_out=len(texts),
        baselines={
            "exact": (
                "exact match (always the most frequent caption)",
                exact([frequent] * len(texts), texts, d),
            ),
            "loss": (BY_FREQUENCY, by_frequency(tokens, told, vocab)),
        },
        plan=[
            describe_data(len(train), len(texts), len(there), d),
            *left_out(len(train) - len(kept), len(some) - len(valid), d.max_length),
            f"vocabulary: {vocab.size:,} of {vocab.kind}, {unknown(told):.2%} unknown in held-out captions",
            describe_pictures(d, config, plan.rows),
        ],
        facts={"data": train.hash, "held-out data": there.hash},
    )


def patches_of(config: CaptionerConfig) -> int:
    """Tokens of a picture: its patches and the class token."""
    return config.reading.grid**2 + 1


def check(recipe: Recipe) -> None:
    """Refuse patches that do not divide a picture, and mirrors where captions tell left from right."""
    check_patches(recipe)
    if recipe.data.random_flip and recipe.data.corpus == "shapes":
        raise BadInput(
            "the captions of shapes say what is left and right: leave out data.random_flip, which swaps them"
        )


def describe_pictures(d: CaptionData, config: CaptionerConfig, rows: int) -> str:
    size = f"{config.reading.grid**2} patches of {config.patch_size} x {config.patch_size}"
    seen = "all of them" if config.source == "grid" else f"one vector ({config.source})"
    return (
        f"pictures: {size}, of which the decoder sees {seen}; {rows:,} pictures a "
        f"step{describe_augmentation(d)}"
    )


def short_enough(
    vocab: Vocab, captions: list[str], longest: int, what: str
) -> tuple[list[list[int]], np.ndarray]:
    """The tokens of the captions that are not too long, and which of them these are."""
    tokens = vocab.encode_batch(captions)
    kept = [i for i, row in enumerate(tokens) if len(row) < longest]  # and the end of the sentence
    if not kept:
        raise BadInput(f"all {len(tokens)} {what} are over data.max_length, {longest} tokens: raise it")
    return [tokens[i] for i in kept], np.array(kept)


def left_out(train: int, valid: int, longest: int) -> list[str]:
    """A sentence about what is too long, if anything is."""
    told = (
        f"left out: {train:,} pictures and {valid:,} held-out ones whose captions are over data.max_length, "
        f"{longest} tokens"
    )
    return [told] if train or valid else []


def by_frequency(learned: list[list[int]], tried: list[list[int]], vocab: Vocab) -> float:
    """The loss of guessing every token, the end included, by how often it was learned from."""
    before, now = (
        np.array([token for row in rows for token in (*row, vocab.eos)]) for rows in (learned, tried)
    )
    return unigram_entropy(before, now, vocab.size)


def unknown(rows: list[list[int]]) -> float:
    """The share of tokens that stand for something unknown."""
    return sum(row.count(Vocab.unk) for row in rows) / max(1, sum(map(len, rows)))


# Writing and judging

LONGEST = 200  # tokens of a caption


@torch.no_grad()
def caption(
    model: EncoderDecoder, vocab: Vocab, d: NormalizedPictures, pixels_BHWC: Tensor, longest: int = LONGEST
) -> list[str]:
    """Greedy captions of pictures."""
    x_BCHW = model_input(model, d, pixels_BHWC)
    bos_B1 = torch.full((len(x_BCHW), 1), vocab.bos, device=x_BCHW.device)
    written = greedy(step_of(model, x_BCHW), bos_B1, longest=longest, eos=vocab.eos)
    return [vocab.decode(one.words) for one in written]


def model_input(model: EncoderDecoder, d: NormalizedPictures, pixels_BHWC: Tensor) -> Tensor:
    """Pixels as the model reads them, where it computes."""
    weight = next(model.parameters())
    return normal(pixels_BHWC.to(weight.device), d).to(weight.dtype)


def meaning(text: str, d: CaptionData) -> Any:
    """What two captions share if they are equally right."""
    said = parse_caption(text) if d.corpus == "shapes" else None
    words = " ".join(text.split())
    return said.plain if said is not None else words.lower() if d.lowercase else words


def exact(found: Sequence[str], expected: Sequence[str], d: CaptionData) -> float:
    """The share of captions that say what they should, 0 to 1."""
    right = sum(meaning(a, d) == meaning(b, d) for a, b in zip(found, expected, strict=True))
    return right / max(1, len(expected))


def parts_right(found: Sequence[str], expected: Sequence[str], d: CaptionData) -> dict[str, float]:
    """The shares of captions of the corpus shapes with right shapes and colors, and right relations."""
    if d.corpus != "shapes":
        return {}
    told = [(parse_caption(a), parse_caption(b)) for a, b in zip(found, expected, strict=True)]
    right = [None if mine is None or true is None else compare(mine, true) for mine, true in told]
    two = [one for one, (_, true) in zip(right, told, strict=True) if true is not None and true.relation]
    return {
        "things": sum(one is not None and one.things for one in right) / max(1, len(right)),
        "relation": sum(one is not None and one.relation for one in two) / max(1, len(two)),
    }


def nats(model: EncoderDecoder, d: CaptionData, batches: Iterable[CaptionBatch]) -> tuple[float, int]:
    """The loss a token, and the number of tokens."""
    device = next(model.parameters()).device
    losses = [caption_loss(model, batch.to(device), d) for batch in batches]
    count = sum(loss.count for loss in losses)
    return sum(float(loss.nll) for loss in losses) / max(1, count), count


def evaluate(
    model: EncoderDecoder, vocab: Vocab, d: CaptionData, batches: list[CaptionBatch], texts: list[str]
) -> dict[str, float]:
    """Held-out loss (nats per token), and how many greedy captions are right."""
    loss, _ = nats(model, d, batches)
    found = [text for batch in batches for text in caption(model, vocab, d, batch.pixels_BHWC)]
    expected = lowered(texts, d)
    return {"loss": loss, "exact": exact(found, texts, d), "bleu": bleu(found, expected, d.lowercase)}


def lowered(texts: list[str], d: CaptionData) -> list[str]:
    return [text.lower() if d.lowercase else text for text in texts]


def measure(model: EncoderDecoder, asked: EvaluationRequest) -> Measured:
    """Exact match, BLEU and loss of captions of all held-out pictures."""
    d, report = asked.recipe.data, Report(asked.recipe.data.bad_lines, "image")
    vocab = asked.vocab()
    config = config_of(asked.recipe, vocab=vocab.size)
    found: list[str] = []
    texts: list[str] = []
    nll, count = 0.0, 0
    for rows in asked.track(
        chunks(evaluation_rows(asked, report, captions=True), asked.rows), "writing captions"
    ):
        pixels_BHWC, captions = (
            torch.from_numpy(np.stack([row.pixels_HWC for row in rows])),
            [row.caption for row in rows],
        )
        loss, tokens = nats(model, d, [batch_of(pixels_BHWC, vocab.encode_batch(captions), config)])
        nll, count = nll + loss * tokens, count + tokens
        found += asked.write(list(pixels_BHWC)) if asked.write else caption(model, vocab, d, pixels_BHWC)
        texts += captions
    share, loss = exact(found, texts, d), nll / max(1, count)
    scores, signature = translation_scores(found, lowered(texts, d), d.lowercase)
    says = "says what the true caption says" if d.corpus == "shapes" else "the same to the letter"
    return Measured(
        examples=len(texts),
        unit="pictures",
        metrics={
            **scores,
            "exact": share,
            **parts_right(found, texts, d),
            "loss": loss,
            "perplexity": math.exp(min(loss, 700)),
            "unknown": unknown(vocab.encode_batch(texts)),
        },
        intervals={"exact": interval(share, len(texts))},
        baselines={"exact": frequent(asked, texts, d)} if (asked.run / DATA / "train").is_dir() else {},
        signature={
            **signature,
            "exact": says,
            "decoding": asked.decoding,
            "loss": f"vocab:{vocab.kind}|size:{vocab.size}",
        },
        counts={"tokens": count},
        report=report,
        lines=found,
    )


def frequent(asked: EvaluationRequest, texts: list[str], d: CaptionData) -> tuple[str, float]:
    """What the most frequent caption of the training pictures would score."""
    captions = Counter(captions_of(Gallery.open(asked.run / DATA / "train")))
    often = captions.most_common(1)[0][0]
    return "always the most frequent caption", exact([often] * len(texts), texts, d)


def held_out_loss(model: EncoderDecoder, asked: EvaluationRequest, rows: int) -> tuple[float, float]:
    """The loss on some held-out pictures, and that of guessing tokens by their frequency."""
    d, vocab = asked.recipe.data, asked.vocab()
    some = list(islice(evaluation_rows(asked, Report(d.bad_lines, "image"), captions=True), rows))
    tokens = vocab.encode_batch([row.caption for row in some])
    pixels_BHWC = torch.from_numpy(np.stack([row.pixels_HWC for row in some]))
    loss, _ = nats(model, d, [batch_of(pixels_BHWC, tokens, config_of(asked.recipe, vocab=vocab.size))])
    learned = captions_of(Gallery.open(asked.run / DATA / "train"))
    return loss, by_frequency(vocab.encode_batch(learned), tokens, vocab)


def samples(
    model: EncoderDecoder, vocab: Vocab, d: CaptionData, gallery: Gallery, ids: np.ndarray, texts: list[str]
) -> list[WrittenSample]:
    """A few pictures by their numbers, with the captions that the model writes."""
    if not len(ids):
        return []
    found = []
    for i, mine, right in zip(ids, caption(model, vocab, d, gallery.pixels(ids)), texts, strict=False):
        source = f"held-out picture {i + 1}"
        expected = "" if meaning(mine, d) == meaning(right, d) else f"    (expected: {right})"
        found.append(WrittenSample(source, mine, right, f"    {source} → {mine}{expected}"))
    return found


TASK = Task(
    name="caption",
    data=CaptionData,
    train=CaptionTraining,
    architectures={
        "captioner": {"patch_size": 4, "activation": "gelu", "dropout": 0.0, "attention_dropout": 0.0}
    },
    corpora={"shapes": Corpus(("valid", "test"))},
    read=read,
    job=job,
    measure=measure,
    metric="exact",
    own_data=({"images": ("data.valid_images",)},),
    next=("caption {path} your-own.png", "look {path} your-own.png"),
    writes=True,
    check=check,
)
