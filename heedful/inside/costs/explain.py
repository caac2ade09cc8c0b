"""Costs in words and seconds: the formula of every figure, and how long a machine takes at given rates.

found = costs(model, batch=8, length=512)
memory_formulas(found)["optimizer"]
seconds(found, flops_rate=1e12, bandwidth=5e10)["training"].value
"""

from __future__ import annotations

from dataclasses import dataclass

from .estimate import PRECISIONS, Costs
from .memory import frozen
from .part import FULL


@dataclass(frozen=True)
class Figure:
    """A number and how it comes about."""

    value: float
    formula: str


def memory_formulas(found: Costs) -> dict[str, str]:
    """{use: how its bytes come about}, for every use of `found.memory`."""
    number, rows, memory = PRECISIONS[found.precision], f"{found.batch:,}", found.memory
    trained = found.parameters - frozen(found.whole).parameters
    scores = memory["logits"] // (number * found.batch)
    cached = memory["cache"] // (number * found.batch)
    twice = "" if found.precision != "fp32" else ", the scores twice: the loss keeps their logarithms"
    return {
        "weights": f"{FULL} bytes × {found.parameters:,} parameters",
        "gradients": f"{FULL} bytes × {trained:,} trained parameters",
        "optimizer": f"2 moments of AdamW × {FULL} bytes × {trained:,} trained parameters",
        "copies": f"{number} bytes × {memory['copies'] // number:,} numbers of matrices, in half precision",
        "activations": "what every part keeps for the backward pass; attention is fused and keeps no table",
        "logits": f"{number} bytes × {rows} rows × {scores:,} scores",
        "training": f"weights + gradients + optimizer + copies + activations + scores{twice}",
        "cache": f"{number} bytes × {rows} rows × {cached:,} numbers of keys, values or states",
        "inference": f"{number} bytes × {found.parameters:,} parameters + cache",
    }


def seconds(found: Costs, flops_rate: float, bandwidth: float) -> dict[str, Figure]:
    """{forward, training, token: seconds} at a rate of matrix products and of memory, bytes a second.

    A forward pass and a decoded token take what is longer, computing or reading the weights (and the cache).
    A training step computes three times as much, and AdamW then reads and writes seven numbers a parameter.
    Starting operations takes time too, which is not counted: small models are slower than this.
    """
    memory, flops, still = found.memory, found.whole.flops, frozen(found.whole)
    weights = memory["inference"] - memory["cache"]
    made = Figure(
        max(flops / flops_rate, weights / bandwidth),
        f"the longer of {flops:.3g} FLOPs / {flops_rate:.3g} a second and {weights:.3g} bytes of weights "
        f"/ {bandwidth:.3g} a second",
    )
    trained, moved = 3 * flops - 2 * still.flops, 7 * FULL * (found.parameters - still.parameters)
    step = Figure(
        trained / flops_rate + moved / bandwidth,
        f"{trained:.3g} FLOPs / {flops_rate:.3g} a second + {moved:.3g} bytes that AdamW moves "
        f"/ {bandwidth:.3g} a second",
    )
    if not memory["cache"]:
        return {"forward": made, "training": step}
    each = found.batch * found.flops_per_token.get("decoder", found.flops_per_token["forward"])
    read = memory["inference"]
    token = Figure(
        max(each / flops_rate, read / bandwidth),
        f"the longer of {each:.3g} FLOPs / {flops_rate:.3g} a second and {read:.3g} bytes of weights and "
        f"cache / {bandwidth:.3g} a second",
    )
    return {"forward": made, "training": step, "token": token}
