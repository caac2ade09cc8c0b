"""Folders of images: by class, with a file of captions, or of IDX files.

FOLDER/CLASS/NAME.png                           an image, whose class is its folder's name
FOLDER/captions.tsv    NAME.png<tab>caption     images and their captions, a line each
FOLDER/captions.jsonl  {"file": "NAME.png", "caption": "..."}
FOLDER/train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz, t10k-...  (MNIST and its like)
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from ...errors import BadInput
from ...files import is_plain, naming, one_line
from ..lines import judged_lines
from ..report import Fault, Report
from .files import ENDINGS, is_image, read_idx, read_image

CAPTIONS = ("captions.tsv", "captions.jsonl")
FILES = ("file", "file_name", "image")  # names that are known in JSON, the first that is there being taken
WORDS = ("caption", "text")
IDX_IMAGES, IDX_LABELS = "-images-idx3-ubyte", "-labels-idx1-ubyte"
IDX_PARTS = {"train": "train", "test": "t10k"}
LEFT_BY_SYSTEMS = ("thumbs.db", "desktop.ini")
LINE = 100_000  # characters


@dataclass(frozen=True)
class Item:
    """One image to come: where it is, what is known of it, and how its pixels are had."""

    where: str
    label: str
    caption: str
    read: Callable[[], np.ndarray]


def by_class(folder: str | Path, report: Report) -> list[Item]:
    """The images of a folder with a folder for each class, in the order of their names."""
    folder = Path(folder)
    classes = [path for path in listed(folder) if path.is_dir()]
    for path in listed(folder):
        if not path.is_dir():
            bad(report, path, "other files", f"is no folder of a class, as {folder} must have")
    items = [
        Item(str(path), kind.name, "", reader(path)) for kind in classes for path in images_in(kind, report)
    ]
    counts = Counter(item.label for item in items)
    for kind in classes:
        if counts[kind.name] < 2:
            many = "one image" if counts[kind.name] else "no image"
            needed = "at least two are needed, one to learn from and one to be judged by"
            remedy = "add some, or remove the folder"
            raise BadInput(one_line(f"the class {kind.name} has {many} in {kind}: {needed}; {remedy}"))
    if len(classes) < 2:
        raise BadInput(
            one_line(f"{folder} has {len(classes)} folders: give one with a folder of images for each class")
        )
    return items


def images_in(folder: Path, report: Report) -> Iterator[Path]:
    """The image files of a folder; others are bad."""
    for path in listed(folder):
        if path.is_file() and is_image(path):
            yield path
        else:
            bad(report, path, "other files", f"is no image ({', '.join(ENDINGS)})")


def reader(path: Path) -> Callable[[], np.ndarray]:
    return lambda: read_image(path)


def listed(folder: Path) -> list[Path]:
    """What a folder holds, by name, less what systems leave there."""
    with naming(folder):
        if not folder.is_dir():
            raise BadInput(
                f"{folder} is {'a file' if folder.exists() else 'not there'}: give a folder of images"
            )
        found = sorted(folder.iterdir())
    return [path for path in found if path.name[:1] != "." and path.name.lower() not in LEFT_BY_SYSTEMS]


def bad(report: Report, path: Path, kind: str, why: str) -> None:
    """Count a file that cannot be used, or refuse it with what would leave it out."""
    if report.policy == "refuse":
        remedy = "remove it, or leave such files out by --set data.bad_lines=drop"
        raise BadInput(one_line(f"{path} {why}: {remedy}"))
    report.bad(path, 0, Fault(kind, why))


# Captions


def with_captions(folder: str | Path, report: Report) -> list[Item]:
    """The images that a captions file names, in its order."""
    folder = Path(folder)
    present = [path for path in listed(folder) if path.name in CAPTIONS]
    if len(present) != 1:
        why = "has no captions" if not present else "has two files of captions"
        raise BadInput(one_line(f"{folder} {why}: put one there, {' or '.join(CAPTIONS)}"))
    items: list[Item] = []
    for number, line in enumerate(judged_lines(present[0], LINE), 1):
        found = line if isinstance(line, Fault) else captioned(folder, line, present[0].suffix == ".jsonl")
        if isinstance(found, Fault):
            report.bad(present[0], number, found)
        else:
            items.append(found)
    named = {item.where for item in items}
    for path in images_in_captioned(folder, report):
        if str(path) not in named:
            bad(report, path, "without a caption", f"has no caption in {present[0].name}")
    if not items:
        raise BadInput(one_line(f"{present[0]} names no image"))
    return items


def images_in_captioned(folder: Path, report: Report) -> Iterator[Path]:
    for path in listed(folder):
        if path.name in CAPTIONS or path.is_dir():
            continue  # a folder may hold images that captions name by folder/name
        if is_image(path):
            yield path
        else:
            bad(report, path, "other files", f"is no image ({', '.join(ENDINGS)})")


def captioned(folder: Path, line: str, is_json: bool) -> Item | Fault:
    """The image and the caption of a line."""
    pair = json_pair(line) if is_json else tsv_pair(line)
    if isinstance(pair, Fault):
        return pair
    name, caption = pair
    if not caption.strip():
        return Fault("without a caption", f"{name[:200]} has no caption: write one, or remove the line")
    if not all(is_plain(part) for part in name.split("/")):
        return Fault("misnamed", f"{name[:200]!r} is no name of a file in {folder}")
    path = folder / name
    if not path.is_file():
        return Fault("missing", f"{path} is not there: put it there, or remove the line")
    return Item(str(path), "", " ".join(caption.split()), reader(path))


def tsv_pair(line: str) -> tuple[str, str] | Fault:
    name, tab, caption = line.partition("\t")
    if not tab:
        return Fault("without a tab", "there is no tab between the name of a file and its caption")
    return name.strip(), caption


def json_pair(line: str) -> tuple[str, str] | Fault:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        return Fault("not JSON", "not a JSON object {...}")
    values = []
    for names in (FILES, WORDS):
        name = next((name for name in names if name in found), None)
        if name is None:
            return Fault("without a column", f"there is no {' or '.join(names)}")
        if not isinstance(found[name], str):
            return Fault("of a wrong type", f'"{name}" is no text')
        values.append(found[name])
    return values[0], values[1]


# IDX


def of_idx(folder: str | Path, part: str) -> list[Item]:
    """The images of a folder of IDX files: part `train`, or `test` (t10k)."""
    folder = Path(folder)
    images, labels = (read_idx(idx_file(folder, IDX_PARTS[part] + kind)) for kind in (IDX_IMAGES, IDX_LABELS))
    if images.ndim not in (3, 4) or labels.ndim != 1 or len(images) != len(labels):
        shapes = f"images of {images.shape}, labels of {labels.shape}"
        raise BadInput(one_line(f"the {IDX_PARTS[part]} files in {folder} do not fit together: {shapes}"))
    pixels_NHWC = images if images.ndim == 4 else images[..., None]
    width = len(str(int(labels.max())))
    return [
        Item(f"{folder} ({part} {i})", f"{int(label):0{width}}", "", partial(pixels_NHWC.__getitem__, i))
        for i, label in enumerate(labels)
    ]


def is_idx(folder: str | Path) -> bool:
    """Whether a folder holds IDX files."""
    return any(idx_paths(Path(folder), part + IDX_IMAGES) for part in IDX_PARTS.values())


def idx_paths(folder: Path, name: str) -> list[Path]:
    return [path for path in (folder / name, folder / f"{name}.gz") if path.is_file()]


def idx_file(folder: Path, name: str) -> Path:
    found = idx_paths(folder, name)
    if not found:
        raise BadInput(one_line(f"{folder} has no {name}, nor {name}.gz: put it there"))
    return found[0]


# Any of them


def items_of(folder: str | Path, captions: bool, report: Report, part: str = "train") -> list[Item]:
    """The images of a folder of whichever kind, with their captions, or with their classes."""
    if captions:
        return with_captions(folder, report)
    if os.path.isdir(folder) and is_idx(folder):
        return of_idx(folder, part)
    return by_class(folder, report)


def read_all(items: Sequence[Item], report: Report) -> Iterator[tuple[Item, np.ndarray]]:
    """Each image with its pixels; those that cannot be read are bad."""
    for item in items:
        try:
            pixels_HWC = item.read()
        except BadInput as error:
            if report.policy == "refuse":
                raise
            report.bad(item.where, 0, Fault("unreadable", str(error)))
        else:
            yield item, pixels_HWC
