"""Image-classify: one of several labels for a picture, by a Vision Transformer (Dosovitskiy et al. 2021).

A picture is cut into patches, which are read like words; the label is read off a token of its own, or off the
mean of all patches. A run can start from another one, at another resolution: the positions of its patches are
interpolated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import torch
from torch import Tensor, nn

from ..data.batch import Seen, Tensors
from ..data.images.augment import erased, holes, moved, moves
from ..data.images.gallery import Gallery, GalleryRow
from ..data.images.prepare import normal
from ..data.lines import hash_of
from ..data.plan import RowPlan, shares
from ..data.report import Report
from ..errors import BadInput
from ..files import inside, naming, one_line, read_json, write_json
from ..interop.formats import load
from ..interop.run_folder import LABELS
from ..models import nearest, vit
from ..models.base.settings import Part, Share
from ..models.base.shells import WithHeads
from ..models.vit import ViTConfig
from ..train.loss import Loss, cross_entropy
from .captioned import cells_of
from .configs import config_of, started_config
from .evaluation import EvaluationRequest, Measured, measured_labels
from .galleries import describe_augmentation, folder_rows, galleries, own_shape, split_rows
from .metrics import (
    accuracy,
    accuracy_of_majority,
    loss_of_frequencies,
    macro_f1,
)
from .origin import FROM, Origin, check_same, read_origin, weights_hash
from .recipe.choices import Choice, DataSize, steps_for, with_batch
from .recipe.settings import (
    AugmentedPictures,
    EmaDecay,
    LearningRate,
    NormalizedPictures,
    Optimizer,
    PictureSettings,
    Recipe,
    SmoothedTraining,
    Steps,
    WarmupSteps,
    WeightDecay,
)
from .started_pictures import differences, preprocessing_at, taken_over
from .task import Corpus, Job, Starts, Task, chunks, label_predictions

HEADS = {"class": "classify", "mean": "classify_mean"}
DATA, VALID = "data", "valid"


@dataclass(frozen=True)
class ImageData(AugmentedPictures):
    """Pictures with labels."""

    images: Annotated[str, "folder with one folder of images per class, or IDX files as MNIST's"] = ""
    random_shift: Annotated[Part, "maximum random shift, as a fraction of the side"] = 0.08
    random_zoom: Annotated[Part, "maximum random zoom, in or out"] = 0.1
    random_erase: Annotated[Part, "side of a random square that is painted over, at most"] = 0.3
    pool: Annotated[Literal["class", "mean"], "what the label is read off: a class token, or the mean"] = (
        "class"
    )


@dataclass(frozen=True)
class ImageTraining(SmoothedTraining):
    """Training that may start from a Vision Transformer."""

    steps: Steps = 2000
    optimizer: Optimizer = "muon"
    learning_rate: LearningRate = 6e-3
    warmup_steps: WarmupSteps = 300
    weight_decay: WeightDecay = 0.1
    min_lr_ratio: Annotated[Share, "where the schedule ends, as a share of the peak"] = 0.01
    ema_decay: EmaDecay = 0.999
    from_: Annotated[str, "run or Hugging Face folder of a Vision Transformer to start from (--from)"] = ""


@dataclass(frozen=True)
class ImageBatch(Tensors):
    """Some pictures with the numbers of their labels; in training, also random moves and holes."""

    pixels_BHWC: Tensor
    labels_B: Tensor
    moves_B23: Tensor | None = None
    holes_B3: Tensor | None = None
    length: int = 1  # patches of a picture, and the class token
    ids: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        return len(self.labels_B)

    @property
    def seen(self) -> Seen:
        return Seen(self.count, "pictures")


def scores(model: WithHeads, x_BCHW: Tensor) -> Tensor:
    """Scores [B, labels] of pictures."""
    (name,) = (name for name in HEADS.values() if name in model.heads)
    return model.heads[name](model.encoder(x_BCHW), model.encoder.inputs)


def image_loss(model: WithHeads, batch: ImageBatch, data: NormalizedPictures, smoothing: float = 0.0) -> Loss:
    """The negative log-likelihood of the right labels of pictures, changed as the batch says."""
    x_BCHW = erased(moved(normal(batch.pixels_BHWC, data), batch.moves_B23), batch.holes_B3)
    return Loss(*cross_entropy(scores(model, x_BCHW), batch.labels_B, smoothing), batch.count)


# From a recipe to a job.


@dataclass(frozen=True)
class ImageExamples:
    """What was read: pictures with their labels, and the model to start from, if there is one."""

    train: Gallery
    valid: Gallery
    labels: list[str]
    counts: list[int]
    numbers_N: np.ndarray  # of the labels of the pictures to learn from
    held_out: list[tuple[int, int]]  # (picture, number of its label)
    length: int  # tokens of a picture
    origin: Origin | None

    @property
    def size(self) -> DataSize:
        return DataSize(len(self.train), len(self.train) * self.length, "pictures")


def read(recipe: Recipe, folder: Path, origin: Origin | None, say: Callable[[str], None]) -> ImageExamples:
    """Read the pictures once, and number their labels."""
    d = recipe.data
    report = Report(d.bad_lines, "image")
    found = galleries(d, folder / DATA, False, report)
    if report.counts:
        say(report.sentence())
    train, there = found["train"], found[VALID]
    labels, counts, numbers_N = read_labels(train, folder)
    length = vit_config(recipe, len(labels), origin).tokens
    held_out = numbered(there, labels, d)
    return ImageExamples(train, there, labels, counts, numbers_N, held_out, length, origin)


def job(recipe: Recipe, examples: ImageExamples) -> Job:
    """Plan the batches, and put together what a run needs."""
    d, t, origin = recipe.data, recipe.train, examples.origin
    train, there, length = examples.train, examples.valid, examples.length
    labels, counts, numbers_N = examples.labels, examples.counts, examples.numbers_N
    config = vit_config(recipe, len(labels), origin)
    valid = spread(examples.held_out, recipe.evaluate.rows)
    plan = RowPlan(len(train), max(1, t.batch_tokens // length), t.seed)

    def batches(step: int, rank: int = 0, world: int = 1) -> list[ImageBatch]:
        ids = plan.batch(step)
        all_moves, all_holes = (draw(d, t.seed, step, len(ids)) for draw in (moves, holes))
        return [
            ImageBatch(
                train.pixels(ids[part]),
                torch.from_numpy(numbers_N[ids[part]]),
                None if all_moves is None else all_moves[part],
                None if all_holes is None else all_holes[part],
                length,
                tuple(ids[part].tolist()),
            )
            for part in shares(np.arange(len(ids)), t.accumulation_steps, rank, world)
        ]

    return Job(
        task="image-classify",
        architecture="vit",
        config=config,
        vocab=None,
        batches=batches,
        steps_per_epoch=plan.batches,
        loss=partial(image_loss, data=d, smoothing=t.label_smoothing),
        evaluate=lambda model: evaluate(model, d, batched(there, valid)),
        show=lambda model: show(model, d, there, valid[: recipe.evaluate.examples], labels),
        held_out=len(valid),
        baselines={
            "accuracy": (
                "accuracy (always the most frequent label)",
                accuracy_of_majority(counts, [n for _, n in valid]),
            ),
            "loss": (
                "loss (label frequencies), nats per picture",
                loss_of_frequencies(counts, [n for _, n in valid]),
            ),
        },
        plan=[
            f"data: {len(train):,} pictures, {len(valid):,} of {len(there):,} held-out ones tried each time",
            f"labels: {', '.join(labels[:10])}{' ...' if len(labels) > 10 else ''} ({len(labels)})",
            describe_pictures(d, config, plan.rows),
            *([describe_start(origin, d)] if origin else []),
        ],
        begin=partial(begin, origin=origin, image=d.image_size) if origin else None,
        facts={
            "data": train.hash,
            "held-out data": there.hash,
            "list of labels": hash_of(labels),
            **(origin.facts if origin else {}),
        },
        steady=True,
    )


def describe_pictures(d: ImageData, config: ViTConfig, rows: int) -> str:
    size = f"{d.image_size} x {d.image_size} pixels{'' if d.color else ' of gray'}"
    patches = f"{config.grid**2} patches of {config.patch_size} x {config.patch_size}"
    erased = f", a square of up to {d.random_erase:.0%} painted over" if d.random_erase else ""
    return f"pictures: {size}, {patches}; {rows:,} pictures a step{describe_augmentation(d)}{erased}"


def vit_config(recipe: Recipe, labels: int, origin: Origin | None = None) -> ViTConfig:
    """The sizes of the recipe, or of what the run starts from."""
    d = recipe.data
    head = {"prediction_heads": (HEADS[d.pool],), "labels": labels}
    if origin is None:
        return config_of(recipe, **head)
    cells_of(d.image_size, origin.config.patch_size, "patches")
    return replace(started_config(recipe, origin.config), image_size=d.image_size, **head)


def check_patches(recipe: Recipe) -> None:
    """Refuse pictures that patches do not divide."""
    if recipe.model.architecture:
        cells_of(recipe.data.image_size, recipe.model.patch_size, "patches")


# Labels


def read_labels(train: Gallery, folder: Path) -> tuple[list[str], list[int], np.ndarray]:
    """The sorted labels, the count of each, and each picture's label number; kept in the run's folder."""
    found = [train.label(i) for i in range(len(train))]
    counts = Counter(found)
    if not (folder / LABELS).is_file():
        write_json(folder / LABELS, {label: counts[label] for label in sorted(counts)})
    kept = read_json(inside(folder, LABELS), 1 << 24)
    number = {label: i for i, label in enumerate(kept)}
    if number.keys() != counts.keys():
        raise BadInput(one_line(f"{folder / LABELS} has other labels than the pictures: put back its own"))
    if len(number) < 2:
        raise BadInput(f'all pictures are of the class "{next(iter(number))}": at least two are needed')
    return list(kept), list(kept.values()), np.array([number[label] for label in found])


def numbered(gallery: Gallery, labels: Sequence[str], d: PictureSettings) -> list[tuple[int, int]]:
    """(picture, number of its label) of all held-out pictures; a label unknown to training is refused."""
    number = {label: i for i, label in enumerate(labels)}
    return [(i, number_of(gallery.label(i), number, d)) for i in range(len(gallery))]


def number_of(label: str, number: dict[str, int], d: PictureSettings) -> int:
    if label not in number:
        where = d.valid_images or d.images or d.corpus
        raise BadInput(
            one_line(f'{where} has the class "{label}", which was not learned{nearest(label, number)}')
        )
    return number[label]


def spread(rows: list[tuple[int, int]], most: int) -> list[tuple[int, int]]:
    """At most so many rows from all over the folder, which is sorted by label."""
    if len(rows) <= most:
        return rows
    return [rows[i] for i in np.linspace(0, len(rows) - 1, most).astype(int)]


# Another run to start from


def find_start(recipe: Recipe, run: Path, say: Callable[[str], None]) -> Origin:
    """The Vision Transformer to start from, looked at once; afterwards what the run has noted of it."""
    folder = recipe.train.from_
    if not (run / FROM).is_file():
        loaded = load(folder)
        if not isinstance(loaded.config, ViTConfig):
            raise BadInput(
                one_line(
                    f"{folder} is a {loaded.architecture}: image-classify starts from a Vision Transformer"
                )
            )
        check_pictures(folder, loaded.config, recipe.data, say)
        origin = Origin(
            str(Path(folder).absolute()), weights_hash(Path(folder)), loaded.architecture, loaded.config, {}
        )
        write_json(run / FROM, asdict(origin))
    with naming(run / FROM):
        return read_origin(read_json(inside(run, FROM)))


def check_pictures(folder: str, config: ViTConfig, d: NormalizedPictures, say: Callable[[str], None]) -> None:
    """The model must read pictures of this kind; numbers that it is not used to are said."""
    if config.channels != (3 if d.color else 1):
        kind = "colors" if config.channels == 3 else "gray"
        raise BadInput(
            one_line(f"{folder} reads pictures of {kind}: set data.color={str(config.channels == 3).lower()}")
        )
    how = preprocessing_at(Path(folder))
    for told in () if how is None else differences(how, d):
        say(one_line(f"warning: {folder} reads pictures otherwise: {told}"))


def describe_start(origin: Origin, d: PictureSettings) -> str:
    old, new = origin.config.grid, d.image_size // origin.config.patch_size
    grids = "" if old == new else f"; positions of {old} x {old} patches are interpolated to {new} x {new}"
    return f"start: {origin.folder}, its sizes{grids}; the head is new"


def begin(model: WithHeads, origin: Origin, image: int) -> None:
    """Copy every weight but the head's, positions interpolated for pictures of another size."""
    check_same(origin)
    loaded = load(origin.folder)
    resized, _ = vit.resized(loaded.model, loaded.config, image)  # type: ignore[arg-type]
    found = dict(resized.named_parameters())
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name in found and not name.startswith("heads."):
                weight.copy_(found[name])


