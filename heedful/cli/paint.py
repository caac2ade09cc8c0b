"""`heedful paint`: pictures from a caption; and how good such pictures are, by a judge."""

from __future__ import annotations

import base64
import json
import sys
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import BadInput, program
from ..files import one_line, present
from ..train.device import find_device

if TYPE_CHECKING:
    from ..runs.painting import Drawn, Painter, Verdict
    from .options import Evaluate, Paint

SHEET = "sheet.svg"
CAPTIONS, DRAWN = 200, 8  # of an evaluation: captions, and pictures of each


# Painting


def paint(given: Paint) -> None:
    """Draw a caption several times, and write the pictures that fit it best."""
    check(given)
    output = new_folder(given.output)
    from ..runs.painting import Painter

    painter = Painter(Path(given.run), find_device(given.device))
    unknown = painter.unknown(given.text)
    if unknown:
        say(
            f"warning: the model has never seen {', '.join(map(repr, unknown[:5]))}: it takes them for no word in particular"
        )
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
    say(
        f"the {len(best)} of {len(drawn)} that fit best, with the cosine that says so; all in {output / SHEET}"
    )


def check(given: Paint) -> None:
    """Numbers that cannot be."""
    for name, least in (("candidates", 1), ("pictures", 1), ("scale", 1)):
        if getattr(given, name) < least:
            raise BadInput(f"--{name} must be at least {least}, not {getattr(given, name)}")
    if given.pictures > given.candidates:
        raise BadInput(
            f"--pictures {given.pictures} are to be chosen among --candidates {given.candidates}: draw more, or choose fewer"
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
    return np.ascontiguousarray(pixels_HWC.repeat(scale, 0).repeat(scale, 1))


SIDE, GAP, LINE, ACROSS = 128, 12, 18, 8  # of a contact sheet: pixels, and pictures in a row


def sheet(drawn: list[Drawn], caption: str) -> str:
    """A contact sheet as SVG: the caption, and every picture with how well it fits."""
    from ..data.images.files import png_bytes

    columns = min(ACROSS, len(drawn))
    rows = -(-len(drawn) // columns)
    width = GAP + columns * (SIDE + GAP)
    height = 2 * GAP + LINE + rows * (SIDE + LINE + GAP)
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
            f'font-family="sans-serif" font-size="13">'
        ),
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{GAP}" y="{GAP + 13}">{escape(caption)}</text>',
    ]
    for i, one in enumerate(drawn):
        x, y = GAP + i % columns * (SIDE + GAP), 2 * GAP + LINE + i // columns * (SIDE + LINE + GAP)
        data = base64.b64encode(png_bytes(np.ascontiguousarray(one.pixels_HWC))).decode()
        parts += [
            (
                f'<image x="{x}" y="{y}" width="{SIDE}" height="{SIDE}" style="image-rendering:pixelated" '
                f'href="data:image/png;base64,{data}"/>'
            ),
            f'<text x="{x}" y="{y + SIDE + 14}">{one.fit:.3f}</text>',
        ]
    return "\n".join([*parts, "</svg>\n"])


# Judging


def evaluate_painter(given: Evaluate) -> None:
    """How many pictures are as their captions say, by a judge that had no part in drawing them."""
    import torch

    from ..runs.painting import Painter, share_of

    refuse_idle(given)
    if given.judge is None:
        raise BadInput(
            "give --judge RUN, whose model tells what pictures show: train one with "
            f"`{program()} train text-to-image --corpus shapes --set train.stage=judge`, or of classes, image-classify"
        )
    device = find_device(given.device)
    painter = Painter(Path(given.run), device)
    with torch.no_grad():
        captions, verdict, real = judged(painter, Path(given.judge), given.split or "valid", device)
    found: dict[str, Any] = {"captions": len(captions), "drawn": DRAWN, "real": real}
    for name in ("things", "relation"):
        right = getattr(verdict, name)
        if right is not None:
            rows = ~np.isnan(right[:, 0])
            found[name] = vars(share_of(right[rows], verdict.fits[rows]))
    if given.json:
        print(json.dumps({"run": given.run, "judge": given.judge, **found}, indent=2))
        return
    print(
        f"{len(captions)} captions of {given.split or 'valid'}, {DRAWN} pictures of each, judged by {given.judge}"
    )
    for name, told in (("things", "what is shown is right"), ("relation", "where it is, too")):
        if name in found:
            share = found[name]
            low, high = share["interval"]
            print(
                f"  {told:24} one picture {share['one']:6.1%}   best of {DRAWN} {share['best']:6.1%}   choosing gains "
                f"{100 * share['gain']:+.1f} points (95 % interval {100 * low:+.1f} to {100 * high:+.1f})"
            )
    print("  real pictures            " + ", ".join(f"{told} {share:.1%}" for told, share in real.items()))


