"""llama.cpp through llama-cpp-python: heedful's weights as a GGUF file, one row at a time.

Its int8 is q8_0: blocks of 32 weights with a scale each, multiplied with inputs in the same form.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from ...interop.formats import load
from ...interop.gguf.write import FILE, write
from .. import units
from ..work import DecodeLlama, Work
from . import Place, Variant

PACKAGE, DISTRIBUTION = "llama_cpp", "llama-cpp-python"
INSTALL = "pip install llama-cpp-python gguf"
NUMBERS = {"": "float32", "int8": "q8_0"}
BLOCK = 32  # weights of a row that q8_0 takes together


def variants(work: Work) -> list[Variant]:
    if not isinstance(work, DecodeLlama) or work.batch > 1:
        return []
    plain = Variant("", same_weights=True, device="cpu")
    blocks = Variant("int8", same_weights=True, numbers="int8", device="cpu")
    return [plain] if work.width % BLOCK or work.hidden % BLOCK else [plain, blocks]


def build(work: Work, variant: Variant, place: Place) -> Callable[[], Any]:
    llama_cpp = import_module("llama_cpp")
    assert isinstance(work, DecodeLlama) and place.weights is not None
    with tempfile.TemporaryDirectory() as folder:
        write(load(place.weights), Path(folder), NUMBERS[variant.numbers])
        model = llama_cpp.Llama(
            str(Path(folder, FILE)),
            n_ctx=work.length,
            n_threads=place.threads,
            n_threads_batch=place.threads,
            use_mmap=False,  # the file goes away
            verbose=False,
        )
    (prompt,) = units.prompts(work, place).tolist()

    def generate() -> list[list[int]]:
        model.reset()
        model.eval(prompt)
        found = []
        for _ in range(work.new):
            found.append(int(model.sample(temp=0.0)))
            if len(found) < work.new:
                model.eval(found[-1:])
        return [found]

    return generate