# Evaluation

MOST = 256  # pictures at once

Labeled = tuple[np.ndarray, list[int]]  # pixels [B, H, W, C] and the numbers of their labels


def batched(gallery: Gallery, rows: Sequence[tuple[int, int]]) -> Iterator[Labeled]:
    for start in range(0, len(rows), MOST):
        some = rows[start : start + MOST]
        yield gallery.pixels_NHWC[[i for i, _ in some]], [number for _, number in some]


def guesses(model: nn.Module, d: NormalizedPictures, pixels_BHWC: np.ndarray) -> Tensor:
    """Scores [B, labels]."""
    device = next(model.parameters()).device
    x_BCHW = normal(torch.from_numpy(np.array(pixels_BHWC)).to(device), d)
    return scores(model, x_BCHW.to(next(model.parameters()).dtype)).float()  # type: ignore[arg-type]


def predict_labels(
    model: nn.Module, d: NormalizedPictures, batches: Iterable[Labeled]
) -> tuple[list[int], list[int], float]:
    """(labels found, right labels, loss): the loss is in nats per picture."""
    scored = ((guesses(model, d, pixels).cpu(), torch.tensor(numbers)) for pixels, numbers in batches)
    return label_predictions(scored)


def evaluate(model: nn.Module, d: NormalizedPictures, batches: Iterable[Labeled]) -> dict[str, float]:
    """Held-out loss (nats per picture), accuracy and macro F1."""
    found, right, loss = predict_labels(model, d, batches)
    return {"loss": loss, "accuracy": accuracy(found, right), "macro_f1": macro_f1(found, right)}


