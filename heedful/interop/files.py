"""Reading other people's files with care: bounded, inside their folder, nothing executed, every fault named;
and writing ours so that a failure leaves the old ones."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from reprlib import repr as short  # a hostile value may be a megabyte long
from typing import Any

from ..errors import BadInput

MEGABYTE = 1 << 20
LONGEST = 2000  # characters in an error message


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
    """Within the folder; or, from Hugging Face's cache (snapshots/REVISION/FILE), in blobs/ of the same repository."""
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
    text = read_text(path, limit)
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
    """A message that no name in it can break up, colour or flood."""
    return "".join(c if c.isprintable() else "?" for c in text)[:LONGEST]


@contextmanager
def replacing(folder: Path) -> Iterator[Path]:
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


def flush(path: Path) -> None:
    """Wait until a file or a folder has reached the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
