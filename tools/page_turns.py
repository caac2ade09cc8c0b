"""Page turns: how many functions and files a reader meets who follows one run of heedful through its source.

    python tools/page_turns.py                      of the heedful in this folder
    python tools/page_turns.py OTHER/FOLDER         of the heedful in another one

Three runs are followed with sys.setprofile: one forward pass of GPT-2 (eager, without a cache); the training
of a small translator for two steps on the built-in sentence pairs, from the command line to the last file
written; and the translation of one sentence by that model. Each is run twice and followed the second time,
so that tables which are made once and kept do not count. A function counts once, however often it is called.

A page turn leads from a file to a function in another file. Each pair of a file and a function counts once,
so that loops do not count. The caller is the nearest function of heedful on the stack: a reader skips what
torch and the standard library do in between. Code that runs on import does not count.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import runpy
import sys
import tempfile
import threading
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from types import FrameType

sys.path.insert(0, sys.argv[1] if len(sys.argv) > 1 else str(Path(__file__).parents[1]))

Function = tuple[str, str]  # file and qualified name
ON_IMPORT: Function = ("", "")  # code that runs when a module is imported

SENTENCE = "The small girl eats a red apple."
TINY = (
    "model.layers=1",
    "model.width=16",
    "model.heads=2",
    "model.ffn_width=24",
    "train.steps=2",
    "data.vocab_size=400",
)


class Reader:
    """Someone who opens every function of a package that a run comes to."""

    def __init__(self, package: Path) -> None:
        self.package = str(package) + os.sep
        self.functions: set[Function] = set()
        self.turns: set[tuple[str, Function]] = set()  # from a file to a function in another one
        self.known: dict[object, Function | None] = {}

    def follow(self, run: Callable[[], object]) -> Reader:
        """Read along while `run` runs."""
        threading.setprofile(self.profile)
        sys.setprofile(self.profile)
        try:
            silent = io.StringIO()
            with contextlib.redirect_stdout(silent), contextlib.redirect_stderr(silent):
                run()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]
        return self

    def profile(self, frame: FrameType, event: str, argument: object) -> None:
        if event != "call" or (callee := self.function_of(frame)) in (None, ON_IMPORT):
            return
        above = frame.f_back
        while above is not None and self.function_of(above) is None:
            above = above.f_back
        caller = None if above is None else self.function_of(above)
        if caller != ON_IMPORT:
            self.functions.add(callee)
            if caller is not None and caller[0] != callee[0]:
                self.turns.add((caller[0], callee))

    def function_of(self, frame: FrameType) -> Function | None:
        """The function of the package that a frame stands in; None for code elsewhere."""
        code = frame.f_code
        if code not in self.known:
            inside = code.co_filename.startswith(self.package)
            found = (code.co_filename.removeprefix(self.package), code.co_qualname) if inside else None
            is_function = code.co_flags & inspect.CO_OPTIMIZED  # the bodies of modules and classes are none
            self.known[code] = found if is_function or found is None else ON_IMPORT
        return self.known[code]

    @property
    def files(self) -> set[str]:
        return {file for file, _ in self.functions}


def heedful(*words: str) -> None:
    """The command line, as `python -m heedful` runs it."""
    sys.argv = ["heedful", *words]
    try:
        runpy.run_module("heedful", run_name="__main__")
    except SystemExit as end:
        if end.code:
            raise


def runs(folder: str) -> dict[str, Callable[[int], object]]:
    """What is followed: functions of how often they were run before."""
    import torch

    from heedful.models import gpt2

    model = gpt2.build(
        gpt2.GPT2Config(vocab=50, context=16, layers=2, width=16, heads=2, ffn_width=32)
    ).eval()
    train = ["train", "translate", "--corpus", "phrasebook"] + [w for each in TINY for w in ("--set", each)]
    return {
        "GPT-2 forward pass": lambda n: model(torch.tensor([[1, 2, 3, 4]])),
        "heedful train translate": lambda n: heedful(*train, "--run", f"{folder}/{n}"),
        "heedful translate": lambda n: heedful("translate", f"{folder}/{n}", SENTENCE),
    }


def main() -> None:
    package = Path(import_module("heedful").__file__ or "").resolve().parent
    print(f"{package}\n\n{'':<26}{'functions':>10}{'files':>8}{'turns':>8}")
    with tempfile.TemporaryDirectory() as folder:
        for name, run in runs(folder).items():
            Reader(package).follow(partial(run, 0))
            reader = Reader(package).follow(partial(run, 1))
            print(
                f"{name:<26}{len(reader.functions):>10}{len(reader.files):>8}{len(reader.turns):>8}",
                flush=True,
            )


if __name__ == "__main__":
    main()
