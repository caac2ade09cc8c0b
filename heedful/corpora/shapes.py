"""Shapes: drawn scenes of one or two colored things, each with a caption that is true to the letter.

    a small red circle above a blue square

Things have one of three sizes, of which the middle one is not mentioned. Of two things, either may be named
first: both captions are true (`truths`), and a picture has one of them. What a picture shows follows from its
split and its number alone, and no scene is in two splits.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, product
from typing import overload

import numpy as np

from ..data.plan import keyed
from ..errors import BadInput
from ..models import nearest

SHAPES = ("circle", "square", "triangle", "diamond", "cross")
COLORS = {
    "red": (219, 50, 54),
    "green": (38, 158, 77),
    "blue": (46, 94, 214),
    "yellow": (242, 196, 37),
    "purple": (146, 66, 176),
    "black": (33, 33, 38),
}
SIZES = {"small": 0.115, "medium": 0.165, "large": 0.22}  # half the width, as a share of the picture's side
RELATIONS = {
    "left of": "right of",
    "right of": "left of",
    "above": "below",
    "below": "above",
}  # and the reverse
PAPER = (245, 243, 238)

COUNTS = {"train": 20_000, "valid": 1000, "test": 2000}
SPLITS = tuple(COUNTS)
SEEDS = {"train": 1, "valid": 2, "test": 3}
PARTS = 16  # scenes are dealt into so many parts: the first is valid, the second is test
PLACES = 128  # along a side, where a thing's middle can be
EDGE, GAP = 0.02, 0.03  # least room to the edge, and between two things
SIDE = 32


@dataclass(frozen=True)
class Thing:
    """One colored shape.

    Attributes:
        shape: circle, square, triangle, diamond or cross.
        color: Its color.
        size: small, medium or large.
        x: Its middle, from the left, as a share of the picture's side.
        y: Its middle, from above.

    Example:
        >>> Thing("circle", "red", "small", x=0.3, y=0.5).words
        'a small red circle'
    """

    shape: str
    color: str
    size: str
    x: float
    y: float

    @property
    def words(self) -> str:
        """For example "a small red circle"."""
        return " ".join(["a", *([] if self.size == "medium" else [self.size]), self.color, self.shape])


@dataclass(frozen=True)
class Scene:
    """One thing, or two and how the first lies to the second.

    Attributes:
        things: The things.
        relation: "left of", "right of", "above", "below", or "" for one thing.

    Example:
        >>> things = Thing("circle", "red", "small", 0.3, 0.5), Thing("square", "blue", "medium", 0.7, 0.5)
        >>> scene = Scene(things, "left of")
        >>> scene.words, scene.reverse.words
        ('a small red circle left of a blue square', 'a blue square right of a small red circle')
    """

    things: tuple[Thing, ...]
    relation: str = ""

    @property
    def words(self) -> str:
        """The caption that names the first thing first."""
        return f" {self.relation} ".join(thing.words for thing in self.things)

    @property
    def reverse(self) -> Scene:
        """The same scene, seen from its other end."""
        return Scene(self.things[::-1], RELATIONS.get(self.relation, ""))


def truths(scene: Scene) -> tuple[str, ...]:
    """Every caption that is true of a scene."""
    return tuple(dict.fromkeys((scene.words, scene.reverse.words)))


@dataclass(frozen=True)
class Picture:
    """A drawn scene.

    Attributes:
        pixels_HWC: Red, green and blue, from 0 to 255.
        caption: What it shows, in words.
        scene: What it shows.

    Example:
        >>> picture = split("valid")[0]
        >>> picture.pixels_HWC.shape, picture.caption == picture.scene.words
        ((32, 32, 3), True)
    """

    pixels_HWC: np.ndarray
    caption: str
    scene: Scene


# Captions read back


@dataclass(frozen=True)
class Said:
    """What a caption says.

    Attributes:
        things: (size, color, shape) of each thing.
        relation: How the first lies to the second.

    Example:
        >>> said, other = parse_caption("a red circle above a blue square"), Said((), "")
        >>> said.plain == parse_caption("a blue square below a red circle").plain
        True
    """

    things: tuple[tuple[str, str, str], ...]
    relation: str = ""

    @property
    def plain(self) -> Said:
        """The same in one form: captions say the same if these are equal."""
        turned = Said(self.things[::-1], RELATIONS.get(self.relation, ""))
        return turned if self.relation in ("right of", "below") else self


def said_of(scene: Scene) -> Said:
    """What the caption of a scene says."""
    return Said(tuple((t.size, t.color, t.shape) for t in scene.things), scene.relation)


SAID_SIZES = "|".join(size for size in SIZES if size != "medium")
THING = rf"an? (?:({SAID_SIZES}) )?({'|'.join(COLORS)}) ({'|'.join(SHAPES)})"
CAPTION = re.compile(rf"{THING}(?: ({'|'.join(RELATIONS)}) {THING})?")


def parse_caption(text: str) -> Said | None:
    """Read a caption. Case and white space do not count.

    Args:
        text: The caption.

    Returns:
        `Said`; None if the grammar could not write it.

    Example:
        >>> parse_caption("A small red circle").things
        (('small', 'red', 'circle'),)
    """
    found = CAPTION.fullmatch(" ".join(text.lower().split()))
    if found is None:
        return None
    size, color, shape, relation, *other = found.groups()
    things = [(size or "medium", color, shape)]
    if relation is not None:
        things.append((other[0] or "medium", other[1], other[2]))
    return Said(tuple(things), relation or "")


def checked_caption(text: str) -> Said:
    """What a caption says, which must be of the grammar."""
    said = parse_caption(text)
    if said is None:
        raise BadInput(
            f'"{text[:200]}" is no caption of shapes: write it like '
            f'"a small red circle above a blue square", '
            f"with the shapes {', '.join(SHAPES)} and the colors {', '.join(COLORS)}"
        )
    return said


# Classes


def labels() -> tuple[str, ...]:
    """The classes of pictures: a color and a shape.

    Returns:
        All classes.

    Example:
        >>> len(labels()), labels()[0]
        (30, 'red circle')
    """
    return tuple(f"{color} {shape}" for color, shape in product(COLORS, SHAPES))


def label_of(scene: Scene) -> str:
    """The class of a scene: of its one thing, or of the one that is named first."""
    return f"{scene.things[0].color} {scene.things[0].shape}"


# Splits


class Split(Sequence[Picture]):
    """The pictures of a split: a sequence whose items are drawn when you take them.

    Args:
        name: Name of the split.
        side: Pixels along a side.
        things: Things in each picture; 0 for either.
        size: Number of pictures.

    Example:
        >>> pictures = split("valid", size=10)
        >>> len(pictures), len(pictures[2:5]), pictures[-1].caption == pictures[9].caption
        (10, 3, True)
    """

    def __init__(self, name: str, side: int, things: int, size: int) -> None:
        self.name, self.side, self.things, self.size = name, side, things, size

    def __len__(self) -> int:
        return self.size

    @overload
    def __getitem__(self, index: int) -> Picture: ...

    @overload
    def __getitem__(self, index: slice) -> list[Picture]: ...

    def __getitem__(self, index: int | slice) -> Picture | list[Picture]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self.size))]
        i = operator.index(index)
        i += self.size if i < 0 else 0
        if not 0 <= i < self.size:
            raise IndexError(f"picture {index} of {self.size}")
        scene = scene_of(self.name, i, self.things)
        return Picture(draw(scene, self.side), scene.words, scene)


def split(name: str, side: int = SIDE, things: int = 0, size: int = 0) -> Split:
    """The pictures of a split, each drawn when you take it. They are the same on every machine.

    Args:
        name: "train", "valid" or "test".
        side: Pixels along a side.
        things: Things in each picture: 1, 2, or 0 for either (one picture in four has one).
        size: Number of pictures; 0 for as many as the split usually has.

    Returns:
        A sequence of `Picture`.

    Raises:
        BadInput: There is no such split, or a number is out of range.

    Example:
        >>> pictures = split("train", side=64, things=1)
        >>> len(pictures), pictures[0].pixels_HWC.shape
        (20000, (64, 64, 3))
    """
    if name not in COUNTS:
        raise BadInput(f'shapes has no split "{name}"{nearest(name, COUNTS)}')
    if not 16 <= side <= 1024:
        raise BadInput(f"shapes are drawn on 16 to 1024 pixels a side, not {side}")
    if things not in (0, 1, 2):
        raise BadInput(f"a scene of shapes has 1 or 2 things, or 0 for either, not {things}")
    return Split(name, side, things, size or COUNTS[name])


def scene_of(name: str, index: int, things: int = 0) -> Scene:
    """The scene of a number: its things, and the first random places that fit them and the split."""
    kinds = kinds_by_lot(lots_of(keyed(SEEDS[name], index, things)), things)
    for attempt in count(1):
        scene = placed_by_lot(lots_of(keyed(SEEDS[name], index, things, attempt)), kinds)
        if scene is not None and split_of(scene) == name:
            return scene
    raise AssertionError("counting does not end")


def split_of(scene: Scene) -> str:
    """The split that a scene belongs to, however it is worded."""
    numbers = sorted(
        keyed(
            SHAPES.index(thing.shape),
            list(COLORS).index(thing.color),
            list(SIZES).index(thing.size),
            round(thing.x * PLACES),
            round(thing.y * PLACES),
        )
        for thing in scene.things
    )
    part = keyed(*numbers) % PARTS
    return ("valid", "test")[part] if part < 2 else "train"


Lot = Callable[[int], int]


def lots_of(key: int) -> Lot:
    """Numbers drawn one after the other, each below what is asked for."""
    numbers: Iterator[int] = (keyed(key, turn) for turn in count())
    return lambda below: next(numbers) % below


Kind = tuple[str, str, str]  # shape, color, size


def kinds_by_lot(lot: Lot, things: int) -> list[Kind]:
    """One kind of thing, or two that differ in shape or in color."""
    many = things or 2 - (lot(4) == 0)
    kinds: list[Kind] = []
    while len(kinds) < many:
        kind = SHAPES[lot(len(SHAPES))], list(COLORS)[lot(len(COLORS))], list(SIZES)[lot(len(SIZES))]
        if not kinds or kind[:2] != kinds[0][:2]:
            kinds.append(kind)
    return kinds


def placed_by_lot(lot: Lot, kinds: Sequence[Kind]) -> Scene | None:
    """A scene of such things, or None if they would lie in each other's way."""
    things = tuple(Thing(*kind, within(lot, SIZES[kind[2]]), within(lot, SIZES[kind[2]])) for kind in kinds)
    relation = relation_of(*things) if len(things) == 2 else ""
    return Scene(things, relation) if relation or len(things) == 1 else None


