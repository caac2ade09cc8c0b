"""Saving while training goes on: a copy in memory is made at once, and a thread writes it to the disk.

    main thread    step  copy  step  step  step  step  [wait]  copy  step ...
    thread                    write, hash, flush, commit

A process has at most one checkpoint on its way. The next one waits for it, and so does whoever ends the run.
What goes wrong in the thread is raised by that wait; `failed` tells of it earlier, at the next step.

With several processes, each writes its share. The threads agree through the store that the processes met in,
each over a connection of its own: no collective call is made, so nothing that the main threads send each
other can be overtaken. Every message has a name of its own (save, process), so none can be mistaken either:

    each process     share/N/RANK = what it wrote, or why it failed
    leading process  reads all shares, commits, then verdict/N = done, or why not
    each process     reads the verdict, and raises what it says: the same in all of them

A process that dies never sends its share. Then the heartbeat ends the others, wherever they wait.
"""

from __future__ import annotations

import json
import os
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

import torch
import torch.distributed as dist
from torch import Tensor

from .. import files
from ..data import tensor_files
from ..errors import BadInput, DiskFull, Lost, NotFinite
from ..train.meeting import connect
from ..train.processes import PATIENCE, World
from . import pieces
from .checkpoint import FOLDER, SaveInProgress, Sets, exact_json
from .pieces import HeldPiece

GLANCE = timedelta(seconds=1)  # how long the store is asked for a message before the question is put again


class Staging:
    """Copies in the memory of the host, used again by every save; from a GPU they are pinned."""

    def __init__(self) -> None:
        self.buffers: dict[tuple[str, str], Tensor] = {}

    def take(self, sets: Mapping[str, Mapping[str, Tensor]], world: World) -> StagedCopy:
        """Begin to copy this process's pieces of some tensors, in turn with what the device was given."""
        copied: dict[str, dict[str, HeldPiece]] = {}
        ends: list[tuple[str, str, Tensor]] = []
        before, self.buffers = self.buffers, {}
        for part, tensors in sets.items():
            copied[part] = {}
            for name, piece in pieces.cut(tensors, world.rank, world.size).items():
                buffer = before.get((part, name))
                if buffer is None or (buffer.shape, buffer.dtype) != (piece.tensor.shape, piece.tensor.dtype):
                    buffer = on_host(piece.tensor)
                self.buffers[part, name] = buffer.copy_(piece.tensor, non_blocking=True)
                copied[part][name] = HeldPiece(buffer, piece.shape, piece.offsets)
                found = tensor_files.extremes(piece.tensor)
                if found is not None:
                    ends.append((part, name, on_host(found).copy_(found, non_blocking=True)))
        arrived = torch.cuda.Event() if torch.cuda.is_initialized() else None
        if arrived is not None:
            arrived.record()
        return StagedCopy(copied, ends, arrived)


def on_host(tensor: Tensor) -> Tensor:
    """Room for a tensor in the memory of the host, where a device can write to while the host goes on."""
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)


class StagedCopy:
    """What is to be written, once it has arrived in the memory of the host."""

    def __init__(
        self, sets: Sets, ends: list[tuple[str, str, Tensor]], arrived: torch.cuda.Event | None
    ) -> None:
        self.sets, self.ends, self.arrived = sets, ends, arrived

    def wait(self, step: int) -> Sets:
        """All of it; NotFinite if it may not be written."""
        if self.arrived is not None:
            self.arrived.synchronize()
        for part, name, ends in self.ends:
            tensor_files.refuse_non_finite(f"step {step}, {part}", {name: ends})
        return self.sets