def refuse_idle(given: Evaluate) -> None:
    """Options that would do nothing: captions come from the corpus or the folder that was learned from."""
    for name in ("source", "target", "text", "data", "images", "trees", "output"):
        if getattr(given, name) is not None:
            raise BadInput(one_line(f"--{name} does not fit {given.run}, the stages of text-to-image"))
    if given.set:
        raise BadInput(one_line(f"--set does not fit {given.run}, the stages of text-to-image"))


def judged(
    painter: Painter, judge: Path, split: str, device: Any
) -> tuple[list[str], Verdict, dict[str, float]]:
    """(captions, what of their pictures is right, what the judge gets right of the real ones)."""
    from ..data.files import Report
    from ..data.images.prepare import split_rows
    from ..runs.painting import Verdict, read_recipe
    from ..tasks.captioned import have_captions, spread

    d, rules = painter.recipe.data, read_recipe(judge)
    rows = list(split_rows(d, split, have_captions(d), Report(d.bad_lines, "image")))
    chosen = [rows[i] for i in spread(len(rows), CAPTIONS)]
    captions = [row.caption or row.label for row in chosen]
    seen = judge_of(judge, rules, device)
    real = np.array([seen(row.pixels_HWC[None], row.caption or row.label)[0] for row in chosen])
    drawn = painter.draw(captions, DRAWN, track=tracked)
    right = np.array(
        [
            seen(np.stack([one.pixels_HWC for one in some]), text)
            for some, text in zip(drawn, captions, strict=True)
        ]
    )
    fits = np.array([[one.fit for one in some] for some in drawn])
    relation = None if np.isnan(right[..., 1]).all() else right[..., 1]
    names = ("shown right", "place right")
    told = {
        name: float(np.nanmean(real[:, i])) for i, name in enumerate(names) if not np.isnan(real[:, i]).all()
    }
    return captions, Verdict(right[..., 0], relation, fits), told


def judge_of(folder: Path, rules: Any, device: Any) -> Any:
    """A function of pictures [B, H, W, C] and their caption: (what is shown is right, where it is, or NaN) of each."""
    import torch

    from ..corpora.shapes import checked_caption
    from ..interop.load import load_run
    from ..tasks import image_classify, picture_judge

    loaded = load_run(folder, device, torch.float32)

    def of_shapes(pixels_BHWC: np.ndarray, caption: str) -> list[tuple[float, float]]:
        asked = checked_caption(caption)
        found = picture_judge.told(loaded.model, torch.from_numpy(pixels_BHWC), rules.data)
        rights = [picture_judge.compare(said, asked) for said in found]
        return [(float(r.things), float(r.relation) if asked.relation else float("nan")) for r in rights]

    def of_classes(pixels_BHWC: np.ndarray, caption: str) -> list[tuple[float, float]]:
        found = image_classify.guesses(loaded.model, rules.data, pixels_BHWC).argmax(-1).tolist()
        return [(float(loaded.labels[i] == caption), float("nan")) for i in found]

    if rules.task == "image-classify":
        return of_classes
    if rules.task == "text-to-image" and rules.train.stage == "judge":
        return of_shapes
    raise BadInput(
        f"{folder} is no judge: give a run of image-classify, or of text-to-image with train.stage=judge"
    )


def tracked(starts: list[int]) -> list[int]:
    """The parts of a long drawing, which is said to take a while."""
    say(f"drawing {CAPTIONS * DRAWN} pictures")
    return starts


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
