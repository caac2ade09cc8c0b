"""Real text with published figures: `python -m benchmarks.train shakespeare --data DIR [--device cuda]`.

DIR holds the public files (a checkout of this project finds them in ../shared/data or $HEEDFUL_DATA):

    shakespeare/input.txt
        tiny Shakespeare; 1.4697 nats on the last tenth is nanoGPT's figure
    multi30k/{train,val,test_2016_flickr}.{en,de}.gz
    sst2/{train,dev}.tsv
        SST-2; `sst2` learns from scratch, `sst2-pretrained` fills in the blanks of the training sentences
        first (mlm), then learns the labels
    scitldr/{train,dev,test}.jsonl
        SciTLDR, papers' abstracts to one sentence, from scratch: `scitldr` is T-ED, `scitldr-dmca` is T-DMCA
    fashion-mnist/{train,t10k}-*-ubyte.gz
        Fashion-MNIST, by a Vision Transformer of less than 400,000 parameters: `fashion-mnist` with patches
        of 4 pixels, `fashion-mnist-fine` of 2

Each is an ordinary recipe; the settings are what `heedful train` takes as --set.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

import heedful
from heedful.data.lines import read_lines
from heedful.runs import trainer
from heedful.runs.folder import RunFolder
from heedful.tasks import image_classify, recipe, summarize
from heedful.tasks.evaluation import EvaluationRequest
from heedful.tasks.metrics import bleu
from heedful.tasks.recipe.settings import Recipe
from heedful.train.loop import Progress

# What differs from the defaults of `heedful train`, or must stay as it was measured whatever they become.
# nanoGPT's settings for a GPU and for a CPU; for the CPU with three times its learning rate, which is
# better there.
SHAKESPEARE = {
    "data.tokenizer": "char",
    "model.layers": 6,
    "model.width": 384,
    "model.heads": 6,
    "model.ffn_width": 1536,
    "model.context": 256,
    "model.dropout": 0.2,
    "train.batch_tokens": 16384,
    "train.steps": 5000,
    "train.optimizer": "adamw",
    "train.learning_rate": 1e-3,
    "train.warmup_steps": 100,
    "train.min_lr_ratio": 0.1,
    "train.beta2": 0.99,
    "train.weight_decay": 0.1,
    "train.ema_decay": 0.0,
    "evaluate.every": 500,
    "evaluate.rows": 10**6,
    "checkpoint.every": 10**6,
}
SHAKESPEARE_CPU = SHAKESPEARE | {
    "model.layers": 4,
    "model.width": 128,
    "model.heads": 4,
    "model.ffn_width": 512,
    "model.context": 64,
    "model.dropout": 0.0,
    "model.activation": "gelu",
    "train.batch_tokens": 768,
    "train.steps": 2000,
    "train.learning_rate": 3e-3,
    "train.min_lr_ratio": 0.03,
    "evaluate.every": 1000,
}
SHAKESPEARE_FAST = SHAKESPEARE | {  # a run of seconds: compiling would take longer than it saves
    "model.architecture": "modern",
    "model.layers": 4,
    "model.dropout": 0.1,
    "train.optimizer": "muon",
    "train.steps": 400,
    "train.learning_rate": 1.5e-2,
    "train.warmup_steps": 50,
    "train.min_lr_ratio": 0.02,
    "train.beta2": 0.95,
    "train.compile": False,
    "evaluate.every": 400,
}
MULTI30K = {
    "data.lowercase": True,
    "data.vocab_size": 10000,
    "data.packed": False,
    "model.ffn_width": 512,
    "model.dropout": 0.3,
    "train.batch_tokens": 8192,
    "train.steps": 3000,
    "train.optimizer": "adamw",
    "train.learning_rate": 2e-3,
    "train.warmup_steps": 400,
    "train.ema_decay": 0.998,
    "evaluate.every": 1000,
    "evaluate.rows": 1014,
    "checkpoint.every": 10**6,
}
MULTI30K_FAST = MULTI30K | {
    "data.packed": True,
    "data.max_length": 64,
    "model.positions": "sinusoidal+rotary",
    "model.dropout": 0.4,
    "train.optimizer": "muon",
    "train.learning_rate": 4e-3,
    "train.steps": 2800,
    "evaluate.every": 2800,
    "train.compile": True,
}


SST2 = {
    "data.tokenizer": "word",
    "data.vocab_size": 12000,
    "data.max_length": 64,
    "model.layers": 2,
    "model.width": 128,
    "model.ffn_width": 256,
    "model.context": 64,
    "train.batch_tokens": 4096,
    "train.steps": 2000,
    "train.warmup_steps": 200,
    "evaluate.every": 200,
    "evaluate.rows": 872,
    "checkpoint.every": 10**6,
}
SST2_MLM = {
    "data.tokenizer": "wordpiece",
    "data.vocab_size": 8000,
    "data.lowercase": True,
    "model.context": 64,
    "train.batch_tokens": 8192,
    "train.steps": 4000,
    "train.learning_rate": 1e-3,
    "evaluate.every": 2000,
    "checkpoint.every": 10**6,
}
SST2_TUNING = {
    "data.max_length": 64,
    "train.batch_tokens": 2048,
    "train.steps": 2000,
    "train.learning_rate": 1e-4,
    "train.warmup_steps": 200,
    "evaluate.every": 200,
    "evaluate.rows": 872,
    "checkpoint.every": 10**6,
}
SCITLDR = {
    "data.lowercase": True,
    "data.vocab_size": 6000,
    "data.max_length": 384,
    "data.max_summary_length": 64,
    "model.layers": 3,
    "model.ffn_width": 512,
    "model.dropout": 0.3,
    "model.positions": "sinusoidal+rotary",
    "train.batch_tokens": 8192,
    "train.steps": 1500,
    "train.learning_rate": 1e-3,
    "train.warmup_steps": 200,
    "train.weight_decay": 0.1,
    "train.ema_decay": 0.99,
    "evaluate.every": 150,
    "evaluate.rows": 200,
    "evaluate.examples": 1,
    "checkpoint.every": 10**6,
}
SCITLDR_DMCA = {key: value for key, value in SCITLDR.items() if key != "model.positions"} | {
    "model.architecture": "dmca",
    "model.layers": 5,
}


# 58,000 pictures to learn from, 2,000 held out to choose by, and t10k to be judged by once.
FASHION = {
    "data.random_flip": True,
    "model.layers": 5,
    "model.width": 96,
    "model.ffn_width": 192,
    "train.batch_tokens": 512 * 50,
    "train.steps": 9000,
    "evaluate.every": 1000,
    "evaluate.rows": 2000,
    "evaluate.examples": 0,
    "checkpoint.every": 10**6,
}
FASHION_FINE = FASHION | {"model.patch_size": 2, "train.batch_tokens": 512 * 197, "train.steps": 7000}


class Talk:
    """Prints with the seconds since the start."""

    def __init__(self) -> None:
        self.start = time.time()

    def say(self, line: str) -> None:
        print(f"[{time.time() - self.start:6.1f}] {line}", flush=True)

    def step(self, progress: Progress, steps: int) -> None:
        if progress.step % 500 == 0:
            rate = f"{progress.tokens / progress.seconds:,.0f} tokens/s"
            self.say(f"step {progress.step}: loss {progress.loss:.3f}, {rate}")


def recipe_of(folder: Path) -> Recipe:
    """The recipe of a run, with all that was chosen for it."""
    return trainer.recipe_in(RunFolder.read_recipe(folder))


def shakespeare(data: Path, settings: dict[str, Any], device: torch.device, folder: Path) -> dict[str, Any]:
    settings = settings | {"data.text": str(data / "shakespeare" / "input.txt")}
    outcome = trainer.start(recipe.make("lm", settings=settings), folder, Talk(), device)
    return {"best": outcome.best.scores, "at step": outcome.best.step}


def multi30k(data: Path, settings: dict[str, Any], device: torch.device, folder: Path) -> dict[str, Any]:
    files = {
        f"data.{prefix}{side}": str(data / "multi30k" / f"{split}.{language}.gz")
        for prefix, split in {"": "train", "valid_": "val"}.items()
        for side, language in {"source": "en", "target": "de"}.items()
    }
    outcome = trainer.start(recipe.make("translate", settings=settings | files), folder, Talk(), device)
    sources, expected = (
        list(read_lines(data / "multi30k" / f"test_2016_flickr.{x}.gz")) for x in ("en", "de")
    )
    model = heedful.load(folder, device)
    found = {
        "greedy": model.translate(sources, beam=1, batch=250),
        "beam 5": model.translate(sources, beam=5, length_penalty="power", length_alpha=1.0, batch=250),
    }
    return {
        "valid": outcome.best.scores,
        "test_2016 BLEU, lower-cased, 13a": {
            how: bleu(texts, expected, lower=True) for how, texts in found.items()
        },
    }


def sst2_files(data: Path) -> dict[str, str]:
    return {
        "data.table": str(data / "sst2" / "train.tsv"),
        "data.valid_table": str(data / "sst2" / "dev.tsv"),
    }


def sst2(data: Path, settings: dict[str, Any], device: torch.device, folder: Path) -> dict[str, Any]:
    outcome = trainer.start(
        recipe.make("classify", settings=settings | sst2_files(data)), folder, Talk(), device
    )
    return {"dev": outcome.best.scores, "at step": outcome.best.step}


def sst2_pretrained(
    data: Path, settings: dict[str, Any], device: torch.device, folder: Path
) -> dict[str, Any]:
    """Blanks first, on the training sentences alone; then labels."""
    folder.mkdir()
    rows = (data / "sst2" / "train.tsv").read_text(encoding="utf-8").splitlines()[1:]
    (folder / "text.txt").write_text(
        "".join(row.partition("\t")[0].strip() + "\n" for row in rows), encoding="utf-8"
    )
    blanks = SST2_MLM | {"data.text": str(folder / "text.txt")}
    blanks |= {key: settings[key] for key in ("train.seed", "train.precision")}
    first = trainer.start(recipe.make("mlm", settings=blanks), folder / "mlm", Talk(), device)
    second = sst2(data, settings | {"train.from": str(folder / "mlm")}, device, folder / "labels")
    return {"blanks": first.best.scores, **second}


def scitldr(data: Path, settings: dict[str, Any], device: torch.device, folder: Path) -> dict[str, Any]:
    """Chosen by ROUGE-L on dev; judged once by test, with all of its references."""
    files = {
        f"data.{name}": str(data / "scitldr" / f"{split}.jsonl")
        for name, split in {"table": "train", "valid_table": "dev"}.items()
    }
    made = recipe.make("summarize", settings=settings | files)
    outcome = trainer.start(made, folder, Talk(), device)
    judged = recipe.changed(recipe_of(folder), "data.valid_table", str(data / "scitldr" / "test.jsonl"))
    write = heedful.load(folder, device).summarize
    with torch.no_grad():
        asked = EvaluationRequest(folder, judged, own=True, rows=128, write=write, decoding="beam:4")
        found = summarize.measure(outcome.model, asked)
    return {
        "dev": outcome.best.scores,
        "at step": outcome.best.step,
        "test": found.metrics,
        "intervals": found.intervals,
        "the first sentence": {name: score for name, (_, score) in found.baselines.items()},
        "examples": found.lines[:3],
    }


def fashion(data: Path, settings: dict[str, Any], device: torch.device, folder: Path) -> dict[str, Any]:
    """Chosen by accuracy on held-out training pictures; judged once by the test pictures."""
    made = recipe.make("image-classify", settings=settings | {"data.images": str(data / "fashion-mnist")})
    outcome = trainer.start(made, folder, Talk(), device)
    judged = recipe.changed(recipe_of(folder), "data.valid_images", str(data / "fashion-mnist"))
    with torch.no_grad():
        found = image_classify.measure(outcome.model, EvaluationRequest(folder, judged, own=True, rows=1000))
    return {
        "parameters": sum(weight.numel() for weight in outcome.model.parameters()),
        "held out": outcome.best.scores,
        "at step": outcome.best.step,
        "test": found.metrics,
        "intervals": found.intervals,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=tuple(WORK))
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("HEEDFUL_DATA", "../shared/data")))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--set", action="append", default=[], metavar="PART.NAME=VALUE", help="another setting"
    )
    options = parser.parse_args()
    where = options.data / FOLDERS.get(options.what, options.what.partition("-")[0])
    if not where.is_dir():
        raise SystemExit(f"{where} is not there: see --help for the files it should hold")
    device = torch.device(options.device)
    cpu = device.type == "cpu"
    work, settings = WORK[options.what]
    settings = SHAKESPEARE_CPU if cpu and options.what == "shakespeare" else settings
    settings = settings | recipe.parse_settings(options.set)
    settings = {"train.seed": options.seed, "train.precision": "fp32" if cpu else "bf16"} | settings
    torch.set_float32_matmul_precision("high")
    start = time.time()
    with tempfile.TemporaryDirectory() as folder:
        result = work(options.data, settings, device, Path(folder) / "run")
    print(
        json.dumps(
            {
                "what": options.what,
                "seed": settings["train.seed"],
                "seconds": round(time.time() - start, 1),
                **result,
            }
        )
    )


WORK = {
    "shakespeare": (shakespeare, SHAKESPEARE),
    "shakespeare-fast": (shakespeare, SHAKESPEARE_FAST),
    "multi30k": (multi30k, MULTI30K),
    "multi30k-fast": (multi30k, MULTI30K_FAST),
    "sst2": (sst2, SST2),
    "sst2-pretrained": (sst2_pretrained, SST2_TUNING),
    "scitldr": (scitldr, SCITLDR),
    "scitldr-dmca": (scitldr, SCITLDR_DMCA),
    "fashion-mnist": (fashion, FASHION),
    "fashion-mnist-fine": (fashion, FASHION_FINE),
}
FOLDERS = dict.fromkeys(("fashion-mnist", "fashion-mnist-fine"), "fashion-mnist")

if __name__ == "__main__":
    main()
