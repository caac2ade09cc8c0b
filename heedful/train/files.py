"""Writing a run's files: aside, flushed to the disk, renamed. A failure or a kill leaves the old file or the new.

Everything that touches the disk is one of the small functions below, and each of them first calls `_before`: tests
put a failure or a kill there, and so at every single point where one can happen.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import BadInput, DiskFull, NotFinite
from ..interop.files import MEGABYTE, one_line, present

BLOCK = 4096  # what a new name or a few words take up
MARGIN = MEGABYTE  # beyond the bytes themselves: folders and the file system's own tables
FULL = (errno.ENOSPC, errno.EDQUOT)
HERE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)  # a link is never written through
LEFTOVER = re.compile(r"\..+\.tmp-([0-9]{1,9})")

# In the order in which the safetensors library sorts them, widest last in its list and first in a file.
TYPES = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.float8_e5m2: "F8_E5M2",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.int16: "I16",
    torch.uint16: "U16",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int32: "I32",
    torch.uint32: "U32",
    torch.float32: "F32",
    torch.complex64: "C64",
    torch.float64: "F64",
    torch.int64: "I64",
    torch.uint64: "U64",
}


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
    """A place to write a file of so many bytes: at the end it replaces `path`, after a failure nothing does."""
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


# Tensors, in the safetensors format: the library's own writer keeps a second copy of everything in memory, or
# writes with neither fsync nor umask, and what it wrote would have to be read again to be hashed.


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """A safetensors file, the same bytes as the library's; its size and SHA-256."""
    with writing(path) as file:
        file.write(header(tensors))
        for name in file_order(tensors):
            file.write(raw(tensors[name]))
    return file.entry


def tensor_bytes(tensors: Mapping[str, Tensor]) -> int:
    """How long the file will be."""
    return len(header(tensors)) + sum(t.numel() * t.element_size() for t in tensors.values())


def header(tensors: Mapping[str, Tensor]) -> bytes:
    """Length, then JSON that says what lies where, padded to a multiple of eight."""
    start = 0
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    for name in file_order(tensors):
        tensor = tensors[name]
        end = start + tensor.numel() * tensor.element_size()
        entries[name] = {
            "dtype": TYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [start, end],
        }
        start = end
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def file_order(tensors: Mapping[str, Tensor]) -> list[str]:
    """Wide types first, so that every tensor is aligned."""
    rank = {dtype: number for number, dtype in enumerate(TYPES)}
    return sorted(tensors, key=lambda name: (-rank[tensors[name].dtype], name))


def raw(tensor: Tensor) -> memoryview:
    """The bytes of a tensor."""
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data


def refuse_non_finite(where: str, tensors: Mapping[str, Tensor]) -> None:
    """Weights that are no numbers are never written over weights that are."""
    for name, tensor in tensors.items():
        if not is_finite(tensor.detach()):
            raise NotFinite(f"{where}: {name} holds a number that is not finite, so it is not saved")


def is_finite(tensor: Tensor) -> bool:
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    if not tensor.is_floating_point() or not tensor.numel():
        return True
    if tensor.element_size() == 1:  # torch compares no 8-bit floats
        tensor = tensor.float()
    return bool(torch.isfinite(torch.stack(tensor.aminmax())).all())  # 25 times as fast as asking each number


# Processes.


def others(pid: int) -> bool:
    """Whether what carries this number is another living process's work.

    If the number is ours, it was of a process before us: in a container every one may have the same.
    """
    return pid != os.getpid() and started(pid) is not None


def started(pid: int) -> str | None:
    """When a process began, in ticks of the system's clock; None if it has ended, "" if that cannot be told."""
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
