"""Tracking: the figures of metrics.jsonl also go to TensorBoard, Trackio or Weights & Biases.

metrics.jsonl stays the source. Whenever a run starts or resumes, its track is written again from there, so
that a track has every step once, however often the run was interrupted. Nothing is sent over the network, and
nothing asks for a login.
"""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from ..errors import BadInput
from ..files import inside, present, read_json, write_json
from ..interop.packages import needed, quiet

FILE = "track.json"
PROJECT = "heedful"
FLUSHED = 10  # seconds after which TensorBoard sees a step


class Tracker(Protocol):
    """One run in a tool that draws its curves."""

    def log(self, step: int, figures: dict[str, float]) -> None: ...

    def close(self) -> None: ...


class TensorBoard:
    """Event files in RUN/tensorboard."""

    package, shown_by = "tensorboard", "tensorboard --logdir {run}"

    def __init__(self, run: Path, name: str, recipe: Mapping[str, Any]) -> None:
        folder = run / "tensorboard"
        shutil.rmtree(folder, ignore_errors=True)
        torch_side = needed("torch.utils.tensorboard", self.package)
        self.writer = torch_side.SummaryWriter(str(folder), flush_secs=FLUSHED)

    def log(self, step: int, figures: dict[str, float]) -> None:
        for name, figure in figures.items():
            self.writer.add_scalar(name, figure, step)

    def close(self) -> None:
        self.writer.close()


class Trackio:
    """A run of the project "heedful" in Trackio's own folder on this machine."""

    package, shown_by = "trackio", f"trackio show --project {PROJECT}"
    REMOTE = ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL", "TRACKIO_BUCKET_ID", "TRACKIO_DATASET_ID")

    def __init__(self, run: Path, name: str, recipe: Mapping[str, Any]) -> None:
        self.trackio = trackio = needed(self.package, self.package)
        with quiet(), without(self.REMOTE):
            with suppress(ValueError):  # there is no such project yet
                for earlier in trackio.Api().runs(PROJECT):
                    if earlier.name == name:
                        earlier.delete()
            self.run = trackio.init(PROJECT, name=name, config=dict(recipe), embed=False)

    def log(self, step: int, figures: dict[str, float]) -> None:
        self.run.log(figures, step=step)

    def close(self) -> None:
        with quiet():
            self.trackio.finish()


class WandB:
    """An offline run in RUN/wandb, which you can upload later."""

    package, shown_by = "wandb", "wandb sync {run}/wandb/latest-run"

    def __init__(self, run: Path, name: str, recipe: Mapping[str, Any]) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        wandb = needed(self.package, self.package)
        shutil.rmtree(run / "wandb", ignore_errors=True)
        settings = wandb.Settings(console="off", silent=True, disable_git=True)
        self.run = wandb.init(
            project=PROJECT,
            name=name,
            id=name.rpartition("-")[2],
            dir=str(run),
            config=dict(recipe),
            mode="offline",
            settings=settings,
        )

    def log(self, step: int, figures: dict[str, float]) -> None:
        self.run.log(figures, step=step)

    def close(self) -> None:
        self.run.finish()


TRACKERS: dict[str, type[TensorBoard | Trackio | WandB]] = {
    "tensorboard": TensorBoard,
    "trackio": Trackio,
    "wandb": WandB,
}


def refuse_missing(tool: str) -> None:
    """Refuse a tool whose package is not installed, before there is a run."""
    needed(TRACKERS[tool].package, TRACKERS[tool].package)


def choose_track(run: Path, tool: str | None) -> None:
    """Remember in the run's folder where it is tracked, under a name that no other run has."""
    if tool is None or (present(run / FILE) and read_json(inside(run, FILE)).get("tool") == tool):
        return
    write_json(run / FILE, {"tool": tool, "name": f"{run.resolve().name}-{secrets.token_hex(4)}"})


class RunTrack:
    """Where a run is tracked. If the tool fails, training goes on without it."""

    def __init__(self, tracker: Tracker, tool: str, say: Callable[[str], None]) -> None:
        self.tracker: Tracker | None = tracker
        self.tool, self.say = tool, say

    def log(self, line: Mapping[str, Any]) -> None:
        """The figures of one line of metrics.jsonl."""
        figures = figures_of(line)
        if figures:
            self.attempt(lambda tracker: tracker.log(int(line["step"]), figures))

    def close(self) -> None:
        self.attempt(lambda tracker: tracker.close())
        self.tracker = None

    def attempt(self, do: Callable[[Tracker], None]) -> None:
        if self.tracker is None:
            return
        try:
            do(self.tracker)
        except Exception as error:  # noqa: BLE001 (whatever it is, hours of training are worth more)
            self.tracker = None
            self.say(
                f"warning: {self.tool} stopped tracking this run ({error}); metrics.jsonl has every step, "
                "and --resume writes the track again"
            )


def open_track(
    run: Path, recipe: Mapping[str, Any], lines: Iterable[Mapping[str, Any]], say: Callable[[str], None]
) -> RunTrack | None:
    """The track of a run, with the lines of metrics.jsonl in it; None if the run is not tracked."""
    if not present(run / FILE):
        return None
    found = read_json(inside(run, FILE))
    tool, name = found.get("tool"), found.get("name")
    if tool not in TRACKERS or not isinstance(name, str):
        raise BadInput(f"{run / FILE} names no tool of {', '.join(TRACKERS)}: delete it or mend it")
    refuse_missing(tool)
    track = RunTrack(TRACKERS[tool](run, name, recipe), tool, say)
    for line in lines:
        track.log(line)
    say(f"track: {TRACKERS[tool].shown_by.format(run=shlex.quote(str(run)))}")
    return track


NAMES = {"rate": "learning_rate", "norm": "grad_norm"}


def figures_of(line: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a line by the names that curves have: train/loss, train/grad_norm, valid/bleu."""
    figures = {}
    for key, value in line.items():
        if key == "step" or isinstance(value, bool):
            continue
        part, name = ("valid", key[6:]) if key.startswith("valid_") else ("train", NAMES.get(key, key))
        if isinstance(value, int | float) or value in ("nan", "inf", "-inf"):
            figures[f"{part}/{name}"] = float(value)
    return figures


@contextmanager
def without(names: Iterable[str]) -> Iterator[None]:
    """No such environment variables meanwhile."""
    before = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(before)
