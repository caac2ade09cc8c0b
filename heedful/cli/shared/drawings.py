"""Evaluating all stages of text-to-image together: whether images are as their captions say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Protocol

from ...errors import BadInput, program
from ...files import one_line
from ...train.device import find_device
from .terminal import say


class Drawings(Protocol):
    """The options of `heedful evaluate` that apply here."""

    @property
    def run(self) -> str: ...
    @property
    def judge(self) -> str | None: ...
    @property
    def split(self) -> str | None: ...
    @property
    def device(self) -> str: ...
    @property
    def json(self) -> bool: ...
    @property
    def set(self) -> tuple[str, ...]: ...


def evaluate_painter(given: Drawings) -> None:
    """How many pictures are as their captions say, by a judge that had no part in drawing them."""
    import numpy as np
    import torch

    from ...runs.judge_pictures import DRAWN, judge_drawings
    from ...runs.painting import Painter, share_of

    refuse_idle(given)
    if given.judge is None:
        raise BadInput(
            "give --judge RUN, whose model tells what pictures show: train one with "
            f"`{program()} train text-to-image-judge --corpus shapes`, or of classes, image-classify"
        )
    device = find_device(given.device)
    painter = Painter(Path(given.run), device)
    with torch.no_grad():
        captions, verdict, real = judge_drawings(
            painter, Path(given.judge), given.split or "valid", device, tell_drawing
        )
    found: dict[str, Any] = {"captions": len(captions), "drawn": DRAWN, "real": real}
    for name in ("things", "relation"):
        right = getattr(verdict, name)
        if right is not None:
            rows = ~np.isnan(right[:, 0])
            found[name] = vars(share_of(right[rows], verdict.fits[rows]))
    if given.json:
        print(json.dumps({"run": given.run, "judge": given.judge, **found}, indent=2))
        return
    drawn = f"{len(captions)} captions of {given.split or 'valid'}, {DRAWN} pictures of each"
    print(f"{drawn}, judged by {given.judge}")
    for name, told in (("things", "what is shown is right"), ("relation", "where it is, too")):
        if name in found:
            share = found[name]
            low, high = share["interval"]
            print(
                f"  {told:24} one picture {share['one']:6.1%}   best of {DRAWN} {share['best']:6.1%}   "
                f"choosing gains {100 * share['gain']:+.1f} points "
                f"(95 % interval {100 * low:+.1f} to {100 * high:+.1f})"
            )
    print("  real pictures            " + ", ".join(f"{told} {share:.1%}" for told, share in real.items()))


def refuse_idle(given: Drawings) -> None:
    """Options that would do nothing: captions come from the corpus or the folder that was learned from."""
    for name in ("source", "target", "text", "data", "images", "trees", "output", "beam", "length_alpha"):
        if getattr(given, name) is not None:
            raise BadInput(
                one_line(f"--{name.replace('_', '-')} does not fit {given.run}, the stages of text-to-image")
            )
    if given.set:
        raise BadInput(one_line(f"--set does not fit {given.run}, the stages of text-to-image"))


def tell_drawing(starts: list[int]) -> list[int]:
    """Say that a long drawing begins; its parts are handed on as they are."""
    from ...runs.judge_pictures import CAPTIONS, DRAWN

    say(f"drawing {CAPTIONS * DRAWN} pictures")
    return starts