def within(lot: Lot, half: float) -> float:
    """A place where a thing of this half width does not cross the edge."""
    least = int((half + EDGE) * PLACES) + 1
    return (least + lot(PLACES - 2 * least + 1)) / PLACES


def relation_of(first: Thing, second: Thing) -> str:
    """How the first lies to the second: apart in one direction, at least twice as far as in the other."""
    across, down = second.x - first.x, second.y - first.y
    far, near = max(abs(across), abs(down)), min(abs(across), abs(down))
    if far < SIZES[first.size] + SIZES[second.size] + GAP or near > far / 2:
        return ""
    if abs(across) > abs(down):
        return "left of" if across > 0 else "right of"
    return "above" if down > 0 else "below"


# Drawing


def draw(scene: Scene, side: int = SIDE) -> np.ndarray:
    """Draw a scene, with smooth edges.

    Args:
        scene: The scene.
        side: Pixels along a side.

    Returns:
        Pixels from 0 to 255, [side, side, 3].

    Example:
        >>> draw(Scene((Thing("circle", "red", "large", 0.5, 0.5),)), side=16).shape
        (16, 16, 3)
    """
    pixels_HWC = np.empty((side, side, 3), np.float64)
    pixels_HWC[:] = PAPER
    middles = (np.arange(side) + 0.5) / side
    for thing in scene.things:
        x_1W, y_H1 = middles[None, :] - thing.x, middles[:, None] - thing.y
        outside_HW = OUTLINES[thing.shape](x_1W, y_H1, SIZES[thing.size])
        cover_HW1 = np.clip(0.5 - outside_HW * side, 0, 1)[..., None]
        pixels_HWC += cover_HW1 * (np.array(COLORS[thing.color], np.float64) - pixels_HWC)
    return np.rint(pixels_HWC).astype(np.uint8)


# How far a place lies outside of a shape of half width r around (0, 0); inside it is negative. y points down.


def circle(x: np.ndarray, y: np.ndarray, r: float) -> np.ndarray:
    return np.hypot(x, y) - r


def square(x: np.ndarray, y: np.ndarray, r: float) -> np.ndarray:
    return np.maximum(np.abs(x), np.abs(y)) - 0.9 * r


def diamond(x: np.ndarray, y: np.ndarray, r: float) -> np.ndarray:
    return (np.abs(x) + np.abs(y) - r) / 2**0.5


def triangle(x: np.ndarray, y: np.ndarray, r: float) -> np.ndarray:
    """Its tip is up; twice as wide as half its height."""
    slope = (2 * np.abs(x) - (y + 0.9 * r)) / 5**0.5 - 0.05 * r
    return np.maximum(slope, y - 0.9 * r)


def cross(x: np.ndarray, y: np.ndarray, r: float) -> np.ndarray:
    arm = 0.34 * r
    lying = np.maximum(np.abs(x) - r, np.abs(y) - arm)
    return np.minimum(lying, np.maximum(np.abs(x) - arm, np.abs(y) - r))


OUTLINES = {"circle": circle, "square": square, "triangle": triangle, "diamond": diamond, "cross": cross}
