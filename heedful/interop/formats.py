"""The formats that heedful reads and writes: a folder each beside this file, found by name.

`load` reads a model of any of them. Every reader checks a folder against its config before it reads a weight,
and returns nothing half-loaded.

read.py      is_one(path), read(path, device, dtype)     a model of that format as `Loaded`
write.py     KINDS, refuse(loaded), write(loaded, folder, kind)
reopen.py    reopen(folder)     what was written as the other library opens it, for the comparison with ours
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ..errors import BadInput
from .run.read import is_peft
from .run.read import read as read_run

if TYPE_CHECKING:
    from .foreign import ForeignModel
    from .loaded import Loaded


def load(
    folder: str | os.PathLike[str],
    device: str | torch.device = "cpu",
    dtype: torch.dtype = torch.float32,
    base: str | os.PathLike[str] | None = None,
) -> Loaded:
    """The model of a folder, ready for use (in evaluation mode).

    base: of adapters of PEFT, the folder of their model, if it is not where they say.
    """
    path = Path(folder)
    if base is not None and not is_peft(path):
        raise BadInput(f"{os.fspath(folder)} holds no PEFT adapters: leave out `base`")
    name = format_of(path)
    if name == "run":
        return load_run(path, device, dtype)
    read = part(name, "read").read
    if name == "peft":
        return read(path, device, dtype, load, None if base is None else Path(base))
    return read(path, device, dtype)


def load_run(folder: Path, device: str | torch.device, dtype: torch.dtype) -> Loaded:
    """The best model of a run."""
    return read_run(folder, device, dtype, load)


@dataclass(frozen=True)
class Format:
    """A format in which models are exported."""

    name: str  # of its folder
    title: str
    packages: tuple[str, ...]  # of the library that opens it again, by which pip knows them
    single: bool = False  # one file, and no folder

    @property
    def kinds(self) -> tuple[str, ...]:
        """How weights can be stored; the first unless another is asked for."""
        return part(self.name, "write").KINDS

    def refuse(self, loaded: Loaded) -> str | None:
        """Why a model cannot be exported in this format, or None."""
        return part(self.name, "write").refuse(loaded)

    def write(self, loaded: Loaded, folder: Path, kind: str) -> None:
        """Write a model into a folder that is there and empty."""
        part(self.name, "write").write(loaded, folder, kind)

    def reopen(self, folder: Path, exact: bool = False) -> ForeignModel:
        """A folder of this format as the other library opens it. exact: products in float32."""
        return part(self.name, "reopen").reopen(folder, exact)


def part(format: str, file: str) -> Any:
    """A file of a format's folder."""
    return import_module(f"{__package__}.{format}.{file}")


FORMATS = {
    form.name: form
    for form in (
        Format("hf", "Hugging Face", ("transformers",)),
        Format("ctranslate2", "CTranslate2", ("ctranslate2",)),
        Format("onnx", "ONNX", ("onnxruntime",)),
        Format("gguf", "GGUF", ("transformers", "gguf")),
        Format("html", "an HTML page", ("a browser",), single=True),
    )
}
RECOGNIZED = ("run", "gguf", "ctranslate2", "peft")  # any other folder is read as Hugging Face's


def format_of(path: Path) -> str:
    """The format of a model, a run of heedful's own and adapters of PEFT included."""
    return next((name for name in RECOGNIZED if part(name, "read").is_one(path)), "hf")


def refusals(loaded: Loaded) -> dict[str, str | None]:
    """{format: why this model cannot be exported in it, or None}."""
    return {name: form.refuse(loaded) for name, form in FORMATS.items()}


def exportable(loaded: Loaded) -> list[str]:
    """The formats in which this model can be exported."""
    return [name for name, why in refusals(loaded).items() if why is None]


def check_kind(name: str, kind: str | None) -> str:
    """How the weights are to be stored; None asks for the format's own way."""
    kinds = FORMATS[name].kinds
    if kind is not None and kind not in kinds:
        stored = f"{name} stores weights as {' or '.join(kinds)}, not as {kind}"
        raise BadInput(f"{stored}: leave out --quantize, or give another --to")
    return kinds[0] if kind is None else kind
