"""A run is a folder: what was asked, what was measured, who is at work in it, why it stopped.

runs/NAME/
  recipe.json          what was asked; written last when a run is made, so that its presence makes it one
  config.json          the architecture
  tokenizer.json
  metrics.jsonl        one line for each logged number
  samples.jsonl        what the model wrote for the same few held-out examples, one line for each evaluation
  status.json          why the run stopped
  lock                 which process owns the folder
  job.json             under torchrun: which job began the run, see belonging.py
  model.safetensors    the best weights so far; model.json has their size and SHA-256
  checkpoints/step-N/  see checkpoint.py
"""

from __future__ import annotations

import atexit
import errno
import json
import math
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, Self

from torch import Tensor

from .. import files
from ..data import tensor_files
from ..errors import BadInput
from ..files import MEGABYTE, inside, one_line, present, read_json
from ..interop.hf.weights import SINGLE
from ..interop.run_files import SAMPLES, json_object, lives, read_owner
from . import checkpoint
from .track import RunTrack

if sys.platform != "win32":
    import fcntl

RECIPE, CONFIG, TOKENIZER, METRICS = "recipe.json", "config.json", "tokenizer.json", "metrics.jsonl"
STATUS, LOCK, MODEL, JOB = "status.json", "lock", "model.json", "job.json"
INTERRUPTED_TWICE = 130
MOST_SAMPLES = 8 * MEGABYTE  # bytes of samples.jsonl


class RunFolder:
    """A run's folder while this process owns it: made by `create` or `open`, released by `close`."""

    def __init__(self, path: Path, lock: Lock) -> None:
        self.path = path
        self.lock = lock
        self.metrics = Metrics(path / METRICS)
        self.samples = Metrics(path / SAMPLES)
        with files.faults(path), or_else(self.close):
            files.clear_leftovers(path)

    @classmethod
    def create(
        cls,
        path: Path | str,
        recipe: Mapping[str, Any],
        config: Mapping[str, Any] | None = None,
        tokenizer: str | None = None,
        job: Mapping[str, Any] | None = None,
    ) -> RunFolder:
        """A new run in a folder that is not there, or empty, or was left by a `create` that was killed."""
        path = Path(path)
        refuse_name(path)
        make_folders(path)
        refuse_foreign(path)
        run = cls(path, Lock(path / LOCK))
        with or_else(run.close):
            if present(path / RECIPE):
                raise BadInput(f"{path} holds a run: go on with --resume {path}, or give another --run")
            run.begin(recipe, config, tokenizer, job)
        return run

    @classmethod
    def open(cls, path: Path | str) -> RunFolder:
        """The folder of a run that is there."""
        path = Path(path)
        if not present(path / RECIPE):
            raise BadInput(f"{path} holds no run: {RECIPE} is missing")
        return cls(path, Lock(path / LOCK))

    def begin(
        self,
        recipe: Mapping[str, Any],
        config: Mapping[str, Any] | None,
        tokenizer: str | None,
        job: Mapping[str, Any] | None,
    ) -> None:
        """Write what a run begins with, or nothing."""
        with or_else(self.unmake):
            if config is not None:
                files.write_json(self.path / CONFIG, config)
            if tokenizer is not None:
                files.write_text(self.path / TOKENIZER, tokenizer)
            if job is not None:
                files.write_json(self.path / JOB, job)
            self.write_recipe(recipe)

    def unmake(self) -> None:
        for name in (RECIPE, TOKENIZER, CONFIG, JOB):
            with suppress(OSError):
                files.remove(self.path / name)

    def write_recipe(self, recipe: Mapping[str, Any]) -> None:
        files.write_json(self.path / RECIPE, recipe)

    @property
    def recipe(self) -> dict[str, Any]:
        return self.read_recipe(self.path)

    @staticmethod
    def read_recipe(path: Path) -> dict[str, Any]:
        """What was asked of the run in a folder, whoever owns it."""
        return read_json(inside(path, RECIPE))

    def sync_logs(self) -> None:
        """Wait until what was logged has reached the disk: before a checkpoint of that step may be there."""
        self.metrics.sync()
        self.samples.sync()

    def keep_samples(self, step: int, samples: Sequence[Mapping[str, str]]) -> None:
        """Log what the model wrote at an evaluation; once the file is full, nothing more is added."""
        if samples and self.samples.size() < MOST_SAMPLES:
            self.samples.append({"step": step, "samples": list(samples)})

    def latest(self) -> tuple[Path, list[str]] | None:
        """`checkpoint.latest` of this run."""
        return checkpoint.latest(self.path)

    def status(self, reason: str, **facts: Any) -> None:
        """Say why the run stopped, or how it is."""
        files.write_json(self.path / STATUS, plain({"reason": reason, "time": time.time(), **facts}))

    def write_model(
        self,
        tensors: Mapping[str, Tensor],
        whole: Callable[[Tensor], Tensor] = lambda tensor: tensor,
        **facts: Any,
    ) -> None:
        """Publish the best weights so far. At any moment model.json vouches for the file that is there.

        whole: puts a weight together that several processes hold, when its turn comes (`file_order`).

        Two files cannot be renamed at once, so in between model.json speaks of both: the new one, and the one
        before.
        """

        def ready(name: str, tensor: Tensor) -> Tensor:
            found = whole(tensor)
            tensor_files.refuse_non_finite(SINGLE, {name: found})
            return found

        target, needed = self.path / SINGLE, tensor_files.tensor_bytes(tensors)
        with files.faults(target, needed):
            files.need_room(self.path, needed)
            before = settled(self.path)
            with files.replacing(target, needed) as aside:
                entry = {**tensor_files.write_tensors(aside, tensors, ready=ready), **plain(facts)}
                files.write_json(self.path / MODEL, {**entry, "before": before})
        files.write_json(self.path / MODEL, entry)

    def read_model(self) -> dict[str, Tensor]:
        """The best weights so far, verified."""
        check_model(self.path)
        return checkpoint.copy(self.path / SINGLE)

    def close(self) -> None:
        """Give the folder up."""
        self.metrics.close()
        self.samples.close()
        if self.metrics.track is not None:
            self.metrics.track.close()
        self.lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def or_else(undo: Callable[[], None]) -> Iterator[None]:
    """What to undo if the rest fails."""
    try:
        yield
    except BaseException:
        undo()
        raise


