"""Tiny Shakespeare with nanoGPT's CPU settings, beside nanoGPT: `python -m benchmarks.beside_nanogpt
CHECKOUT`.

CHECKOUT is a copy of karpathy/nanoGPT, of which model.py is used (its model and its optimizer); the loop
around it does what its train.py does. Both make 2000 steps of 12 windows of 64 characters, in turns of 100,
in one process; both are judged on all non-overlapping windows of the last tenth.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.train import SHAKESPEARE_CPU
from heedful.data.store import Store
from heedful.fast.training import for_training
from heedful.runs import setup
from heedful.tasks import recipe
from heedful.tasks.task import Job
from heedful.train import loop

STEPS, TURN, CONTEXT, ROWS = 2000, 100, 64, 12
CPU = torch.device("cpu")


def theirs(checkout: Path, stream: np.ndarray, vocab: int) -> tuple[nn.Module, Iterator[float]]:
    """nanoGPT's model, and its steps."""
    spec = importlib.util.spec_from_file_location("nanogpt_model", checkout / "model.py")
    if spec is None or spec.loader is None:
        raise SystemExit(f"{checkout} holds no model.py: it should be a copy of nanoGPT")
    nanogpt: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(nanogpt)
    torch.manual_seed(1337)
    sizes = {"n_layer": 4, "n_head": 4, "n_embd": 128, "block_size": CONTEXT, "vocab_size": vocab}
    model = nanogpt.GPT(nanogpt.GPTConfig(bias=False, dropout=0.0, **sizes))
    optimizer = model.configure_optimizers(0.1, 1e-3, (0.9, 0.99), "cpu")

    def rate(step: int) -> float:
        if step < 100:
            return 1e-3 * (step + 1) / 101
        return 1e-4 + 0.5 * (1 + math.cos(math.pi * (step - 100) / (STEPS - 100))) * 9e-4

    def steps() -> Iterator[float]:
        for step in range(STEPS):
            for group in optimizer.param_groups:
                group["lr"] = rate(step)
            starts = torch.randint(len(stream) - CONTEXT, (ROWS,))
            rows = [torch.from_numpy(stream[i : i + CONTEXT + 1].astype(np.int64)) for i in starts]
            both = torch.stack(rows)
            _, loss = model(both[:, :-1], both[:, 1:].contiguous())
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            yield loss.item()

    return model, steps()


def ours(folder: Path, data: Path) -> tuple[Job, nn.Module, Iterator[Any]]:
    """heedful's, as `heedful train` makes them."""
    text = {"data.text": str(data / "shakespeare" / "input.txt")}
    made = recipe.make("lm", settings=SHAKESPEARE_CPU | text)
    job = setup.make_job(made, folder, setup.SilentReporter())
    model = for_training(setup.new_model(job, made, CPU))
    optimizers, settings = setup.make_optimizers(made, model), setup.loop_settings(made, job, CPU)
    steps = loop.train(model, job.batches, job.loss, optimizers, settings)
    return job, model, steps


@torch.no_grad()
def held_out_loss(model: nn.Module, stream: np.ndarray) -> float:
    """nanoGPT's model on all non-overlapping windows."""
    model.eval()
    starts = np.arange(0, len(stream) - CONTEXT, CONTEXT)
    windows = torch.from_numpy(stream[starts[:, None] + np.arange(CONTEXT + 1)].astype(np.int64))
    losses = [
        (len(part), model(part[:, :-1], part[:, 1:].contiguous())[1].item()) for part in windows.split(64)
    ]
    return sum(rows * loss for rows, loss in losses) / len(windows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("HEEDFUL_DATA", "../shared/data")))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        job, model, mine = ours(Path(folder), options.data)
        train, valid = (Store.open(Path(folder) / split).stream("text") for split in ("train", "valid"))
        peer, other = theirs(options.checkout, np.asarray(train), job.vocab.size)
        seconds = {"heedful": 0.0, "nanoGPT": 0.0}
        for turn in range(STEPS // TURN):
            for name, steps in {"heedful": mine, "nanoGPT": other}.items():
                began = time.perf_counter()
                for _ in islice(steps, TURN):
                    pass
                seconds[name] += time.perf_counter() - began
            print(turn, {name: round(s, 1) for name, s in seconds.items()}, flush=True)
        model.eval()
        with torch.no_grad():
            found = {
                "heedful": job.evaluate(model)["loss"],
                "nanoGPT": held_out_loss(peer, np.asarray(valid)),
            }
    threads = torch.get_num_threads()
    print(json.dumps({"threads": threads, "seconds": seconds, "held-out loss": found}))


if __name__ == "__main__":
    main()
