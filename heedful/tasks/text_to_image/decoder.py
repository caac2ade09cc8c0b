"""The stage decoder of text-to-image: a decoder over the words of a caption and the codes of its picture."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from torch import Tensor, nn

from ...data.images.gallery import Gallery
from ...data.store import Store, write_store
from ...data.vocab import Vocab
from ...errors import BadInput
from ...files import inside, naming, one_line, read_json, write_json
from ...interop.formats import load
from ...models.base.settings import Share
from ...models.dalle import Dalle, DalleConfig
from ...models.dvae import DVAE, DVAEConfig
from ...train.loss import Loss, cross_entropy
from ..captioned import (
    CaptionTokens,
    PictureBatch,
    batches_of,
    captions_of,
    cells_of,
    describe_data,
    evaluation_rows,
    in_parts,
    padded,
    pictures_of,
    planned,
    spread,
    vocabulary_of,
)
from ..configs import config_of
from ..evaluation import EvaluationRequest, Measured
from ..origin import weights_hash
from ..recipe.settings import (
    BatchTokens,
    LearningRate,
    Optimizer,
    PictureSettings,
    Recipe,
    Steps,
    TrainSettings,
    WarmupSteps,
)
from ..task import Corpus, DataSize, Job, Task
from .codes import bright

CODES = "codes.json"  # what is known of the model that wrote the codes
FIELDS = {"words": "the caption's tokens", "codes": "the picture's codes, row by row"}


@dataclass(frozen=True)
class StreamData(PictureSettings, CaptionTokens):
    """Pictures and their captions, as one row of tokens."""


@dataclass(frozen=True)
class StreamTraining(TrainSettings):
    steps: Steps = 2800
    batch_tokens: BatchTokens = 2048
    optimizer: Optimizer = "muon"
    learning_rate: LearningRate = 2e-3
    warmup_steps: WarmupSteps = 100
    from_: Annotated[str, "run of text-to-image-codes, which writes the codes (--from)"] = ""
    text_loss_weight: Annotated[Share, "weight of the caption's loss; the picture has the rest"] = 0.125


@dataclass(frozen=True, kw_only=True)
class StreamBatch(PictureBatch):
    """Captions and pictures' codes."""

    words_BL: Tensor
    lengths_B: Tensor
    codes_BN: Tensor

    @property
    def tokens_BT(self) -> Tensor:
        """As the memory that training takes is reckoned: one token is not read."""
        return self.words_BL.new_empty(len(self.words_BL), self.length)

    @property
    def count(self) -> int:
        return self.codes_BN.numel()


def stream_loss(model: Dalle, batch: StreamBatch, text_weight: float) -> Loss:
    """text_weight x (nats per place of the caption) + the rest x (nats per cell), as nats per cell."""
    text, picture = token_losses(model, batch)
    total = text_weight * text + (1 - text_weight) * picture
    return Loss(total * batch.count, total.detach() * batch.count, batch.count)


def token_losses(model: Dalle, batch: StreamBatch) -> tuple[Tensor, Tensor]:
    """(nats per place of the caption, pads included; nats per cell), means over the batch."""
    c, tokens_BT = model.config, model.stream(batch.words_BL, batch.lengths_B, batch.codes_BN)
    words_BLV, codes_BNK = model.both(tokens_BT)
    text, _ = cross_entropy(words_BLV.flatten(0, 1), tokens_BT[:, 1 : 1 + c.text_length].flatten())
    picture, _ = cross_entropy(codes_BNK.flatten(0, 1), batch.codes_BN.flatten())
    return text / batch.words_BL.numel(), picture / batch.count


# From a recipe to a job.


@dataclass(frozen=True)
class StreamExamples:
    """What was read: the tokens of captions and the codes of pictures."""

    vocab: Vocab
    train: Store
    valid: Store
    written_by: str  # the hash of the weights that wrote the codes
    known: dict[str, int]  # of the Config: the vocabulary, the codes, and the grid
    length: int  # tokens of a caption and its picture

    @property
    def size(self) -> DataSize:
        return DataSize(len(self.train), len(self.train) * self.length, "pictures")


