"""Architectures: one file each, with its sizes, its builder and its table of Hugging Face names.

`FAMILIES` says which file; a file is imported when it is asked for.
"""

from __future__ import annotations

import difflib
from importlib import import_module
from types import ModuleType
from typing import Any

from ..errors import BadInput

FAMILIES = (
    "transformer",
    "gpt1",
    "gpt2",
    "gpt3",
    "bert",
    "roberta",
    "distilbert",
    "ernie",
    "albert",
    "deberta",
    "t5",
    "bart",
    "llama",
    "modern",
    "syntax",
    "mixture",
    "mixture_transformer",
    "vit",
    "captioner",
    "dvae",
    "dalle",
    "clip",
    "judge",
    "xl",
    "sparse",
    "dmca",
    "mixture_dmca",
    "linear",
    "rnn",
    "gru",
    "lstm",
    "seq2seq",
    "bahdanau",
    "luong",
    "convs2s",
    "elmo",
    "elmo_reader",
)

# Hugging Face's model_type to our file.
MODEL_TYPES = {
    "marian": "transformer",
    "pegasus": "transformer",
    "openai-gpt": "gpt1",
    "gpt2": "gpt2",
    "bert": "bert",
    "roberta": "roberta",
    "distilbert": "distilbert",
    "ernie": "ernie",
    "albert": "albert",
    "deberta-v2": "deberta",
    "t5": "t5",
    "bart": "bart",
    "mbart": "bart",
    "llama": "llama",
    "qwen2": "llama",
    "vit": "vit",
    "deit": "vit",
}


def family(name: str) -> ModuleType:
    """The file of an architecture."""
    if name not in FAMILIES:
        raise BadInput(f'there is no architecture "{name}"; there are {", ".join(FAMILIES)}')
    return import_module(f"{__name__}.{name}")


def presets() -> dict[str, tuple[str, Any]]:
    """{preset: (family, config)} of every architecture, in the order of the lectures."""
    return {preset: (name, config) for name in FAMILIES for preset, config in family(name).PRESETS.items()}


def find_preset(name: str) -> tuple[str, Any]:
    """(family, config) of a preset by name; a miss suggests the nearest."""
    known = presets()
    if name not in known:
        raise BadInput(f'there is no preset "{name}"{nearest(name, known)}')
    return known[name]


def nearest(name: str, known: Any) -> str:
    """The end of an error sentence: what was probably meant, or what there is."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f'; did you mean "{close[0]}"?' if close else f"; there are {', '.join(known)}"
