"""How fast this build is on this machine, beside the peers that are installed.

Everyone does the same work in a process of its own, all taking turns; medians after warm-up, as ratios to
the fastest peer and as a share of what the machine can do at best, which is measured in the same run.
Peers: Hugging Face transformers, x-transformers, torch.nn, CTranslate2; nanoGPT and gpt-fast from a
checkout; any other by a file. Where only torch, tokenizers and safetensors are installed: python -m
heedful.bench, with the same options.

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
    """peers: beside them. scaling: heedful's time and memory as something grows, with a plot. costs: what
    heedful info predicts against what is measured."""

    work: Annotated[tuple[str, ...], arg("NAME", "all of the device"), Repeated] = ()
    """A work, or the beginning of the names of several; may be given several times. --list names them."""

    only: Annotated[tuple[str, ...], arg("TEXT", "everyone"), Repeated] = ()
    """Beside plain heedful, only contenders whose name contains this; may be given several times."""

    peer: Annotated[tuple[str, ...], arg("NAME=PATH", "none"), Repeated] = ()
    """nanogpt or gpt-fast and the folder of a checkout, or any name and a Python file that defines a peer
    (docs/benchmarking.md); its code is run. May be given several times."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute; auto takes the GPU if there is one. fp32 on a CPU, bf16 on a GPU."""

    threads: Annotated[int | None, arg("INT", "as torch would")] = None
    """Processors that everyone uses."""

    rounds: Annotated[int | None, arg("INT", "3 to 15, as fit into --seconds")] = None
    """How many turns everyone gets."""

    seconds: float = 10.0
    """How long the turns of the slowest may take together, at each work; of scaling, how long a step may."""

    at_once: Annotated[int, arg("INT")] = 1
    """Contenders that start side by side: sooner done where many compile, but what each compiles for is
    then longer."""

    against: Literal["length", "batch", "size"] = "length"
    """Of scaling, what grows: tokens in a row (for full, window and strided attention), rows, or the
    model."""

    utilization: Annotated[float | None, arg("FLOAT", "CPU 0.6, GPU 0.5")] = None
    """For costs: the fraction of the matrix-product rate that the predicted time assumes."""

    small: bool = False
    """Microscopic sizes, which say nothing of speed: only whether everything works here."""

    list: bool = False
    """Only name the works of this device and who would do them."""

    json: bool = False
    """Print one JSON object instead of tables."""

    output: Annotated[
        str | None, arg("FILE", "benchmarks/results.jsonl in a clone, else heedful-bench.jsonl")
    ] = None
    """Where results are added, a JSON object a line; the table and the plot of scaling are put beside it."""


def bench(given: BenchOptions) -> int:
    """Measure, or list what would be measured."""
    return run_bench(given)
