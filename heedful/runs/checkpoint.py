"""Checkpoints: everything needed to go on exactly, in a folder that is whole or is not there.

    checkpoints/step-N/
      SET.safetensors     one for each set of tensors: model, optimizer, ...; each of several processes writes
                          a share: SET-00001-of-00004.safetensors, ...
      state.json          numbers and names
      manifest.json       bytes and SHA-256 of each file, written last, and of itself: no format notices a
                          flipped bit on its own

A checkpoint is written to step-N.tmp-PID, flushed, renamed, and only then are old ones deleted. One that is
in the way of another of the same step waits as step-N.old-PID until the other is in its place.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from .. import files
from ..data import tensor_files
from ..errors import BadInput, NoCheckpoint, NotFinite
from ..files import MEGABYTE, inside, is_plain, one_line, present, read_bytes, read_json, short
from ..interop.hf.weights import opened
from . import pieces
from .pieces import HeldPiece, SavedTensor, about, tensors_of

FORMAT = 1
FOLDER, MANIFEST, STATE, TENSORS = "checkpoints", "manifest.json", "state.json", ".safetensors"
NUMBERED = re.compile(r"step-(0|[1-9][0-9]{0,17})")
SHARE = re.compile(r"-[0-9]{5,}-of-[0-9]{5,}$")
ASIDE = re.compile(r"(step-[0-9]{1,18})\.(tmp|old)-([0-9]{1,9})")


# Writing.


def save(
    run: Path,
    step: int,
    tensors: Mapping[str, Mapping[str, Tensor]],
    state: Mapping[str, Any],
    keep: int = 2,
) -> Path:
    """Write checkpoints/step-N of a run, then delete all but the newest `keep` that are whole.

    state["facts"] (torch version, threads, world size, accumulation) also goes into the manifest.
    """
    writing = SaveInProgress(run, step, keep)
    sets = {name: pieces.cut(part) for name, part in tensors.items()}
    writing.check(sets)
    for name, part in tensors.items():
        tensor_files.refuse_non_finite(f"step {step}, {name}", part)
    text = exact_json(state)
    with writing.undone_by_failure():
        writing.commit(writing.write(sets, len(text)), text, state.get("facts", {}))
    return writing.folder


def exact_json(state: Mapping[str, Any]) -> bytes:
    """JSON that gives back the same state: Python writes every float with all its digits."""
    try:
        text = json.dumps(state, indent=1, allow_nan=False)
    except ValueError:
        raise NotFinite(
            "a checkpoint's state holds a number that is not finite, so it is not saved"
        ) from None
    if json.loads(text) != state:
        raise BadInput("a checkpoint's state would come back altered: only lists, and keys that are text")
    return text.encode()


Sets = Mapping[str, Mapping[str, HeldPiece]]


@dataclass(frozen=True)
class SaveInProgress:
    """A checkpoint on its way: every process fills a folder aside, and the leading one puts it in place."""

    run: Path
    step: int
    keep: int = 2
    rank: int = 0
    size: int = 1
    leader: int = field(default_factory=os.getpid)

    @property
    def folder(self) -> Path:
        return self.run / FOLDER / f"step-{self.step}"

    @property
    def aside(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}.tmp-{self.leader}")

    def name_of(self, part: str) -> str:
        """The file of this process for a set of tensors."""
        return f"{part}{'' if self.size == 1 else share(self.rank, self.size)}{TENSORS}"

    def check(self, sets: Sets) -> None:
        """Refuse what could not be found or read again, or must not be."""
        if self.keep < 1:
            raise BadInput(f"{self.keep} checkpoints cannot be kept: at least one is needed")
        if not NUMBERED.fullmatch(f"step-{self.step}"):
            raise BadInput(f"{short(self.step)} is no number of steps")
        for name in sets:
            if not is_plain(f"{name}{TENSORS}") or SHARE.search(name):
                raise BadInput(f"{short(name)} is no name for a file of tensors")

    def write(self, sets: Sets, more: int = 0) -> dict[str, Any]:
        """Write what this process holds; what the manifest is to say of it. more: bytes that will follow."""
        needed = more + sum(
            tensor_files.tensor_bytes(tensors_of(part), about(part)) for part in sets.values()
        )
        with files.faults(self.folder, needed):
            files.make_folder(self.folder.parent)  # not its parents: a run folder that was deleted stays so
            files.need_room(self.folder.parent, needed)
            if self.size == 1:
                files.remove(self.aside)  # of an earlier process with our number
            files.make_folder(self.aside)
            return {
                self.name_of(name): tensor_files.write_tensors(
                    self.aside / self.name_of(name), tensors_of(part), about(part)
                )
                for name, part in sets.items()
                if part or self.size == 1
            }

    def commit(self, entries: dict[str, Any], state: bytes, facts: Mapping[str, Any]) -> None:
        """Put the folder in its place, once all that is to be in it has reached the disk; delete old ones."""
        with files.faults(self.folder, len(state)):
            if self.size > 1:
                self.look_over(entries)
            with files.writing(self.aside / STATE) as file:
                file.write(state)
            entries = {**entries, STATE: file.entry}
            told = {"format": FORMAT, "step": self.step, "facts": facts, "files": entries}
            with files.writing(self.aside / MANIFEST) as file:
                file.write(sealed(told))
            files.sync_folder(self.aside)
            publish(self.aside, self.folder, entries)
            rotate(self.folder, self.keep)

    def look_over(self, entries: dict[str, Any]) -> None:
        """Refuse what other processes say they have written, unless it is here and fits together."""
        for name, entry in entries.items():
            path = self.aside / name
            if not path.is_file() or path.stat().st_size != entry["bytes"]:
                raise BadInput(
                    f"{path} was written by another process and is not seen by this one: "
                    "put the run on a disk that all machines share"
                )
        for path in self.aside.iterdir():
            if path.name not in entries:
                files.remove(path)
        for part in sets_in(entries):
            pieces.stored_in(files_of(self.aside, entries, part))

    def give_up(self) -> None:
        with suppress(OSError):
            files.remove(self.aside)

    @contextmanager
    def undone_by_failure(self) -> Iterator[None]:
        """After a failure, nothing has changed."""
        try:
            yield
        except BaseException:
            self.give_up()
            raise


def share(rank: int, size: int) -> str:
    """What the name of a process's file ends with, where there are several."""
    return f"-{rank + 1:05d}-of-{size:05d}"


