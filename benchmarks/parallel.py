"""What DistributedDataParallel and FSDP2 cost on one GPU: a training step of GPT-2 124M beside the plain one.

    torchrun --nproc-per-node 1 -m benchmarks.parallel
    torchrun --nproc-per-node 1 -m benchmarks.parallel --tiny       # on a CPU, to try the script

Each way makes the steps of heedful's training loop on the same random text. "loop" is the loop that several
processes have, without anything around the model; "async" is the one that a single GPU has, in which the
host runs ahead. The ways take turns, so that a slow minute hurts them all. Printed are the median
milliseconds of a step, and the ratio to the loop's with the spread of the turns.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from heedful.fast.async_loop import train_async
from heedful.fast.training import for_training
from heedful.models import gpt2
from heedful.tasks import lm
from heedful.train import loop, optimizer, schedule
from heedful.train.loop import LoopSettings, Progress
from heedful.train.parallel.replicate import replicate
from heedful.train.parallel.shard import shard
from heedful.train.parallel.wrapped import loss_within

ROWS, TURNS, STEPS, WARM = 16, 5, 6, 3  # of 1024 tokens; turns of each way; steps of a turn; thrown away
TINY = gpt2.GPT2Config(vocab=99, context=32, layers=2, width=32, heads=2, ffn_width=64)


def steps_of(way: str, compiled: bool, config: gpt2.GPT2Config, device: torch.device) -> Iterator[Progress]:
    """The endless steps of a way."""
    torch.manual_seed(0)
    model = gpt2.build(config).to(device)
    trained: Any = for_training(model, compiled=compiled, several=way in ("ddp", "fsdp"))
    loss_of: Callable[..., Any] = lm.loss_of
    if way == "ddp":
        trained, loss_of = replicate(model), loss_within(loss_of)
    elif way == "fsdp":
        trained, loss_of = shard(model, init_device_mesh(device.type, (1,))), loss_within(loss_of)
    optimizers = optimizer.adamw(model, 1e-4, 0.1)
    half = "bf16" if device.type == "cuda" else "fp32"
    settings = LoopSettings(1e-4, schedule.constant(1), 10**6, precision=half, device=device)
    rows = torch.randint(config.vocab, (ROWS, config.context + 1), generator=torch.Generator().manual_seed(1))

    def batches(step: int) -> list[lm.WindowBatch]:
        return [lm.WindowBatch(rows)]

    if way == "async":
        return train_async(trained, batches, loss_of, optimizers, settings, steady=True)
    return loop.train(trained, batches, loss_of, optimizers, settings)


def settle(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def compare(compiled: bool, config: gpt2.GPT2Config, device: torch.device, ways: list[str]) -> None:
    """Let the ways take turns, and print what they took."""
    running = {way: steps_of(way, compiled, config, device) for way in ways}
    for steps in running.values():
        list(islice(steps, WARM))
    settle(device)
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(TURNS):
        for way in ways if turn % 2 == 0 else ways[::-1]:
            began = time.perf_counter()
            list(islice(running[way], STEPS))
            settle(device)
            seconds[way].append((time.perf_counter() - began) / STEPS)
    for way in ways:
        ratios = [a / b for a, b in zip(seconds[way], seconds["loop"], strict=True)]
        print(
            f"compile {'on ' if compiled else 'off'}  {way:5}"
            f"  {1000 * statistics.median(seconds[way]):8.2f} ms"
            f"  {statistics.median(ratios):.3f} of the loop ({min(ratios):.3f} to {max(ratios):.3f})",
            flush=True,
        )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--tiny", action="store_true", help="a tiny model on a CPU")
    tiny = options.parse_args().tiny
    device = torch.device("cpu") if tiny else torch.device("cuda", 0)
    torch.set_float32_matmul_precision("high")
    dist.init_process_group("gloo" if tiny else "nccl")
    began = time.perf_counter()
    config = TINY if tiny else gpt2.PRESETS["gpt2"]
    ways = ["loop", "ddp", "fsdp"] + ([] if tiny else ["async"])  # on a CPU nothing runs ahead
    for compiled in (False,) if tiny else (False, True):
        compare(compiled, config, device, ways)
    print(f"{time.perf_counter() - began:.0f} s in all; torch {torch.__version__} on {device}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
