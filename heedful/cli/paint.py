"""Draw images of a caption, with a model that was trained to.

Samples several candidates and keeps those that match the caption best by the run's ranker. Writes each image
as a PNG, and all images with their scores as a contact sheet, sheet.svg.

Examples: heedful paint runs/text-to-image "a small red circle above a blue square";
heedful paint runs/text-to-image "a green cross" --pictures 8 --candidates 64 --top-k 32 --output crosses
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from ..errors import BadInput
from ..files import one_line, present
from ..train.device import find_device
from .shared.options import Positional, arg
from .shared.terminal import say

if TYPE_CHECKING:
    import numpy as np

    from ..runs.painting import Drawn


SHEET = "sheet.svg"


@dataclass(frozen=True)
class PaintOptions:
    """The options of `heedful paint`."""

    run: Annotated[str, Positional, arg("RUN")]
    """The folder of a run of text-to-image."""

    text: Annotated[str, Positional, arg("TEXT")]
    """The caption, in words that the model has seen."""

    pictures: int = 4
    """How many to keep: those that fit best."""

    candidates: int = 16
    """How many to draw."""

    temperature: float = 1.0
    """Below 1, more of what is likely; above 1, more of what is not."""

    top_k: int = 8
    """Choose each cell among its k most likely codes only: rarer ones are mostly blots. Among all of them: a
    large k."""

    seed: int = 0
    """Another seed, other pictures."""

    scale: int = 8
    """How many times larger a PNG is than the picture."""

    output: Annotated[str | None, arg("DIR", "painted, or the next free name")] = None
    """Where the pictures go: a folder that is not there yet."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute; auto takes the GPU if there is one."""

    json: bool = False
    """Print one JSON object instead of a line for each picture."""


def paint(given: PaintOptions) -> None:
    """Draw a caption several times, and write the pictures that fit it best."""
    check(given)
    output = new_folder(given.output)
    from ..runs.painting import Painter

    painter = Painter(Path(given.run), find_device(given.device))
    unknown = painter.unknown(given.text)
    if unknown:
        names = ", ".join(map(repr, unknown[:5]))
        say(f"warning: the model has never seen {names}: it takes them for no word in particular")
    (drawn,) = painter.draw([given.text], given.candidates, given.temperature, given.top_k, given.seed)
    best = sorted(range(len(drawn)), key=lambda i: -drawn[i].fit)[: given.pictures]
    files = write_pictures(output, [drawn[i] for i in best], given.text, given.scale)
    if given.json:
        pictures = [
            {"file": str(file), "fit": drawn[i].fit, "drawn": i} for file, i in zip(files, best, strict=True)
        ]
        sheet = {"sheet": str(output / SHEET)}
        print(json.dumps({"caption": given.text, "pictures": pictures, **sheet}, indent=2))
        return
    for file, i in zip(files, best, strict=True):
        print(f"{file}  {drawn[i].fit:.3f}")
    kept = f"the {len(best)} of {len(drawn)} that fit best"
    say(f"{kept}, with the cosine that says so; all in {output / SHEET}")


def check(given: PaintOptions) -> None:
    """Numbers that cannot be."""
    for name, least in (("candidates", 1), ("pictures", 1), ("scale", 1)):
        if getattr(given, name) < least:
            raise BadInput(f"--{name} must be at least {least}, not {getattr(given, name)}")
    if given.pictures > given.candidates:
        raise BadInput(
            f"--pictures {given.pictures} are to be chosen among --candidates {given.candidates}: "
            "draw more, or choose fewer"
        )
    if given.scale > 64:
        raise BadInput(f"--scale must be at most 64, not {given.scale}")
    if not given.temperature > 0 or given.temperature == float("inf"):
        raise BadInput(f"--temperature must be a number above 0, not {given.temperature:g}")
    if given.top_k < 1:
        raise BadInput(f"--top-k must be at least 1, not {given.top_k}")
    if not given.text.strip():
        raise BadInput('the caption is empty: say what to paint, such as "a red circle"')


def new_folder(asked: str | None) -> Path:
    """Where pictures go: a folder that is not there yet, or the first free name."""
    if asked is not None:
        if present(Path(asked)):
            raise BadInput(one_line(f"{asked} is there already: give another --output"))
        return Path(asked)
    number = 1
    while present(Path(f"painted-{number}" if number > 1 else "painted")):
        number += 1
    return Path(f"painted-{number}" if number > 1 else "painted")


def write_pictures(folder: Path, drawn: list[Drawn], caption: str, scale: int) -> list[Path]:
    """Each picture as a PNG, the best first, and all on a sheet."""
    from ..data.images.files import png_bytes
    from ..files import write_bytes, write_text

    folder.mkdir(parents=True)
    width = len(str(len(drawn)))
    files = []
    for number, one in enumerate(drawn, 1):
        files.append(folder / f"{number:0{width}}.png")
        write_bytes(files[-1], png_bytes(enlarged(one.pixels_HWC, scale)))
    write_text(folder / SHEET, sheet(drawn, caption))
    return files


def enlarged(pixels_HWC: np.ndarray, scale: int) -> np.ndarray:
    """Every pixel as a square of pixels."""
    import numpy as np

    return np.ascontiguousarray(pixels_HWC.repeat(scale, 0).repeat(scale, 1))


SIDE, GAP, LINE, ACROSS = 128, 12, 18, 8  # of a contact sheet: pixels, and pictures in a row


def sheet(drawn: list[Drawn], caption: str) -> str:
    """A contact sheet as SVG: the caption, and every picture with how well it fits."""
    import numpy as np

    from ..data.images.files import png_bytes
    from ..inside.look.drawing import Drawing, heading
    from ..inside.look.shapes import MARGIN, SMALL, Raster, TextLabel

    picture = Drawing()
    top = heading(picture, caption)
    for i, one in enumerate(drawn):
        x, y = MARGIN + i % ACROSS * (SIDE + GAP), top + i // ACROSS * (SIDE + LINE + GAP)
        picture.add(Raster(x, y, SIDE, SIDE, png_bytes(np.ascontiguousarray(one.pixels_HWC))))
        picture.add(TextLabel(x, y + SIDE + 14, f"{one.fit:.3f}", SMALL))
    return picture.svg()
