"""The one entry for decoding: `for_decoding(model)` makes a model ready to write on the device where it is.

    fast = for_decoding(model)
    greedy(fast.step(source_BS, lengths_B, room=64), prompts_BT, longest=63)

On a CPU the weights are packed (`cpu_decoder`); on a GPU each step is one CUDA graph (`cuda_graph`), where
there are kernels for the model. Any other model takes the plain step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..decode.slots import Slots
from ..decode.step import Step, check_source, step_of
from ..errors import BadInput
from ..models.base.shells import Decoder, EncoderDecoder, decoder_of
from ..parts.blocks import AttentionStack
from ..parts.watch import is_edited
from .cpu_decoder import packed

if TYPE_CHECKING:
    from .cuda_graph import RunnerPool


SOON = 1000  # tokens of a row that the plain step writes about as soon as kernels are compiled


class FirstTokens:
    """What the plain step writes before kernels are compiled and graphs recorded, which takes seconds.

    Whoever wants a few texts has them before that. Whoever wants many loses at most as much time again, as
    somebody does who rents skis until the rent has cost as much as skis, and then buys.
    """

    def __init__(self, tokens: int = 0) -> None:
        self.left = tokens

    def take(self, room: int) -> bool:
        """Whether a batch whose rows have so much room comes that early."""
        early = self.left > 0
        self.left -= room
        return early


@dataclass(frozen=True)
class FastModel:
    """A model ready for decoding. Its weights must not change any more.

    plain: the model as it was, where `fastest` is another; while somebody edits it, it is used instead.
    make_runners: makes the runners of a model on a GPU, if there are kernels for it. first: what is written
    before they are needed.
    """

    fastest: Decoder | EncoderDecoder
    make_runners: Callable[[], RunnerPool | None] = lambda: None
    plain: Decoder | EncoderDecoder | None = None
    first: FirstTokens = field(default_factory=FirstTokens)

    @cached_property
    def runners(self) -> RunnerPool | None:
        return self.make_runners()

    @property
    def model(self) -> Decoder | EncoderDecoder:
        """The model to decode with."""
        return self.plain if self.plain is not None and is_edited() else self.fastest

    @property
    def device(self) -> torch.device:
        return decoder_of(self.model).inputs.tokens.weight.device

    def step(
        self,
        source: Tensor | None = None,
        source_lengths_B: Tensor | None = None,
        *,
        watched: bool = False,
        room: int = 0,
        model: Decoder | EncoderDecoder | None = None,
    ) -> Step:
        """A fresh step.

        watched: keep `attention`, which a graph cannot. room: tokens of a row, prompt included. model: the
        same model as it reads this batch in a way of its own, with syntax trees for example.
        """
        model = self.model if model is None else model
        if watched or is_edited() or model is not self.model or self.first.take(room) or self.runners is None:
            return step_of(model, source, source_lengths_B, watched=watched)
        check_source(model, source)
        return self.runners.step(room, source, source_lengths_B)


def for_decoding(model: Decoder | EncoderDecoder, weights: str = "fp32", soon: int = 0) -> FastModel:
    """The fastest way to decode with a model on its device.

    weights: of a model on a CPU, "fp32", "fp16" or "int8"; on a GPU, "int8" or "fp8", and "fp32" for the
    weights that it has. soon: on a GPU, tokens of a row that the plain step writes first (`FirstTokens`),
    unless weights are packed.
    """
    weight = decoder_of(model).inputs.tokens.weight
    if weight.is_cuda and weights != "fp32":
        runners = packed_runners(model, weights)
        return FastModel(model, lambda: runners)
    if weight.is_cuda:
        return FastModel(model, lambda: runners_for(model), first=FirstTokens(soon))
    if weight.device.type == "cpu" and weight.dtype == torch.float32 and has_attention_cache(model):
        return FastModel(packed(model, weights), plain=model)
    return FastModel(model)


def has_attention_cache(model: Decoder | EncoderDecoder) -> bool:
    """Whether the decoder keeps keys and values. Recurrent decoders keep states, and have no fast path."""
    return isinstance(decoder_of(model).stack, AttentionStack)


def runners_for(model: Decoder | EncoderDecoder) -> RunnerPool | None:
    """Runners for a model on a GPU; None where there are no kernels for it."""
    if find_spec("triton") is None or not has_attention_cache(model):
        return None
    from .cuda_graph import RunnerPool  # these need Triton
    from .gpu_decoder import gpu_decoder_of

    gpu = gpu_decoder_of(decoder_of(model))
    encoder = None if isinstance(model, Decoder) else model.encoder
    return None if gpu is None else RunnerPool(gpu, encoder)


def packed_runners(model: Decoder | EncoderDecoder, weights: str) -> RunnerPool:
    """Runners whose steps read weights of 8 bits. A model without kernels is refused."""
    refused = f'weights="{weights}" on a GPU needs kernels for every part of the model'
    if find_spec("triton") is None:
        raise BadInput(f"{refused}, and Triton is not installed: leave it out")
    if not has_attention_cache(model):
        raise BadInput(f"{refused}, and this one has none for layers without attention: leave it out")
    from .cuda_graph import RunnerPool  # these need Triton
    from .gpu_decoder import GPUDecoder, NoKernel

    device = decoder_of(model).inputs.tokens.weight.device
    if weights == "fp8" and device.type == "cuda" and torch.cuda.get_device_capability(device) < (8, 9):
        name = torch.cuda.get_device_name(device)
        raise BadInput(f'weights="fp8" needs a GPU that computes in fp8, which {name} does not: give "int8"')
    try:
        gpu = GPUDecoder(decoder_of(model), weights)
    except NoKernel as missing:
        raise BadInput(f"{refused}, and this one has none for {missing}: leave it out") from None
    return RunnerPool(gpu, None if isinstance(model, Decoder) else model.encoder)


def slots_for(fast: FastModel, prefill: int | None = None, most_bytes: int | None = None) -> Slots:
    """Slots for a model: by its kernels where there are any.

    prefill: tokens of prompts read between two steps; unless given, 2,048 on a GPU, and on a CPU as many as
    it reads in about 50 ms. most_bytes: of keys and values.
    """
    if fast.runners is not None:
        from .gpu_slots import PREFILL, GPUSlots  # these need Triton

        return GPUSlots(fast, prefill or PREFILL, most_bytes)
    return Slots(fast.model, prefill or (None if fast.device.type == "cpu" else 2048), most_bytes)
