"""What saving costs training: the demo's training with frequent checkpoints, saved in three ways.

    python -m benchmarks.saving [--steps 300] [--every 30] [--rounds 5]

none: no checkpoint but the last. background: as heedful saves, while training goes on. foreground: the same,
but each save is waited for at once. The three take turns, and each turn is a run of its own in a process of
its own. The figures are medians: seconds of the steps by the clock, and seconds of processor time, which say
more on a machine that others use too. Building the data and the first evaluation are left out, because the
clock starts at the first step; evaluations are turned off until the last step.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from heedful.cli.demo import DEMO
from heedful.runs import saving, trainer
from heedful.tasks.recipe import make
from heedful.train.loop import Progress

WAYS = ("none", "background", "foreground")


class Clock:
    """Hears of every step, and keeps the times at which the first and the last one ended."""

    def __init__(self) -> None:
        self.times: list[tuple[float, float]] = []

    def say(self, line: str) -> None:
        pass

    def step(self, progress: Progress, steps: int) -> None:
        self.times.append((time.perf_counter(), time.process_time()))

    def spent(self) -> tuple[float, float]:
        """Seconds by the clock and of processor time between the first step and the last but one."""
        first, last = self.times[0], self.times[-2]  # the last one is evaluated and saved in every way
        return last[0] - first[0], last[1] - first[1]


def train(way: str, steps: int, every: int, folder: Path) -> dict[str, float]:
    """One run, and what its steps took."""
    if way == "foreground":
        begin = saving.Saver.save

        def save(saver: saving.Saver, *what: object) -> None:
            begin(saver, *what)  # type: ignore[arg-type]
            saver.wait()

        saving.Saver.save = save  # type: ignore[method-assign]
    settings = DEMO | {
        "train.steps": steps,
        "evaluate.every": steps,
        "checkpoint.every": steps if way == "none" else every,
    }
    clock = Clock()
    trainer.start(
        make("translate", "tiny", "phrasebook", settings), folder / "run", clock, torch.device("cpu")
    )
    wall, processor = clock.spent()
    newest = folder / "run" / "checkpoints" / f"step-{steps}"
    size = sum(path.stat().st_size for path in newest.iterdir())
    return {"wall": wall, "processor": processor, "bytes": size}


def measured(way: str, args: argparse.Namespace) -> dict[str, float]:
    """`train` in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.saving", "--one", way]
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        command += ["--steps", str(args.steps), "--every", str(args.every), "--folder", folder]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description="What saving costs training.")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--every", type=int, default=30, help="steps between two checkpoints")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=None, help="where the runs are written")
    parser.add_argument("--one", choices=WAYS, help="make one run, and print its figures")
    args = parser.parse_args()
    if args.one:
        print(json.dumps(train(args.one, args.steps, args.every, args.folder)))
        return
    found: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for number in range(args.rounds):
        for way in WAYS[number % 3 :] + WAYS[: number % 3]:
            found[way].append(measured(way, args))
    saves = (args.steps - 1) // args.every
    print(f"{saves} checkpoints of {found['background'][0]['bytes'] / 1e6:.1f} MB in {args.steps} steps")
    for way in WAYS:
        parts = []
        for kind in ("wall", "processor"):
            ratios = [a[kind] / b[kind] for a, b in zip(found[way], found["none"], strict=True)]
            middle = statistics.median(run[kind] for run in found[way])
            parts.append(f"{kind} {middle:.2f} s ({100 * (statistics.median(ratios) - 1):+.1f} %)")
        print(f"{way:<11} {', '.join(parts)}")


if __name__ == "__main__":
    main()
