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
from typing import Any

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
from ..interop.run_folder import LABELS, is_run
from ..models import nearest, vit
from ..models.base.shells import WithHeads
from ..models.vit import ViTConfig
from ..tasks.galleries import folder_rows, galleries, split_rows
from ..train.loss import Loss, cross_entropy
from .evaluation import EvaluationRequest, Measured, measured_labels
from .metrics import (
    accuracy,
    accuracy_of_majority,
    loss_of_frequencies,
    macro_f1,
)
from .origin import FROM, Origin, check_same, read_origin, weights_hash
from .recipe.settings import DataSettings, Recipe
from .task import Job, label_predictions

HEADS = {"class": "classify", "mean": "classify_mean"}
DATA, VALID = "data", "valid"
EPS = 1e-6


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


def image_loss(model: WithHeads, batch: ImageBatch, data: DataSettings, smoothing: float = 0.0) -> Loss:
    """The negative log-likelihood of the right labels of pictures, changed as the batch says."""
    x_BCHW = erased(moved(normal(batch.pixels_BHWC, data), batch.moves_B23), batch.holes_B3)
    return Loss(*cross_entropy(scores(model, x_BCHW), batch.labels_B, smoothing), batch.count)


# From a recipe to a job.


def make_job(recipe: Recipe, folder: Path, say: Callable[[str], None]) -> Job:
    """Read the pictures once, number their labels, and plan the batches."""
    d, t = recipe.data, recipe.train
    origin = find_start(t.from_, folder, d, say) if t.from_ else None
    report = Report(d.bad_lines, "image")
    found = galleries(d, folder / DATA, False, report)
    if report.counts:
        say(report.sentence())
    train, there = found["train"], found[VALID]
    labels, counts, numbers_N = read_labels(train, folder)
    config = config_of(recipe, len(labels), origin)
    valid = spread(numbered(there, labels, d), recipe.evaluate.rows)
    length = config.tokens
    plan = RowPlan(len(train), max(1, t.batch_tokens // length), t.seed)

    def batches(step: int, rank: int = 0, world: int = 1) -> list[ImageBatch]:
        ids = plan.batch(step)
        all_moves, all_holes = (lot(d, t.seed, step, len(ids)) for lot in (moves, holes))
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
                "accuracy, always the most frequent label",
                accuracy_of_majority(counts, [n for _, n in valid]),
            ),
            "loss": (
                "nats a picture, every label at its frequency",
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


def describe_pictures(d: DataSettings, config: ViTConfig, rows: int) -> str:
    size = f"{d.image_size} x {d.image_size} pixels{'' if d.color else ' of gray'}"
    patches = f"{config.grid**2} patches of {config.patch_size} x {config.patch_size}"
    return f"pictures: {size}, {patches}; {rows:,} pictures a step{describe_augmentation(d)}"


def describe_augmentation(d: DataSettings) -> str:
    """How pictures are moved in training, as the end of a sentence."""
    told = [f"moved by up to {d.random_shift:.0%}"] if d.random_shift else []
    told += [f"zoomed by up to {d.random_zoom:.0%}"] if d.random_zoom else []
    told += ["half of them in a mirror"] if d.random_flip else []
    told += [f"a square of up to {d.random_erase:.0%} painted over"] if d.random_erase else []
    return f", {', '.join(told)}" if told else ""


def config_of(recipe: Recipe, labels: int, origin: Origin | None = None) -> ViTConfig:
    """The sizes of the recipe, or of what the run starts from."""
    d, m = recipe.data, recipe.model
    if origin is not None:
        return replace(
            origin.config,
            image_size=fitting(d.image_size, origin.config.patch_size),
            prediction_heads=(HEADS[m.pool],),
            labels=labels,
        )
    return ViTConfig(
        image_size=fitting(d.image_size, m.patch),
        channels=3 if d.color else 1,
        **m.pick("layers", "width", "activation", "dropout", ffn_width="hidden", patch_size="patch"),
        heads=m.heads,
        eps=EPS,
        prediction_heads=(HEADS[m.pool],),
        labels=labels,
    )


def fitting(image: int, patch: int) -> int:
    """The size of pictures, if patches divide it."""
    if image % patch:
        near = [size for size in (image // patch * patch, (image // patch + 1) * patch) if size]
        raise BadInput(
            f"data.image_size is {image} pixels, which patches of {patch} do not divide: set it to "
            f"{' or '.join(map(str, near))}"
        )
    return image


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


def numbered(gallery: Gallery, labels: Sequence[str], d: DataSettings) -> list[tuple[int, int]]:
    """(picture, number of its label) of all held-out pictures; a label unknown to training is refused."""
    number = {label: i for i, label in enumerate(labels)}
    return [(i, number_of(gallery.label(i), number, d)) for i in range(len(gallery))]


def number_of(label: str, number: dict[str, int], d: DataSettings) -> int:
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


def find_start(folder: str, run: Path, d: DataSettings, say: Callable[[str], None]) -> Origin:
    """The Vision Transformer in `folder`, looked at once; afterwards what the run has written down of it."""
    if not (run / FROM).is_file():
        loaded = load(folder)
        if not isinstance(loaded.config, ViTConfig):
            raise BadInput(
                one_line(
                    f"{folder} is a {loaded.architecture}: image-classify starts from a Vision Transformer"
                )
            )
        check_pictures(folder, loaded.config, d, say)
        origin = Origin(
            str(Path(folder).absolute()), weights_hash(Path(folder)), loaded.architecture, loaded.config, {}
        )
        write_json(run / FROM, asdict(origin))
    with naming(run / FROM):
        return read_origin(read_json(inside(run, FROM)))


def check_pictures(folder: str, config: ViTConfig, d: DataSettings, say: Callable[[str], None]) -> None:
    """The model must read pictures of this kind; numbers that it is not used to are said."""
    if config.channels != (3 if d.color else 1):
        kind = "colors" if config.channels == 3 else "gray"
        raise BadInput(
            one_line(f"{folder} reads pictures of {kind}: set data.color={str(config.channels == 3).lower()}")
        )
    if not is_run(Path(folder)):
        return
    before = read_json(inside(Path(folder), "recipe.json")).get("data", {})
    for name in ("mean", "std"):
        if before.get(name) not in (None, getattr(d, name)):
            say(f"warning: data.{name} is {getattr(d, name):g}, and {folder} learned with {before[name]:g}")


def describe_start(origin: Origin, d: DataSettings) -> str:
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


def guesses(model: nn.Module, d: DataSettings, pixels_BHWC: np.ndarray) -> Tensor:
    """Scores [B, labels]."""
    device = next(model.parameters()).device
    x_BCHW = normal(torch.from_numpy(np.array(pixels_BHWC)).to(device), d)
    return scores(model, x_BCHW.to(next(model.parameters()).dtype)).float()  # type: ignore[arg-type]


def predict_labels(
    model: nn.Module, d: DataSettings, batches: Iterable[Labeled]
) -> tuple[list[int], list[int], float]:
    """(labels found, right labels, loss): the loss is in nats a picture."""
    scored = ((guesses(model, d, pixels).cpu(), torch.tensor(numbers)) for pixels, numbers in batches)
    return label_predictions(scored)


def evaluate(model: nn.Module, d: DataSettings, batches: Iterable[Labeled]) -> dict[str, float]:
    """Held-out loss (nats a picture), accuracy and macro F1."""
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
    rows: Iterable[GalleryRow], number: dict[str, int], d: DataSettings, most: int
) -> Iterator[Labeled]:
    """Rows in batches."""
    some: list[GalleryRow] = []
    for row in rows:
        some.append(row)
        if len(some) == most:
            yield put_together(some, number, d)
            some = []
    if some:
        yield put_together(some, number, d)


def put_together(rows: Sequence[GalleryRow], number: dict[str, int], d: DataSettings) -> Labeled:
    return np.stack([row.pixels_HWC for row in rows]), [number_of(row.label, number, d) for row in rows]


def show(
    model: nn.Module, d: DataSettings, gallery: Gallery, rows: list[tuple[int, int]], labels: list[str]
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


def data_of(recipe: Recipe | None, config: Any) -> DataSettings:
    """How pictures are made ready for a model: as its run says, or as published ones were."""
    return (
        recipe.data
        if recipe is not None
        else DataSettings(image_size=config.image_size, color=config.channels == 3)
    )
