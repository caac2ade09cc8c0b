"""The formats in which a model can leave: one module each, imported when it is asked for."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import BadInput
from .run_folder import is_run

if TYPE_CHECKING:
    from .load import Loaded


@dataclass(frozen=True)
class Format:
    """Where a format is written, and which library opens it again."""

    module: str  # beside this file: refuse, write, elsewhere, KINDS
    title: str
    packages: tuple[str, ...]  # of the library, by which pip knows them

    def load(self) -> Any:
        return import_module(f"{__package__}.{self.module}")


FORMATS = {
    "hf": Format("hf.write", "Hugging Face", ("transformers",)),
    "ctranslate2": Format("ctranslate2.write", "CTranslate2", ("ctranslate2",)),
    "onnx": Format("onnx.write", "ONNX", ("onnxruntime",)),
    "gguf": Format("gguf.write", "GGUF", ("transformers", "gguf")),
}


def leaves(loaded: Loaded) -> dict[str, str | None]:
    """{format: why this model cannot leave in it, or None}."""
    return {name: form.load().refuse(loaded) for name, form in FORMATS.items()}


def can_leave(loaded: Loaded) -> list[str]:
    """The formats in which this model can leave."""
    return [name for name, why in leaves(loaded).items() if why is None]


def format_of(path: Path) -> str | None:
    """The format of somebody else's model; None of a run, or of adapters, which no library reads alone."""
    if is_run(path) or import_module(f"{__package__}.peft").is_one(path):
        return None
    for name in ("gguf", "ctranslate2"):
        if import_module(f"{__package__}.{name}.read").is_one(path):
            return name
    return "hf"


def check_kind(name: str, kind: str | None) -> str:
    """How the numbers are to be stored; None asks for the format's own way."""
    kinds = FORMATS[name].load().KINDS
    if kind is not None and kind not in kinds:
        raise BadInput(
            f"{name} stores numbers as {' or '.join(kinds)}, not as {kind}: leave out --quantize, or name another --to"
        )
    return kinds[0] if kind is None else kind


@contextmanager
def quiet() -> Iterator[None]:
    """Other libraries talk as they load: notes about what else could be installed, bars, warnings."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()), redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
