"""What a model costs, in a worker: its own sizes or others, this machine's rates, and one step measured."""

from __future__ import annotations

import copy
import statistics
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from ..bench.machine import copy_rate, finished, memory_of, product_rate
from ..compare.cost import LiveMemory
from ..errors import BadInput
from ..inside.costs import (
    Costs,
    changed,
    costs,
    crossover,
    largest_batch,
    lengths_of,
    memory_formulas,
    seconds,
    sizes_of,
)
from ..inside.costs.models import FROZEN
from ..inside.costs.part import Part
from ..inside.drawing import drawing
from ..models import family
from ..models.base.shells import Decoder, DecoderClassifier, EncoderDecoder
from ..models.base.skeleton import skeleton
from ..models.vit import PatchInputs
from ..parts.watch import Watchable, watch
from ..service.methods import Given, Method, Work
from ..use.model import Model
from .tracing import over

LENGTH = 32  # tokens, unless the request says how many
MOST_FLOPS = 2e12  # of a step that is measured
TIMED = 5  # steps whose median is told
SIDE = {"cpu": 1024, "cuda": 8192}  # of the matrices that are multiplied
COPIED = {"cpu": 1 << 27, "cuda": 1 << 31}  # bytes
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def describe(model: Model, given: Given, blob: bytes) -> Work:
    """What the model is made of, and what a batch of some length costs, also with other sizes."""
    config, network = model.config, body(model)
    if given.get("config"):
        config = changed(config, given["config"])
        network = bones(model.architecture, config)
    yield None
    found = costs_of(network, given)
    told: dict[str, Any] = {"architecture": model.architecture, "can": list(model.can)}
    told |= {"costs": costs_json(found, config), "drawing": [asdict(one) for one in drawing(network)]}
    told |= {"lengths": [limits and list(limits) for limits in lengths_of(network)]}
    if given.get("room"):
        yield None
        told |= further(model, config, network, found, given)
    yield over(told)


def body(model: Model) -> Any:
    """The network whose parts are counted."""
    return model.model.decoder if isinstance(model.model, DecoderClassifier) else model.model


@lru_cache(8)
def bones(architecture: str, config: Any) -> Any:
    """A model of other sizes, with shapes and no numbers."""
    try:
        return skeleton(architecture, config)
    except ValueError as error:
        raise BadInput(str(error)) from None


@lru_cache(64)
def crossover_of(architecture: str, config: Any) -> int | None:
    return crossover(bones(architecture, config))


def costs_of(network: Any, given: Given) -> Costs:
    """The costs at the length of a request, brought into the range that the model allows."""
    own, other = lengths_of(network)
    length = within(given.get("length") or LENGTH, *own)
    source = None if other is None else within(given.get("source_length") or LENGTH, *other)
    return costs(network, given.get("batch", 1), length, source, given.get("precision", "fp32"))


def within(number: int, least: int, most: int | None) -> int:
    return max(least, number if most is None else min(number, most))


def further(model: Model, config: Any, network: Any, found: Costs, given: Given) -> dict[str, Any]:
    """What only the page of costs shows: sizes to change, formulas, the crossover, batches, seconds."""
    sizes = sizes_of(config)
    shape = (found.length, found.source_length, found.precision)
    told: dict[str, Any] = {
        "sizes": [
            {"name": name, "value": getattr(config, name), "choices": one.choices, "about": one.help}
            for name, one in sizes.items()
        ],
        "formulas": memory_formulas(found),
        "crossover": crossover_of(model.architecture, config),
        "largest": {
            use: largest_batch(network, given["room"], *shape, use) for use in ("training", "inference")
        },
    }
    if given.get("flops_rate") and given.get("bandwidth"):
        predicted = seconds(found, given["flops_rate"], given["bandwidth"])
        told["seconds"] = {name: asdict(figure) for name, figure in predicted.items()}
    return told