def measure(model: nn.Module, asked: EvaluationRequest) -> Measured:
    """Accuracy and F1, of all labels together and of each, on all held-out pictures."""
    d, report = asked.recipe.data, Report(asked.recipe.data.bad_lines, "image")
    counted = read_json(inside(asked.run, LABELS), 1 << 24)
    labels, counts = list(counted), list(counted.values())
    number = {label: i for i, label in enumerate(labels)}
    predicted = predict_labels(
        model, d, asked.track(gathered(evaluation_rows(asked, report), number, d, asked.rows), "classifying")
    )
    return measured_labels(predicted, labels, counts, "picture", report)


def held_out_loss(model: nn.Module, asked: EvaluationRequest, rows: int) -> tuple[float, float]:
    """The loss on some held-out pictures, and that of guessing."""
    d, counted = asked.recipe.data, read_json(inside(asked.run, LABELS), 1 << 24)
    number = {label: i for i, label in enumerate(counted)}
    some = islice(evaluation_rows(asked, Report(d.bad_lines, "image")), rows)
    _, right, loss = predict_labels(model, d, gathered(some, number, d, MOST))
    return loss, loss_of_frequencies(list(counted.values()), right)


def evaluation_rows(asked: EvaluationRequest, report: Report, captions: bool = False) -> Iterator[GalleryRow]:
    """The user's own pictures, or those that the run holds out."""
    d, kept = asked.recipe.data, asked.run / DATA / VALID
    if asked.own:
        return folder_rows(d, d.valid_images, captions, report)()
    if asked.split == VALID and kept.is_dir():
        gallery = Gallery.open(kept)
        return (gallery.row(i) for i in range(len(gallery)))
    return split_rows(d, asked.split, captions, report)