def sets_in(entries: Iterable[str]) -> list[str]:
    """The sets of tensors that some files hold."""
    names = (name.removesuffix(TENSORS) for name in entries if name.endswith(TENSORS))
    return list(dict.fromkeys(SHARE.sub("", name) for name in names))


def files_of(folder: Path, entries: Iterable[str], part: str) -> list[Path]:
    """The files that a set of tensors is in."""
    return [folder / name for name in entries if name.endswith(TENSORS) and sets_in([name]) == [part]]


def beside(folder: Path, kind: str) -> Path:
    return folder.with_name(f"{folder.name}.{kind}-{os.getpid()}")


def publish(aside: Path, folder: Path, entries: dict[str, Any]) -> None:
    """Rename a finished folder to its own name; the same checkpoint, if it is there and whole, stays."""
    if not present(folder):
        files.rename(aside, folder)
    elif fault(folder) is None and read_json(folder / MANIFEST)["files"] == entries:
        files.remove(aside)
    else:
        swap(aside, folder)
    files.sync_folder(folder.parent)
    for name, entry in entries.items():
        remember(folder / name, entry["sha256"])


def swap(aside: Path, folder: Path) -> None:
    """Put a new folder where an old one is; `sweep` undoes what a kill leaves half done."""
    old = beside(folder, "old")
    files.remove(old)
    files.rename(folder, old)
    try:
        files.rename(aside, folder)
    except OSError:
        files.rename(old, folder)
        raise
    files.sync_folder(folder.parent)
    files.remove(old)


def rotate(written: Path, keep: int) -> None:
    """Delete checkpoints older than the newest `keep` that are whole, but never the one just written."""
    found = newest_first(written.parent)
    kept = 0
    for folder in found if len(found) > keep else []:
        if kept < keep:
            kept += folder == written or fault(folder, remembered_hash) is None
        elif folder != written and present(folder / MANIFEST):  # without one it was never a checkpoint
            aside = beside(folder, "tmp")
            files.rename(folder, aside)  # from here on nobody takes it for a checkpoint
            files.remove(aside)


