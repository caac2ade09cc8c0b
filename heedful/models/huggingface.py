"""What the families' tables of Hugging Face names share: spellings of activations, and refusals."""

from __future__ import annotations

from typing import Any

from ..errors import BadInput

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


def read_activation(theirs: dict[str, Any], key: str, default: str) -> str:
    """Our name of the activation their config names."""
    name = theirs.get(key, default)
    if name not in THEIR_ACTIVATIONS:
        raise BadInput(f"{key} is {name!r}; heedful knows {', '.join(THEIR_ACTIVATIONS)}")
    return THEIR_ACTIVATIONS[name]


def refuse_unless(theirs: dict[str, Any], key: str, value: Any, default: Any = None) -> None:
    """Refuse a setting whose other values heedful does not implement; absent means the default."""
    found = theirs.get(key, value if default is None else default)
    if found != value:
        raise BadInput(f"{key} is {found!r}; heedful implements only {value!r}")
