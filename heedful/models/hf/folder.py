"""Reading Hugging Face configs, for all families: checked settings, spellings of activations, refusals."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from reprlib import repr as short
from typing import Any, TypeVar

from ...errors import BadInput
from ..base.config import check

THEIR_ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "quick_gelu": "gelu_sigmoid",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}

ACTIVATION_NAMES = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_tanh": "gelu_new",
    "gelu_sigmoid": "quick_gelu",
    "silu": "silu",
    "tanh": "tanh",
}


Setting = TypeVar("Setting", bool, int, float, str)


def in_own_names(theirs: dict[str, Any], common: Mapping[str, str]) -> dict[str, Any]:
    """A config in the family's own names. common: {name that all families have: the family's own}."""
    said = dict(theirs)
    for name, own in common.items():
        if name in said:
            value = said.pop(name)
            if said.setdefault(own, value) != value:
                other = short(said[own])
                raise BadInput(f"{name} is {short(value)} and {own} is {other}, though they are one setting")
    return said


def read(theirs: dict[str, Any], key: str, default: Setting) -> Setting:
    """A setting of theirs, which must be of the same kind as its default; absent means the default."""
    value = theirs.get(key, default)
    check(key, type(default).__name__, value)
    return value


def read_unless_null(theirs: dict[str, Any], key: str, default: Setting) -> Setting:
    """A setting for which they also write null, and mean the default."""
    return default if theirs.get(key) is None else read(theirs, key, default)


def read_token(theirs: dict[str, Any], key: str, default: int, vocab: int) -> int:
    """The number of a token of the vocabulary; absent means the default."""
    value = theirs.get(key, default)
    if type(value) is not int or not 0 <= value < vocab:
        raise BadInput(f"{key} must be the number of a token, from 0 to {vocab - 1}, not {short(value)}")
    return value


def read_or_null(theirs: dict[str, Any], key: str, kind: Setting) -> Setting | None:
    """A setting that may be absent or null, and is then None; otherwise it must be of the type of `kind`."""
    return None if theirs.get(key) is None else read(theirs, key, kind)


def read_activation(theirs: dict[str, Any], key: str, default: str) -> str:
    """Our name of the activation their config names."""
    return THEIR_ACTIVATIONS[one_of(THEIR_ACTIVATIONS, key, read(theirs, key, default))]


def read_architecture(theirs: dict[str, Any], known: Collection[str]) -> str:
    """The class whose weights these are; absent means the first known."""
    named = theirs.get("architectures") or list(known)
    return one_of(known, "architectures", named[0] if isinstance(named, list) else named)


def read_labels(theirs: dict[str, Any]) -> int:
    """How many labels a classifier tells apart: they name each, or only count them."""
    names = theirs.get("id2label") or {}
    if not isinstance(names, dict):
        raise BadInput(f"id2label must be an object {{number: label}}, not {short(names)}")
    return len(names) or read(theirs, "num_labels", 2)


def write_labels(count: int) -> dict[str, Any]:
    """Labels that have no names of their own, as they name them."""
    return {
        "id2label": {str(i): f"LABEL_{i}" for i in range(count)},
        "label2id": {f"LABEL_{i}": i for i in range(count)},
    }


def one_of(known: Collection[str], key: str, name: Any) -> str:
    """The name, if it is a known one."""
    if not isinstance(name, str) or name not in known:
        raise BadInput(f"{key} is {short(name)}; heedful knows {', '.join(known)}")
    return name


def refuse_unless(theirs: dict[str, Any], key: str, value: Any, default: Any = None) -> None:
    """Refuse a setting whose other values heedful does not implement; absent means the default."""
    found = theirs.get(key, value if default is None else default)
    if found != value:
        raise BadInput(f"{key} is {short(found)}; heedful implements only {value!r}")
