"""The load of experts: the share of tokens that each was sent, logged at every step and summed up."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

SHARES, UNEVEN = "expert_shares", "expert_cv"  # in the log: a list for each layer, and a number for each
LATELY = 100  # steps that are told of at the end
IDLE = 0.1  # of an even share: an expert that gets less hardly learns
SHOWN = 16  # experts of a layer that are listed one by one


def shares_of(load: Sequence[float]) -> list[float]:
    """What each expert got of all that was sent; a token that is sent to two counts twice."""
    total = sum(load)
    return [amount / total if total else 0.0 for amount in load]


def variation(load: Sequence[float]) -> float:
    """The coefficient of variation: standard deviation / mean, 0 where all got the same."""
    mean = sum(load) / len(load)
    return math.sqrt(sum((amount - mean) ** 2 for amount in load) / len(load)) / mean if mean else 0.0


def logged(loads: Sequence[Sequence[float]]) -> dict[str, Any]:
    """What a step's line in the log says of its experts; nothing if there are none."""
    if not loads:
        return {}
    shares = [[round(share, 4) for share in shares_of(load)] for load in loads]
    return {SHARES: shares, UNEVEN: [round(variation(load), 4) for load in loads]}


def describe_load(metrics: Path, last: int) -> Iterator[str]:
    """Sentences about the last steps up to `last`, one for each layer."""
    steps = list(lately(metrics, last))
    if not steps:
        return
    layers = [
        [sum(column) / len(steps) for column in zip(*rows, strict=True)] for rows in zip(*steps, strict=True)
    ]
    yield f"experts: each one's share of the tokens, over the last {len(steps)} steps"
    for number, shares in enumerate(layers, 1):
        listed = " ".join(f"{share:.1%}" for share in shares[:SHOWN])
        more = f" and {len(shares) - SHOWN} more" if len(shares) > SHOWN else ""
        yield f"  layer {number}: {listed}{more} (coefficient of variation {variation(shares):.2f})"
    idle = sum(share < IDLE / len(shares) for shares in layers for share in shares)
    if idle:
        yield (
            f"warning: {idle} of {sum(map(len, layers))} experts got hardly any tokens: a larger "
            "model.balance_loss_weight "
            f"spreads them more evenly"
        )


def lately(metrics: Path, last: int) -> Iterator[list[list[float]]]:
    """The shares of the last steps, from the log: they are there however often the run was interrupted."""
    if not metrics.is_file():
        return
    for line in metrics.read_text(encoding="utf-8").splitlines():
        found = json.loads(line)
        if SHARES in found and last - LATELY < found["step"] <= last:
            yield found[SHARES]