def read(recipe: Recipe, folder: Path, origin: None, say: Callable[[str], None]) -> StreamExamples:
    """Write all pictures as codes once, and tokenize their captions."""
    d, t = recipe.data, recipe.train
    if not t.from_:
        raise BadInput(
            "the decoder writes codes of a model that was trained for them: give --from RUN, that of its "
            "codes"
        )
    pictures = pictures_of(recipe, folder, say)
    vocab = vocabulary_of(recipe, folder, captions_of(pictures[0]))
    codes, written_by = read_codes(t.from_, folder)
    side = cells_of(d.image_size, codes.patch_size)
    train, there = (
        written(folder / "tokens" / name, gallery, vocab, t.from_, codes, written_by)
        for name, gallery in zip(("train", "valid"), pictures, strict=True)
    )
    known = {"vocab": vocab.size, "codes": codes.codes, "rows": side, "columns": side}
    length = config_of(recipe, **known).context
    return StreamExamples(vocab, train, there, written_by, known, length)


def job(recipe: Recipe, examples: StreamExamples) -> Job:
    """Plan the batches, and put together what a run needs."""
    t, vocab, train, there = recipe.train, examples.vocab, examples.train, examples.valid
    config = config_of(recipe, **examples.known)
    plan = planned(recipe, len(train), config.context)
    valid = spread(len(there), recipe.evaluate.rows)

    def make(store: Store, ids: np.ndarray) -> StreamBatch:
        words_BL, lengths_B = padded([store.row("words", int(i)).tolist() for i in ids], config.text_length)
        rows = np.stack([store.row("codes", int(i)) for i in ids]).astype(np.int64)
        return StreamBatch(
            words_BL=words_BL,
            lengths_B=lengths_B,
            codes_BN=torch.from_numpy(rows),
            length=config.context - 1,
            ids=tuple(ids.tolist()),
        )

    long = sum(len(train.row("words", i)) > config.text_length for i in range(len(train)))
    cut = f"; {long:,} captions are longer than data.max_length, and cut" if long else ""
    return Job(
        task="text-to-image-decoder",
        architecture="dalle",
        config=config,
        vocab=vocab,
        batches=batches_of(plan, recipe, lambda ids, step: make(train, ids)),
        steps_per_epoch=plan.batches,
        loss=lambda model, batch: stream_loss(model, batch, t.text_loss_weight),
        evaluate=lambda model: scores(
            model, (make(there, ids) for ids in in_parts(valid)), t.text_loss_weight
        ),
        show=lambda model: [],
        held_out=len(valid),
        baselines={
            "loss": (
                "loss (token frequencies), nats per token",
                plain_loss(train, there, config, t.text_loss_weight),
            )
        },
        plan=[
            describe_data(len(train), len(valid), len(there), recipe.data, cut),
            (
                f"tokens: {config.text_length} places for words and pads, "
                f"{config.rows} x {config.columns} cells of {config.codes:,} codes; "
                f"{plan.rows:,} pictures a step"
            ),
            f"vocabulary: {vocab.size:,} of {vocab.kind}",
        ],
        steady=True,
        facts={"data": train.hash, "held-out data": there.hash, "model of the codes": examples.written_by},
    )


# Codes, written once


def read_codes(folder: str, run: Path) -> tuple[DVAEConfig, str]:
    """The config of the model of the codes and the hash of its weights, read once and kept in the run."""
    if not (run / CODES).is_file():
        model = codes_model(folder)
        write_json(run / CODES, {"codes": vars(model.config), "sha256": weights_hash(Path(folder))})
    with naming(run / CODES):
        found = read_json(inside(run, CODES))
        try:
            return DVAEConfig(**found["codes"]), str(found["sha256"])
        except (KeyError, TypeError):
            raise BadInput("this does not describe a model of codes: start another run") from None


def codes_model(folder: str | Path, device: str | torch.device = "cpu") -> DVAE:
    """The discrete VAE of a run."""
    loaded = load(folder, device)
    if not isinstance(loaded.model, DVAE):
        raise BadInput(
            one_line(
                f"{folder} is a {loaded.architecture}: codes are written by the stage codes of text-to-image"
            )
        )
    return loaded.model


