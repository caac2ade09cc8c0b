"""One pass through a model: its scores, and what goes into and comes out of every block.

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
from ..models.base.shells import Decoder, DecoderClassifier, Encoder, EncoderDecoder
from ..parts.blocks import Stack
from ..parts.places import Lengths, Source
from .hooks import Hook, hooked
from .look.inputs import InputTokens, places_for, reading
from .look.layers import attending_shells

Output = Tensor | dict[str, Tensor]  # of an encoder, by the names of its heads


@dataclass(frozen=True)
class BlockCall:
    """One block at work: what it was given, and what came out."""

    block: Any
    args: tuple[Any, ...]
    output_BTD: Tensor


@dataclass
class Pass:
    """One input through a model: the calls of the blocks of each shell, in order, and the output."""

    calls: dict[str, list[BlockCall]] = field(default_factory=dict)  # by shell: encoder, decoder, or ""
    output: Output | None = None

    def stream(self, shell: str) -> list[Tensor]:
        """The residual stream [T, D] before the first block and after each."""
        calls = self.calls[shell]
        return [each[0] for each in (calls[0].args[0], *(call.output_BTD for call in calls))]


def run_once(loaded: Loaded, words: InputTokens) -> Pass:
    """One input through the model, without gradients."""
    with torch.no_grad(), recorded_blocks(loaded.model) as found:
        found.output = output_of(loaded, words)
    outputs = found.output.values() if isinstance(found.output, dict) else [found.output]
    if not all(torch.isfinite(each).all() for each in outputs):
        raise NotFinite("the scores of this model are not finite: `heedful doctor` names the weights")
    return found


@contextmanager
def recorded_blocks(model: nn.Module) -> Iterator[Pass]:
    """Record the calls of the blocks of all shells whose blocks have a residual stream."""
    found, hooks = Pass(), []
    for name, shell in attending_shells(model).items():
        if isinstance(shell.stack, Stack):
            calls = found.calls[name] = []
            for block in dict.fromkeys(shell.stack.blocks):  # ALBERT calls one block many times

                def record(args: Any, output: Tensor, block: Any = block, calls: Any = calls) -> None:
                    calls.append(BlockCall(block, args, output))

                hooks.append(Hook(block, after=record))
    with hooked(hooks):
        yield found


def output_of(loaded: Loaded, words: InputTokens, rows: int = 1) -> Any:
    """What the model says about an input: scores [B, T, V], or those of every head of an encoder.

    rows: copies of the input side by side; an encoder-decoder reads the source once for all of them.
    """
    model, reader = loaded.model, reading(loaded, words.text)
    device = next(model.parameters()).device
    ids_1S = torch.tensor([words.ids], device=device)
    if isinstance(model, EncoderDecoder):
        assert isinstance(reader, EncoderDecoder)
        source = reader.read(ids_1S, places_for(model, words.ids))
        if rows > 1:
            source = Source(source.vectors_BSD.expand(rows, -1, -1))
        return model.decode(source, torch.tensor([words.read] * rows, device=device))
    ids_BT = ids_1S.expand(rows, -1)
    if isinstance(model, DecoderClassifier):
        return model(ids_BT, Lengths(torch.full((rows,), len(words.ids), device=device)))
    return model(ids_BT)


def written_shell(model: nn.Module) -> str:
    """The name of the shell whose output the model's scores come from."""
    return list(attending_shells(model))[-1]


def stack_of(loaded: Loaded, shell: str) -> Stack:
    """The blocks of a shell, if they have a residual stream."""
    shells: dict[str, Encoder | Decoder] = attending_shells(loaded.model)
    if shell not in shells:
        names = " or ".join(name for name in shells if name)
        raise BadInput(f"this {loaded.architecture} has no {shell}: choose {names or 'no shell'}")
    stack = shells[shell].stack
    if not isinstance(stack, Stack):
        raise BadInput(
            f"a {loaded.architecture} has no blocks around a residual stream, which this looks at: give a "
            "Transformer"
        )
    return stack
