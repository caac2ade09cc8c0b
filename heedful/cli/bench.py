"""Measure the speed of this build beside the peers that are installed.

Each contender runs the same workload in its own process, and all take turns. The table shows medians after
warm-up, ratios to the fastest peer, and the share of the machine's peak, which is measured in the same run.
Peers: Hugging Face transformers, x-transformers, torch.nn, CTranslate2, llama.cpp; nanoGPT and gpt-fast
from a checkout; others from a file. If only torch, tokenizers and safetensors are installed, use python -m
heedful.bench with the same options.

Examples: heedful bench; heedful bench --work translate --only ctranslate2 --threads 2;
heedful bench --work train-gpt2 --peer nanogpt=../nanoGPT; heedful bench --list;
heedful bench scaling --against length; heedful bench costs
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from ..bench.command import run_bench
from .shared.options import Positional, Repeated, arg


@dataclass(frozen=True)
class BenchOptions:
    """The options of `heedful bench`."""

    what: Annotated[Literal["peers", "scaling", "costs"], Positional, arg("WHAT")] = "peers"
    """peers: heedful beside its peers. scaling: heedful's time and memory for growing inputs, with a plot.
    costs: the predictions of `heedful info` beside measurements."""

    work: Annotated[tuple[str, ...], arg("NAME", "all for this device"), Repeated] = ()
    """A workload, or the beginning of several names; may be given several times. --list shows all."""

    only: Annotated[tuple[str, ...], arg("TEXT", "all"), Repeated] = ()
    """Besides plain heedful, run only contenders whose name contains this; may be given several times."""

    peer: Annotated[tuple[str, ...], arg("NAME=PATH", "none"), Repeated] = ()
    """nanogpt or gpt-fast and the folder of a checkout, or any name and a Python file that defines a peer
    (docs/explain/benchmarking.md); its code is run. May be given several times."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute; auto takes the GPU if there is one. fp32 on a CPU, bf16 on a GPU."""

    threads: Annotated[int | None, arg("INT", "as torch would")] = None
    """CPU threads of each contender."""

    rounds: Annotated[int | None, arg("INT", "3 to 15, depending on --seconds")] = None
    """Turns of each contender."""

    seconds: float = 10.0
    """Time limit for all turns of the slowest contender, per workload; for scaling, for one step."""

    at_once: Annotated[int, arg("INT")] = 1
    """Contenders that start in parallel: saves time where many compile, but each compile time is then
    longer."""

    against: Literal["length", "batch", "size"] = "length"
    """For scaling, what grows: tokens per row (with full, window and strided attention), rows, or the
    model."""

    utilization: Annotated[float | None, arg("FLOAT", "CPU 0.6; GPU as heedful plan")] = None
    """For costs, predict the time by this share of the peak matrix-product rate."""

    small: bool = False
    """Use tiny sizes, only to check that everything works; the times mean nothing."""

    list: bool = False
    """Only list the workloads of this device and their contenders."""

    json: bool = False
    """Print one JSON object instead of tables."""

    output: Annotated[
        str | None, arg("FILE", "benchmarks/results.jsonl in a clone, else heedful-bench.jsonl")
    ] = None
    """File to which results are appended, one JSON object per line; the table and plot of scaling are
    written beside it."""


def bench(given: BenchOptions) -> int:
    """Measure, or list what would be measured."""
    return run_bench(given)