def costs_json(found: Costs, config: Any) -> dict[str, Any]:
    """Costs as the page draws them."""
    shapes = Shapes(found, config)
    return {
        "parts": [part_json(part, shapes) for part in found.whole.parts],
        "parameters": found.parameters,
        "active_parameters": found.active,
        "flops": found.whole.flops,
        "pairs": found.pairs,
        "flops_per_token": found.flops_per_token,
        "token": found.tokens,
        "memory": found.memory,
        "batch": found.batch,
        "length": found.length,
        "source_length": found.source_length,
        "precision": found.precision,
    }


def part_json(part: Part, shapes: Shapes, shell: str = "") -> dict[str, Any]:
    shell = part.name if part.name in ("encoder", "decoder") else shell
    own = {"name": part.name, "detail": part.detail, "count": part.count, "parameters": part.parameters}
    own |= {"flops": part.flops, "pairs": part.pairs, "kept": part.kept, "formula": part.formula}
    own |= {"shapes": shapes.of(part.name, shell)}
    if part.parts:
        own["formula"] = ""  # the sum of those below
    return own | {"parts": [part_json(one, shapes, shell) for one in part.parts]}


class Shapes:
    """What parts of a Transformer read and write, as shapes in words; "" of any other part."""

    def __init__(self, found: Costs, config: Any) -> None:
        self.batch, self.length, self.source = found.batch, found.length, found.source_length
        self.width = getattr(config, "width", "D")
        self.words = getattr(config, "target_vocab", None) or getattr(config, "vocab", "V")

    def of(self, name: str, shell: str) -> str:
        B, T, D = self.batch, self.source if shell == "encoder" else self.length, self.width
        x = f"[{B}, {T}, {D}]"
        kinds = {
            "tokens": f"[{B}, {T}] to {x}",
            "head": f"{x} to [{B}, {T}, {self.words}]",
            "cross-attention": f"{x} and [{B}, {self.source}, {D}] to {x}",
        }
        return kinds.get(name, f"{x} to {x}" if name in SAME else "")


# What these write has the shape of what they read.
SAME = ("attention", "feed-forward", "experts", "norms", "final norm", "convolution", "positions")

# This machine.


def calibrate(model: Model, given: Given, blob: bytes) -> Work:
    """The rates of matrix products and of copies, here and in the precision asked for."""
    kind = device_of(model).type
    flops_rate = product_rate(SIDE[kind], kind, DTYPES[given.get("precision", "fp32")])
    yield {"progress": {"done": 1, "total": 2}}
    yield over({"flops_rate": flops_rate, "bandwidth": copy_rate(COPIED[kind], kind), "device": kind})


def device_of(model: Model) -> torch.device:
    return next(model.model.parameters()).device


# One step, measured.


def verify(model: Model, given: Given, blob: bytes) -> Work:
    """One training step on random tokens: seconds, FLOPs and memory, predicted and measured."""
    device = device_of(model)
    config = changed(model.config, given["config"]) if given.get("config") else model.config
    bare = bones(model.architecture, config) if given.get("config") else body(model)
    found = costs_of(bare, given)
    refuse_large(found, device)
    same = not given.get("config")
    network = copy.deepcopy(body(model)) if same else family(model.architecture).build(config).to(device)
    step = Step(network.train(), found, device)
    yield {"progress": {"done": 1, "total": 4}}
    flops = step.flops()
    yield {"progress": {"done": 2, "total": 4}}
    memory = step.memory()
    yield {"progress": {"done": 3, "total": 4}}
    spans = []
    for _ in range(TIMED):
        began = finished(device.type)
        step.make()
        spans.append(finished(device.type) - began)
        yield None
    rows = {
        "FLOPs": [3 * found.whole.flops, flops],
        "bytes": [found.memory["training"], memory],
        "seconds": [predicted_seconds(found, given), statistics.median(spans)],
    }
    yield over({"rows": rows, "batch": found.batch, "length": found.length, "steps": TIMED})


