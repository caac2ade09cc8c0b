"""Classify: texts in, labels with their probabilities (or scores) out, as people call both libraries."""

from __future__ import annotations

import math

from ...errors import BadInput
from ...interop.loaded import DecoderClassifier, Encoder
from ...use.results import Label, ScoredLabels
from ..certificate import Check
from ..inputs import context_of
from ..sides import Sides

Values = dict[str, float]  # {label: its probability or score}
NAME = "classify"
TEXTS = ("a cat", "a good film", "The cat sat on the mat.", "It was not good, and it was long.")
ALLOWED = 1e-4  # of a probability


def check(sides: Sides) -> Check | None:
    """Compare every label's value; None if the model does not classify texts, or the library is not asked."""
    ask = getattr(sides.used, "classify", None)
    if ask is None or sides.is_rounded or sides.ours.loaded.kind not in (Encoder, DecoderClassifier):
        return None
    model = sides.model
    if "classify" not in model.can or sides.ours.loaded.tokenizer is None or model.loaded.problem.activation:
        return None
    sides.tell("comparing classify")
    texts = fitting(sides)
    try:
        ours = [values_of(found) for found in model.classify(texts)]
    except BadInput:
        return None  # a vocabulary that has none of these words
    if not texts or (theirs := ask(texts)) is None:
        return None
    return compared(NAME, ours, theirs, {"texts": len(texts)})


def fitting(sides: Sides) -> list[str]:
    """The texts that fit the context: what is longer, people cut."""
    room = context_of(sides.ours.model, sides.ours.loaded.config)
    return [text for text in TEXTS if len(sides.ours.tokens(text) or ()) <= room]


def compared(name: str, ours: list[Values], theirs: list[Values], given: dict[str, object]) -> Check:
    """The check of values of labels that should be equal."""
    worst = max(apart(a, b) for a, b in zip(ours, theirs, strict=True))
    ok = worst <= ALLOWED
    faults = () if ok else (f"{name}: results differ by {worst:.2g}, and {ALLOWED:g} is allowed",)
    return Check(
        name, f"{len(ours)} results differ by at most {worst:.2g}", given, {"largest": worst}, faults
    )


def apart(one: Values, other: Values) -> float:
    """The largest difference of a label's values; infinite if the labels are others."""
    a, b = ({label.removeprefix("LABEL_"): value for label, value in each.items()} for each in (one, other))
    if len(a) == len(b) == 1:
        return abs(next(iter(a.values())) - next(iter(b.values())))
    return max(abs(a[label] - b[label]) for label in a) if a.keys() == b.keys() else math.inf


def values_of(found: object) -> Values:
    """The probabilities of all labels, or the one score."""
    if isinstance(found, Label):
        return found.probabilities
    return dict(found) if isinstance(found, ScoredLabels) else {"": float(found)}  # type: ignore[arg-type]
