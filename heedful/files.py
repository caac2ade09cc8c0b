"""Files: other people's are read with care, ours are written so that a failure leaves the old ones.

Reading is bounded, stays inside its folder, executes nothing, and names every fault. Writing goes aside, is
flushed to the disk, and renamed: a failure or a kill leaves the old file or the new. Everything that writes
is one of the small functions below, and each of them first calls `_before`: tests put a failure or a kill
there, and so at every single point where one can happen.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from reprlib import repr as short  # a hostile value may be a megabyte long
from typing import Any

from .errors import BadInput, DiskFull

MEGABYTE = 1 << 20
LONGEST = 2000  # characters in an error message
BLOCK = 4096  # what a new name or a few words take up
MARGIN = MEGABYTE  # beyond the bytes themselves: folders and the file system's own tables
FULL = (errno.ENOSPC, errno.EDQUOT)
HERE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)  # a link is never written through
LEFTOVER = re.compile(r"\..+\.tmp-([0-9]{1,9})")


# Reading.


def present(path: Path) -> bool:
    """Whether something has this name, be it only a link that leads nowhere."""
    return os.path.lexists(path)


def inside(folder: Path, name: Any) -> Path:
    """The file `name` of a folder: a plain name, a regular file, and not a link that leads out."""
    if not is_plain(name):
        raise BadInput(f"{folder} names a file {short(name)}: only plain names of files beside it are read")
    path = folder / name
    if not path.exists():
        raise BadInput(
            f"{path} is a link that leads nowhere" if present(path) else f"{path} is missing: put it there"
        )
    if not path.is_file():  # a pipe would never end
        raise BadInput(f"{path} is not a regular file")
    if not stays(path.resolve(), folder.resolve()):
        raise BadInput(f"{path} is a link that leads out of its folder: copy the file there instead")
    return path


def is_plain(name: Any) -> bool:
    """A name that is no path, on any system, and that a disk can hold."""
    if not isinstance(name, str) or name in ("", ".", "..") or not name.isprintable():
        return False
    return not any(c in name for c in "/\\:%") and len(os.fsencode(name)) < 256


def stays(target: Path, folder: Path) -> bool:
    """Within the folder; or, from Hugging Face's cache (snapshots/REVISION/FILE), in blobs/ of the same
    repository."""
    blobs = folder.parent.parent / "blobs"
    return target.is_relative_to(folder) or (folder.parent.name == "snapshots" and target.parent == blobs)


def read_bytes(path: Path, limit: int = MEGABYTE) -> bytes:
    """A file of at most `limit` bytes."""
    size = path.stat().st_size
    if size > limit:
        raise BadInput(f"{path} has {size} bytes; at most {limit} are read")
    with open(path, "rb") as file:
        return file.read(limit)


def read_text(path: Path, limit: int = MEGABYTE) -> str:
    """The text of a UTF-8 file of at most `limit` bytes."""
    try:
        return read_bytes(path, limit).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is not UTF-8 text: byte {error.start} is no part of a character") from None


def read_json(path: Path, limit: int = MEGABYTE) -> dict[str, Any]:
    """A JSON object from a file of at most `limit` bytes."""
    return json_text(path, read_text(path, limit))


def json_text(path: Path, text: str) -> dict[str, Any]:
    """A JSON object from a text that came from a file."""
    try:
        found = json.loads(text, parse_constant=refuse_constant)
    except RecursionError:
        raise BadInput(f"{path} is nested too deeply to be read") from None
    except ValueError as error:
        raise BadInput(f"{path} is not valid JSON: {error}; mend it, or put a whole copy there") from None
    if not isinstance(found, dict):
        raise BadInput(f"{path} holds {short(found)}, where an object {{...}} is expected")
    return found


def refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number")


def objects(node: Any) -> Iterator[dict[str, Any]]:
    """Every {...} in a piece of JSON, however deep."""
    pending = [node]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            yield node
            pending.extend(node.values())
        elif isinstance(node, list):
            pending.extend(node)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Errors inside become one printable line that says which file it is about."""
    try:
        yield
    except OSError as error:
        raise BadInput(one_line(f"{path} cannot be read: {error.strerror}")) from None
    except ValueError as error:
        told = str(path) in str(error)
        raise BadInput(one_line(str(error) if told else f"{path}: {error}")) from None


def one_line(text: str) -> str:
    """A message that no name in it can break up, color or flood."""
    return "".join(c if c.isprintable() else "?" for c in text)[:LONGEST]


# Primitives: one operation each.


def _before(op: str, path: Path) -> None:
    """Called ahead of every operation on the disk; does nothing unless a test replaces it."""


def open_file(path: Path, flags: int) -> int:
    """A handle; a file that is created has the mode that the umask asks for."""
    _before("open", path)
    return os.open(path, flags | HERE, 0o666)


def write(handle: int, path: Path, data: bytes | memoryview) -> None:
    """All of the data, a megabyte at a time."""
    rest = memoryview(data)
    while rest:
        _before("write", path)
        rest = rest[put(handle, rest[:MEGABYTE]) :]


def put(handle: int, data: memoryview) -> int:
    """Some of the data: how many bytes were written."""
    return os.write(handle, data)


