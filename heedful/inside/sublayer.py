"""One attention sublayer from its input to the residual sum, as the model's own modules computed it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import BadInput
from ..parts.layers import Branch, PostNorm, PreNorm, SandwichNorm
from ..parts.positions.base import Position
from ..parts.watch import Watchable
from .hooks import Hook

ORDERS: dict[type[nn.Module], str] = {
    PreNorm: "pre-norm",
    PostNorm: "post-norm",
    SandwichNorm: "sandwich",
    Branch: "parallel",
}


@dataclass(frozen=True)
class Sublayer:
    """What an attention sublayer does with every token.

    `order` is "pre-norm", "post-norm", "sandwich" (a norm before and one after the layer) or "parallel"
    (attention and feed-forward read the same vectors, and the block adds both at once).
    """

    order: str
    x_TD: Tensor = field(repr=False)  # the residual stream before the sublayer
    normed_TD: Tensor = field(repr=False)  # what queries are made of; x itself in a post-norm model
    source_SD: Tensor = field(repr=False)  # what keys and values are made of
    heads_TX: Tensor = field(repr=False)  # the outputs of all heads, joined
    out_TD: Tensor = field(repr=False)  # the same after W_o
    added_TD: Tensor = field(repr=False)  # what is added to the stream
    sum_TD: Tensor | None = field(repr=False)  # x + added; None of a parallel block, which adds more at once
    after_TD: Tensor = field(repr=False)  # what the sublayer returns; after the norm in a post-norm model


@dataclass(frozen=True)
class Projections:
    """What one head computes q, k and v from: q = normed W_q^T + bias_q, and so on.

    `changed` says what else happens: queries and keys are "normalized" or "rotated", keys and values are
    "compressed" (several tokens become one).
    """

    normed_TD: Tensor = field(repr=False)
    source_SD: Tensor = field(repr=False)
    W_q_KD: Tensor = field(repr=False)
    W_k_KD: Tensor = field(repr=False)
    W_v_LD: Tensor = field(repr=False)
    bias_q_K: Tensor | None = field(repr=False)
    bias_k_K: Tensor | None = field(repr=False)
    bias_v_L: Tensor | None = field(repr=False)
    changed: tuple[str, ...] = ()


def residual_of(model: nn.Module, path: str, architecture: str) -> nn.Module:
    """The residual connection around the attention at a path."""
    parts = path.split(".")
    for end in range(len(parts) - 1, 0, -1):
        found = model.get_submodule(".".join(parts[:end]))
        if type(found) in ORDERS:
            return found
    raise BadInput(
        f"the attention of this {architecture} stands in no residual block: there is no sublayer to show"
    )


def sublayer_hooks(residual: Any, attention: Watchable, caught: dict[str, Tensor]) -> list[Hook]:
    """Hooks that catch what passes through a sublayer. Every tensor is [T, D] of the only row."""

    def catch(name: str, x: Tensor | None) -> None:
        if x is not None:
            caught[name] = plain(x[0])

    def inputs(args: tuple[Any, ...]) -> None:
        catch("normed_TD", args[0])
        source = args[2] if len(args) > 2 and args[2] is not None else args[0]
        catch("source_SD", source)

    hooks = [
        Hook(residual, lambda args: catch("x_TD", args[0]), lambda _, y: catch("after_TD", y)),
        Hook(residual.layer, inputs),
        Hook(residual.dropout, None, lambda _, y: catch("added_TD", y)),
    ]
    out = getattr(attention, "out", None)
    if out is not None:
        hooks.append(Hook(out, lambda args: catch("heads_TX", args[0]), lambda _, y: catch("out_TD", y)))
    if isinstance(residual, PostNorm):
        hooks.append(Hook(residual.norm, lambda args: catch("sum_TD", args[0])))
    return hooks


def sublayer_of(residual: nn.Module, caught: dict[str, Tensor]) -> Sublayer:
    """The sublayer whose tensors were caught."""
    order = ORDERS[type(residual)]
    total = caught.get("sum_TD")
    if order in ("pre-norm", "sandwich"):
        total = caught["after_TD"]
    names = ("x_TD", "normed_TD", "source_SD", "heads_TX", "out_TD", "added_TD", "after_TD")
    return Sublayer(order=order, sum_TD=total, **{name: caught[name] for name in names})


@torch.no_grad()
def projections_of(
    attention: Any, head: int, normed_TD: Tensor, source_SD: Tensor, slots: int
) -> Projections:
    """The rows of W_q, W_k and W_v for one head, counted from 1; grouped heads share keys and values.

    slots: how many keys there are.
    """
    shared = (head - 1) * attention.kv_heads // attention.heads
    found: dict[str, Any] = {}
    for name, h, heads, letter in (
        ("query", head - 1, attention.heads, "q"),
        ("key", shared, attention.kv_heads, "k"),
        ("value", shared, attention.kv_heads, "v"),
    ):
        weight, bias = matrix_of(getattr(attention, name))
        width = len(weight) // heads
        rows, axis = slice(h * width, (h + 1) * width), "L" if letter == "v" else "K"
        found[f"W_{letter}_{axis}D"] = plain(weight[rows])
        found[f"bias_{letter}_{axis}"] = None if bias is None else plain(bias[rows])
    changed = ["normalized"] if not isinstance(attention.query_norm, nn.Identity) else []
    changed += ["rotated"] if type(attention.position).rotate is not Position.rotate else []
    changed += ["compressed"] if slots != len(source_SD) else []
    return Projections(normed_TD, source_SD, changed=tuple(changed), **found)


def matrix_of(linear: Any) -> tuple[Tensor, Tensor | None]:
    """The weight and bias of a linear layer; of one that is made otherwise (LoRA), what comes to the same."""
    if type(linear) is nn.Linear:
        return linear.weight, linear.bias
    weight = next(linear.parameters())
    eye_DD = torch.eye(linear.in_features, device=weight.device, dtype=weight.dtype)
    bias_X = linear(torch.zeros_like(eye_DD[:1]))[0]
    return (linear(eye_DD) - bias_X).T, bias_X


def plain(x: Tensor) -> Tensor:
    """A tensor for keeping: in fp32 (fp64 stays), on the CPU."""
    x = x.detach()
    return x.to("cpu", x.dtype if x.dtype == torch.float64 else torch.float32)
