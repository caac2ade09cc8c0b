"""Convert a model to a Hugging Face folder, and check that it is the same model.

Reads a Hugging Face folder of a known family, a GGUF file, a CTranslate2 folder or a run. It reads the
written weights again and compares them bit for bit. It also compares outputs with the library that the model
comes from, if that is installed. DIR/parity.json has the results. If they differ, the exit code is 3 and the
model is kept as DIR.different.

Examples: heedful import ./gpt2 models/gpt2; heedful import smollm2.gguf models/smollm2 --json
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from .shared.exchange import StageProgress, aside_of, check_place, finish, refuse
from .shared.options import Positional, arg

if TYPE_CHECKING:
    from ..certify.certificate import Certificate
    from ..interop.loaded import Loaded


@dataclass(frozen=True)
class ImportOptions:
    """The options of `heedful import`."""

    folder: Annotated[str, Positional, arg("FOLDER")]
    """The model: a folder, or a .gguf file."""

    out: Annotated[str, Positional, arg("DIR")]
    """The folder to write: new or empty."""

    replace: bool = False
    """Replace an earlier import in DIR."""

    json: bool = False
    """Print one JSON object instead: the contents of parity.json, and the folder."""


def import_(given: ImportOptions) -> int:
    """Write a model of another library as a Hugging Face folder, and compare the two."""
    source, out = Path(given.folder), Path(given.out)
    check_place(source, out, given.replace)
    with StageProgress(f"importing {given.folder}") as tell:
        from ..certify.compare import compared
        from ..interop.formats import load

        loaded = load(source)
        refuse(given.folder, loaded, "hf")
        with aside_of(out) as aside:
            tell("writing Hugging Face, float32")
            from ..interop.hf.write import write

            write(loaded, aside)
            certificate = compared(loaded, aside, "hf", "float32", tell, given.folder)
            certificate = with_source(certificate, loaded, source, tell)
            return finish(certificate, aside, out, given.json, tell)


def with_source(
    certificate: Certificate, loaded: Loaded, source: Path, tell: Callable[[str], None]
) -> Certificate:
    """Beside it, how the library that the model comes from reads the original."""
    from ..certify.certificate import DIFFERENT
    from ..certify.compare import compared
    from ..certify.verify import source_of
    from ..interop.formats import FORMATS, format_of

    to, noted = format_of(source), source_of(source)
    if to not in FORMATS:
        return replace(certificate, more={"source": noted})
    origin = compared(loaded, source, to, None, tell)  # int8 in CTranslate2 rounds what it multiplies, too
    more = certificate.more | {"source": origin.as_json() | noted}
    if origin.verdict != DIFFERENT:
        return replace(certificate, more=more)
    faults = (*certificate.faults, *(f"the original: {fault}" for fault in origin.faults))
    return replace(certificate, verdict=DIFFERENT, faults=faults, more=more)
