"""Reading other people's files with care: bounded, inside their folder, nothing executed, every fault named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import BadInput

MEGABYTE = 1 << 20


def inside(folder: Path, name: str) -> Path:
    """The file `name` of a folder: a plain name, a regular file, and not a link that leads out."""
    if not isinstance(name, str) or not name or name in (".", "..") or any(c in name for c in "/\\\0:%"):
        raise BadInput(f"{folder} names a file {name!r}: only plain names of files beside it are read")
    path = folder / name
    if not path.is_file():
        raise BadInput(f"{path} is missing" if not path.exists() else f"{path} is not a regular file")
    if not path.resolve().is_relative_to(folder.resolve()) and not _links_to_store(path):
        raise BadInput(f"{path} is a link that leads out of its folder: copy the file there instead")
    return path


def _links_to_store(path: Path) -> bool:
    """Hugging Face's cache keeps snapshots/REVISION/FILE as links into blobs/ of the same repository."""
    store = path.absolute().parent.parent.parent / "blobs"
    return path.absolute().parent.parent.name == "snapshots" and path.resolve().parent == store.resolve()


def read_json(path: Path, limit: int = MEGABYTE) -> dict[str, Any]:
    """A JSON object from a file of at most `limit` bytes."""
    if path.stat().st_size > limit:
        raise BadInput(f"{path} has {path.stat().st_size} bytes; at most {limit} are read")
    try:
        found = json.loads(path.read_bytes(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path} is not valid JSON: {error}") from None
    if not isinstance(found, dict):
        raise BadInput(f"{path} holds {type(found).__name__}, where an object {{...}} is expected")
    return found


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number")


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Errors inside say which file they are about."""
    try:
        yield
    except BadInput as error:
        raise error if str(path) in str(error) else BadInput(f"{path}: {error}") from None
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise BadInput(f"{path}: {error}") from None
