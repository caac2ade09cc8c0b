"""CTranslate2: heedful's weights through Hugging Face's layout and its own converter.

It reads and writes words, so every token gets one: its number. On a CPU in float32 and in int8.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from .. import units
from ..work import END, Decode, Translate, Work, start_token
from . import Place, Variant

PACKAGE = DISTRIBUTION = "ctranslate2"
INSTALL = "pip install ctranslate2 transformers"
LAST, UNKNOWN, PADDING = "<end>", "<unknown>", "<pad>"


def variants(work: Work) -> list[Variant]:
    if not isinstance(work, Decode | Translate):
        return []
    return [Variant("", same_weights=True), Variant("int8", same_weights=True, numbers="int8")]


def build(work: Work, variant: Variant, place: Place) -> Callable[[], Any]:
    ctranslate2 = import_module("ctranslate2")
    assert isinstance(work, Decode | Translate)
    plain = "bfloat16" if place.device == "cuda" else "float32"
    numbers = {"": plain, "int8": "int8"}[variant.numbers]
    kind = ctranslate2.Generator if isinstance(work, Decode) else ctranslate2.Translator
    with tempfile.TemporaryDirectory() as folder:
        convert(work, place, Path(folder) / "model", numbers)
        model = kind(
            str(Path(folder) / "model"),
            device=place.device,
            compute_type=numbers,
            inter_threads=1,
            intra_threads=place.threads,
        )
    return continuing(model, work, place) if isinstance(work, Decode) else translating(model, work, place)


def convert(work: Decode | Translate, place: Place, folder: Path, numbers: str) -> None:
    """By CTranslate2's converter, which is handed the words it would ask a tokenizer for."""
    module = import_module("ctranslate2.converters.transformers")

    class MinimalTokenizer:
        """As much of a tokenizer as the converter looks at."""

        bos_token = eos_token = LAST
        unk_token = UNKNOWN
        pad_token = PADDING

        def get_vocab(self) -> dict[str, int]:
            return {word: i for i, word in enumerate(words(work))}

    class Converter(module.TransformersConverter):  # type: ignore[name-defined]
        def load_tokenizer(self, *args: Any, **kwargs: Any) -> MinimalTokenizer:
            return MinimalTokenizer()

    Converter(place.weights).convert(str(folder), quantization=numbers)


def words(work: Decode | Translate) -> list[str]:
    """A word for each token: Marian's first is the end, its last the padding; GPT-2 meets no end."""
    found = [str(i) for i in range(work.vocab)]
    if isinstance(work, Translate):
        found[END], found[start_token(work)] = LAST, PADDING
    else:
        found[-1] = LAST
    return found


def continuing(model: Any, work: Decode, place: Place) -> Callable[[], Any]:
    prompts = [list(map(str, row)) for row in units.prompts(work, place).tolist()]

    def generate() -> Any:
        found = model.generate_batch(
            prompts,
            beam_size=1,
            sampling_topk=1,
            max_length=work.new,
            min_length=work.new,
            include_prompt_in_result=False,
            max_batch_size=0,
        )
        return [each.sequences_ids[0] for each in found]

    return generate


def translating(model: Any, work: Translate, place: Place) -> Callable[[], Any]:
    sources = [list(map(str, row)) for row in units.sources(work, place).tolist()]

    def translate() -> Any:
        found = model.translate_batch(
            sources, beam_size=work.beam, max_decoding_length=work.new, max_batch_size=0
        )
        return [list(map(int, each.hypotheses[0])) for each in found]

    return translate
