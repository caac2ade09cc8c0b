"""Time to the same held-out loss at the size of GPT-2 124M, on a GPU: `python -m benchmarks.time_to_quality`.

The text is the source of the standard library and of every installed package, 200 MB of it, and each file a
document; a vocabulary is learned from a part, and one file in fifty is held out. GPT-2's recipe (AdamW,
learned positions, GELU, LayerNorm) is trained for --steps, less than an epoch. Then the recipe of `heedful
train lm --architecture llama` (LLaMA's parts with normalized queries and keys, Muon; Hugging Face's Qwen3)
reads the same tokens in the same order for fewer steps. Each schedule comes down by the end of its own steps,
so a run speaks only by its last loss: the ratio is that of the two runs' training seconds, if the second one
ended at least as low. Of several rates, GPT-2's best counts; of several runs of LLaMA that ended low enough,
the shortest.

    --rates 6e-4 1e-3 1.5e-3                     the GPT-2 runs
    --llama-rates 1e-2 --llama-steps 300 350     LLaMA's runs, every rate with every number of steps
    --rates (and no number)                      no GPT-2 run, to tune the other; there is no ratio then
    --gpt2-set, --llama-set PART.NAME=VALUE      any other setting, as `heedful train` takes it by --set

Training is what `heedful train lm --compile` does, without its files. The clock adds up the seconds of the
steps; compiling (what the first steps take beyond the median) and evaluating are told apart from it.
--small is for a CPU and for trying this file out: its figures mean nothing.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import multiprocessing
import os
import platform
import site
import statistics
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

import numpy as np
import torch

import heedful
from heedful.data.encode import CachedEncoder
from heedful.data.store import write_store
from heedful.data.vocab import Vocab, train_vocab
from heedful.runs import setup, training
from heedful.runs.setup import ALONE
from heedful.tasks import recipe
from heedful.train.loop import Progress

ASKED = 150_000_000  # bytes of text that the comparison is meant for
LARGEST = 1_000_000  # bytes of a file: what is larger is a table and no program
SAMPLE = 20_000_000  # bytes that the vocabulary is learned from
HELD_OUT = 50  # one document in so many
TOGETHER = 64  # documents that a process is handed at once
FIRST = 3  # steps that may have to wait for the compiler

# What both recipes share. Less than an epoch, so no dropout; and a rate that ends at zero, which suits a
# short run best.
COMMON: dict[str, Any] = {
    "model.layers": 12,
    "model.width": 768,
    "model.ffn_width": 3072,
    "model.context": 1024,
    "model.dropout": 0.0,
    "train.batch_tokens": 32 * 1024,
    "train.schedule": "cosine",
    "train.min_lr_ratio": 0.0,
    "train.beta2": 0.95,
    "train.weight_decay": 0.1,
    "train.max_grad_norm": 1.0,
    "train.ema_decay": 0.0,
    "evaluate.rows": 10**9,
    "evaluate.examples": 0,
    "checkpoint.every": 10**12,
}
GPT2 = COMMON | {
    "model.architecture": "gpt2",
    "model.heads": 12,
    "train.optimizer": "adamw",
    "train.warmup_steps": 100,
}
LLAMA = COMMON | {
    "model.architecture": "llama",
    "model.qk_norm": True,
    "model.ffn_width": 2048,  # three matrices of this width are as large as two of 3072
    "model.heads": 6,
    "train.optimizer": "muon",
    "train.warmup_steps": 50,
}
RECIPES = {"gpt2": GPT2, "llama": LLAMA}
SMALL: dict[str, Any] = {
    "model.layers": 2,
    "model.width": 64,
    "model.heads": 2,
    "model.ffn_width": 256,
    "model.context": 64,
    "train.batch_tokens": 1024,
    "train.warmup_steps": 5,
}
SMALL_OPTIONS = {
    "megabytes": 1.0,
    "vocab": 1000,
    "steps": 60,
    "llama_steps": [30],
    "rates": [3e-3],
    "evaluations": 3,
}
SMALL_PARTS = ("asyncio", "email", "json", "unittest")  # of the standard library


# The corpus.


@dataclass(frozen=True)
class Corpus:
    """Documents by the order of their hashes, and what is to be said of them."""

    learned: list[str]
    held_out: list[str]
    about: dict[str, Any]


def source_folders() -> list[Path]:
    """Where the standard library and the installed packages lie."""
    named = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    found = {Path(folder).resolve() for folder in (*named, *site.getsitepackages())}
    return sorted(folder for folder in found if folder.is_dir())


def small_folders() -> list[Path]:
    """A little of the standard library."""
    return [Path(sysconfig.get_path("stdlib"), part) for part in SMALL_PARTS]


def read_source(path: Path) -> tuple[bytes, str] | None:
    """SHA-256 and text of a file; None for what is not UTF-8, says nothing, or is too large to be a
    program."""
    try:
        data = path.read_bytes()
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
    except (OSError, UnicodeDecodeError):
        return None
    return (hashlib.sha256(data).digest(), text) if text.strip() and len(data) <= LARGEST else None


def build_corpus(folders: Iterable[Path], size: float, workers: int = 1) -> Corpus:
    """Every .py file below the folders once, and of these the first by hash that make `size` bytes: a fair
    sample."""
    paths = sorted({path for folder in folders for path in folder.rglob("*.py")})
    with ThreadPoolExecutor(workers) as pool:
        documents = dict(filter(None, pool.map(read_source, paths)))  # a copy of a file has the same hash
    order = sorted(documents)
    ends = accumulate(len(documents[digest].encode()) for digest in order)
    taken = [digest for digest, end in zip(order, ends, strict=True) if end <= size]
    parts: dict[bool, list[str]] = {False: [], True: []}
    for digest in taken:
        parts[is_held_out(digest)].append(documents[digest])
    about = {
        "files": len(taken),
        "files found": len(documents),
        "bytes": sum(len(documents[digest].encode()) for digest in taken),
        "sha256": hashlib.sha256(b"".join(taken)).hexdigest(),  # of the files' hashes
    }
    return Corpus(parts[False], parts[True], about)


def is_held_out(digest: bytes) -> bool:
    """By the end of a hash: its beginning decides whether the file is taken at all."""
    return int.from_bytes(digest[-8:], "little") % HELD_OUT == 0


# Its tokens, as `heedful train lm` keeps them in the folder of a run.


def prepare(folder: Path, corpus: Corpus, words: int, workers: int = 1) -> dict[str, Any]:
    """Learn a vocabulary and tokenize everything; what there is to say of the corpus now."""
    began = time.perf_counter()
    vocab = train_vocab("bpe", beginning(corpus.learned, SAMPLE), words)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(vocab.to_json(), encoding="utf-8")
    learned = time.perf_counter()
    about = {
        **corpus.about,
        "words": vocab.size,
        "tokens": tokenize(folder / "train", corpus.learned, vocab, workers),
        "held-out tokens": tokenize(folder / "valid", corpus.held_out, vocab, workers),
        "vocabulary seconds": round(learned - began, 1),
        "tokenizing seconds": round(time.perf_counter() - learned, 1),
    }
    (folder / "corpus.json").write_text(
        json.dumps(about), encoding="utf-8"
    )  # last: it says that all is there
    return about


def beginning(texts: Iterable[str], size: int) -> Iterator[str]:
    """The first texts, up to so many characters."""
    left = size
    for text in texts:
        if left <= 0:
            return
        left -= len(text)
        yield text


def tokenize(folder: Path, texts: Sequence[str], vocab: Vocab, workers: int) -> int:
    """Write every document and its end; the number of tokens."""
    end = np.array([vocab.eos], CachedEncoder(vocab).dtype)
    rows = ({"text": np.concatenate([tokens, end])} for tokens in encoded(texts, vocab, workers))
    about = {"vocab": vocab.hash, "bytes": sum(len(text.encode()) for text in texts)}
    store = write_store(folder, {"text": "documents, each with its end"}, rows, vocab.size, about)
    return store.tokens("text")


def encoded(texts: Sequence[str], vocab: Vocab, workers: int) -> Iterator[np.ndarray]:
    """The tokens of each text; many at once by as many processes, which the library's own threads do not
    come near."""
    if workers == 1:
        yield from map(CachedEncoder(vocab), texts)
        return
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # threads of the library would not survive the fork
    groups = [texts[at : at + TOGETHER] for at in range(0, len(texts), TOGETHER)]
    context = multiprocessing.get_context("fork")  # before CUDA is used, which does not survive it either
    with ProcessPoolExecutor(workers, context, begin_encoding, (vocab,)) as pool:
        yield from chain.from_iterable(pool.map(encode_group, groups))


encoder: CachedEncoder  # of a process that tokenizes


def begin_encoding(vocab: Vocab) -> None:
    global encoder
    encoder = CachedEncoder(vocab)


def encode_group(texts: Sequence[str]) -> list[np.ndarray]:
    return [encoder(text) for text in texts]


# A run, and what it took.


@dataclass
class Watch:
    """Listens to a run, and notes the seconds of each step and each evaluation."""

    name: str
    every: int
    device: torch.device
    seconds: list[float] = field(default_factory=list)
    losses: list[tuple[int, float]] = field(default_factory=list)  # (step, held-out loss)
    evaluating: float = 0.0

    def say(self, line: str) -> None:
        print(f"  {self.name}: {line}", flush=True)

    def step(self, progress: Progress, steps: int) -> None:
        began = time.perf_counter()
        if self.device.type == "cuda" and (progress.step % self.every == 0 or progress.step == steps):
            torch.cuda.synchronize()  # an evaluation follows: the last update is still part of the training
        self.seconds.append(progress.seconds + time.perf_counter() - began)

    def noting(self, evaluate: Callable[[Any], dict[str, float]]) -> Callable[[Any], dict[str, float]]:
        """An evaluation that is noted."""

        def noted(model: Any) -> dict[str, float]:
            began = time.perf_counter()
            scores = evaluate(model)
            self.evaluating += time.perf_counter() - began
            self.losses.append((len(self.seconds), scores["loss"]))
            return scores

        return noted

    def result(self) -> dict[str, Any]:
        """Seconds of training alone, and the held-out loss along them."""
        pace = statistics.median(self.seconds)
        trained = [min(took, pace) for took in self.seconds[:FIRST]] + self.seconds[FIRST:]
        return {
            "seconds": sum(trained),
            "loss": self.losses[-1][1],
            "step ms": 1000 * pace,
            "compiling": sum(self.seconds) - sum(trained),
            "evaluating": self.evaluating,
            "losses": [(step, round(sum(trained[:step]), 2), loss) for step, loss in self.losses],
        }


def trained(name: str, settings: dict[str, Any], folder: Path, device: torch.device) -> dict[str, Any]:
    """Train by a recipe on the tokens in a folder, as `heedful train` would; nothing is written."""
    asked = recipe.make("lm", settings=settings | {"data.text": str(folder)})
    watch = Watch(name, asked.evaluate.every, device)
    job = setup.make_job(asked, folder, watch)
    job = replace(job, evaluate=watch.noting(job.evaluate))
    if asked.train.steps >= job.steps_per_epoch:
        raise SystemExit(f"{asked.train.steps} steps are not less than the {job.steps_per_epoch} of an epoch")
    training.train_run(asked, job, folder, None, watch, device, ALONE, None)
    if len(watch.seconds) < asked.train.steps:
        raise SystemExit(
            f"stopped after {len(watch.seconds)} of {asked.train.steps} steps: there is nothing to compare"
        )
    asked_for = {
        "recipe": name,
        "rate": asked.train.learning_rate,
        "steps": asked.train.steps,
        "settings": settings,
    }
    return asked_for | watch.result()


def afresh() -> None:
    """Forget the last model and its code: of several models in a process, torch would stop compiling the
    ninth."""
    gc.collect()
    if "torch._dynamo" in sys.modules:
        torch._dynamo.reset()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def compared(baselines: Sequence[dict[str, Any]], ours: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """GPT-2's best run, LLaMA's shortest that ended as low, and how many times less it took (None:
    none did)."""
    best = min(baselines, key=lambda found: found["loss"])
    as_low = [found for found in ours if found["loss"] <= best["loss"]]
    if not as_low:
        return {"loss": best["loss"], "seconds": best["seconds"], "llama seconds": None, "ratio": None}
    shortest = min(as_low, key=lambda found: found["seconds"])
    return {
        "loss": best["loss"],
        "seconds": best["seconds"],
        "llama seconds": shortest["seconds"],
        "ratio": best["seconds"] / shortest["seconds"],
    }


# The command.


def table(results: Sequence[dict[str, Any]]) -> str:
    lines = [
        "| recipe | rate | steps | held-out loss | training s | ms a step | compiling s | evaluating s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for found in results:
        lines.append(
            f"| {found['recipe']} | {found['rate']:g} | {found['steps']} | {found['loss']:.4f} "
            f"| {found['seconds']:.1f} | {found['step ms']:.1f} | {found['compiling']:.0f} "
            f"| {found['evaluating']:.0f} |"
        )
    return "\n".join(lines)


def told(outcome: dict[str, Any]) -> str:
    """The outcome in a sentence."""
    begun = f"GPT-2's recipe: {outcome['loss']:.4f} after {outcome['seconds']:.1f} s"
    if outcome["ratio"] is None:
        return f"{begun}; no run of LLaMA's ended as low: give --llama-steps more, or another --llama-rates"
    llama = f"LLaMA's as low after {outcome['llama seconds']:.1f} s"
    return f"{begun}; {llama}: {outcome['ratio']:.2f} x less"


def settings_of(name: str, rate: float, steps: int, options: argparse.Namespace) -> dict[str, Any]:
    """A recipe's settings, with what the command line says of it last."""
    cpu = torch.device(options.device).type == "cpu"
    return {
        **RECIPES[name],
        **(SMALL if options.small else {}),
        "train.compile": not cpu,
        "train.precision": "fp32" if cpu else "bf16",
        "train.seed": options.seed,
        "train.learning_rate": rate,
        "train.steps": steps,
        "evaluate.every": max(1, -(-steps // options.evaluations)),
        **recipe.parse_settings(options.gpt2_set if name == "gpt2" else options.llama_set),
    }


def read_options(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--small", action="store_true", help="a tiny comparison on a little text")
    add("--megabytes", type=float, default=200.0, help="of text, at most")
    add("--vocab", type=int, default=50304, help="words of the vocabulary")
    add("--steps", type=int, default=1200, help="of GPT-2's recipe")
    add("--rates", type=float, nargs="*", default=[6e-4], help="its learning rates, a run each")
    add("--llama-steps", type=int, nargs="+", default=[350], help="of LLaMA's recipe, a run each")
    add("--llama-rates", type=float, nargs="*", default=[1e-2], help="its learning rates, a run each")
    add(
        "--gpt2-set",
        action="append",
        default=[],
        metavar="PART.NAME=VALUE",
        help="another setting of the first",
    )
    add("--llama-set", action="append", default=[], metavar="PART.NAME=VALUE", help="and of the second")
    add("--evaluations", type=int, default=6, help="of each run, evenly spread; the last one counts")
    add("--seed", type=int, default=0)
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    add("--workers", type=int, default=os.cpu_count() or 1, help="processes that tokenize")
    add("--source", type=Path, action="append", help="a folder of source; by default, where packages lie")
    add("--folder", type=Path, help="where the tokens are kept, and found again the next time")
    add("--out", type=Path, help="a file to add the result to, as a line of JSON")
    if "--small" in (sys.argv[1:] if given is None else given):
        parser.set_defaults(**SMALL_OPTIONS)
    return parser.parse_args(given)


def tokens_in(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """What is known of the corpus in a folder, which is made if it is not there."""
    known = folder / "corpus.json"
    if known.is_file():
        return json.loads(known.read_text(encoding="utf-8"))
    began = time.perf_counter()
    folders = options.source or (small_folders() if options.small else source_folders())
    corpus = build_corpus(folders, 1e6 * options.megabytes, options.workers)
    reading = round(time.perf_counter() - began, 1)
    return {**prepare(folder, corpus, options.vocab, options.workers), "reading seconds": reading}


def compare(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Every run that was asked for, on the tokens of one folder."""
    corpus, device = tokens_in(folder, options), torch.device(options.device)
    print(", ".join(f"{name} {value}" for name, value in corpus.items()), flush=True)
    if corpus["bytes"] < ASKED and not options.small:
        print(
            f"warning: {corpus['bytes']:,} bytes of text are less than the {ASKED:,} that this is meant for"
        )
    asked = [("gpt2", rate, options.steps) for rate in options.rates]
    asked += [("llama", rate, steps) for steps in options.llama_steps for rate in options.llama_rates]
    results = []
    for name, rate, steps in asked:
        results.append(trained(name, settings_of(name, rate, steps, options), folder, device))
        print(table(results[-1:]).splitlines()[-1], flush=True)
        afresh()
    baselines, ours = ([r for r in results if r["recipe"] == name] for name in RECIPES)
    print(f"\n{table(results)}\n")
    outcome = {}
    if baselines and ours:
        outcome = compared(baselines, ours)
        print(told(outcome))
    return {
        "corpus": corpus,
        "seed": options.seed,
        "runs": results,
        **outcome,
        "versions": {
            "heedful": heedful.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
        "device": torch.cuda.get_device_name(device)
        if device.type == "cuda"
        else platform.processor() or "cpu",
    }


def main() -> None:
    options = read_options()
    torch.set_float32_matmul_precision("high")  # evaluation is in fp32
    with tempfile.TemporaryDirectory() as aside:
        line = json.dumps(compare(options.folder or Path(aside, "tokens"), options))
    if options.out:
        with options.out.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
    print(line)


if __name__ == "__main__":
    main()
