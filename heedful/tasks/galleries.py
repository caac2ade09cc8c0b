"""Where the pictures of a recipe come from: a built-in corpus, a folder, or IDX files; made ready once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from ..corpora import shapes
from ..data.images.folders import Item, is_idx, items_of, read_all
from ..data.images.gallery import Gallery, GalleryRow, write_gallery
from ..data.images.prepare import ready
from ..data.plan import keyed, permuted_array
from ..data.report import Report
from ..errors import BadInput
from ..files import one_line
from .recipe.settings import AugmentedPictures, PictureSettings

HELD_OUT, MOST_HELD_OUT = 10, 2000  # without held-out images: one in so many, and no more than these


def galleries(data: PictureSettings, folder: Path, captions: bool, report: Report) -> dict[str, Gallery]:
    """The pictures to learn from and those held out, {"train": ..., "valid": ...}: made once, in folder/NAME.

    captions: those that have one, or, without, those that have a class.
    """
    made = {name: folder / name for name in ("train", "valid")}
    if any(not path.is_dir() for path in made.values()):
        sources = sources_of(data, captions, report)
        for name, path in made.items():
            if not path.is_dir():
                write_gallery(path, sources[name](), data)
    return {name: Gallery.open(path) for name, path in made.items()}


RowSource = Callable[[], Iterator[GalleryRow]]


def sources_of(data: PictureSettings, captions: bool, report: Report) -> dict[str, RowSource]:
    """Where the pictures to learn from and those held out come from."""
    if data.corpus:
        return {name: corpus_rows(data, name, captions) for name in ("train", "valid")}
    if not data.images:
        raise BadInput("there is nothing to learn from: give --images FOLDER, or --corpus shapes")
    if data.valid_images:
        return {
            "train": rows_in(items_of(data.images, captions, report), data, report),
            "valid": folder_rows(data, data.valid_images, captions, report),
        }
    train, valid = divided(items_of(data.images, captions, report))
    return {"train": rows_in(train, data, report), "valid": rows_in(valid, data, report)}


def split_rows(data: PictureSettings, split: str, captions: bool, report: Report) -> Iterator[GalleryRow]:
    """The pictures of any split that there is: train and valid, and test of a corpus or of IDX files."""
    if data.corpus:
        return corpus_rows(data, split, captions)()
    if split == "test":
        if not is_idx(data.images):
            raise BadInput(
                one_line(f"{data.images} has no split test: give the images to judge by, --images")
            )
        return rows_in(items_of(data.images, captions, report, "test"), data, report)()
    return sources_of(data, captions, report)[split]()


def folder_rows(data: PictureSettings, folder: str, captions: bool, report: Report) -> RowSource:
    """All pictures of a folder that is held out; of IDX files, those for testing."""
    part = "test" if not captions and Path(folder).is_dir() and is_idx(folder) else "train"
    return rows_in(items_of(folder, captions, report, part), data, report)


def corpus_rows(data: PictureSettings, split: str, captions: bool) -> RowSource:
    """The pictures of a built-in corpus; where they are to be told apart, each has one thing."""
    pictures = shapes.split(split, max(data.image_size, shapes.SIDE), 0 if captions else 1)
    return lambda: (
        GalleryRow(ready(p.pixels_HWC, data), "" if captions else shapes.label_of(p.scene), p.caption)
        for p in pictures
    )


def rows_in(items: Sequence[Item], data: PictureSettings, report: Report) -> RowSource:
    def rows() -> Iterator[GalleryRow]:
        found = 0
        for item, pixels_HWC in read_all(items, report):
            found += 1
            yield GalleryRow(ready(pixels_HWC, data), item.label, item.caption)
        if not found:
            raise BadInput(one_line(f"no image could be used ({report.sentence()})"))

    return rows


LOOKED_AT, LARGEST_SIDE = 10, 64


def own_shape(data: PictureSettings) -> tuple[int, bool] | None:
    """(pixels a side, whether there are colors) of small pictures that are squares of one size; else None."""
    if data.corpus or not data.images:
        return None
    quiet = Report("drop", "image")
    items = items_of(data.images, False, quiet)
    spread = items[:: max(1, len(items) // LOOKED_AT)][:LOOKED_AT]
    pictures = [pixels_HWC for _, pixels_HWC in read_all(spread, quiet)]
    sides = {side for pixels_HWC in pictures for side in pixels_HWC.shape[:2]}
    if len(sides) != 1 or max(sides) > LARGEST_SIDE:
        return None
    return max(sides), any((p[..., :1] != p).any() for p in pictures)


def divided(items: Sequence[Item]) -> tuple[list[Item], list[Item]]:
    """Rows to learn from and held-out rows: the same share of every class, whatever the seed."""
    by_label: dict[str, list[int]] = {}
    for i, item in enumerate(items):
        by_label.setdefault(item.label, []).append(i)
    every = max(HELD_OUT, -(-len(items) // MOST_HELD_OUT))
    held_out: set[int] = set()
    for number, places in enumerate(by_label.values()):
        order = permuted_array(np.arange(len(places)), len(places), keyed(number, len(places)))
        held_out.update(places[int(k)] for k in order[: max(1, len(places) // every)])
    apart = [[item for i, item in enumerate(items) if (i in held_out) == out] for out in (False, True)]
    if not apart[0]:
        raise BadInput(
            "there is one image: at least two are needed, one to learn from and one to be judged by"
        )
    return apart[0], apart[1]


def describe_augmentation(d: AugmentedPictures) -> str:
    """How pictures are moved in training, as the end of a sentence."""
    told = [f"moved by up to {d.random_shift:.0%}"] if d.random_shift else []
    told += [f"zoomed by up to {d.random_zoom:.0%}"] if d.random_zoom else []
    told += ["half of them in a mirror"] if d.random_flip else []
    return f", {', '.join(told)}" if told else ""