# Reading.


def latest(run: Path) -> tuple[Path, list[str]] | None:
    """The newest whole checkpoint, and a sentence for each damaged one that is newer; None if there is none.

    Raises NoCheckpoint if there are some and all are damaged. What dead processes left half done is cleared
    away.
    """
    folder = run / FOLDER
    if not folder.is_dir():
        return None
    with files.faults(folder):
        sweep(folder)
    damaged: list[str] = []
    for path in newest_first(folder):
        why = fault(path, fresh_hash)
        if why is None:
            return path, [f"{FOLDER}/{told}: using {path.name}" for told in damaged]
        damaged.append(f"{path.name} is damaged ({why})")
    if damaged:
        raise NoCheckpoint(f"{folder} holds no checkpoint that can be read: {'; '.join(damaged)}")
    return None


def sweep(folder: Path) -> None:
    """Clear away what processes that have died left half done."""
    for path in sorted(folder.iterdir()):
        match = ASIDE.fullmatch(path.name)
        if not match or files.others(int(match[3])):
            continue
        home = folder / match[1]
        if match[2] == "old" and not present(home) and fault(path, step=step_of(home)) is None:
            files.rename(path, home)  # the other had not taken its place yet
            files.sync_folder(folder)
        else:
            files.remove(path)


def newest_first(folder: Path) -> list[Path]:
    """Folders named step-N by falling N, whatever the clock says; other names are no concern of ours."""
    numbered = [path for path in folder.iterdir() if step_of(path) is not None and path.is_dir()]
    return sorted(numbered, key=lambda path: step_of(path) or 0, reverse=True)


def step_of(folder: Path) -> int | None:
    match = NUMBERED.fullmatch(folder.name)
    return int(match[1]) if match else None


def load(folder: Path) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
    """The tensors and the state of a checkpoint, verified, in memory of their own and in one piece each."""
    verify(folder)
    entries = read_json(folder / MANIFEST)["files"]
    tensors: dict[str, dict[str, Tensor]] = {}
    for part in sets_in(entries):
        stored = pieces.stored_in(files_of(folder, entries, part))
        tensors[part] = {name: tensor.empty() for name, tensor in stored.items()}
        pieces.read_into(stored, tensors[part])
    return tensors, read_json(folder / STATE, limit=entries[STATE]["bytes"])


@dataclass(frozen=True)
class Saved:
    """A checkpoint that is read part by part, by several processes: each verifies what it reads."""

    path: Path
    entries: Mapping[str, Any]
    state: dict[str, Any]

    @classmethod
    def open(cls, path: Path) -> Saved:
        found = cls(path, unsealed(inside(path, MANIFEST))["files"], {})
        found.vouch(inside(path, STATE))
        return replace(found, state=read_json(path / STATE, limit=found.entries[STATE]["bytes"]))

    def stored(self, part: str) -> dict[str, SavedTensor]:
        """The tensors of a set: their shapes, and where they are."""
        return pieces.stored_in([inside(self.path, p.name) for p in files_of(self.path, self.entries, part)])

    def read(self, part: str, targets: Mapping[str, Tensor]) -> None:
        """Fill tensors of a set, once the files that they come from are found to be as they were written."""
        stored = self.stored(part)
        if missing := sorted(targets.keys() - stored.keys()):
            raise BadInput(f"{self.path} holds no {missing[0]} among the tensors of {part}")
        pieces.read_into(stored, targets, self.vouch)

    def vouch(self, path: Path) -> None:
        """Refuse a file that is not as it was written."""
        if why := file_fault(path, self.entries[path.name], remembered_hash):
            raise BadInput(f"{self.path} is damaged ({path.name}: {why})")


