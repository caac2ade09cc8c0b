"""The one error people see: a sentence that names the thing, and what to do about it."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


class BadInput(ValueError):
    """What a person gave cannot be used. The message is one sentence that names the thing and the remedy.

    Commands show it without a traceback.

    Example:
        >>> try:
        ...     heedful.load("nowhere")
        ... except heedful.BadInput as error:
        ...     print(error)
        nowhere is not a folder; a model is a folder with a config.json and its weights
    """


class NotFinite(ArithmeticError):
    """A number that must be finite is not: the loss, a gradient, a weight to be saved. Exit code 3."""

    def __init__(self, message: str, numbers: Mapping[str, float] | None = None) -> None:
        super().__init__(message)
        self.numbers = dict(numbers or {})  # for the log, which shows them as they are


class DiskFull(OSError):
    """There is no room for what must be written. Exit code 5."""


class NotInstalled(BadInput):
    """A package is needed that is not there; the sentence says how to get it."""


class NoCheckpoint(BadInput):
    """A run has checkpoints and none of them is whole. Exit code 4."""


class Lost(ConnectionError):
    """Another process of the run is gone, and this one cannot go on without it. Exit code 6."""


LOST = 6  # the exit code
LAST_WORDS = 5.0  # seconds: for a leading process to say why it ends


@contextmanager
def said_once() -> Iterator[None]:
    """Around a check that every process of torchrun makes: only the first of them reports what is wrong."""
    try:
        yield
    except BadInput:
        if follows():
            raise SystemExit(give_way(1)) from None
        raise


def follows() -> bool:
    """Whether torchrun started this process, and another one is the first."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1 and os.environ.get("RANK", "0") != "0"


def give_way(code: int) -> int:
    """An exit code, once the leading process has had its say: torchrun ends all as soon as one has ended."""
    time.sleep(LAST_WORDS)
    return code


# What to type to call this program again, as it was called: for remedies and next steps that can be copied.

NAME = "heedful"


def program() -> str:
    """`heedful` where the shell would find this very one; else its path, or `python -m heedful`."""
    called = Path(sys.argv[0] if sys.argv else "")
    if called.name == "__main__.py" and called.parent.name == NAME:
        return f"python -m {NAME}"
    found = shutil.which(NAME)
    if called.name != NAME or (
        found is not None and os.path.exists(called) and os.path.samefile(found, called)
    ):
        return NAME
    return shlex.quote(str(called))


def command(*words: str | Path) -> str:
    """A whole command line."""
    return f"{program()} {shlex.join(map(str, words))}"
