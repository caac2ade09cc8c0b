"""What a page of a model costs (`heedful export --to html`): bytes, time until it is ready, speed.

    python -m benchmarks.pages                  # about three minutes on two idle cores
    python -m benchmarks.pages --json pages.json

Decoders of GPT-2's parts with random weights: 3 million parameters in float16 and in int8, and 30 million in
int8. Each page is opened in Chromium without a window, from its file. A line has the best of --times
measurements, because other programs may use the machine too; the median stands beside it.

- ready: from the navigation to the model that can be asked
- tokens per second: 64 new tokens, greedy, after prompts of some length, without the time of the prompt
- share of attention: the time that a token after 512 others takes longer than one after 8
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from pathlib import Path

import torch

from heedful.data.vocab import train_vocab
from heedful.interop.html.engines import BROWSERS, Chromium, found
from heedful.interop.html.page import PAGE
from heedful.interop.html.write import write
from heedful.interop.loaded import Loaded
from heedful.models import gpt2

NEW = 64  # tokens
MODELS = {
    "3 M, float16": (gpt2.GPT2Config(vocab=1000, context=512, layers=4, width=232, heads=4), "float16"),
    "3 M, int8": (gpt2.GPT2Config(vocab=1000, context=512, layers=4, width=232, heads=4), "int8"),
    "30 M, int8": (gpt2.GPT2Config(vocab=8000, context=1024, layers=8, width=512, heads=8), "int8"),
}


def made(config: gpt2.GPT2Config, kind: str, folder: Path) -> Path:
    """The page of a model with random weights and as many words as it has rows."""
    torch.manual_seed(1)
    dice = random.Random(1)
    words = {"".join(dice.choices("abcdefghijklmnopqrstuvwxyz", k=7)) for _ in range(config.vocab)}
    tokenizer = train_vocab("word", [" ".join(sorted(words))], config.vocab).tokenizer
    model = gpt2.build(config).eval()
    write(Loaded("gpt2", config, model, tokenizer, {}), folder, kind)
    return folder / PAGE


def per_token(page: Chromium, past: int, vocab: int, times: int) -> tuple[float, float]:
    """Seconds of a token after a prompt of so many: the best and the median."""
    ids = [random.Random(past).randrange(7, vocab) for _ in range(past)]
    seconds: dict[int, list[float]] = {1: [], 1 + NEW: []}
    for _ in range(times):
        for longest, some in seconds.items():
            began = time.perf_counter()
            page.ask({"ask": "greedy", "ids": ids, "longest": longest})
            some.append(time.perf_counter() - began)
    short, long = seconds.values()
    return (min(long) - min(short)) / NEW, (statistics.median(long) - statistics.median(short)) / NEW


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--times", type=int, default=9)
    options.add_argument("--json", type=Path)
    given = options.parse_args()
    program = found(BROWSERS)
    if program is None:
        raise SystemExit("Chromium is not installed")
    results = {}
    for name, (config, kind) in MODELS.items():
        with tempfile.TemporaryDirectory() as folder:
            results[name] = measured(program, made(config, kind, Path(folder)), config, given.times)
        print(name, *(f"  {what}: {value}" for what, value in results[name].items()), sep="\n")
    if given.json:
        given.json.write_text(json.dumps(results, indent=2) + "\n")


def measured(program: str, path: Path, config: gpt2.GPT2Config, times: int) -> dict[str, str]:
    """The lines of one page."""
    parameters = sum(weight.numel() for weight in gpt2.build(config).parameters())
    ready = [Chromium(program, path).ready / 1000 for _ in range(times)]
    page = Chromium(program, path)
    page.ask({"ask": "greedy", "ids": [7], "longest": 8})  # compiled by now
    lines = {
        "parameters": f"{parameters:,}",
        "kernels": f"{page.version}, {page.ask({'ask': 'kernels'})}",
        "bytes": f"{path.stat().st_size / 1e6:.2f} MB",
        "ready": f"{min(ready):.2f} s (median {statistics.median(ready):.2f})",
    }
    paces = {}
    for past in (8, 64, min(512, config.context - NEW - 1)):
        best, middle = per_token(page, past, config.vocab, times)
        paces[past] = best
        lines[f"tokens per second after {past}"] = f"{1 / best:.0f} (median {1 / middle:.0f})"
    lines[f"share of attention after {past}"] = f"{max(0.0, 1 - paces[8] / paces[past]):.0%}"
    return lines


if __name__ == "__main__":
    main()
