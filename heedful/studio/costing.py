"""What a model costs, in a worker: its own sizes or others, this machine's rates, and one step measured."""

from __future__ import annotations

import copy
import statistics
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from ..bench.machine import copy_rate, finished, memory_of, product_rate
from ..bench.table import NOTHING, rate, size
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
from ..inside.costs.estimate import PRECISIONS
from ..inside.costs.models import FROZEN
from ..inside.costs.part import Part
from ..inside.costs.sizes import growth
from ..inside.drawing import DrawnShell, drawing
from ..models import family
from ..models.base.shells import Decoder, DecoderClassifier, EncoderDecoder
from ..models.base.skeleton import skeleton
from ..models.vit import PatchInputs
from ..parts.watch import Watchable, watch
from ..service.methods import Given, Method, Work
from ..use.model import Model
from .tracing import over

LENGTH = 32  # tokens, unless the request says how many
MOST_FLOPS = {"cpu": 1e11, "cuda": 2e13}  # of a step that is measured: seconds
POINTS = 40  # of the curve of shares
TIMED = 5  # steps whose median is told
SIDE = {"cpu": 1024, "cuda": 8192}  # of the matrices that are multiplied
COPIED = {"cpu": 1 << 27, "cuda": 1 << 31}  # bytes
IN_WORDS = {
    "pre-norm": "norm before each layer",
    "post-norm": "norm after each sum",
    "sandwich": "norm before and after each layer",
    "parallel": "attention and feed-forward side by side",
    "Causal": "causal mask: later tokens are hidden",
    "Full": "no mask: every token sees all",
}
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def describe(model: Model, given: Given, blob: bytes) -> Work:
    """What the model is made of, and what a batch of some length costs, also with other sizes."""
    config, network = sized(model, given)
    yield None
    found = costs_of(network, given)
    told: dict[str, Any] = {"architecture": model.architecture, "can": list(model.can)}
    told |= {
        "costs": costs_json(found, config),
        "drawing": [asdict(one) | {"facts": shell_facts(one)} for one in drawing(network)],
    }
    told |= {"lengths": [limits and list(limits) for limits in lengths_of(network)]}
    if given.get("room"):
        yield None
        told |= further(model, config, network, found, given)
    told |= {"table": table_of(found, told.get("groups", [])), "code": code_of(model, found, given)}
    yield over(told)


def shell_facts(shell: DrawnShell) -> list[str]:
    """How a shell treats norms, positions and masks, in words."""
    places = {"added to the embeddings": shell.input_position, "inside the attention": shell.score_position}
    positions = [f"{name} positions, {place}" for place, name in places.items() if name]
    masks = [IN_WORDS.get(name, name) for name in shell.masks]
    return [*([IN_WORDS[shell.norm]] if shell.norm in IN_WORDS else []), *positions, *masks]


