"""Runs, one after the other, in processes that torchrun has started: starting them costs more than tiny runs.

    torchrun --nproc-per-node 2 tests/helpers/run_together.py PLAN ANSWERS
    torchrun --nproc-per-node 2 tests/helpers/run_together.py slowly train ...

PLAN is JSON: a list of [what to do, ...], see `ACTIONS`. Process R writes what became of each to
ANSWERS/R.json. slowly: the command alone, and a checkpoint takes two seconds, as that of a large model would.
"""

import contextlib
import io
import json
import math
import shutil
import sys
import time
from pathlib import Path

import torch

from heedful import errors
from heedful.cli import main as cli
from heedful.runs import trainer
from heedful.runs.saving import Saver
from heedful.tasks import lm, recipe
from heedful.train import processes
from heedful.train.loss import Loss

CPU = torch.device("cpu")


class Listener:
    """Keeps what was said."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)

    def step(self, progress, steps) -> None:
        pass


def start(world, task: str, settings: dict, folder: str) -> dict:
    talk = Listener()
    outcome = trainer.start(recipe.make(task, settings=settings), Path(folder), talk, CPU, world)
    return {"lines": talk.lines, "steps": outcome.steps, "finished": outcome.finished}


def resume(world, folder: str) -> dict:
    talk = Listener()
    outcome = trainer.resume(Path(folder), talk, CPU, world)
    return {"lines": talk.lines, "steps": outcome.steps, "finished": outcome.finished}


def cut(world, whole: str, folder: str, step: int) -> dict:
    """A copy of a run as a kill would have left it, some time after the checkpoint of a step."""
    if world.leads:
        cut_after(Path(whole), Path(folder), step)
    world.wait(CPU)
    return {}


def cut_after(whole: Path, folder: Path, step: int) -> None:
    shutil.copytree(whole, folder)
    for later in (folder / "checkpoints").iterdir():
        if int(later.name.split("-")[1]) > step:
            shutil.rmtree(later)


def edit(world, folder: str, part: str, name: str, value: object) -> dict:
    """Another value in recipe.json."""
    if world.leads:
        path = Path(folder) / "recipe.json"
        found = json.loads(path.read_text())
        found[part][name] = value
        path.write_text(json.dumps(found))
    world.wait(CPU)
    return {}


def main(world, *args: str) -> dict:
    """The command itself."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.main(args)
    return {"code": code, "out": out.getvalue(), "err": err.getvalue()}


def poisoned(world, rank: int, how: str, *args: str) -> dict:
    """The command, and in one process something becomes no number at the third step."""
    calls, honest = 0, lm.loss_of

    def loss_of(model, batch, smoothing=0.0):
        nonlocal calls
        calls += model.training and torch.is_grad_enabled()
        if calls < 3 or world.rank != rank or not model.training:
            return honest(model, batch, smoothing)
        spoil = model.stack.norm.register_forward_hook(lambda module, given, x_BTD: x_BTD / 0, prepend=True)
        if how != "layer":
            spoil.remove()
        found = honest(model, batch, smoothing)
        spoil.remove()
        if how == "gradient" and found.total.requires_grad:
            found.total.register_hook(lambda gradient: gradient * math.nan)
        if how == "loss":
            return Loss(found.total * math.inf, found.nll * math.inf, found.count)
        return found

    lm.loss_of = loss_of
    try:
        return main(world, *args)
    finally:
        lm.loss_of = honest


ACTIONS = {f.__name__: f for f in (start, resume, cut, edit, main, poisoned)}


def follow_plan(path: str, folder: str) -> int:
    errors.LAST_WORDS = 0.0  # nobody ends these processes
    plan, answers = json.loads(Path(path).read_text()), []
    world = processes.join_world(CPU)
    # who parts cannot meet again
    leave, processes.leave_world = processes.leave_world, lambda world: world.tell_end()
    for what, *given in plan:
        answers.append(ACTIONS[what](world, *given))
    (Path(folder) / f"{world.rank}.json").write_text(json.dumps(answers))
    leave(world)
    return 0


def slowly(*args: str) -> int:
    write = Saver.write

    def late(*given):
        time.sleep(2.0)
        return write(*given)

    Saver.write = late
    return cli.main(args)


if __name__ == "__main__":
    torch.set_num_threads(1)
    cli.end(slowly(*sys.argv[2:]) if sys.argv[1] == "slowly" else follow_plan(*sys.argv[1:]))
