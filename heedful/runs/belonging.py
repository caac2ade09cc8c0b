"""Whose run it is: a job that is started again goes on with the run that it began, and with no other one.

torchrun (`--max-restarts`) and schedulers start the same command line again after a failure. The folder of
the run then holds a run already. It is the job's own if the same job began it with the same recipe.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import time
from pathlib import Path

from ..errors import BadInput
from ..files import inside, present, read_json, started
from ..tasks.recipe import to_json
from ..tasks.recipe.settings import Recipe
from .folder import JOB, RECIPE

UNNAMED = "none"  # what torchrun calls a job without --rdzv-id
NAMED = 4  # machines
VISIBLE = 60.0  # seconds until another machine sees a new file on a shared disk: NFS may take as long


def belonging(recipe: Recipe) -> dict[str, str] | None:
    """What a run's folder says of the job that begins it; None without torchrun: nobody starts that again."""
    job = os.environ.get("TORCHELASTIC_RUN_ID")
    if job is None:
        return None
    if job == UNNAMED:  # then it is the job of this very launcher
        job = f"{socket.gethostname()}/{os.getppid()}/{started(os.getppid())}"
    asked = json.dumps(to_json(recipe), sort_keys=True).encode()
    return {"job": job, "asked": hashlib.sha256(asked).hexdigest()}


def belongs(path: Path, recipe: Recipe) -> bool:
    """Whether the run in a folder was begun by this job, with this recipe."""
    mine = belonging(recipe)
    if mine is None or not present(path / RECIPE) or not present(path / JOB):
        return False
    try:
        return read_json(inside(path, JOB)) == mine
    except BadInput:
        return False


# The same folder on all machines.


def fingerprint(path: Path) -> float:
    """A number that tells one run's recipe.json from another's; 0 if there is none."""
    if not present(path / RECIPE):
        return 0.0
    return float(int.from_bytes(hashlib.sha256(inside(path, RECIPE).read_bytes()).digest()[:6], "big") + 1)


def wait_until_seen(path: Path, expected: float, patience: float = VISIBLE) -> None:
    """Until this machine sees in the run's folder what the leading process has written there."""
    until = time.monotonic() + patience
    while fingerprint(path) != expected:
        if time.monotonic() > until:
            raise BadInput(
                f"{socket.gethostname()} does not see the run that process 0 has made in {path}: all "
                "machines need it on one shared disk"
            )
        time.sleep(0.2)


def describe_stop(reasons: list[str]) -> str:
    """Why a run was asked to stop, on which machines."""
    different = list(dict.fromkeys(filter(None, reasons)))
    more = [f"{len(different) - NAMED} more"] if len(different) > NAMED else []
    return ", ".join([*different[:NAMED], *more])


def reason_to_stop(asked: str | None, abandoned: bool) -> str:
    """Why this process wants to stop; "" if it does not."""
    host = socket.gethostname()
    return f"{asked} on {host}" if asked else f"torchrun on {host} has ended" if abandoned else ""
