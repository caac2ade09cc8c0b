"""The attention layers of a model: where they are, by kind, and which mask each one has."""

from __future__ import annotations

from torch import nn

from ...errors import BadInput
from ...models.base.shells import Decoder, Encoder, EncoderDecoder, WithHeads, shells_of
from ...parts.embeddings import Inputs
from ...parts.masks import Mask, full
from ...parts.watch import Watchable

WHICH = ("self", "cross", "encoder")  # kinds of attention


def attending_shells(model: nn.Module) -> dict[str, Encoder | Decoder]:
    """{where its attentions are: the shell}, for any model that heedful loads."""
    found = shells_of(model)
    if not found:
        raise BadInput(f"this {type(model).__name__} has no attention to look at")
    return found


def inputs_of(model: nn.Module) -> Inputs | None:
    """What turns tokens into vectors; None if the model reads something else (images)."""
    inputs = next(iter(attending_shells(model).values())).inputs
    return inputs if isinstance(inputs, Inputs) else None


def rows_of(decoder: Decoder) -> int:
    """How many tokens a decoder knows."""
    return decoder.inputs.tokens.weight.shape[0]


def paths_of(model: nn.Module, which: str) -> dict[int, str]:
    """{layer, from 1: the path of its attention} of one kind."""
    shells = attending_shells(model)
    pair = isinstance(model, EncoderDecoder)
    place = "encoder" if which == "encoder" and pair else list(shells)[-1]
    start = f"{place}." if place else ""
    stack = shells[place].get_submodule("stack")
    watched = [path for path, m in stack.named_modules() if isinstance(m, Watchable)]
    found = [path for path in watched if ("cross" in path.split(".")) == (which == "cross")]
    return {i + 1: f"{start}stack.{path}" for i, path in enumerate(found)}


def kinds_of(model: nn.Module) -> tuple[str, ...]:
    """The kinds of attention that a model has; the first is what is looked at unless said otherwise."""
    if isinstance(model, EncoderDecoder):
        return tuple(which for which in ("cross", "self", "encoder") if paths_of(model, which))
    if isinstance(model, WithHeads) and paths_of(model, "self"):  # an encoder alone: both are the same
        return "self", "encoder"
    return ("self",) if paths_of(model, "self") else ()


def mask_of(model: nn.Module, which: str, layer: int) -> Mask:
    """Which keys each query may attend to in one layer."""
    if which == "cross":
        return full()
    shells = attending_shells(model)
    shell = shells["encoder"] if which == "encoder" else list(shells.values())[-1]
    return shell.masks[(layer - 1) % len(shell.masks)]
