"""Training steps of small models, alone or spread over processes: many cases in one start of the processes.

    torchrun --nproc-per-node 4 tests/helpers/parallel_cases.py CASES ANSWERS

CASES is JSON, a list of the fields of `Case`. The leading process writes what became of each to ANSWERS. A
step has the same four micro-batches whatever the number of processes.
"""

import json
import sys
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from heedful.fast.training import for_training
from heedful.models import config_class, family
from heedful.parts.blocks import Stack
from heedful.parts.lora import Lora, adapt
from heedful.tasks import lm, translate
from heedful.tasks.translate_rows import PairBatch
from heedful.train import average, loop, optimizer, processes, schedule
from heedful.train.loss import NOTHING
from heedful.train.muon import Muon
from heedful.train.parallel import replicate
from heedful.train.parallel.spread import spread
from heedful.train.parallel.way import ProcessGrid, read_way
from heedful.train.processes import whole

CPU = torch.device("cpu")
MICROS, ROWS, LENGTH, VOCAB = 4, 2, 7, 29  # 29 words: parts of a vocabulary are not equal
BUCKET = 4096  # bytes
SCATTER = "reduce_scatter_single" if hasattr(dist, "reduce_scatter_single") else "reduce_scatter_tensor"
SIZES = {"vocab": VOCAB, "width": 16, "heads": 4, "ffn_width": 24, "layers": 2}
LONE = {"context": LENGTH}
STILL = {"dropout": 0.0, "attention_dropout": 0.0}
MODELS: dict[str, dict[str, Any]] = {
    "gpt2": SIZES | LONE | STILL,
    "llama": SIZES | LONE | {"kv_heads": 2, "key_width": 4},
    "mixture": SIZES | LONE | STILL | {"experts": 3, "top_k": 2, "router": "switch"},  # without noise
    "transformer": SIZES
    | STILL
    | {"target_vocab": VOCAB, "decoder_layers": 2, "decoder_heads": 4, "decoder_ffn_width": 24},
}


@dataclass(frozen=True)
class Case:
    """A model, and how it is trained."""

    architecture: str
    way: str = "ddp"
    local: int = 0  # processes on a machine; 0: all of them
    optimizer: str = "adamw"
    ema: bool = False
    lora: bool = False
    recompute: bool = False
    smoothing: float = 0.0
    compiled: bool = False
    sizes: dict[str, Any] = field(default_factory=dict)
    steps: int = 4

    @property
    def alone(self) -> "Case":
        """The same in one process."""
        return Case(**{**vars(self), "way": "ddp", "local": 0, "compiled": False})


def micro_batch(architecture: str, step: int, number: int) -> Any:
    """Rows of words; a sentence pair has padding on both sides, and not everywhere the same."""
    dice = torch.Generator().manual_seed(100 * step + number)
    rows = torch.randint(1, VOCAB, (ROWS, LENGTH + 1), generator=dice)
    if architecture != "transformer":
        return lm.WindowBatch(rows)
    answers = rows[:, 1:].clone()
    answers[0, 3 + number % 3 :] = NOTHING
    lengths = torch.tensor([LENGTH, 4 + number % 3])
    return PairBatch(rows[:, 1:], lengths, rows[:, :-1], answers, int((answers != NOTHING).sum()))


def made(case: Case) -> torch.nn.Module:
    torch.manual_seed(0)
    kind = config_class(case.architecture)
    model = family(case.architecture).build(kind(**MODELS[case.architecture] | case.sizes))
    if case.lora:
        for weight in model.parameters():
            weight.requires_grad_(False)
        adapt(model, Lora(rank=3, layers=("query", "value", "out", "up", "down")))
        for name, weight in model.named_parameters():
            if name.endswith(".B"):
                torch.nn.init.normal_(weight, std=0.1)
    return model