def written(
    path: Path, gallery: Gallery, vocab: Vocab, folder: str, codes: DVAEConfig, written_by: str
) -> Store:
    """Captions as tokens and pictures as codes: made once, and kept."""
    if path.is_dir():
        return Store.open(path, vocab.hash)
    if weights_hash(Path(folder)) != written_by:
        raise BadInput(one_line(f"{folder} has other weights than when this run was begun: start another"))
    model = codes_model(folder)

    @torch.no_grad()
    def rows() -> Iterator[dict[str, Sequence[int]]]:
        words = vocab.encode_batch(captions_of(gallery))
        for ids in in_parts(np.arange(len(gallery))):
            found = model.encode(bright(gallery.pixels(ids))).flatten(1).tolist()
            yield from ({"words": words[i], "codes": row} for i, row in zip(ids.tolist(), found, strict=True))

    about = {"vocab": vocab.hash, "codes": written_by, "pictures": gallery.hash}
    return write_store(path, FIELDS, rows(), max(vocab.size, codes.codes), about)


# Evaluation


def scores(model: nn.Module, batches: Iterable[StreamBatch], text_weight: float) -> dict[str, float]:
    """Held-out loss as it is trained, and its two parts."""
    text, picture, pictures = 0.0, 0.0, 0
    device = next(model.parameters()).device
    for batch in batches:
        rows = len(batch.ids)
        found = token_losses(model, batch.to(device))  # type: ignore[arg-type]
        text, picture, pictures = (
            text + rows * found[0].item(),
            picture + rows * found[1].item(),
            pictures + rows,
        )
    text, picture = text / pictures, picture / pictures
    return {"loss": text_weight * text + (1 - text_weight) * picture, "text": text, "picture": picture}


def measure(model: nn.Module, asked: EvaluationRequest) -> Measured:
    """The same on all held-out pictures."""
    assert isinstance(model, Dalle)
    rows, vocab, recipe = evaluation_rows(asked), asked.vocab(), asked.recipe
    codes = codes_model(
        asked.run.parent / "codes" if (asked.run.parent / "codes").is_dir() else recipe.train.from_
    )
    words = vocab.encode_batch([row.caption or row.label for row in rows])

    def batches() -> Iterator[StreamBatch]:
        for ids in in_parts(np.arange(len(rows))):
            pixels = torch.from_numpy(np.stack([rows[i].pixels_HWC for i in ids]))
            words_BL, lengths_B = padded([words[i] for i in ids], model.config.text_length)
            yield StreamBatch(
                words_BL=words_BL,
                lengths_B=lengths_B,
                codes_BN=codes.encode(bright(pixels)).flatten(1),
                length=model.config.context - 1,
                ids=tuple(ids.tolist()),
            )

    found = scores(model, asked.track(batches(), "reading"), recipe.train.text_loss_weight)
    return Measured(examples=len(rows), unit="pictures", metrics=found)


def plain_loss(train: Store, there: Store, c: DalleConfig, text_weight: float) -> float:
    """The loss of giving every token its frequency, wherever it stands."""
    text = padded_counts(train, c), padded_counts(there, c)
    picture = [np.bincount(store.stream("codes"), minlength=c.codes) for store in (train, there)]
    return text_weight * frequency_loss(*text) + (1 - text_weight) * frequency_loss(*picture)


def padded_counts(store: Store, c: DalleConfig) -> np.ndarray:
    """How often each word, and each place's pad, stands in captions."""
    counts = np.zeros(c.first_code)
    for i in range(len(store)):
        words = store.row("words", i)[: c.text_length]
        np.add.at(counts, words, 1)
        counts[c.vocab + len(words) :] += 1
    return counts


def frequency_loss(learned: np.ndarray, held_out: np.ndarray) -> float:
    shares = (learned + 1) / (learned.sum() + len(learned))
    return float(-(held_out * np.log(shares)).sum() / max(1.0, float(held_out.sum()))) or math.inf


TASK = Task(
    name="text-to-image-decoder",
    data=StreamData,
    train=StreamTraining,
    architectures={"dalle": {"window": 2, "activation": "gelu", "dropout": 0.0, "attention_dropout": 0.0}},
    sizes={
        "tiny": {"layers": 4, "width": 96, "heads": 4, "ffn_width": 384},
        "small": {"layers": 6, "width": 256, "heads": 4, "ffn_width": 1024},
        "base": {"layers": 12, "width": 512, "heads": 8, "ffn_width": 2048},
        "large": {"layers": 24, "width": 1024, "heads": 16, "ffn_width": 4096},
    },
    corpora={"shapes": Corpus(("valid", "test"))},
    read=read,
    job=job,
    measure=measure,
    metric="loss",
    own_data=({"images": ("data.valid_images",)},),
    next=(),
)
