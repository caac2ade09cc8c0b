"""What export and import share: folders that are written aside, and the comparison with another library.

Everything is written aside. Only what another library has opened and found to be the same model gets its
name; where that library is not installed, parity.json says so.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ...errors import BadInput
from ...files import flush, naming, one_line, present
from .exit_codes import DID_NOT_HOLD

if TYPE_CHECKING:
    from ...certify.certificate import Certificate
    from ...interop.loaded import Loaded

PARITY = "parity.json"
PATIENCE = 3.0  # seconds without a word
PACE, LINES = 0.5, 10.0  # seconds between two words on a terminal, and elsewhere


# Where things go


def check_place(source: Path, out: Path, over: bool) -> None:
    """Refuse to write over anything but what was exported before, and that only if asked."""
    with naming(out):
        if out.name in ("", ".."):
            raise BadInput(f"{out} has no name of its own: give the name of a folder to write")
        if not present(out):
            return
        if not out.is_dir():
            raise BadInput(f"{out} is a file, and models are written to folders: give a free name")
        if source.exists() and source.resolve().is_relative_to(out.resolve()):
            raise BadInput(f"{out} would overwrite {source}, which is read: give another OUT")
        if not any(out.iterdir()):
            return
        if not over:
            raise BadInput(f"{out} exists and is not empty: give another OUT, or --replace")
        if not present(out / PARITY):
            raise BadInput(f"{out} has no {PARITY}, so heedful did not export it: remove it yourself first")


@contextmanager
def aside_of(out: Path) -> Iterator[Path]:
    """A folder beside OUT to write into; whatever is still there at the end is removed."""
    out.parent.mkdir(parents=True, exist_ok=True)
    aside = out.parent / f".{out.name}.writing-{os.getpid()}"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    try:
        yield aside
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def put_in_place(aside: Path, out: Path) -> None:
    """Give the folder its name; one that has it goes, once the new one is on the disk."""
    for path in (*sorted(path for path in aside.rglob("*") if path.is_file()), aside):
        flush(path)
    old = out.parent / f".{out.name}.old-{os.getpid()}"
    if present(out):
        os.replace(out, old)
    try:
        os.replace(aside, out)
    except OSError:
        if present(old):
            os.replace(old, out)
        raise
    flush(out.parent)
    if old.is_symlink():  # what it leads to is somebody else's
        old.unlink()
    shutil.rmtree(old, ignore_errors=True)


def free_name(out: Path, ending: str = "") -> Path:
    """Where a model is kept that is not the same one. ending: of a file, which stays at the end."""
    stem = f"{out.name.removesuffix(ending)}.different"
    names = (out.parent / f"{stem}{'' if n == 1 else f'-{n}'}{ending}" for n in range(1, 1_000_000))
    return next(name for name in names if not present(name))


# What is asked


def refuse(name: str, loaded: Loaded, to: str) -> None:
    """Refuse a format that cannot hold such a model, and name those that can."""
    from ...interop.formats import FORMATS, exportable

    why = FORMATS[to].refuse(loaded)
    if why is not None:
        can = exportable(loaded)
        able = f"it can be exported as {', '.join(can)}" if can else "no format can hold it"
        raise BadInput(f"{name} cannot be exported as {to}: {why.rstrip('.')}; {able}")


def finish(
    certificate: Certificate, aside: Path, out: Path, as_json: bool, tell: Callable[[str], None]
) -> int:
    """Write parity.json, name the folder by the verdict, and print the result."""
    from ...certify.certificate import write_certificate

    content = write_certificate(certificate, aside)
    place = free_name(out) if certificate.differs else out
    put_in_place(aside, place)
    return report(certificate, place, content, as_json, tell)


def report(
    certificate: Certificate, place: Path, content: dict[str, Any], as_json: bool, tell: Callable[[str], None]
) -> int:
    """Print the result of an export; the exit code."""
    from ...certify.certificate import UNCHECKED

    different = certificate.differs
    tell("")
    if as_json:
        print(json.dumps({"out": str(place)} | content, indent=2, allow_nan=False))
    else:
        first = one_line(f"{place}: {headline(certificate)}")
        print("\n".join([first, *(f"  {line}" for line in certificate.summary())]))
    if certificate.verdict == UNCHECKED:
        print(one_line(f"not checked: {'; '.join(certificate.faults)}"), file=sys.stderr)
    if different:
        why = f"the models differ: {'; '.join(certificate.faults)}; the export is kept as {place}"
        print(f"error: {one_line(why)}, with details in {PARITY}", file=sys.stderr)
    return DID_NOT_HOLD if different else 0


def headline(certificate: Certificate) -> str:
    """The verdict in a few words."""
    from ...interop.formats import FORMATS

    package = FORMATS[certificate.format].packages[0]
    library = f"{package} {certificate.versions.get(package, '')}".rstrip()
    found = {
        "same": f"the same model in {library}",
        "different": f"a different model in {library}",
        "not checked": "written, not checked",
    }.get(certificate.verdict, f"{certificate.verdict} in {library}")
    return f"{certificate.architecture} as {certificate.format}, {certificate.kind}: {found}"


# Talking


class StageProgress:
    """Progress on stderr: each stage as it begins, and its time if it takes long."""

    def __init__(self, first: str) -> None:
        self.stream = sys.stderr  # others may take its place while they talk
        self.terminal = self.stream is not None and self.stream.isatty()
        self.over = threading.Event()
        self.stage, self.began = first, time.monotonic()
        self.drawn = False
        self.thread = threading.Thread(target=self.keep_telling, daemon=True)
        self.say(first)

    def say(self, line: str) -> None:
        print(one_line(line), file=self.stream, flush=True)

    def __call__(self, stage: str) -> None:
        """The next stage; only long ones are printed."""
        self.stage = stage
        if not stage:
            self.clear()

    def keep_telling(self) -> None:
        wait = PATIENCE
        while not self.over.wait(wait):
            wait = PACE if self.terminal else LINES
            if self.stage and self.terminal:
                print(f"\r{self.line()}\x1b[K", end="", file=self.stream, flush=True)
                self.drawn = True
            elif self.stage:
                self.say(self.line())

    def line(self) -> str:
        return f"{one_line(self.stage)} ({time.monotonic() - self.began:.0f} s)"

    def clear(self) -> None:
        if self.drawn:
            print("\r\x1b[K", end="", file=self.stream, flush=True)
            self.drawn = False

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join()
        self.clear()