def sized(model: Model, given: Given) -> tuple[Any, Any]:
    """The config and network of a request: the model's own, or those of other sizes, without numbers."""
    if not given.get("config"):
        return model.config, body(model)
    config = changed(model.config, given["config"])
    return config, bones(model.architecture, config)


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
def crossover_of(architecture: str, config: Any) -> tuple[int | None, list[int], list[float]]:
    """The crossover of a model, and the share of FLOPs between queries and keys at lengths around it."""
    network = bones(architecture, config)
    beyond, grows = crossover(network), growth(network)
    far = 3 * (beyond or 2**12)
    lengths = [max(1, far * point // POINTS) for point in range(POINTS + 1)]
    return beyond, lengths, [grows.share(length) for length in lengths]


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
    beyond, lengths, shares = crossover_of(model.architecture, config)
    return {
        "fields": fields_of(config, network, found, given["room"]),
        "rows": [row for part in found.whole.parts for row in rows_of(part, 0)],
        "crossover": beyond,
        "crossing": crossing(beyond, found),
        "curve": {"lengths": lengths, "shares": shares},
        "groups": groups_of(network, found, given),
    }


def crossing(beyond: int | None, found: Costs) -> dict[str, str]:
    """Where attention begins to cost most, in a sentence."""
    first = f"From {beyond:,} tokens on" if beyond else "At no length"
    share = 100 * found.pairs / max(1, found.whole.flops)
    return {
        "text": f"{first}, n² costs more than all the rest; here it is {share:.1f} %.",
        "from": "the least length at which half of all FLOPs are between queries and keys; "
        "a source is taken to be as long",
    }


def fields_of(config: Any, network: Any, found: Costs, room: int) -> list[dict[str, Any]]:
    """What can be chosen. slide: the least and greatest of a number on a slider."""
    own, other = lengths_of(network)
    rooms = [f"{size} GiB" for size in sorted({*ROOMS, room // 2**30})]
    fields = [
        field("length", found.length, "tokens of a text", slide=[own[0], own[1] or FAR]),
        field("batch", found.batch, "texts", slide=[1, 4096]),
        field("precision", found.precision, "of matrix products", tuple(PRECISIONS)),
        field("memory", f"{room // 2**30} GiB", "of the device", rooms),
    ]
    if other is not None:
        ends = [other[0], other[1] or FAR]
        fields.insert(1, field("source_length", found.source_length, "tokens of a source", slide=ends))
    fields = [one for one in fields if not one["slide"] or one["slide"][0] < one["slide"][1]]
    return fields + [
        field(name, getattr(config, name), one.help, one.choices)
        for name, one in sizes_of(config).items()
        if name != "context" or own[1] is not None  # else nothing depends on it
    ]


def field(name: str, value: Any, about: str, choices: Any = (), slide: Any = ()) -> dict[str, Any]:
    words = ["FFN" if word == "ffn" else "KV" if word == "kv" else word for word in name.split("_")]
    label = words[0][0].upper() + " ".join(words)[1:]
    return {
        "name": name, "label": label, "value": value, "about": about, "choices": choices, "slide": slide,
    }  # fmt: skip


def rows_of(part: Part, depth: int) -> list[dict[str, Any]]:
    """A part and those inside it, one row each; those without parameters and FLOPs are left out."""
    if not (part.parameters or part.flops):
        return []
    own = {"depth": depth, "name": part.name, "parameters": part.parameters, "flops": part.flops}
    said = f"{part.detail}: " if part.detail else ""
    own |= {"pairs": part.pairs, "from": f"{said}{part.parameters:,} parameters; FLOPs = {formula_of(part)}"}
    return [own, *(row for one in part.parts for row in rows_of(one, depth + 1))]


def formula_of(part: Part) -> str:
    if part.parts:
        return "the sum of its parts"
    return part.formula or ("as counted by torch" if part.flops else "0")


def groups_of(network: Any, found: Costs, given: Given) -> list[dict[str, Any]]:
    """Bars of memory with the largest batch that fits, and of seconds where the rates are known."""
    shape = (found.length, found.source_length, found.precision)
    groups: list[dict[str, Any]] = []
    for use, names in USES.items():
        most = largest_batch(network, given["room"], *shape, use)
        said = "" if most is None else f"Largest batch that fits: {most:,}"
        bars = memory_bars(found, use, names)
        groups.append({"name": TITLES[use], "items": bars, "largest": most, "said": said})
    if given.get("flops_rate") and given.get("bandwidth"):
        predicted = seconds(found, given["flops_rate"], given["bandwidth"]).items()
        items = [bar(TIMES[name], one.value, duration(one.value), one.formula) for name, one in predicted]
        groups.append({"name": "Predicted time", "items": items, "largest": None, "said": ""})
    return groups


def table_of(found: Costs, groups: list[dict[str, Any]]) -> list[list[Any]]:
    """All numbers as a table: every part, then the bars."""
    rows = [row for part in found.whole.parts for row in rows_of(part, 0)]
    names = ("depth", "name", "parameters", "flops", "pairs")
    bars = [[group["name"], one["name"], one["value"]] for group in groups for one in group["items"]]
    return [[*names], *([row[name] for name in names] for row in rows), *bars]


def code_of(model: Model, found: Costs, given: Given) -> str:
    """The Python that gives the same numbers."""
    return f"""import heedful
from heedful.inside.costs import changed, costs, crossover
from heedful.models.base.skeleton import skeleton

loaded = heedful.load({str(model.folder)!r})
model = skeleton(loaded.architecture, changed(loaded.config, {given.get("config") or {}}))
found = costs(model, {found.batch}, {found.length}, {found.source_length}, {found.precision!r})
found.parameters, found.whole.flops, found.pairs, found.memory, crossover(model)
"""


FAR = 2**14  # tokens: where a slider ends, unless the model has an end of its own
ROOMS = (4, 8, 16, 24, 40, 80)  # GiB
USES = {
    "training": ("weights", "gradients", "optimizer", "copies", "activations", "logits"),
    "inference": ("weights", "cache"),
}
TITLES = {"training": "Memory to train", "inference": "Memory to use"}
TIMES = {"forward": "forward pass", "training": "training step", "token": "decoded token"}


def memory_bars(found: Costs, use: str, names: tuple[str, ...]) -> list[dict[str, Any]]:
    """Bytes by kind, and their sum."""
    memory, formulas = dict(found.memory), memory_formulas(found)
    if use == "inference":  # in the precision of the matrix products
        memory["weights"] = memory["inference"] - memory["cache"]
        formulas["weights"] = formulas["inference"].removesuffix(" + cache")
    bars = [bar(name, memory[name], size(memory[name]), formulas[name]) for name in names if memory[name]]
    return [*bars, bar("together", memory[use], size(memory[use]), formulas[use])]


def bar(name: str, value: float, text: str, formula: str) -> dict[str, Any]:
    return {"name": name, "value": value, "text": text, "from": formula}


def duration(seconds: float) -> str:
    """Seconds for people."""
    for unit, scale in (("s", 1.0), ("ms", 1e3)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"


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
    own |= {"flops": part.flops, "pairs": part.pairs, "kept": part.kept}
    read, detail = shapes.of(part.name, shell), f" ({part.detail})" if part.detail else ""
    counts = f"{part.parameters:,} parameters, {part.flops:,} FLOPs"
    own |= {"shapes": read, "from": f"{part.name}{detail}: {read}{'; ' if read else ''}{counts}"}
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
    bandwidth = copy_rate(COPIED[kind], kind)
    rows = [
        {"text": rate(flops_rate, "FLOP/s"), "from": "median over a second: a product of large matrices"},
        {"text": rate(bandwidth, "B/s"), "from": "median over a second: a copy in memory, read and written"},
    ]
    yield over({"flops_rate": flops_rate, "bandwidth": bandwidth, "device": kind, "rows": rows})


def device_of(model: Model) -> torch.device:
    return next(model.model.parameters()).device


# One step, measured.


def verify(model: Model, given: Given, blob: bytes) -> Work:
    """One training step on random tokens: seconds, FLOPs and memory, predicted and measured."""
    device = device_of(model)
    config, network = sized(model, given)
    found = costs_of(network, given)
    refuse_large(found, device)
    other = given.get("config")
    network = family(model.architecture).build(config).to(device) if other else copy.deepcopy(network)
    step = OneStep(network.train(), found, device)
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
    expected, took = predicted_seconds(found, given), statistics.median(spans)
    rows = [
        compared("FLOPs", 3 * found.whole.flops, flops, lambda x: rate(x, ""), COUNTED),
        compared("memory", found.memory["training"], memory, size, "tensors alive at once, at most"),
        compared("time", expected, took, duration, f"median of {TIMED} steps"),
    ]
    yield over({"rows": rows, "batch": found.batch, "length": found.length})


COUNTED = "counted by torch, which does not see into fused LSTM kernels"


def compared(
    name: str, predicted: float | None, measured: float, text: Callable[[Any], str], how: str
) -> dict[str, Any]:
    """A line of the table: both numbers, and as people read them."""
    before = NOTHING if predicted is None else text(predicted)
    said = f"{name}: {before} predicted, {text(measured)} measured"
    return {"name": name, "predicted": predicted, "measured": measured, "text": said, "from": how}


def predicted_seconds(found: Costs, given: Given) -> float | None:
    """The seconds of a training step; None before the machine was measured."""
    if not (given.get("flops_rate") and given.get("bandwidth")):
        return None
    return seconds(found, given["flops_rate"], given["bandwidth"])["training"].value


def refuse_large(found: Costs, device: torch.device) -> None:
    """Refuse a step that would take minutes, or more memory than half of what is free."""
    flops, room, most = 3 * found.whole.flops, memory_of(device.type), MOST_FLOPS[device.type]
    if flops > most:
        raise BadInput(
            f"a step would take {flops:.3g} FLOPs, and {most:.3g} are the most that are measured here: "
            f"choose a smaller batch or length"
        )
    if room is not None and found.memory["training"] > room / 2:
        raise BadInput(
            f"a step would take {found.memory['training'] / 2**30:.3g} GiB, more than half of the memory "
            f"that is free: choose a smaller batch or length"
        )
    if any(part.name == FROZEN for part in found.whole.parts):
        raise BadInput("a model with frozen parts is not measured here")


class OneStep:
    """A training step of a network on random input: forward, backward, AdamW."""

    def __init__(self, network: Any, found: Costs, device: torch.device) -> None:
        self.network, self.precision, self.device = network, found.precision, device
        self.inputs = inputs_for(network, found, device)
        self.optimizer = torch.optim.AdamW(network.parameters(), lr=1e-9)

    def loss(self) -> Tensor:
        """A loss that keeps the log-probabilities of the outputs."""
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