def gathered(
    rows: Iterable[GalleryRow], number: dict[str, int], d: PictureSettings, most: int
) -> Iterator[Labeled]:
    """Rows in batches."""
    return (put_together(some, number, d) for some in chunks(rows, most))


def put_together(rows: Sequence[GalleryRow], number: dict[str, int], d: PictureSettings) -> Labeled:
    return np.stack([row.pixels_HWC for row in rows]), [number_of(row.label, number, d) for row in rows]


def show(
    model: nn.Module, d: NormalizedPictures, gallery: Gallery, rows: list[tuple[int, int]], labels: list[str]
) -> list[str]:
    """A few pictures by their numbers, with the label the model gives them."""
    if not rows:
        return []
    found = guesses(model, d, gallery.pixels_NHWC[[i for i, _ in rows]]).argmax(-1).tolist()
    lines = []
    for (i, right), mine in zip(rows, found, strict=True):
        told = f"    held-out picture {i + 1} → {labels[mine]}"
        lines.append(told if mine == right else f"{told}    (expected: {labels[right]})")
    return lines


EPOCHS, MOST_STEPS = 60, 9000
BATCH = {"cuda": 512, "cpu": 64}  # pictures in a step


def foresee(recipe: Recipe) -> Iterator[Choice]:
    """Small square pictures keep their own size, and gray ones stay gray; a start is followed."""
    if recipe.train.from_:
        return (yield from taken_over(recipe.train.from_))
    shape = own_shape(recipe.data)
    if shape is not None and shape[0] % recipe.model.sizes.get("patch_size", 1) == 0:
        yield Choice("data.image_size", shape[0])
        yield Choice("data.color", shape[1])


