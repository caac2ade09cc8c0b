"""The quality of drawn pictures: what a judge, a model that did not draw them, finds right in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from ..corpora.shapes import checked_caption
from ..data.report import Report
from ..errors import BadInput
from ..interop.formats import load_run
from ..tasks import image_classify
from ..tasks.captioned import have_captions, spread
from ..tasks.galleries import split_rows
from ..tasks.recipe.settings import Recipe
from ..tasks.text_to_image import judge
from .painting import Painter, Verdict, read_recipe

CAPTIONS, DRAWN = 200, 8  # captions that are drawn, and pictures of each
# A function of pictures [B, H, W, C] and their caption. Each picture gets two figures: whether what it shows
# is right, and whether it is in the right place (NaN where the caption names no place).
Judge = Callable[[np.ndarray, str], list[tuple[float, float]]]


def judge_drawings(
    painter: Painter,
    judge: Path,
    split: str,
    device: torch.device,
    track: Callable[[list[int]], Sequence[int]],
) -> tuple[list[str], Verdict, dict[str, float]]:
    """(captions, what of their pictures is right, what the judge gets right of the real ones)."""
    d, rules = painter.recipe.data, read_recipe(judge)
    rows = list(split_rows(d, split, have_captions(d), Report(d.bad_lines, "image")))
    chosen = [rows[i] for i in spread(len(rows), CAPTIONS)]
    captions = [row.caption or row.label for row in chosen]
    seen = judge_of(judge, rules, device)
    real = np.array([seen(row.pixels_HWC[None], row.caption or row.label)[0] for row in chosen])
    drawn = painter.draw(captions, DRAWN, track=track)
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


def judge_of(folder: Path, rules: Recipe, device: torch.device) -> Judge:
    """The judge of a folder, which that recipe trained."""
    loaded = load_run(folder, device, torch.float32)

    def of_shapes(pixels_BHWC: np.ndarray, caption: str) -> list[tuple[float, float]]:
        asked = checked_caption(caption)
        found = judge.describe_pictures(loaded.model, torch.from_numpy(pixels_BHWC), rules.data)
        rights = [judge.compare(said, asked) for said in found]
        return [(float(r.things), float(r.relation) if asked.relation else float("nan")) for r in rights]

    def of_classes(pixels_BHWC: np.ndarray, caption: str) -> list[tuple[float, float]]:
        found = image_classify.guesses(loaded.model, rules.data, pixels_BHWC).argmax(-1).tolist()
        return [(float(loaded.labels[i] == caption), float("nan")) for i in found]

    if rules.task == "image-classify":
        return of_classes
    if rules.task == judge.TASK.name:
        return of_shapes
    raise BadInput(f"{folder} is no judge: give a run of image-classify or of {judge.TASK.name}")