class Saver:
    """Saves the checkpoints of a run beside its training: `with Saver(...) as saver: ... saver.save(...)`.

    before: what must have reached the disk before a checkpoint may be there.
    """

    def __init__(self, run: Path, world: World, device: torch.device, before: Callable[[], None]) -> None:
        self.run, self.world, self.device, self.before = run, world, device, before
        self.staging = Staging()
        self.thread: threading.Thread | None = None
        self.error: BaseException | None = None
        self.saves = 0
        if world.leads and (run / FOLDER).is_dir():
            for left in (run / FOLDER).glob(f"step-*.tmp-{os.getpid()}"):  # of a process with our number
                files.remove(left)
        leader, name = world.from_leader([float(os.getpid()), float(secrets.randbits(48))], device)
        self.leader = int(leader)
        self.talk = Talk(f"saving/{int(name)}") if world.size > 1 else None

    def save(
        self, step: int, tensors: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, Any], keep: int
    ) -> None:
        """Begin to save a checkpoint, once the one before is there."""
        self.wait()
        writing = SaveInProgress(self.run, step, keep, self.world.rank, self.world.size, self.leader)
        text = exact_json(state)
        staged = self.staging.take(tensors, self.world)
        writing.check(staged.sets)
        self.saves += 1
        work = (self.saves, writing, staged, text, state.get("facts", {}))
        self.thread = threading.Thread(target=self.work, args=work, daemon=True, name="saving")
        self.thread.start()

    def work(self, *what: Any) -> None:
        try:
            self.write(*what)
        except BaseException as error:  # noqa: BLE001 (whatever it is, the main thread raises it)
            self.error = error

    def write(
        self, number: int, writing: SaveInProgress, staged: StagedCopy, text: bytes, facts: Mapping[str, Any]
    ) -> None:
        """All that is done for a checkpoint in the thread."""
        if self.talk is None:
            with writing.undone_by_failure():
                entries = writing.write(staged.wait(writing.step), len(text))
                self.before()
                writing.commit(entries, text, facts)
            return
        with self.talk.telling(f"share/{number}/{self.world.rank}") as said:
            said.update(writing.write(staged.wait(writing.step), len(text) if self.world.leads else 0))
        if self.world.leads:
            with self.talk.telling(f"verdict/{number}"), writing.undone_by_failure():
                entries = self.talk.hear_all([f"share/{number}/{r}" for r in range(self.world.size)])
                self.before()
                writing.commit(entries, text, facts)
            self.talk.store.delete_key(f"verdict/{number - 1}")  # all have heard it
        self.talk.hear(f"verdict/{number}")

    @property
    def failed(self) -> bool:
        """Whether the last save has gone wrong: `wait` raises why."""
        return self.error is not None

    def wait(self) -> None:
        """Until no checkpoint is on its way; raises what went wrong with the last one. All processes ask."""
        if self.thread is not None:
            self.thread.join()
            self.thread = None
            if not isinstance(self.error, Lost):
                self.world.wait(self.device)  # whoever ends now may take the store along: all have heard
        if self.error is not None:
            error, self.error = self.error, None
            raise error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """A run that fails lets its last checkpoint be finished, unless other processes are gone."""
        if kind is None:
            self.wait()
            return
        if self.talk is not None and issubclass(kind, RuntimeError | Lost):  # the transport's errors
            self.talk.over.set()
        if self.thread is not None:
            self.thread.join()


class Talk:
    """What the threads of all processes tell each other, each thing under a name of its own."""

    def __init__(self, name: str) -> None:
        self.store = dist.PrefixStore(name, connect(PATIENCE))
        self.over = threading.Event()  # nobody listens any more

    @contextmanager
    def telling(self, name: str) -> Iterator[dict[str, Any]]:
        """Tell what the body fills in, or why it failed; whoever hears that raises it."""
        said: dict[str, Any] = {}
        try:
            yield said
        except Exception as error:  # noqa: BLE001 (all processes are to know)
            self.store.set(name, json.dumps({"error": in_words(error)}))
        else:
            self.store.set(name, json.dumps({"said": said}))

    def hear(self, name: str) -> dict[str, Any]:
        """What was told under a name, once it was."""
        heard = self.wait(name)
        if "error" in heard:
            raise in_kind(*heard["error"])
        return heard["said"]

    def hear_all(self, names: Sequence[str]) -> dict[str, Any]:
        """All that was told under some names, once all have spoken: nobody is still at work if one failed."""
        for name in names:
            self.wait(name)
        found: dict[str, Any] = {}
        for name in names:
            found |= self.hear(name)
            self.store.delete_key(name)
        return found

    def wait(self, name: str) -> dict[str, Any]:
        while not self.over.is_set():
            try:
                self.store.wait([name], GLANCE)
                return json.loads(self.store.get(name))
            except dist.DistNetworkError as error:
                raise Lost(f"the store of the rendezvous does not answer: {error}") from error
            except dist.DistStoreError:  # not yet
                continue
        raise Lost("another process of this run has ended, and its share of the checkpoint is not there")


KINDS = {kind.__name__: kind for kind in (BadInput, NotFinite)}


def in_words(error: Exception) -> list[Any]:
    """An error as other processes hear of it."""
    if isinstance(error, DiskFull):
        return [DiskFull.__name__, error.errno, error.strerror, error.filename]
    if type(error).__name__ in KINDS:
        return [type(error).__name__, str(error)]
    return ["", f"a checkpoint could not be saved: {type(error).__name__}: {error}"]


def in_kind(kind: str, *said: Any) -> Exception:
    """The same error again."""
    return DiskFull(*said) if kind == DiskFull.__name__ else KINDS.get(kind, RuntimeError)(*said)
