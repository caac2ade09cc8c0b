"""The certificate of a comparison between two libraries: what was found, what is allowed, and the verdict.

It is written beside the weights as parity.json.
"""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from ... import __version__
from ...files import flush
from ..loaded import Loaded

PARITY = "parity.json"
SAME, DIFFERENT, UNCHECKED = "same", "different", "not checked"
WIDTH = 4  # of beam search
NEW = 16  # tokens to write


@dataclass(frozen=True)
class Bound:
    """How far apart two libraries may be and still have the same model, at one precision."""

    difference: float  # of logits, the largest: as a share of the largest logit
    argmax: float  # share of tokens after which both find the same one likeliest
    outputs: float  # share of greedy outputs, and of beam search's, that are the same


# fp32 differs by rounding only. Fewer bits change a few tokens: more of a random model than of a trained one.
BOUNDS = {
    "float32": Bound(1e-5, 1.0, 1.0),
    "float16": Bound(1e-2, 0.97, 0.5),
    "bfloat16": Bound(5e-2, 0.9, 0.0),
    "int8": Bound(0.1, 0.85, 0.0),
    "q8_0": Bound(0.1, 0.85, 0.0),
}


@dataclass(frozen=True)
class Logits:
    compared: str  # which numbers: logits, hidden states, or a head's
    inputs: int
    numbers: int
    largest: float  # difference
    mean: float  # difference
    scale: float  # the largest of our numbers
    argmax: float | None  # share of agreement; None where the largest number means nothing

    @property
    def relative(self) -> float:
        return self.largest / self.scale if self.scale else self.largest


@dataclass(frozen=True)
class Outputs:
    inputs: int
    same: int
    ties: int  # others, between which our model sees no difference beyond rounding
    first_difference: dict[str, list[int]] | None = None

    @property
    def share(self) -> float:
        return (self.same + self.ties) / self.inputs


@dataclass(frozen=True)
class Tokens:
    texts: int
    same: int
    first_difference: dict[str, Any] | None = None


@dataclass(frozen=True)
class Certificate:
    """What a comparison found, and whether it is the same model."""

    verdict: str  # same, different, not checked
    format: str
    kind: str  # how the weights are stored: float32, int8, ...
    architecture: str
    versions: dict[str, str]
    faults: tuple[str, ...] = ()  # why it is different, or was not checked
    logits: Logits | None = None
    greedy: Outputs | None = None
    beam: Outputs | None = None
    tokenizer: Tokens | None = None
    tolerance: Bound | None = None
    more: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Everything, as parity.json has it."""
        found = asdict(self)
        more = found.pop("more")
        if self.logits is not None:
            found["logits"]["relative"] = self.logits.relative
        for name, outputs in (("greedy", self.greedy), ("beam", self.beam)):
            if outputs is not None:
                found[name]["new_tokens"] = NEW
        if self.beam is not None:
            found["beam"]["width"] = WIDTH
        return finite(found | {"faults": list(self.faults)} | more)

    def summary(self) -> list[str]:
        """The same in lines, for people."""
        lines = []
        if self.logits is not None:
            a = "" if self.logits.argmax is None else f", argmax equal in {self.logits.argmax:.2%}"
            lines.append(
                f"{self.logits.compared}: largest difference {self.logits.largest:.2g} "
                f"({self.logits.relative:.1g} of their scale), mean {self.logits.mean:.2g}{a}"
            )
        for name, outputs in (("greedy", self.greedy), (f"beam {WIDTH}", self.beam)):
            if outputs is not None:
                tied = f", {outputs.ties} tied" if outputs.ties else ""
                lines.append(f"{name}: {outputs.same} of {outputs.inputs} outputs equal{tied}")
        if self.tokenizer is not None:
            lines.append(f"tokenizer: {self.tokenizer.same} of {self.tokenizer.texts} texts equal")
        elif lines:
            lines.append("tokenizer: not compared, because one side has none")
        return lines


def finite(node: Any) -> Any:
    """The same with null in place of what is no finite number, for which JSON has no word."""
    if isinstance(node, dict):
        return {key: finite(value) for key, value in node.items()}
    return None if isinstance(node, float) and not math.isfinite(node) else node


def write_certificate(certificate: Certificate, folder: Path) -> None:
    """As parity.json of a folder: aside, and renamed."""
    text = json.dumps(certificate.as_json(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    aside = folder / f".{PARITY}.tmp"
    aside.write_text(text, encoding="utf-8")
    flush(aside)
    aside.replace(folder / PARITY)


def unchecked(loaded: Loaded, format: str, kind: str, why: str, packages: Sequence[str] = ()) -> Certificate:
    return Certificate(UNCHECKED, format, kind, loaded.architecture, versions(packages), (why,))


def versions(packages: Sequence[str]) -> dict[str, str]:
    """{library: version} of heedful, of what it runs on, and of the packages that are installed."""
    found = {"heedful": __version__, "python": platform.python_version(), "torch": torch.__version__}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
