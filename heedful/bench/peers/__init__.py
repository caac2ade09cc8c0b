"""Peers: other libraries that can do the same work, one file each, all with the same two functions.

    variants(work) -> [Variant, ...]         the ways in which it does this work; none if it cannot
    build(work, variant, place) -> run       ready to start; each call of `run` does one unit of the work

`run()` returns what came of it: the loss before the step, or the tokens written, row by row. It may return
before a GPU has finished. What is heavy is imported inside `build`, which runs in a process of its own. A
file also says PACKAGE, what is imported, or CHECKOUT, what is cloned and given as `--peer NAME=PATH`. A
file of your own with these two functions is a peer too: `--peer NAME=FILE.py`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from importlib import import_module, metadata
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ...errors import BadInput
from ..work import Work

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Variant:
    """One way in which a contender does a work, and what about it is not as heedful does it."""

    name: str = ""  # nothing if there is but one
    compiled: bool = False  # so that the first unit takes long
    same_weights: bool = False  # started from heedful's weights: what comes of it can be compared
    numbers: str = ""  # fp32, bf16, int8: what weights are multiplied as, if not as everyone's
    differs: str = ""  # in words
    device: str = ""  # where alone there is such a thing


def in_half(variant: Variant) -> Variant:
    """The same variant with products in bf16, as everyone has on a GPU; newer CPUs do them twice as fast."""
    return replace(variant, name=f"{variant.name}, bf16", numbers="bf16", device="cpu")


@dataclass(frozen=True)
class Place:
    """Where and with what a contender works."""

    device: str  # cpu or cuda
    threads: int
    weights: str | None = None  # a Hugging Face folder with heedful's weights
    path: str | None = None  # what was given as --peer NAME=PATH
    numbers: str = ""  # of a variant that multiplies others than everyone, in training

    @property
    def precision(self) -> str:
        """fp32 on a CPU; on a GPU bf16: by autocast in training, the weights themselves in decoding."""
        return self.numbers or ("bf16" if self.device == "cuda" else "fp32")

    @property
    def dtype(self) -> torch.dtype:
        import torch

        return torch.bfloat16 if self.precision == "bf16" else torch.float32

    def autocast(self) -> AbstractContextManager[object]:
        import torch

        return nullcontext() if self.precision == "fp32" else torch.autocast(self.device, self.dtype)


@dataclass(frozen=True)
class Contender:
    """A peer, or heedful, in one variant."""

    peer: str
    variant: Variant
    path: str | None = None
    version: str = ""

    @property
    def name(self) -> str:
        return f"{self.peer}, {self.variant.name}" if self.variant.name else self.peer

    @property
    def is_ours(self) -> bool:
        return self.peer == OURS

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Contender:
        return cls(**{**found, "variant": Variant(**found["variant"])})


OURS = "heedful"

# Each peer and its file here.
PEERS = {
    "transformers": "huggingface",
    "x-transformers": "xtransformers",
    "torch.nn": "torch_nn",
    "ctranslate2": "ctranslate",
    "llama.cpp": "llamacpp",
    "nanogpt": "nanogpt",
    "gpt-fast": "gptfast",
}


def find(name: str, path: str | None) -> ModuleType:
    """The file of a contender: heedful's, one of those here, or one that was named on the command line."""
    if name == OURS:
        return import_module("heedful.bench.ours")
    if name in PEERS:
        return import_module(f"{__name__}.{PEERS[name]}")
    if path is None:
        raise BadInput(f'there is no peer "{name}": name its file, --peer {name}=FILE.py')
    return read(name, Path(path))


def read(name: str, path: Path) -> ModuleType:
    """A Python file that the user named, run."""
    if not path.is_file():
        raise BadInput(f"--peer {name}={path}: there is no such file")
    module = load_module(path, f"heedful_bench_peer_{hashlib.sha256(name.encode()).hexdigest()[:8]}")
    for function in ("variants", "build"):
        if not callable(getattr(module, function, None)):
            raise BadInput(f"--peer {name}={path}: the file defines no function {function}(...)")
    return module


def load_module(path: Path, name: str) -> ModuleType:
    """A Python file as a module; what goes wrong in it is the file's fault."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise BadInput(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look there
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise BadInput(f"{path} cannot be run: {type(error).__name__}: {error}") from error
    return module


def given(asked: Sequence[str]) -> dict[str, str]:
    """{name: path} of all --peer NAME=PATH."""
    found = {}
    for each in asked:
        name, equals, path = each.partition("=")
        if not (equals and name and path):
            raise BadInput(f"--peer takes NAME=PATH, such as nanogpt=../nanoGPT, not {each!r}")
        if name == OURS or "PACKAGE" in vars(find(name, path)):
            raise BadInput(f"--peer {name}: {name} is measured anyway, and needs no path")
        found[name] = path
    return found


def field_of(paths: dict[str, str]) -> tuple[dict[str, ModuleType], dict[str, str]]:
    """Everyone who can be measured here, by name; and of the others, how to get them."""
    there, absent = {OURS: find(OURS, None)}, {}
    for name in [*PEERS, *(n for n in paths if n not in PEERS)]:
        peer = find(name, paths.get(name))
        package = getattr(peer, "PACKAGE", None)
        if package is not None and importlib.util.find_spec(package) is None:
            absent[name] = f"not installed: {peer.INSTALL}"
        elif package is None and name not in paths:
            absent[name] = f"not given: --peer {name}=PATH of a checkout ({peer.CHECKOUT})"
        else:
            there[name] = peer
    return there, absent


def contenders(work: Work, there: dict[str, ModuleType], paths: dict[str, str]) -> list[Contender]:
    """Everyone who can do a work, heedful first."""
    return [
        Contender(name, variant, paths.get(name), version_of(name, peer, paths.get(name)))
        for name, peer in there.items()
        for variant in peer.variants(work)
    ]


def version_of(name: str, peer: ModuleType, path: str | None) -> str:
    """A package's version; of a checkout or a file, the beginning of the SHA-256 of what is used of it."""
    if hasattr(peer, "PACKAGE"):
        return metadata.version(peer.DISTRIBUTION)
    if path is None:
        from ... import __version__

        return __version__
    file = Path(path) / "model.py" if name in PEERS else Path(path)
    return hashlib.sha256(file.read_bytes()).hexdigest()[:12] if file.is_file() else ""