def make_folders(path: Path) -> None:
    """A folder, and those above it."""
    with files.faults(path):
        for folder in (*reversed(path.parents), path):
            if not folder.is_dir():
                files.make_folder(folder)
        if not path.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "it is a file, not a folder")


def refuse_name(path: Path) -> None:
    """A name that is no UTF-8: safetensors could write weights there, and never read them again."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise BadInput(one_line(f"{path} is no name in UTF-8: give another --run")) from None


def refuse_foreign(path: Path) -> None:
    """A folder with files of another kind is left alone."""
    names = {inner.name for inner in path.iterdir() if not inner.name.startswith(".")}
    begun = {LOCK, CONFIG, TOKENIZER, JOB} if LOCK in names else set()  # what a killed `create` leaves
    if RECIPE not in names and not names <= begun:
        foreign = min(names - begun)
        raise BadInput(one_line(f"{path} is no run, for it holds {foreign}: give another --run"))


def check_model(run: Path) -> dict[str, Any]:
    """What model.json says of the model.safetensors that is there, once the bytes agree."""
    entry = published(run)
    if entry is not None:
        return entry
    path, said = inside(run, SINGLE), read_json(inside(run, MODEL))
    raise BadInput(
        f"{path} is damaged: expected {said.get('bytes')} bytes with SHA-256 {said.get('sha256')}, "
        f"found {path.stat().st_size} with {checkpoint.file_hash(path)}"
    )


def settled(run: Path) -> dict[str, Any] | None:
    """What model.json says of the file that is there; only after a kill must that file be asked."""
    try:
        said = read_json(inside(run, MODEL))
        return published(run) if "before" in said else said
    except BadInput:
        return None


def published(run: Path) -> dict[str, Any] | None:
    """The entry of model.json that fits model.safetensors; None if none does."""
    if not present(run / SINGLE) or not present(run / MODEL):
        return None
    said = read_json(inside(run, MODEL))
    before = said.pop("before", None)
    actual = checkpoint.file_hash(inside(run, SINGLE))
    return next((entry for entry in (said, before) if entry and entry.get("sha256") == actual), None)


class Lock:
    """A lock for one process at a time: a file that names its owner, locked while the owner lives.

    Either alone is not enough: the file outlives a kill, and some network disks do not lock.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.pid = os.getpid()
        self.handle: int | None = None
        atexit.register(self.release)
        _held.add(self)
        with files.faults(path), or_else(self.release):
            while self.handle is None:
                self.handle = self.attempt()
            self.sign(self.handle)

    def attempt(self) -> int | None:
        """Open and lock the file; None if its owner gave it up in between, and it must be tried again."""
        handle = open_either(self.path)
        with or_else(lambda: os.close(handle)):
            free, owner = locked(handle), read_owner(handle)
            if not free or lives(owner):
                raise BadInput(in_use(self.path.parent, owner))
        if is_file(handle, self.path):
            return handle
        os.close(handle)
        return None

    def sign(self, handle: int) -> None:
        """Write who we are over whoever was here before."""
        us = {"pid": self.pid, "host": socket.gethostname(), "started": files.started(self.pid)}
        os.ftruncate(handle, 0)
        os.lseek(handle, 0, os.SEEK_SET)
        files.write(handle, self.path, json.dumps(us).encode() + b"\n")
        files.sync(handle, self.path)

    def release(self) -> None:
        """Strike our name out and delete the file, while it is still locked."""
        if os.getpid() != self.pid:
            return
        with suppress(OSError):
            if self.handle is not None and is_file(self.handle, self.path):
                os.ftruncate(self.handle, 0)
                files.unlink(self.path)
        self.forget()
        atexit.unregister(self.release)

    def forget(self) -> None:
        """Close the file, which unlocks it unless another process has it open too."""
        if self.handle is not None:
            os.close(self.handle)
        self.handle = None
        _held.discard(self)


