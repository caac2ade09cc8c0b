"""heedful as a contender: the one place where bench touches the rest of the library.

`prepare` makes the weights that everyone who can starts from, and the answer they should give.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..decode.beam import beam_search
from ..decode.beam_settings import BeamSettings
from ..decode.greedy import greedy
from ..fast.async_loop import train_async
from ..fast.decoding import FastModel, for_decoding
from ..fast.training import for_training
from ..inside.costs import Costs, costs, count_parameters
from ..interop.formats import load
from ..interop.hf.write import write
from ..interop.loaded import Loaded
from ..models import family
from ..models.base.skeleton import skeleton
from ..models.gpt2 import GPT2Config
from ..models.llama import LlamaConfig
from ..models.transformer import TransformerConfig
from ..parts.layers import FeedForward, GatedFeedForward
from ..parts.masks import Mask, causal, window
from ..parts.multihead import MultiHeadAttention
from ..parts.sparse_masks import fixed, strided
from ..planner.machines import Gpu, find_gpu, gpus
from ..planner.rates import Rates
from ..planner.training_step import compute_time
from ..tasks import lm, translate
from ..train.loop import LoopSettings, train
from ..train.loss import Loss
from ..train.optimizer import adamw
from ..train.schedule import constant
from .peers import Place, Variant, in_half
from .units import RATE, SEED, pairs, prompts, sources, windows
from .work import (
    END,
    FULL,
    Decode,
    DecodeGPT2,
    DecodeLlama,
    TrainGPT2,
    TrainTransformer,
    Translate,
    Work,
    dropout_of,
    start_token,
)

NEVER = -1e4  # the score of tokens that nobody is to write
LOOP = "the loop of `heedful train`, which also checks every loss and gradient; on a GPU, steps are captured"


def variants(work: Work) -> list[Variant]:
    """The plain way first: it is what the others, and heedful's own fast paths, are compared with."""
    if work.trains:
        compiled = Variant("compiled", compiled=True, same_weights=True, differs=LOOP)
        plain = Variant("", same_weights=True, differs=LOOP)
        return [plain, compiled, in_half(compiled), Variant("bare step", same_weights=True)]
    return [Variant("", same_weights=True), Variant("int8", same_weights=True, numbers="int8", device="cpu")]


def build(work: Work, variant: Variant, place: Place) -> Callable[[], Any]:
    """Ready to do one unit of work a call."""
    torch.manual_seed(SEED)
    model = model_of(work, place)
    if isinstance(work, TrainGPT2):
        return stepping(model, lm.WindowBatch(windows(work, place)), lm.loss_of, variant, place)
    if isinstance(work, TrainTransformer):
        model.decoder.head.bias = None  # it is zero, and no peer learns one: Marian's is a constant
        return stepping(model, pair_batch(work, place), translate.loss_of, variant, place)
    model = model.to(place.dtype).eval()
    return writing(for_decoding(model, variant.numbers or "fp32"), work, place)


# Models.


def architecture(work: Work) -> tuple[str, Any]:
    """(family, config) of a work's model, for translation in Marian's layout."""
    if isinstance(work, TrainGPT2 | DecodeGPT2):
        return "gpt2", GPT2Config(
            vocab=work.vocab,
            context=work.length,
            layers=work.layers,
            width=work.width,
            heads=work.heads,
            ffn_width=work.hidden,
            dropout=0.0,
            attention_dropout=0.0,
        )
    if isinstance(work, DecodeLlama):
        return "llama", LlamaConfig(
            vocab=work.vocab,
            context=work.length,
            layers=work.layers,
            width=work.width,
            heads=work.heads,
            kv_heads=work.kv_heads or work.heads,
            ffn_width=work.hidden,
            eps=1e-5,
            tie_embeddings=work.tied,
        )
    if not isinstance(work, TrainTransformer | Translate):
        raise TypeError(f"{type(work).__name__} is not a workload of heedful")
    longest = work.target if isinstance(work, TrainTransformer) else work.new
    return "transformer", TransformerConfig(
        vocab=work.vocab,
        target_vocab=work.vocab,
        context=max(work.source, longest) + 1,
        layers=work.layers,
        decoder_layers=work.layers,
        width=work.width,
        heads=work.heads,
        decoder_heads=work.heads,
        ffn_width=work.hidden,
        decoder_ffn_width=work.hidden,
        sinusoid_layout="halves",
        output_bias=True,
        dropout=dropout_of(work),
    )


def model_of(work: Work, place: Place) -> Any:
    """The work's model with the weights everyone has, or with fresh ones."""
    name, config = architecture(work)
    if place.weights is not None:
        return load(place.weights, place.device).model
    model = family(name).build(config).to(place.device)
    if isinstance(work, TrainGPT2) and work.attention != FULL:
        model.masks = (mask_of(work.attention),)
    return model


def mask_of(attention: str) -> Mask:
    """ "window 256", "strided 64", or "fixed 64", whose blocks end in 8 tokens that all see."""
    kind, _, size = attention.partition(" ")
    made = {"window": lambda n: causal() & window(n), "strided": strided, "fixed": lambda n: fixed(n, 8)}
    return made[kind](int(size))


# Training.


def pair_batch(work: TrainTransformer, place: Place) -> translate.PairBatch:
    source_BS, target_BT = pairs(work, place)
    lengths_B = torch.full((work.batch,), work.source, device=place.device)
    return translate.PairBatch(source_BS, lengths_B, target_BT[:, :-1], target_BT[:, 1:], work.tokens)