def sync(handle: int, path: Path) -> None:
    """Wait until what was written to a file has reached the disk."""
    _before("fsync", path)
    os.fsync(handle)


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder have reached the disk."""
    _before("fsync folder", folder)
    if os.name == "nt":  # Windows has no such call, and needs none
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def rename(old: Path, new: Path) -> None:
    """Move a file or a folder; a file that is there is replaced."""
    _before("rename", new)
    os.replace(old, new)


def unlink(path: Path) -> None:
    _before("unlink", path)
    os.unlink(path)


def make_folder(folder: Path) -> None:
    """A folder that may be there already; its parent must be."""
    _before("mkdir", folder)
    with suppress(FileExistsError):
        os.mkdir(folder)
        sync_folder(folder.parent)


def remove(path: Path) -> None:
    """Delete a file, or a folder with all that is in it; nothing there is fine."""
    if path.is_dir() and not path.is_symlink():
        for inner in sorted(path.iterdir()):
            remove(inner)
        _before("rmdir", path)
        os.rmdir(path)
    elif present(path):
        unlink(path)


# Whole files.


class Writer:
    """A file being written: every byte is counted and hashed on its way, so that none is read again."""

    def __init__(self, handle: int, path: Path) -> None:
        self.handle, self.path = handle, path
        self.bytes, self.hash = 0, hashlib.sha256()

    def write(self, data: bytes | memoryview) -> None:
        write(self.handle, self.path, data)
        self.hash.update(data)
        self.bytes += len(data)

    @property
    def entry(self) -> dict[str, Any]:
        """What a manifest says of the file."""
        return {"bytes": self.bytes, "sha256": self.hash.hexdigest()}


@contextmanager
def writing(path: Path) -> Iterator[Writer]:
    """A new file, which has reached the disk at the end."""
    handle = open_file(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        writer = Writer(handle, path)
        yield writer
        sync(handle, path)
    finally:
        os.close(handle)


@contextmanager
def replacing(path: Path, needed: int) -> Iterator[Path]:
    """A place to write a file of so many bytes: at the end it replaces `path`, after a failure nothing
    does."""
    aside = path.with_name(f".{path.name}.tmp-{os.getpid()}")
    with faults(path, needed):
        try:
            yield aside
            rename(aside, path)
            sync_folder(path.parent)
        except BaseException:
            with suppress(OSError):
                remove(aside)
            raise


def write_bytes(path: Path, data: bytes) -> dict[str, Any]:
    """Write a file so that it is there whole, or as it was before."""
    with replacing(path, len(data)) as aside, writing(aside) as file:
        file.write(data)
    return file.entry


def write_text(path: Path, text: str) -> dict[str, Any]:
    """`write_bytes` of text in UTF-8."""
    return write_bytes(path, text.encode())


def write_json(path: Path, value: Mapping[str, Any]) -> dict[str, Any]:
    """`write_bytes` of a JSON object that people can read."""
    return write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


@contextmanager
def faults(path: Path, needed: int = BLOCK) -> Iterator[None]:
    """Errors of the disk become one sentence that names the place, and for a full disk both numbers."""
    try:
        yield
    except DiskFull:
        raise
    except OSError as error:
        if error.errno in FULL:
            raise disk_full(path, needed) from None
        raise BadInput(one_line(f"{path} cannot be written: {error.strerror or error}")) from None


def disk_full(path: Path, needed: int) -> DiskFull:
    numbers = f"{needed} bytes are needed and {free_bytes(path)} are free"
    return DiskFull(errno.ENOSPC, f"the disk is full, or your share of it: {numbers}", str(path))


def free_bytes(path: Path) -> int:
    """Room on the disk that holds a path, be the path itself there or not."""
    return shutil.disk_usage(next(p for p in (path, *path.absolute().parents) if p.exists())).free


def need_room(path: Path, needed: int) -> None:
    """Say that the disk is too full before anything is written, not in the middle."""
    if free_bytes(path) < needed + MARGIN:
        raise disk_full(path, needed + MARGIN)


def clear_leftovers(folder: Path) -> None:
    """Delete what processes that have died were writing aside."""
    for path in sorted(folder.iterdir()):
        match = LEFTOVER.fullmatch(path.name)
        if match and not others(int(match[1])):
            remove(path)


# Processes.


def others(pid: int) -> bool:
    """Whether what carries this number is another living process's work.

    If the number is ours, it was of a process before us: in a container every one may have the same.
    """
    return pid != os.getpid() and started(pid) is not None


def started(pid: int) -> str | None:
    """When a process began, in ticks of the system's clock; None if it has ended, "" if that cannot be
    told."""
    try:
        state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return "" if answers(pid) else None
    return None if state in "ZX" else rest[18]  # a zombie has ended; fields are counted from the third


def answers(pid: int) -> bool:
    """Whether there is such a process, where /proc does not say."""
    if pid <= 0:  # os.kill would ask a whole group
        return False
    if os.name == "nt":  # os.kill would end it: believe that it lives
        return True
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True


# Folders of other libraries' files.


@contextmanager
def replacing_folder(folder: Path) -> Iterator[Path]:
    """A place to write files: at the end they replace those of the folder, or after a failure none does."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".writing-", dir=folder) as name:
        aside = Path(name)
        yield aside
        written = sorted(aside.iterdir(), reverse=True)  # config.json last: it makes the folder a model
        for path in written:
            flush(path)
        for path in written:
            os.replace(path, folder / path.name)
    flush(folder)


def link_tree(old: Path, new: Path) -> None:
    """The same files in another folder, by links where possible: nobody writes into them again."""
    aside = new.with_name(f".{new.name}.tmp-{os.getpid()}")
    if old.is_dir():
        shutil.copytree(old, aside, copy_function=link_or_copy)
    else:
        link_or_copy(old, aside)
    os.replace(aside, new)


def link_or_copy(old: Path | str, new: Path | str) -> None:
    try:
        os.link(old, new)
    except OSError:
        shutil.copy(old, new)


def flush(path: Path) -> None:
    """Wait until a file or a folder has reached the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