def copy(path: Path) -> dict[str, Tensor]:
    """Tensors that do not lie in the file: one that is cut short later would end the process."""
    with opened(path) as file:
        return {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118


def verify(folder: Path) -> None:
    """Raise BadInput that names the file, and what it should be and is, unless a checkpoint is whole."""
    why = fault(folder)
    if why is not None:
        raise BadInput(f"{folder} is damaged ({why})")


def fault(folder: Path, hashed: Callable[[Path], str] | None = None, step: int | None = None) -> str | None:
    """What is wrong with a checkpoint; None if it is whole. hashed: where the hash of a file comes from."""
    try:
        return manifest_fault(folder, hashed or file_hash, step_of(folder) if step is None else step)
    except BadInput as error:
        return str(error).replace(f"{folder}{os.sep}", "")
    except OSError as error:
        return f"{Path(error.filename or folder).name} cannot be read: {error.strerror}"


def manifest_fault(folder: Path, hashed: Callable[[Path], str], step: int | None) -> str | None:
    """The first thing in which a folder differs from its manifest."""
    manifest = unsealed(inside(folder, MANIFEST))
    if manifest.get("format") != FORMAT:
        return (
            f"{MANIFEST}: format {short(manifest.get('format'))}, and this version of heedful reads {FORMAT}"
        )
    if step is not None and manifest.get("step") != step:
        return f"{MANIFEST}: it is of step {short(manifest.get('step'))}, expected {step}"
    entries = manifest["files"]
    for name, entry in entries.items():
        why = file_fault(inside(folder, name), entry, hashed)
        if why:
            return f"{name}: {why}"
    extra = {path.name for path in folder.iterdir()} - {MANIFEST, *entries}
    return f"{min(extra)}: expected no such file" if extra else None


def file_fault(path: Path, entry: dict[str, Any], hashed: Callable[[Path], str]) -> str | None:
    size = path.stat().st_size
    if size != entry["bytes"]:
        return f"expected {entry['bytes']} bytes, found {size}"
    actual = hashed(path)
    return f"expected SHA-256 {entry['sha256']}, found {actual}" if actual != entry["sha256"] else None


# The manifest vouches for itself: its last entry is the SHA-256 of the text before it.


def sealed(manifest: Mapping[str, Any]) -> bytes:
    return seal(json.dumps(manifest, indent=1).encode())


def seal(body: bytes) -> bytes:
    """The text of a JSON object, with the hash of that text as a last entry."""
    return body[:-2] + b',\n "sha256": "%s"\n}\n' % hashlib.sha256(body).hexdigest().encode()


def unsealed(path: Path) -> dict[str, Any]:
    """A manifest that is as it was written."""
    text = read_bytes(path)
    tail = len(seal(b"\n}"))
    body = text[:-tail] + b"\n}"
    if text != seal(body):
        expected = text[-67:-3].decode("ascii", "replace")
        found = hashlib.sha256(body).hexdigest()
        raise BadInput(one_line(f"{path}: expected SHA-256 {expected}, found {found}"))
    return checked(path, read_json(path))


def checked(path: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    """A manifest whose parts have the types that the rest relies on."""
    entries = manifest.get("files")
    if not isinstance(entries, dict) or STATE not in entries:
        raise BadInput(f"{path} names no {STATE}")
    for name, entry in entries.items():
        known = isinstance(entry, dict) and isinstance(entry.get("bytes"), int) and "sha256" in entry
        if not known or not is_plain(name):
            raise BadInput(f"{path} says of {short(name)}: {short(entry)}")
    return manifest


# Hashes.

_remembered: dict[
    tuple[int, int, int, int], str
] = {}  # (device, inode, size, last change) of a file -> SHA-256
SURE = 100_000_000  # nanoseconds: a change sooner than this after the last one may leave the same time behind


def file_hash(path: Path) -> str:
    """The SHA-256 of a file, read once, a megabyte at a time."""
    found = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        while block := file.read(MEGABYTE):
            found.update(block)
    return found.hexdigest()


def remembered_hash(path: Path) -> str:
    """`file_hash`, which does not read a file again that this process has hashed and nobody touched since.

    Rotation asks before every deletion: without this, each save would read all that is kept. The time of the
    last change (ctime) cannot be set by hand, and is only compared with itself.
    """
    known = _remembered.get(identity(path))
    return known if known is not None else fresh_hash(path)


def fresh_hash(path: Path) -> str:
    """The hash of a file as it is now, remembered."""
    return remember(path, file_hash(path))


def remember(path: Path, sha256: str) -> str:
    key = identity(path)
    if time.time_ns() - key[3] > SURE:
        _remembered[key] = sha256
    return sha256


def identity(path: Path) -> tuple[int, int, int, int]:
    stat = path.stat()
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_ctime_ns
