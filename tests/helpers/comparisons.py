"""Small comparisons, as they are typed and as they are asked for."""

import csv
from pathlib import Path

import torch

from heedful.compare.comparison import Comparison, ModelVariant
from heedful.compare.cost import VariantCost
from heedful.compare.trials import Entry
from helpers.runs import TINY

CPU = torch.device("cpu")
VARIANTS = ["--variant", "base", "--variant", "post: model.norm=post"]


def words(texts, folder, *more, task="translate", steps=6):
    """A small comparison, as it is typed."""
    files = {
        "translate": [
            "--source",
            texts["a.src"],
            "--target",
            texts["a.tgt"],
            "--valid-source",
            texts["v.src"],
            "--valid-target",
            texts["v.tgt"],
            "--set=data.tokenizer=word",
        ],
        "lm": ["--text", texts["text"], "--set=data.tokenizer=char", "--set=model.context=16"],
    }[task]
    sizes = [f"--set={key}={value}" for key, value in TINY.items()]
    budget = [] if steps is None else ["--steps", str(steps)]
    return ["compare", task, *files, *sizes, *budget, "--run", str(folder), *more]


def table(folder: Path, name: str = "table.csv") -> list[dict[str, str]]:
    return list(csv.DictReader((folder / name).read_text().splitlines()))


def without_times(rows):
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]


def asked(*variants, base=None, task="translate", budget=None, seeds=2):
    return Comparison(task, "tiny", "", {"data.tokenizer": "word", **(base or {})}, variants, budget, seeds)


def refuse(*args):
    raise ValueError("no rule")


def entry(name, active=100):
    return Entry(ModelVariant(name), 10, VariantCost(100, active, 5e6, 64.0, 1 << 20))
