"""Write a model as another library reads it, and prove that it is the same model there.

What is written is opened by the other library, if it is installed, and asked what heedful is asked: logits,
greedy and beam-4 outputs, and the tokens of a corpus of awkward texts. OUT/parity.json has what was found.
In float32, logits may differ by 1e-5 of their scale. What differs more is kept beside as OUT.different,
with exit code 3. heedful info says in which formats a model can leave.

Examples: heedful export runs/demo demo-hf;
heedful export runs/demo demo-ct2 --to ctranslate2 --quantize int8;
heedful export ./gpt2 gpt2-onnx --to onnx; heedful export ./smollm2 smollm2-gguf --to gguf --json
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from .shared.exchange import StageProgress, aside_of, check_place, compared, finish, refuse
from .shared.options import Positional, arg


@dataclass(frozen=True)
class ExportOptions:
    """The options of `heedful export`."""

    run: Annotated[str, Positional, arg("RUN")]
    """The folder of a run, or any model that heedful loads."""

    out: Annotated[str, Positional, arg("DIR")]
    """Where it goes: a folder that is not there yet, or empty."""

    to: Literal["hf", "ctranslate2", "onnx", "gguf"] = "hf"
    """hf: a Hugging Face folder, for transformers' Auto classes. ctranslate2: fast on CPUs. onnx: graphs
    for onnxruntime, named as Optimum names them. gguf: LLaMA-style models, for llama.cpp."""

    quantize: Annotated[str | None, arg("KIND", "float32")] = None
    """How numbers are stored: float32, or, where the format has it, a smaller kind such as int8."""

    replace: bool = False
    """Replace what was exported to OUT before."""

    json: bool = False
    """Print one JSON object instead: what parity.json has, and where the model is."""


def export(given: ExportOptions) -> int:
    """Write the model of a run as another library reads it, and compare."""
    source, out = Path(given.run), Path(given.out)
    check_place(source, out, given.replace)
    with StageProgress(f"exporting {given.run} as {given.to}") as tell:
        from ..interop.formats import FORMATS, check_kind, load

        form, kind = FORMATS[given.to], check_kind(given.to, given.quantize)
        loaded = load(source)
        refuse(given.run, loaded, given.to)
        with aside_of(out) as aside:
            tell(f"writing {form.title}, {kind}")
            form.write(loaded, aside, kind)
            certificate = compared(loaded, aside, given.to, kind, tell)
            return finish(certificate, aside, out, given.json, tell)
