"""A run of rl that kills itself (SIGKILL) in the middle of a rollout, an update or a save; or that goes on.

python killed_rl.py RECIPE.json FOLDER PLACE NUMBER      PLACE: rollout, update, save, or nowhere
"""

import json
import os
import signal
import sys
from pathlib import Path

import torch

from heedful.decode import sampling
from heedful.runs import checkpoint, trainer
from heedful.runs.folder import RECIPE
from heedful.tasks import recipe
from helpers.runs import CPU, Quiet


def killing(owner: object, name: str, number: int) -> None:
    """Let a function kill the process in the middle of its work, when it is called for the nth time."""
    honest, calls = getattr(owner, name), 0

    def deadly(*given, **named):
        nonlocal calls
        calls += 1
        if calls == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return honest(*given, **named)

    setattr(owner, name, deadly)


PLACES = {
    "rollout": (sampling, "draw"),  # a token of a response
    "update": (torch.optim.AdamW, "step"),
    "save": (checkpoint.os, "replace"),  # the last act of a save
}


def main(asked: str, folder: str, place: str, number: str) -> None:
    torch.set_num_threads(1)
    if place in PLACES:
        killing(*PLACES[place], int(number))
    path = Path(folder)
    if (path / RECIPE).exists():
        trainer.resume(path, Quiet(), CPU)
    else:
        trainer.start(recipe.from_json(json.loads(Path(asked).read_text())), path, Quiet(), CPU)


if __name__ == "__main__":
    main(*sys.argv[1:])
