"""Write ONNX graphs, which onnxruntime runs for any batch and length, under the names of Optimum.

decoder              model.onnx                      tokens, past keys and values in; scores, present ones out
encoder-decoder      encoder_model.onnx              the source, once
                     decoder_model.onnx              the first tokens; gives keys and values of the source too
                     decoder_with_past_model.onnx    every token after
encoder, classifier  model.onnx                      what its heads say, or hidden states
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from ...errors import BadInput
from ...models.base.shells import Decoder, DecoderClassifier, Encoder, EncoderDecoder, WithHeads, needs_tree
from ...models.vit import PatchInputs
from ...parts.blocks import Stack
from ...parts.cache import GrowingCache
from ...parts.experts import Experts
from ..hf.generation import generation_config, token_ids
from ..hf.generation_settings import GENERATION
from ..hf.image_processor import PREPROCESSOR, preprocessor_config
from ..hf.tokenizer_files import as_json, tokenizer_files, write_files
from ..hf.write import in_their_terms
from ..loaded import Loaded, check_export
from ..packages import needed, quiet
from ..run_folder import CONFIG
from .modules import OUTPUTS, graphs

KINDS = ("float32", "int8")


def refuse(loaded: Loaded) -> str | None:
    """Why this model cannot be such a graph, or None."""
    model, name = loaded.model, loaded.architecture
    if not isinstance(model, Decoder | EncoderDecoder | WithHeads | DecoderClassifier):
        return f"heedful knows no ONNX convention for {name}"
    shells = [m for m in model.modules() if isinstance(m, Encoder | Decoder)]
    if any(type(shell.stack) is not Stack for shell in shells):
        return f"{name} has no attention, and ONNX runtimes have conventions only for attention"
    if any(isinstance(m, Experts) for m in model.modules()):
        return f"{name} chooses experts at run time, and an ONNX graph is fixed"
    for shell in shells:
        if isinstance(shell, Decoder) and type(shell.growing_cache()) is not GrowingCache:
            return f"{name} caches more than keys and values, which ONNX runtimes do not support"
        if isinstance(shell, Encoder) and needs_tree(shell):
            return f"{name} reads sentences with their trees, which ONNX runtimes do not support"
    if isinstance(model, EncoderDecoder) and isinstance(model.encoder.inputs, PatchInputs):
        return f"{name} reads images and writes text, for which heedful has no ONNX graph"
    odd = [head for head in getattr(model, "heads", ()) if head not in OUTPUTS and head != "class_token"]
    return f"heedful knows no ONNX convention for these outputs of {name}: {', '.join(odd)}" if odd else None


def write(loaded: Loaded, folder: Path, kind: str = "float32") -> None:
    """The graphs, and beside them the config, the tokenizer and how to write."""
    check_export(refuse(loaded), kind, KINDS, f"ONNX models are written as {' or '.join(KINDS)}")
    for package in ("onnx", "onnxscript") if kind == "float32" else ("onnx", "onnxscript", "onnxruntime"):
        with quiet():
            needed(package, "onnx")
    for name, graph in graphs(loaded).items():
        graph.write(folder / name)
        if kind == "int8":
            quantize(folder / name)
    write_files(folder, beside(loaded))


def beside(loaded: Loaded) -> dict[str, str | bytes]:
    """{name of a file: its text} of everything but the graphs."""
    try:
        config = in_their_terms(loaded)[0]
    except BadInput:  # there is no such model at Hugging Face, but its graph runs
        config = {"model_type": loaded.architecture, "heedful": asdict(loaded.config)} | token_ids(loaded)
    files = tokenizer_files(loaded) | {CONFIG: as_json(config)}
    if loaded.preprocessing is not None and not loaded.preprocessing.pad:
        files[PREPROCESSOR] = as_json(preprocessor_config(loaded.preprocessing))
    writing = generation_config(loaded)
    return files if writing is None else files | {GENERATION: as_json(writing)}


def quantize(path: Path) -> None:
    """Matrices as int8, and what is multiplied with them as it comes: onnxruntime's dynamic quantization."""
    with quiet():
        theirs = needed("onnxruntime.quantization", "onnx")
        whole = path.with_suffix(".whole.onnx")
        path.rename(whole)
        theirs.quantize_dynamic(whole, path, per_channel=True, weight_type=theirs.QuantType.QInt8)
        whole.unlink()
        path.with_name(f"{path.name}.data").unlink(
            missing_ok=True
        )  # the weights of a large one, as they were
