"""Training steps, alone or together: `torchrun --nproc-per-node 2 tests/helpers/train_together.py ddp`.

Prints the losses, from the leading process. The global batch of a step is the same whatever the number of
processes.
"""

import sys

import torch

from heedful.models import gpt2
from heedful.tasks import lm
from heedful.train import loop, optimizer, processes, schedule
from heedful.train.parallel.spread import spread
from heedful.train.parallel.way import read_way

ROWS, LENGTH, VOCAB = 6, 9, 29


def main(kind: str, optimizer_kind: str = "adamw") -> None:
    torch.set_num_threads(1)
    device = torch.device("cpu")
    world = processes.join_world(device)
    torch.manual_seed(0)
    config = gpt2.GPT2Config(
        vocab=VOCAB,
        context=LENGTH,
        layers=2,
        width=12,
        heads=3,
        ffn_width=20,
        dropout=0.0,
        attention_dropout=0.0,
    )
    model = gpt2.build(config)
    loss_of = lm.loss_of
    if world.size > 1:
        model, loss_of = spread(model, loss_of, read_way(kind).grid(world.size, world.size), device)
    optimizers = optimizer.OPTIMIZERS[optimizer_kind](model, 1e-2, 0.1)

    def batches(step: int) -> list[lm.WindowBatch]:
        rows = torch.randint(VOCAB, (ROWS, LENGTH + 1), generator=torch.Generator().manual_seed(step))
        mine = rows.chunk(world.size)[world.rank]
        return [lm.WindowBatch(part) for part in mine.split(2)]  # two or more micro-batches

    settings = loop.LoopSettings(rate=1e-2, schedule=schedule.constant(3), steps=8, seed=1)
    for progress in loop.train(model, batches, loss_of, optimizers, settings, world=world):
        if world.leads:
            print(f"{progress.loss:.9f} {progress.norm:.9f} {progress.tokens}", flush=True)
    processes.leave_world(world)


if __name__ == "__main__":
    main(*sys.argv[1:])
