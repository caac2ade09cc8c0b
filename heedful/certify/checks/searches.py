"""Greedy and beam search: both must write the same tokens.

Two outputs may differ where our model sees no difference between them beyond rounding in float32. They are
counted apart.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ...interop.foreign import NetworkInput
from ..certificate import Check
from ..own import OwnModel
from ..sides import Sides

WIDTH = 4  # of beam search


def greedy(sides: Sides) -> Check | None:
    """Greedy outputs of both."""
    return check(sides, "greedy")


def beam(sides: Sides) -> Check | None:
    """Outputs of beam search of both."""
    return check(sides, "beam")


def check(sides: Sides, name: str) -> Check | None:
    """Compare what both write; None if the model writes nothing, or the library does not search."""
    here, inputs = sides.rounded, sides.inputs if sides.rounded.writes else None
    if inputs is None:
        return None
    pairs = []
    for number, ids in enumerate(inputs.prompts, 1):
        sides.tell(f"comparing {name}: input {number} of {len(inputs.prompts)}")
        found, expected = (written(each, name, ids, inputs.new) for each in (sides.exact, here))
        if found is None or expected is None:
            return None
        pairs.append(WrittenPair(ids, expected, found))
    given = {"prompts": len(pairs)} | ({"width": WIDTH} if name == "beam" else {})
    return tallied(sides, name, pairs, inputs.new, given, by_token=name == "greedy")


class WrittenPair(NamedTuple):
    """What both write after the same tokens."""

    ids: list[int]
    ours: list[int]
    theirs: list[int]


def tallied(
    sides: Sides, name: str, pairs: list[WrittenPair], new: int, given: dict[str, Any], by_token: bool = False
) -> Check:
    """How many outputs are equal, and how many differ by rounding only."""
    same = rounding = 0
    first: dict[str, Any] | None = None
    for pair in pairs:
        if pair.ours == pair.theirs:
            same += 1
        elif is_rounding(sides.rounded, *pair, new, slack_of(sides, pair.ids), by_token):
            rounding += 1
        elif first is None:
            first = {"input": pair.ids, "heedful": pair.ours, "other": pair.theirs}
    faults = () if first is None else (f"{name} outputs are equal in only {same + rounding} of {len(pairs)}",)
    result = {"equal": same, "of": len(pairs), "within_rounding": rounding, "first_difference": first}
    also = f", {rounding} more within rounding" if rounding else ""
    said = f"{same} of {len(pairs)} outputs equal{also}"
    return Check(name, said, given | {"new_tokens": new}, result, faults)


def written(model: Any, name: str, ids: list[int], new: int) -> list[int] | None:
    """What a model writes after a prompt."""
    return model.greedy(ids, new) if name == "greedy" else model.beam(ids, WIDTH, new)


def slack_of(sides: Sides, ids: list[int]) -> float:
    """What rounding in float32 may change of a logit."""
    target = [sides.rounded.start] if sides.inputs.drawn[0].target else None
    logits_TV = sides.rounded.outputs([NetworkInput(ids, target)])[0]["logits"]
    return sides.tolerance.exact * float(logits_TV.abs().max())


def is_rounding(
    here: OwnModel, ids: list[int], ours: list[int], theirs: list[int], new: int, slack: float, by_token: bool
) -> bool:
    """Whether our model prefers its own output to theirs by no more than rounding: at the first token in
    which the two differ, or over the whole outputs."""
    a, b = (here.nll(ids, row, len(row) < new) for row in (ours, theirs))
    if not by_token:
        return bool(b.sum() - a.sum() <= 2 * slack * max(len(a), len(b)))
    at = next(
        (n for n, (x, y) in enumerate(zip(ours, theirs, strict=False)) if x != y), min(len(ours), len(theirs))
    )
    return at < len(a) and at < len(b) and bool(b[at] - a[at] <= 2 * slack)
