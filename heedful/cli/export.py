"""Export a model for another library, and check that it is the same model there.

If the other library is installed, it opens the export, and both are compared: every output, greedy and beam-4
outputs, tokens of difficult texts, and what people call. DIR/parity.json has the results. In float32, outputs
may differ by 1e-5 of their scale. If they differ more, the export is kept as DIR.different and the exit code
is 3. `heedful verify` compares again. `heedful info` lists the export formats of a model.

Examples: heedful export runs/demo demo-hf;
heedful export runs/demo demo-hf --quantize bfloat16;
heedful export runs/demo demo-ct2 --to ctranslate2 --quantize int8;
heedful export ./gpt2 gpt2-onnx --to onnx; heedful export ./smollm2 smollm2-gguf --to gguf --json;
heedful export runs/demo demo.html --to html
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from ..errors import BadInput
from .shared.exchange import StageProgress, aside_of, check_place, finish, refuse
from .shared.options import Positional, arg
from .shared.page_export import check_page, check_size, check_task, finish_page


@dataclass(frozen=True)
class ExportOptions:
    """The options of `heedful export`."""

    run: Annotated[str, Positional, arg("RUN")]
    """The folder of a run, or any model that heedful loads."""

    out: Annotated[str, Positional, arg("DIR")]
    """The folder to write: new or empty. With --to html, the file to write, such as model.html."""

    to: Literal["hf", "ctranslate2", "onnx", "gguf", "html"] = "hf"
    """hf: a Hugging Face folder, for transformers' Auto classes. ctranslate2: fast on CPUs. onnx: graphs
    for onnxruntime, named as Optimum names them. gguf: LLaMA-style models, for llama.cpp. html: one page that
    runs the model in a browser, offline."""

    quantize: Annotated[str | None, arg("KIND", "float32")] = None
    """Type of the stored weights: float32, or a smaller one that the format supports. hf: bfloat16, float16.
    ctranslate2 and onnx: int8. gguf: q8_0. html: float16, its default, or int8."""

    replace: bool = False
    """Replace an earlier export in DIR."""

    large: bool = False
    """With --to html: write a page of more than 64 MB too."""

    json: bool = False
    """Print one JSON object instead: the contents of parity.json, and the folder."""


def export(given: ExportOptions) -> int:
    """Export the model of a folder, and compare it with the original."""
    source, out = Path(given.run), Path(given.out)
    check_out(given, source, out)
    with StageProgress(f"exporting {given.run} as {given.to}") as tell:
        from ..certify.compare import compared
        from ..certify.verify import source_of
        from ..interop.formats import FORMATS, check_kind, load

        form, kind = FORMATS[given.to], check_kind(given.to, given.quantize)
        loaded = load(source)
        refuse(given.run, loaded, given.to)
        with aside_of(out) as aside:
            tell(f"writing {form.title}, {kind}")
            form.write(loaded, aside, kind)
            if form.single:
                check_size(aside, given.large)
            certificate = compared(loaded, aside, given.to, kind, tell, given.run)
            certificate = replace(certificate, more={"source": source_of(source)})
            if form.single:
                return finish_page(certificate, aside, out, given.json, tell, source, loaded)
            return finish(certificate, aside, out, given.json, tell)


def check_out(given: ExportOptions, source: Path, out: Path) -> None:
    """Refuse what cannot be written to, before anything is read."""
    if given.to == "html":
        check_page(out, given.replace)
        return check_task(source)
    if given.large:
        raise BadInput("--large is for pages: give --to html too, or leave it out")
    if out.suffix.lower() == ".html" and not out.is_dir():
        raise BadInput(f"{out} is the name of a page: give --to html too, or the name of a folder")
    check_place(source, out, given.replace)
