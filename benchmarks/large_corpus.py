"""A corpus larger than memory should be: `python -m benchmarks.large_corpus [--gigabytes 2] [--pack
documents]`.

Writes a text of made-up sentences into a temporary folder (words of the standard library's source and of
the phrasebook, as frequent as Zipf says; one in two hundred is new, so that the words never end), trains a
small language model on it for a few steps in a process of its own, and watches that process: memory of its
own (RssAnon; what is mapped from files can be given back at any time) every 50 ms, and how long each part
of the work took, by the clock and in processor time, which others on the same machine do not change.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from heedful.corpora import phrasebook, pylib
from heedful.data.store import Store

KNOWN = 50_000  # words
AT_ONCE = 1_000_000  # words made at a time, about 6 MB
NEW = 0.005  # the share of words that are new
FILE = 64_000_000  # bytes of a text file
SYLLABLES = [a + b for a in ("b", "d", "f", "gr", "k", "l", "m", "pr", "s", "t") for b in "aeiou"]

# What a run leaves in its folder when a part is done.
PHASES = {
    "vocabulary": "tokenizer.json",
    "tokenizing": "train",
    "tokenizing what is held out": "valid",
    "beginning": "config.json",
}


# The corpus


def words() -> tuple[list[str], np.ndarray]:
    """Words by frequency, and Zipf's probabilities for them."""
    counts: Counter[str] = Counter()
    for _, text in pylib.documents():
        counts.update(re.findall(r"[A-Za-z]+(?:'[a-z]+)?", text))
    for pair in phrasebook.split("train"):
        counts.update(pair.source.split() + pair.target.split())
    known = [word for word, _ in counts.most_common(KNOWN)]
    shares = 1 / (np.arange(len(known)) + 2.7)
    return known, shares / shares.sum()


def articles(seed: int) -> Iterator[str]:
    """Texts of a few sentences to a few pages, without end."""
    known, shares = words()
    rng = np.random.default_rng(seed)
    pool = np.array(known, dtype=object)
    while True:
        drawn = pool[rng.choice(len(pool), AT_ONCE, p=shares)]
        places = np.flatnonzero(rng.random(AT_ONCE) < NEW)
        for place, parts in zip(places, rng.integers(len(SYLLABLES), size=(len(places), 4)), strict=True):
            drawn[place] = "".join(SYLLABLES[part] for part in parts) if place % 4 else str(parts.sum() * 37)
        ends = np.unique(rng.integers(0, AT_ONCE, AT_ONCE // 15))
        sentences = [" ".join(part) for part in np.split(drawn, ends) if len(part)]
        sentences = [f"{s[:1].upper()}{s[1:]}{'.?!;'[len(s) % 4]}" for s in sentences]
        at = 0
        while at < len(sentences):
            size = int(rng.lognormal(2.5, 1)) + 2
            lines = [" ".join(sentences[i : i + 5]) for i in range(at, min(at + size, len(sentences)), 5)]
            yield "\n".join(lines) + "\n"
            at += size


def write_corpus(folder: Path, size: int, lines: bool, seed: int = 0) -> int:
    """Files of about 64 MB, as text or as JSON lines; how many bytes were written."""
    folder.mkdir()
    written = number = 0
    made = articles(seed)
    while written < size:
        path = folder / (f"{number:04}.jsonl" if lines else f"{number:04}.txt")
        with path.open("w", encoding="utf-8") as file:
            while file.tell() < min(FILE, size - written):
                text = next(made)
                file.write(json.dumps({"text": text}) + "\n" if lines else f"{text}\n")
        written += path.stat().st_size
        number += 1
    return written


# The run, watched


@dataclass
class Phase:
    """What a part of the work took."""

    seconds: float = 0.0
    processor: float = 0.0  # seconds, of all threads
    own: int = 0  # the most bytes: RssAnon
    mapped: int = 0  # with what is mapped from files: VmRSS


def look(process: int) -> tuple[float, int, int]:
    """Processor seconds so far, RssAnon and VmRSS; an OSError once the process has ended."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    fields = {name: value for name, _, value in (line.partition(":") for line in lines)}
    own, mapped = (1024 * int(fields[name].split()[0]) for name in ("RssAnon", "VmRSS"))
    ticks = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK"), own, mapped


def watched(command: list[str], run: Path, threads: int) -> dict[str, Phase]:
    """Do it, and say what each phase took; which one it is in is seen in the run's folder."""
    env = {**os.environ, "OMP_NUM_THREADS": str(threads), "RAYON_NUM_THREADS": str(threads)}
    phases = {name: Phase() for name in (*PHASES, "training")}
    clock, used = time.perf_counter(), 0.0
    child = subprocess.Popen(command, env=env)
    try:
        while child.poll() is None:
            with suppress(OSError, KeyError):  # it has ended; a process that is about to has no memory
                name = next((name for name, file in PHASES.items() if not (run / file).exists()), "training")
                phase, now, (processor, own, mapped) = phases[name], time.perf_counter(), look(child.pid)
                phase.seconds += now - clock
                phase.processor += processor - used
                phase.own, phase.mapped = max(phase.own, own), max(phase.mapped, mapped)
                clock, used = now, processor
            time.sleep(0.05)
    finally:
        child.terminate()
        child.wait()
    if child.returncode:
        raise SystemExit(f"training ended with exit code {child.returncode}")
    return phases


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--pack", choices=("stream", "documents"), default="stream")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--folder", help="where the temporary folder goes")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder, began = Path(name), time.perf_counter()
        size = write_corpus(folder / "corpus", int(options.gigabytes * 1e9), options.pack == "documents")
        print(f"{size / 1e9:.2f} GB of text made in {time.perf_counter() - began:.0f} s", flush=True)
        # Scores of a batch, which have nothing to do with the corpus, would otherwise be the largest of all.
        settings = {
            "data.pack": options.pack,
            "train.batch_tokens": 1024,
            "evaluate.rows": 4,
            "evaluate.examples": 1,
        }
        command = [
            sys.executable, "-m", "heedful", "train", "lm", "--text", str(folder / "corpus"),
            "--device", "cpu", "--run", str(folder / "run"), "--size", "tiny", "--steps", str(options.steps),
            *(word for key, value in settings.items() for word in ("--set", f"{key}={value}")),
        ]  # fmt: skip
        phases = watched(command, folder / "run", options.threads)
        tokens = sum(Store.mapped(folder / "run" / split).tokens("text") for split in ("train", "valid"))
    for name, phase in phases.items():
        print(
            f"{name:28} {phase.seconds:7.1f} s, {phase.processor:6.1f} s of processor time, "
            f"own memory {phase.own / 1e6:5,.0f} MB, with files {phase.mapped / 1e6:5,.0f} MB"
        )
    whole = Phase(
        sum(phase.seconds for phase in phases.values()),
        sum(phase.processor for phase in phases.values()),
        max(phase.own for phase in phases.values()),
        max(phase.mapped for phase in phases.values()),
    )
    print(
        f"{size / 1e9:.2f} GB, {tokens:,} tokens: at most {whole.own / 1e6:,.0f} MB of its own, "
        f"in {whole.seconds:.0f} s ({whole.processor:.0f} s of processor time)"
    )
    told = {name: asdict(phase) for name, phase in {**phases, "whole": whole}.items()}
    print(
        json.dumps(
            {"bytes": size, "tokens": tokens, "pack": options.pack, "threads": options.threads, **told}
        )
    )


if __name__ == "__main__":
    main()