def predicted_seconds(found: Costs, given: Given) -> float | None:
    """Of a training step; None before the machine was measured."""
    if not (given.get("flops_rate") and given.get("bandwidth")):
        return None
    return seconds(found, given["flops_rate"], given["bandwidth"])["training"].value


def refuse_large(found: Costs, device: torch.device) -> None:
    """Refuse a step that would take minutes, or more memory than half of what is free."""
    flops, room = 3 * found.whole.flops, memory_of(device.type)
    if flops > MOST_FLOPS:
        raise BadInput(
            f"a step would take {flops:.3g} FLOPs, and {MOST_FLOPS:.3g} are the most that are measured here: "
            f"choose a smaller batch or length"
        )
    if room is not None and found.memory["training"] > room / 2:
        raise BadInput(
            f"a step would take {found.memory['training'] / 2**30:.3g} GiB, more than half of the memory "
            f"that is free: choose a smaller batch or length"
        )
    if any(part.name == FROZEN for part in found.whole.parts):
        raise BadInput("a model with frozen parts is not measured here")


class Step:
    """A training step of a network on random input: forward, backward, AdamW."""

    def __init__(self, network: Any, found: Costs, device: torch.device) -> None:
        self.network, self.precision, self.device = network, found.precision, device
        self.inputs = inputs_for(network, found, device)
        self.optimizer = torch.optim.AdamW(network.parameters(), lr=1e-9)

    def loss(self) -> Tensor:
        """Of the outputs as log-probabilities, which a loss keeps."""
        half = self.precision == "bf16"
        with torch.autocast(self.device.type, torch.bfloat16) if half else nullcontext():
            found = self.network(*self.inputs)
        outputs = list(found.values()) if isinstance(found, dict) else [found]
        return torch.stack([-x.float().log_softmax(-1)[..., 0].mean() for x in outputs]).sum()

    def make(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        self.loss().backward()
        self.optimizer.step()

    def flops(self) -> int:
        """What torch counts; attention is watched, and so computed by products that torch knows."""
        attends = any(isinstance(module, Watchable) for module in self.network.modules())
        with watch(self.network) if attends else nullcontext(), FlopCounterMode(display=False) as counter:
            self.make()
        return counter.get_total_flops()

    def memory(self) -> int:
        """Bytes of tensors that are alive at once, at most."""
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
            self.make()
            return torch.cuda.max_memory_allocated(self.device)
        self.optimizer.zero_grad(set_to_none=True)
        states = [value for state in self.optimizer.state.values() for value in state.values()]
        there = [*self.network.parameters(), *(value for value in states if isinstance(value, Tensor))]
        with LiveMemory(there) as alive:
            self.make()
        return alive.most


def inputs_for(network: nn.Module, found: Costs, device: torch.device) -> tuple[Tensor, ...]:
    """Random tokens or pixels in the shapes that a network reads."""
    B, T, S = found.batch, found.length, found.source_length
    if isinstance(network, EncoderDecoder):
        return reading(network.encoder, B, S or T, device), tokens(network.decoder, B, T, device)
    shell = network if isinstance(network, Decoder) else getattr(network, "encoder", network)
    return (reading(shell, B, T, device),)


def reading(shell: Any, B: int, T: int, device: torch.device) -> Tensor:
    """What a shell reads: pixels, or tokens."""
    inputs = shell.inputs
    if isinstance(inputs, PatchInputs):
        channels = inputs.embedding.in_features // inputs.patch**2
        return torch.rand(B, channels, inputs.image, inputs.image, device=device)
    return tokens(shell, B, T, device)


def tokens(shell: Any, B: int, T: int, device: torch.device) -> Tensor:
    return torch.randint(shell.inputs.tokens.weight.shape[0], (B, T), device=device)


def cost_methods() -> Mapping[str, Method]:
    """The methods of a worker that say what its model costs."""
    return {"describe": describe, "calibrate": calibrate, "verify": verify}
