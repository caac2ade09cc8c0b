"""The certificate of a comparison between two libraries: its checks, what is allowed, and the verdict.

It is written beside the weights as parity.json, with the SHA-256 of every file.
"""

from __future__ import annotations

import hashlib
import json
import math
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from .. import __version__
from ..files import flush
from ..interop.loaded import Loaded

PARITY = "parity.json"
SAME, DIFFERENT, UNCHECKED = "same", "different", "not checked"
EXACT = 1e-5  # of the largest number: what two libraries may differ by in float32
CHUNK = 1 << 22  # bytes that are read at once


@dataclass(frozen=True)
class Tolerance:
    """How far an export may be from its source."""

    exact: float  # against our model with the same stored weights, both in float32: of the largest number
    loss: float  # nats per token of a text, against the source
    divergence: float  # nats, the mean over predictions, against the source
    distance: float  # of hidden states, root mean square, as a share of theirs, against the source


TOLERANCES = {
    "float32": Tolerance(EXACT, 1e-4, 1e-4, 1e-4),
    "float16": Tolerance(EXACT, 0.01, 0.01, 0.02),
    "bfloat16": Tolerance(EXACT, 0.05, 0.05, 0.05),
    "int8": Tolerance(EXACT, 0.1, 0.1, 0.1),
    "q8_0": Tolerance(EXACT, 0.1, 0.1, 0.1),
}


@dataclass(frozen=True)
class Check:
    """One check: what was given to both, what came out, and what is wrong with it."""

    name: str
    line: str  # the result in words
    inputs: dict[str, Any] = field(default_factory=dict)
    result: dict[str, Any] = field(default_factory=dict)
    faults: tuple[str, ...] = ()


@dataclass(frozen=True)
class Certificate:
    """What a comparison found, and whether it is the same model."""

    verdict: str  # same, within the KIND tolerance, different, not checked
    format: str
    kind: str  # how the weights are stored: float32, int8, ...
    architecture: str
    versions: dict[str, str]
    faults: tuple[str, ...] = ()  # why it is different, or was not checked
    checks: tuple[Check, ...] = ()
    tolerance: Tolerance | None = None
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def differs(self) -> bool:
        return self.verdict == DIFFERENT

    def check(self, name: str) -> Check:
        """The check of this name."""
        return next(check for check in self.checks if check.name == name)

    def as_json(self) -> dict[str, Any]:
        """Everything, as parity.json has it."""
        found = asdict(self)
        more = found.pop("more")
        return finite(
            found | {"faults": list(self.faults), "checks": [as_entry(c) for c in self.checks]} | more
        )

    def summary(self) -> list[str]:
        """The same in lines, for people."""
        return [f"{check.name}: {check.line}" for check in self.checks]


def as_entry(check: Check) -> dict[str, Any]:
    """A check as parity.json has it."""
    return {
        "name": check.name,
        "inputs": check.inputs,
        "result": check.result,
        "faults": list(check.faults),
        "summary": check.line,
    }


def tolerance_of(kind: str) -> Tolerance:
    """What is allowed of weights that are stored in this way."""
    return TOLERANCES.get(kind, TOLERANCES["int8"])


def passing(kind: str) -> str:
    """The verdict on an export in which nothing is wrong."""
    return SAME if kind == "float32" else f"within the {kind} tolerance"


def finite(node: Any) -> Any:
    """The same with null in place of what is no finite number, for which JSON has no word."""
    if isinstance(node, dict):
        return {key: finite(value) for key, value in node.items()}
    if isinstance(node, list | tuple):
        return [finite(value) for value in node]
    return None if isinstance(node, float) and not math.isfinite(node) else node


def hashes(folder: Path) -> dict[str, str]:
    """{file: its SHA-256} of every file of a folder but the certificate."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != PARITY)
    return {path.relative_to(folder).as_posix(): sha256(path) for path in paths}


def sha256(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            found.update(chunk)
    return found.hexdigest()


def write_certificate(certificate: Certificate, folder: Path) -> dict[str, Any]:
    """Write parity.json of a folder, aside and renamed, with the hash of every file; return what it holds."""
    content, text = as_text(certificate, folder)
    aside = folder / f".{PARITY}.tmp"
    aside.write_text(text, encoding="utf-8")
    flush(aside)
    aside.replace(folder / PARITY)
    return content


def as_text(certificate: Certificate, folder: Path) -> tuple[dict[str, Any], str]:
    """What parity.json holds with the hashes of a folder's files, and its text."""
    content = certificate.as_json() | {"files": hashes(folder)}
    return content, json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def versions(packages: Sequence[str]) -> dict[str, str]:
    """{library: version} of heedful, of what it runs on, and of the packages that are installed."""
    found = {"heedful": __version__, "python": platform.python_version(), "torch": torch.__version__}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def unchecked(loaded: Loaded, format: str, kind: str, why: str, packages: Sequence[str] = ()) -> Certificate:
    return Certificate(UNCHECKED, format, kind, loaded.architecture, versions(packages), (why,))
