"""Tokenizers: the token ids of texts that tell tokenizers apart."""

from __future__ import annotations

from typing import Any

from ...files import one_line
from ...interop.hf.probes import corpus
from ..certificate import Check
from ..sides import Sides

NAME = "tokenizer"


def check(sides: Sides) -> Check | None:
    """Compare token ids; None if one side has no tokenizer."""
    if sides.ours.sees_pictures or sides.ours.loaded.tokenizer is None:
        return None
    sides.tell("comparing tokenizers")
    texts, same = corpus(), 0
    first: dict[str, Any] | None = None
    for text in texts:
        found, expected = sides.used.tokens(text), sides.ours.tokens(text)
        if found is None:
            return None
        same += found == expected
        if found != expected and first is None:
            first = {"text": one_line(text), "heedful": expected, "other": found}
    faults = () if first is None else (f"the tokenizers agree on only {same} of {len(texts)} texts",)
    result = {"equal": same, "of": len(texts), "first_difference": first}
    return Check(NAME, f"{same} of {len(texts)} texts equal", {"texts": len(texts)}, result, faults)
