"""Two heedful programs on the same cores: a translator beside a training run, each alone and together.

    python -m benchmarks.together                # on a quiet machine: about three minutes
    taskset -c 0,1 python -m benchmarks.together # on two cores of many

Idle OpenMP threads of torch spin for 3 ms by default (GOMP_SPINCOUNT=300000), and two programs spin away each
other's time. heedful lets them spin for about 10 us (GOMP_SPINCOUNT=1000) and then sleep. Both are measured,
and threads that sleep at once (OMP_WAIT_POLICY=passive), one after the other.
Figures are medians: of the time of a training step, and of a call that translates 8 sentences.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

MODES = {
    "spinning": {"GOMP_SPINCOUNT": "300000"},
    "spinning a little": {"GOMP_SPINCOUNT": "1000"},
    "sleeping": {"OMP_WAIT_POLICY": "passive"},
}
WARM = 4.0  # seconds that are not counted
SENTENCES = ["The small girl eats a red apple.", "Their cat was a fast animal."] * 4


class Stopwatch:
    """A reporter that keeps the time of each step and ends the run."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.began = seconds, 0.0
        self.times: list[float] = []

    def say(self, line: str) -> None:
        pass

    def step(self, progress: Any, steps: int) -> None:
        now = time.perf_counter()
        self.began = self.began or now
        if now - self.began > WARM:
            self.times.append(progress.seconds)
        if now - self.began > self.seconds:
            raise TimeoutError


def train(run: Path, seconds: float) -> list[float]:
    """Seconds of each step of a tiny translator."""
    import torch

    from heedful.runs import trainer
    from heedful.tasks import recipe

    watch, settings = Stopwatch(seconds), {"evaluate.every": 10**6, "checkpoint.every": 10**6}
    made = recipe.make("translate", "tiny", "phrasebook", settings)
    with tempfile.TemporaryDirectory() as folder:
        try:
            trainer.start(made, Path(folder) / "run", watch, torch.device("cpu"))
        except TimeoutError:
            pass
    return watch.times


def translate(run: Path, seconds: float) -> list[float]:
    """Seconds of each call of a translator."""
    import heedful

    model = heedful.load(run)
    times, began = [], time.perf_counter()
    while (now := time.perf_counter()) - began < seconds:
        model.translate(SENTENCES, max_new_tokens=16)
        if now - began > WARM:
            times.append(time.perf_counter() - now)
    return times


def start(what: str, run: Path, mode: str, seconds: float) -> subprocess.Popen[str]:
    clean = {k: v for k, v in os.environ.items() if k not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    command = [sys.executable, "-m", "benchmarks.together", "--child", what, "--run", str(run)]
    command += ["--seconds", str(seconds)]
    return subprocess.Popen(command, env={**clean, **MODES[mode]}, stdout=subprocess.PIPE, text=True)


def measure(programs: tuple[str, ...], run: Path, mode: str, seconds: float) -> dict[str, float]:
    """Median milliseconds of each program, run at the same time."""
    children = {what: start(what, run, mode, seconds) for what in programs}
    found = {what: json.loads(child.communicate()[0].splitlines()[-1]) for what, child in children.items()}
    return {what: 1000 * statistics.median(times) for what, times in found.items()}


def prepare(run: Path) -> None:
    """A translator; how well it translates does not matter."""
    command = [
        sys.executable,
        "-m",
        "heedful",
        "train",
        "translate",
        "--corpus",
        "phrasebook",
        "--size",
        "tiny",
    ]
    subprocess.run([*command, "--steps", "20", "--run", str(run)], check=True, capture_output=True)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--seconds", type=float, default=14.0, help="of each measurement")
    options.add_argument("--run", type=Path, help="a translator that is there already")
    options.add_argument("--child", choices=["train", "translate"], help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.child:
        times = (train if given.child == "train" else translate)(given.run, given.seconds)
        return print(json.dumps(times))
    with tempfile.TemporaryDirectory() as folder:
        run = given.run or Path(folder) / "run"
        if not run.exists():
            prepare(run)
        print(f"load before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        for mode in MODES:
            alone = measure(("train",), run, mode, given.seconds)
            alone |= measure(("translate",), run, mode, given.seconds)
            both = measure(("train", "translate"), run, mode, given.seconds)
            for what in alone:
                ratio = both[what] / alone[what]
                print(
                    f"{mode}: {what} alone {alone[what]:.0f} ms, together {both[what]:.0f} ms ({ratio:.1f}x)"
                )
        print(f"load after: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