def stepping(
    model: nn.Module,
    batch: Any,
    loss_of: Callable[[Any, Any], Loss],
    variant: Variant,
    place: Place,
) -> Callable[[], Any]:
    """`heedful train`, or the step that peers make: without a loop around it."""
    model = for_training(model, variant.compiled)
    optimizers = adamw(model, RATE, 0.1)
    device = torch.device(place.device)
    if variant.name != "bare step":
        settings = LoopSettings(
            RATE, constant(0), sys.maxsize, clip=0.0, precision=place.precision, device=device
        )
        given = (model, lambda step: [batch], loss_of, optimizers, settings)
        steps = train_async(*given, steady=True) if device.type == "cuda" else train(*given)
        return lambda: next(steps).loss

    def step() -> torch.Tensor:
        with place.autocast():
            loss = loss_of(model, batch).total / batch.count
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    model.train()
    return step


# Decoding.


def writing(model: FastModel, work: Work, place: Place) -> Callable[[], Any]:
    """Greedy, or by beam; no token ends a sentence."""
    if isinstance(work, Decode):
        prompts_BT = prompts(work, place)
        room = prompts_BT.shape[1] + work.new

        def written() -> list[list[int]]:
            step = model.step(room=room)
            return [found.tokens for found in greedy(step, prompts_BT, longest=work.new)]

        return written
    if not isinstance(work, Translate):
        raise TypeError(f"{type(work).__name__} writes nothing")
    source_BS = sources(work, place)
    start_B1 = torch.full((work.batch, 1), start_token(work), device=place.device)
    settings = BeamSettings(width=work.beam)

    def translated() -> list[list[int]]:
        step = model.step(source_BS, room=1 + work.new)
        if work.beam == 1:
            return [found.tokens for found in greedy(step, start_B1, longest=work.new)]
        searched = beam_search(step, start_B1, longest=work.new, eos=None, settings=settings)
        return [found[0].tokens for found in searched]

    return translated


# What everyone starts from, and what it costs.


@torch.no_grad()
def prepare(work: Work, place: Place, folder: Path) -> dict[str, Any]:
    """Write the weights as a Hugging Face folder; give the answer they lead to, plainly and in fp32."""
    torch.manual_seed(SEED)
    name, config = architecture(work)
    model = family(name).build(config)
    special = {}
    if not work.trains:
        enliven(model, name)
    if isinstance(work, TrainTransformer | Translate):
        special = {"pad": start_token(work), "decoder_start": start_token(work), "eos": END}
    if isinstance(work, Translate):
        # Marian's padding begins a translation, from zeros; neither it nor the end is ever written.
        model.encoder.inputs.tokens.weight[start_token(work)] = 0
        model.decoder.head.bias[[start_token(work), END]] = NEVER
    write(Loaded(name, config, model, None, special), folder)
    model = model.to(place.device).eval()
    if isinstance(work, TrainGPT2 | TrainTransformer):
        made = (
            lm.WindowBatch(windows(work, place)) if isinstance(work, TrainGPT2) else pair_batch(work, place)
        )
        loss_of: Any = lm.loss_of if isinstance(work, TrainGPT2) else translate.loss_of
        return {"answer": float(loss_of(model, made).total / made.count)}
    return {"answer": writing(FastModel(model), work, place)()}


# Factors of query, attention output and feed-forward output matrices.
LIVELY = {"gpt2": (9.0, 6.0, 6.0), "llama": (9.0, 6.0, 6.0), "transformer": (8.0, 0.5, 2.0)}


def enliven(model: nn.Module, name: str) -> None:
    """Make every token depend on all that was read. Fresh weights write one token over and over, whatever
    they read, and then an equal answer would say nothing.

    Attention that is nearly uniform is made sharper; feed-forward layers count for more beside the
    residual, and what a ReLU always adds is taken off (the mean of relu(z) for z ~ N(0, s^2) is s / sqrt(2
    pi)).
    """
    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            module.query.weight *= LIVELY[name][0]
            module.out.weight *= LIVELY[name][1]
        elif isinstance(module, GatedFeedForward):
            module.down.weight *= LIVELY[name][2]
        elif isinstance(module, FeedForward):
            module.down.weight *= LIVELY[name][2]
            if name == "transformer":
                hidden, width = module.up.weight.shape
                mean = math.sqrt(2 * width / (width + hidden) / (2 * math.pi))
                module.down.bias.sub_(mean * module.down.weight.sum(1))


def predict(work: Work, place: Place) -> dict[str, Any]:
    """What `heedful info` says of a work: parameters, FLOPs of a unit, bytes of memory."""
    name, config = architecture(work)
    model = skeleton(name, config)
    if not isinstance(work, TrainGPT2 | TrainTransformer):
        return {"parameters": count_parameters(model)}
    found = costs_of(model, work, place.precision)
    memory = found.memory["training"]
    told = {"parameters": found.parameters, "flops": 3 * found.whole.flops, "memory": memory}
    gpu = gpu_called(torch.cuda.get_device_name() if place.device == "cuda" else None)
    return told if gpu is None else told | {"seconds": seconds_of(model, work, gpu, compiled=False)}


def seconds_of(model: Any, work: TrainGPT2 | TrainTransformer, gpu: Gpu, compiled: bool) -> float:
    """The seconds that the planner predicts of a training step on one GPU."""
    return compute_time(Rates(gpu), model, costs_of(model, work, "bf16"), compiled=compiled).step()


def gpu_called(name: str | None) -> Gpu | None:
    """The GPU of the planner's table that calls itself so, such as "NVIDIA H200"."""
    known = [key for key in gpus() if key.upper() in (name or "").upper().replace("-", " ").split()]
    return find_gpu(known[0]) if known else None


def costs_of(model: Any, work: TrainGPT2 | TrainTransformer, precision: str) -> Costs:
    if isinstance(work, TrainGPT2):
        return costs(model, work.batch, work.length, precision=precision)
    return costs(model, work.batch, work.target, work.source, precision=precision)
