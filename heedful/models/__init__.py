"""Architectures: one file each, with its sizes, its builder and its table of Hugging Face names.

The files of this folder are the list of architectures. A file is imported when its architecture is asked for.
"""

from __future__ import annotations

import ast
import difflib
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import Any

from ..errors import BadInput

FAMILIES = tuple(sorted(module.name for module in iter_modules(__path__) if not module.ispkg))


@cache
def listed(name: str) -> dict[str, list[str]]:
    """{constant: strings it lists} of an architecture's file: the keys of `PRESETS`, Hugging Face's names in
    `MODEL_TYPES`. The file is parsed and not imported, since most of them import torch."""
    found = {}
    for node in ast.parse((Path(__file__).parent / f"{name}.py").read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict | ast.Tuple):
            items = node.value.keys if isinstance(node.value, ast.Dict) else node.value.elts
            strings = [str(item.value) for item in items if isinstance(item, ast.Constant)]
            found[ast.unparse(node.targets[0])] = strings
    return found


@cache
def signature(name: str) -> tuple[str, str]:
    """(config, model) of an architecture's `build`: the names of their classes. The file is not imported."""
    for node in ast.parse((Path(__file__).parent / f"{name}.py").read_text()).body:
        if isinstance(node, ast.FunctionDef) and node.name == "build":
            given, made = node.args.args[0].annotation, node.returns
            assert given is not None and made is not None
            return ast.unparse(given), ast.unparse(made)
    raise LookupError(f"{name} has no build")


def kind_of(name: str) -> str:
    """The class that an architecture builds, such as "Decoder" or "EncoderDecoder", without importing it."""
    return signature(known(name))[1]


def of_kind(kind: str) -> tuple[str, ...]:
    """The architectures that build a class of model.

    Args:
        kind: Name of the class, such as "Decoder", "WithHeads" or "EncoderDecoder".

    Returns:
        The names of the architectures.

    Example:
        >>> "bart" in of_kind("EncoderDecoder")
        True
    """
    return tuple(name for name in FAMILIES if kind_of(name) == kind)


def config_class(name: str) -> type[Any]:
    """The config of an architecture: its fields are the settings of the model.

    Args:
        name: The architecture, such as "gpt2".

    Returns:
        The class, a subclass of `Config`.

    Raises:
        BadInput: There is no such architecture.

    Example:
        >>> config_class("gpt2")(layers=2).layers
        2
    """
    return getattr(family(name), signature(known(name))[0])


def known(name: str) -> str:
    """The same name, if it is an architecture's."""
    if name not in FAMILIES:
        raise BadInput(f'there is no architecture "{name}"{nearest(name, FAMILIES)}')
    return name


def family(name: str) -> ModuleType:
    """The module of an architecture, with its config, its `PRESETS` and its `build`.

    Args:
        name: The architecture, such as "gpt2".

    Returns:
        The module.

    Raises:
        BadInput: There is no such architecture; the message names the nearest.

    Example:
        >>> gpt2 = family("gpt2")
        >>> type(gpt2.build(gpt2.GPT2Config(vocab=50, context=16, layers=2, width=8, heads=2))).__name__
        'Decoder'
    """
    return import_module(f"{__name__}.{known(name)}")


def preset_families() -> dict[str, str]:
    """{preset: its architecture}, without importing any."""
    return {preset: name for name in FAMILIES for preset in listed(name)["PRESETS"]}


def model_types() -> dict[str, str]:
    """{Hugging Face's model_type: our architecture}, without importing any."""
    return {theirs: name for name in FAMILIES for theirs in listed(name).get("MODEL_TYPES", ())}


def presets() -> dict[str, tuple[str, Any]]:
    """{preset: (family, config)} of every architecture."""
    return {preset: (name, family(name).PRESETS[preset]) for preset, name in preset_families().items()}


def find_preset(name: str) -> tuple[str, Any]:
    """A preset by its name: the sizes of a published model.

    Args:
        name: The name, such as "gpt2-medium".

    Returns:
        (architecture, config).

    Raises:
        BadInput: There is no such preset; the message names the nearest.

    Example:
        >>> architecture, config = find_preset("gpt2-medium")
        >>> architecture, config.layers, config.width
        ('gpt2', 24, 1024)
    """
    known = preset_families()
    if name not in known:
        raise BadInput(f'there is no preset "{name}"{nearest(name, known)}')
    return known[name], family(known[name]).PRESETS[name]


def nearest(name: str, known: Any) -> str:
    """The end of an error sentence: what was probably meant, or what there is."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f'; did you mean "{close[0]}"?' if close else f"; there are {', '.join(known)}"