def choose(recipe: Recipe, examples: ImageExamples, device: str) -> Iterator[Choice]:
    """The mean and the deviation of the pictures themselves, and how many steps."""
    if not recipe.train.from_:
        some = examples.train.pixels(np.arange(min(1000, len(examples.train)))).double() / 255
        yield Choice("data.mean", round(float(some.mean()), 3))
        yield Choice("data.std", round(max(float(some.std()), 0.001), 3))
    tokens = BATCH[device] * examples.length
    yield Choice("train.batch_tokens", tokens, f"{BATCH[device]} pictures per step")
    yield from steps_for(with_batch(recipe, tokens), examples.size, EPOCHS, MOST_STEPS)


TASK = Task(
    name="image-classify",
    data=ImageData,
    train=ImageTraining,
    architectures={
        "vit": {"patch_size": 4, "activation": "gelu", "dropout": 0.0, "attention_dropout": 0.0, "eps": 1e-6}
    },
    corpora={"shapes": Corpus(("valid", "test"))},
    starts=Starts(find=find_start, published={"train.learning_rate": 5e-5}),
    foresee=foresee,
    choose=choose,
    chosen={
        "train.steps": f"{EPOCHS} passes over the pictures, at most {MOST_STEPS:,} steps",
        "train.batch_tokens": f"{BATCH['cpu']} pictures on a CPU, {BATCH['cuda']} on a GPU",
        "data.image_size": "that of the pictures where it is small, else {default}",
        "data.color": "that of the pictures where they are small, else {default}",
        "data.resize": "that of the model to start from, else {default}",
        "data.mean": "that of the pictures, or of the model to start from",
        "data.std": "that of the pictures, or of the model to start from",
    },
    read=read,
    job=job,
    measure=measure,
    metric="accuracy",
    own_data=({"images": ("data.valid_images",)},),
    next=("classify {path} your-own.png", "look {path} your-own.png"),
    check=check_patches,
)
