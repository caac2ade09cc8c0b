"""One pass through a model: its outputs, and what goes into and comes out of every block.

The residual stream of a shell is the input of its first block, then the output of each block.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import BadInput, NotFinite
from ..interop.loaded import Loaded
from ..models.base.shells import Decoder, Encoder
from ..parts.blocks import Stack
from .hooks import Hook, hooked
from .look.layers import attending_shells
from .model_inputs import ModelInput, forward


@dataclass(frozen=True)
class BlockCall:
    """One block at work: what it was given, and what came out."""

    block: Any
    args: tuple[Any, ...]
    output_BTD: Tensor


@dataclass
class Pass:
    """One input through a model: the calls of the blocks of each shell, in order, and the outputs."""

    calls: dict[str, list[BlockCall]] = field(default_factory=dict)  # by shell: encoder, decoder, or ""
    outputs: dict[str, Tensor] = field(default_factory=dict)  # a decoder's "logits", or those of every head

    def stream(self, shell: str) -> list[Tensor]:
        """The residual stream [T, D] before the first block and after each."""
        calls = self.calls[shell]
        return [each[0] for each in (calls[0].args[0], *(call.output_BTD for call in calls))]


def run_once(loaded: Loaded, given: ModelInput) -> Pass:
    """One input through the model, without gradients."""
    with recorded_blocks(loaded.model) as found:
        found.outputs = forward(loaded.model, given)
    if not all(torch.isfinite(each).all() for each in found.outputs.values()):
        raise NotFinite("the outputs of this model are not finite: `heedful doctor` names the weights")
    return found


@contextmanager
def recorded_blocks(model: nn.Module) -> Iterator[Pass]:
    """Record the calls of the blocks of all shells whose blocks have a residual stream."""
    found, hooks = Pass(), []
    for name, shell in attending_shells(model).items():
        if isinstance(shell.stack, Stack):
            calls = found.calls[name] = []
            for block in shell.stack.blocks:

                def record(args: Any, output: Tensor, block: Any = block, calls: Any = calls) -> None:
                    calls.append(BlockCall(block, args, output))

                hooks.append(Hook(block, after=record))
    with hooked(hooks):
        yield found


def written_shell(model: nn.Module) -> str:
    """The name of the shell whose output the model's scores come from."""
    return list(attending_shells(model))[-1]


def stack_of(loaded: Loaded, shell: str) -> Stack:
    """The blocks of a shell, if they have a residual stream."""
    shells: dict[str, Encoder | Decoder] = attending_shells(loaded.model)
    stack = shells[shell].stack
    if not isinstance(stack, Stack):
        raise BadInput(
            f"a {loaded.architecture} has no blocks around a residual stream, which this looks at: give a "
            "Transformer"
        )
    return stack
