"""Records: every result as one line of JSON, with the versions and the hardware it was measured with.

No host names and no folders: a record can be shown to anyone.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .. import __version__
from ..errors import BadInput


def output_of(args: Any) -> Path | None:
    """Where records go: --output, or benchmarks/ in a clone, or a file here.

    Records of microscopic works say nothing about speed, and go only where --output says.
    """
    if args.output is not None:
        return Path(args.output)
    if args.small:
        return None
    return Path("benchmarks/results.jsonl") if Path("benchmarks").is_dir() else Path("heedful-bench.jsonl")


def setting(machine: Mapping[str, Any], ceilings: Mapping[str, float]) -> dict[str, Any]:
    """What all records of one run share."""
    versions = {"heedful": __version__, "build": build(), **machine["versions"]}
    return {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": machine["device"],
        "threads": machine["threads"],
        "hardware": machine["hardware"],
        "versions": versions,
        "ceilings": dict(ceilings),
    }


def build() -> str:
    """The first digits of the SHA-256 of heedful's source: which build this was, whatever its version."""
    home, found = Path(__file__).parents[1], hashlib.sha256()
    for path in sorted(home.rglob("*.py")):
        found.update(str(path.relative_to(home)).encode() + b"\0" + path.read_bytes())
    return found.hexdigest()[:12]


def append(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Add lines to a file in one write, so that two benches at once neither mix nor lose lines.

    A line that an interrupted writer left half-way is ended first, so that it spoils no other.
    """
    text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o666)
        try:
            os.write(handle, (("" if ends_a_line(handle) else "\n") + text).encode())
            with suppress(OSError):  # a pipe or a device has no disk to reach
                os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}") from None


def ends_a_line(handle: int) -> bool:
    """Whether a file ends with the end of a line, or is empty."""
    with suppress(OSError):
        if size := os.lseek(handle, 0, os.SEEK_END):
            os.lseek(handle, size - 1, os.SEEK_SET)
            return os.read(handle, 1) == b"\n"
    return True


def replace(path: Path, text: str) -> None:
    """Write a whole file aside and rename it: whoever reads it meets the old one or the new."""
    aside = path.with_name(f".{path.name}.tmp-{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(aside, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}") from None
    finally:
        aside.unlink(missing_ok=True)