def trained(case: Case, world: processes.World) -> dict[str, Any]:
    """Losses and norms of all steps, and the weights that come out: the sum of each one's squares."""
    model, task = made(case), translate if case.architecture == "transformer" else lm
    way = read_way(case.way)
    grid = way.grid(world.size, case.local or world.size) if world.size > 1 else ProcessGrid()
    world = world.in_groups(way.tensor)
    for module in model.modules():
        if isinstance(module, Stack):
            module.recompute = case.recompute
    loop_model = for_training(model, compiled=case.compiled, several=True)

    def loss_of(model, batch):
        return task.loss_of(model, batch, case.smoothing)

    if grid.size > 1:
        loop_model, loss_of = spread(model, loss_of, grid, CPU)
    optimizers = optimizer.OPTIMIZERS[case.optimizer](model, 1e-2, 0.1)
    for one in optimizers:
        if isinstance(one, Muon):
            one.together = grid.size > 1
    ema = average.MovingAverage(model, 0.9) if case.ema else None

    def batches(step: int) -> list[Any]:
        each = MICROS // world.shares
        mine = range(world.share * each, (world.share + 1) * each)
        return [micro_batch(case.architecture, step, number) for number in mine]

    settings = loop.LoopSettings(rate=1e-2, schedule=schedule.constant(2), steps=case.steps, seed=1, clip=0.5)
    seen = []
    for progress in loop.train(loop_model, batches, loss_of, optimizers, settings, world=world):
        seen.append([progress.loss, progress.norm, progress.tokens])
        if ema is not None:
            ema.after(progress.step, model)
    with nullcontext() if ema is None else ema.in_place_of(model):
        sizes = {
            name: float(whole(weight.detach()).square().sum()) for name, weight in model.named_parameters()
        }
    return {"steps": seen, "weights": sizes}


def one_step(world: processes.World, way: str, size: dict[str, int]) -> tuple[torch.nn.Module, list[list]]:
    """A model after the backward passes of a step, and what happened meanwhile, in order."""
    events: list[list] = []
    model = made(Case("gpt2", sizes={"layers": 6, **size}))
    add_up, scatter = replicate.add_up, getattr(dist, SCATTER)

    def noted(state, bucket):
        events.append(["sum", bucket.buffer().untyped_storage().data_ptr()])
        return add_up(state, bucket)

    def noted_scatter(*given, **more):
        events.append(["sum", 0])
        return scatter(*given, **more)

    replicate.add_up = noted
    setattr(dist, SCATTER, noted_scatter)
    try:
        grid = read_way(way).grid(world.size, world.size)
        loop_model, loss_of = spread(model, lm.loss_of, grid, CPU, bucket_megabytes=BUCKET / 2**20)
        for number, block in enumerate(model.stack.blocks):
            block.register_full_backward_hook(lambda *given, number=number: events.append(["block", number]))
        settings = loop.LoopSettings(rate=0.0, schedule=schedule.constant(1), steps=1)
        micro = [micro_batch("gpt2", 0, number) for number in (0, 1)]
        loop.accumulate(loop_model, micro, loss_of, 100, settings, None)
    finally:
        replicate.add_up = add_up
        setattr(dist, SCATTER, scatter)
    return model, events


def observed(world: processes.World) -> dict[str, Any]:
    """When sums over processes are made, and where gradients lie."""
    model, events = one_step(world, "ddp", {})
    _, sharded = one_step(world, "fsdp", {})
    lie_in = {grad.untyped_storage().data_ptr(): grad.untyped_storage().nbytes() for grad in gradients(model)}
    return {
        "ddp": events,
        "fsdp": sharded,
        "weights": sum(weight.nbytes for weight in model.parameters()),
        "gradients": lie_in,
    }


def gradients(model: torch.nn.Module) -> list[torch.Tensor]:
    return [weight.grad for weight in model.parameters() if weight.grad is not None]


def main(cases: str, answers: str) -> None:
    torch.set_num_threads(1)
    world = processes.join_world(CPU)
    found = [trained(Case(**fields), world) for fields in json.loads(Path(cases).read_text())]
    if world.size == 2:
        found.append(observed(world))
    if world.leads:
        Path(answers).write_text(json.dumps(found))
    processes.leave_world(world)


if __name__ == "__main__":
    main(*sys.argv[1:])