_held: set[Lock] = set()


def _forget_in_child() -> None:
    """A child process must not keep its dead parent's folder locked."""
    for lock in list(_held):
        lock.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)


def open_either(path: Path) -> int:
    """The file, made just now or found there."""
    while True:
        with suppress(FileExistsError):
            return files.open_file(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        with suppress(FileNotFoundError):  # its owner has just given it up
            return files.open_file(path, os.O_RDWR)


def locked(handle: int) -> bool:
    """Lock an open file unless another process has; where disks cannot lock, the file's text must do."""
    if sys.platform == "win32":  # the file alone must do, and be deleted by hand after a kill
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
            raise
    return True


def is_file(handle: int, path: Path) -> bool:
    """Whether an open file still has this name."""
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return False


def in_use(run: Path, owner: Mapping[str, Any]) -> str:
    who = f"process {owner['pid']} on {owner.get('host')}" if owner else "another process"
    return one_line(f"{run} is in use by {who}: wait until it has ended, or give another --run")


class Metrics:
    """metrics.jsonl: one JSON object a line, there for other programs as soon as it is appended."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.handle: int | None = None
        self.track: RunTrack | None = None  # where else each line goes

    def append(self, values: Mapping[str, Any]) -> None:
        """Add a line; numbers that are not finite become "nan", "inf" and "-inf", for JSON has none."""
        line = json.dumps(plain(values), allow_nan=False).encode() + b"\n"
        with files.faults(self.path, len(line)):
            if self.handle is None:
                self.handle = files.open_file(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            size = os.fstat(self.handle).st_size
            try:
                files.write(self.handle, self.path, line)
            except OSError:
                os.ftruncate(self.handle, size)  # half a line would spoil the next one too
                raise
        if self.track is not None:
            self.track.log(values)

    def drop_after(self, step: int) -> None:
        """Drop lines of steps after this one, and a last line that a kill has torn."""
        self.close()
        if present(self.path):
            text = self.path.read_bytes()
            kept = b"".join(line + b"\n" for line, found in self.lines(text) if not is_after(found, step))
            if kept != text:
                files.write_bytes(self.path, kept)

    def check_kept(self, step: int) -> None:
        """Refuse a file that somebody has emptied: a checkpoint comes after its step's line."""
        if step and present(self.path) and not self.path.stat().st_size:
            raise BadInput(f"{self.path} is empty: put back its lines up to step {step}, or delete it")

    def read(self) -> list[dict[str, Any]]:
        """What the lines say."""
        return [said for _, said in self.lines(self.path.read_bytes())] if present(self.path) else []

    def lines(self, text: bytes) -> list[tuple[bytes, dict[str, Any]]]:
        """Each line, and what it says."""
        lines = text.splitlines()
        found = [(line, json_object(line)) for line in lines]
        for number, (_, said) in enumerate(found[:-1], 1):
            if said is None:
                raise BadInput(f"{self.path}, line {number} is no JSON object: delete or mend it")
        return [(line, said) for line, said in found if said is not None]

    def size(self) -> int:
        """The bytes of the file."""
        return self.path.stat().st_size if present(self.path) else 0

    def sync(self) -> None:
        """Wait until every line has reached the disk."""
        if self.handle is not None:
            with files.faults(self.path):
                files.sync(self.handle, self.path)

    def close(self) -> None:
        if self.handle is not None:
            os.close(self.handle)
        self.handle = None


def is_after(line: Mapping[str, Any], step: int) -> bool:
    found = line.get("step")
    return isinstance(found, int | float) and found > step


def plain(value: Any) -> Any:
    """The same with every number that JSON does not have as text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return value


class Stop:
    """Whether SIGTERM, SIGINT or SIGUSR1 has asked the run to end: `with Stop() as stop: ... if stop.asked`.

    SIGUSR2 asks for a checkpoint instead (`stop.saving`), and the run goes on.
    Being asked twice means now, unless it is once more within `again` seconds: some senders send to a
    launcher and to its processes, and the launcher passes it on. Only the main thread can listen; elsewhere
    nothing is ever asked.
    """

    NAMES = ("SIGTERM", "SIGINT", "SIGUSR1")

    def __init__(self, again: float = 0.0) -> None:
        self.asked: str | None = None  # the signal's name
        self.saving = False  # whether a checkpoint is wanted
        self.again, self.since = again, 0.0
        self.before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for name in (*self.NAMES, "SIGUSR2"):
                number = getattr(signal, name, None)  # Windows has no SIGUSR1 and no SIGUSR2
                if number is not None:
                    self.before[number] = signal.signal(
                        number, self.hear if name in self.NAMES else self.note
                    )
        return self

    def note(self, number: int, _: FrameType | None) -> None:
        self.saving = True

    def hear(self, number: int, _: FrameType | None) -> None:
        if self.asked and time.monotonic() - self.since >= self.again:
            os._exit(INTERRUPTED_TWICE)  # no clean-up could be relied on; the files are safe at any moment
        if not self.asked:
            self.asked, self.since = signal.Signals(number).name, time.monotonic()

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        self.before.clear()
