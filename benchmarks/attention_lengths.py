"""Attention alone against the length of the text: time forwards and backwards, memory, and the power each
grows with.

    python benchmarks/attention_lengths.py                          # a few lengths that a CPU can bear
    python benchmarks/attention_lengths.py --draw benchmarks/attention-lengths.json    # of a record
    python benchmarks/attention_lengths.py --device cuda --lengths 2048 4096 8192 16384 32768 65536

Expected powers of time: full and compressed 2, strided and fixed 1.5 (their stride is the root of the
length), blocks, windows and running sums 1. Memory is that of a whole forward and backward pass on a GPU,
and what is kept between the two on a CPU; "open" computes the table of scores as the formula has it, which
is where a third of the keys is a third of the memory: a fused kernel keeps no table. "gathered" keeps the
scores of strided and fixed attention, where "merged" computes them again in the backward pass: piece by
piece, or on a GPU by the flash kernel.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from heedful.bench.multiples import picture, power
from heedful.parts.attention import attend_plain
from heedful.parts.fused import attend_fused
from heedful.parts.long.compressed import compressed, slots_view, with_first
from heedful.parts.long.linear import attend_linear
from heedful.parts.long.sparse import attend_gathered
from heedful.parts.masks import Mask, causal, window
from heedful.parts.sparse_masks import SameBlock, fixed, fixed_steps, strided, strided_steps
from heedful.parts.view import View

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]
TAIL = 8


def root(n: int) -> int:
    return max(1, math.isqrt(n))


def masked(*masks: Mask, by: Callable[..., Tensor] = attend_fused) -> Attention:
    """The sum of layers that take turns, each by its mask."""

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        n = q.shape[2]
        return torch.stack([by(q, k, v, View(mask, n, n, q.device)) for mask in masks]).sum(0)

    return attend


def shortened(attend: Callable[..., Tensor], layer: nn.Linear) -> Attention:
    """Attention to a third of the keys."""

    def fewer(x_BHNK: Tensor) -> Tensor:
        x_BNK = x_BHNK.flatten(0, 1)
        return with_first(x_BNK, compressed(x_BNK, layer)).unflatten(0, x_BHNK.shape[:2])

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        n = q.shape[2]
        return attend(q, fewer(k), fewer(v), slots_view(View(causal(), n, n, q.device)))

    return run


def kinds(width: int, device: str, dtype: torch.dtype) -> dict[str, Callable[[int], Attention]]:
    """Every kind by name: from a length to what attends."""
    layer = nn.Linear(3 * width, width, device=device, dtype=dtype)
    return {
        "full": lambda n: masked(causal()),
        "full, open": lambda n: lambda q, k, v: attend_plain(q, k, v, View(causal(), n, n, q.device)),
        "compressed": lambda n: shortened(attend_fused, layer),
        "compressed, open": lambda n: shortened(attend_plain, layer),
        "strided, two layers": lambda n: masked(*strided_steps(root(n))),
        "strided, merged": lambda n: masked(strided(root(n))),
        "strided, gathered": lambda n: masked(strided(root(n)), by=attend_gathered),
        "fixed, two layers": lambda n: masked(*fixed_steps(root(n), min(TAIL, root(n)))),
        "fixed, merged": lambda n: masked(fixed(root(n), min(TAIL, root(n)))),
        "fixed, gathered": lambda n: masked(fixed(root(n), min(TAIL, root(n))), by=attend_gathered),
        "blocks of 256": lambda n: masked(causal() & SameBlock(256)),
        "window of 256": lambda n: masked(causal() & window(256)),
        "linear": lambda n: attend_linear,
    }


def measure(attend: Attention, n: int, args: argparse.Namespace, dtype: torch.dtype) -> tuple[float, int]:
    """Seconds of a forward and backward pass, the median of a few, and bytes."""
    shape = (1, args.heads, n, args.width)
    q, k, v = (torch.randn(shape, device=args.device, dtype=dtype, requires_grad=True) for _ in range(3))
    cuda = args.device == "cuda"
    clock = time.perf_counter if cuda else time.process_time  # other work on the processor does not count
    seconds, memory, before = [], 0, 0
    for turn in range(args.turns + 1):  # the first compiles and warms up
        kept: dict[int, int] = {}

        def keep(tensor: Tensor, kept: dict[int, int] = kept) -> Tensor:
            storage = tensor.untyped_storage()
            kept[storage.data_ptr()] = storage.nbytes()
            return tensor

        if cuda:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
        began = clock()
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            out = attend(q, k, v)
        out.sum().backward()
        if cuda:
            torch.cuda.synchronize()
        seconds += [clock() - began] if turn else []
        memory = torch.cuda.max_memory_allocated() - before if cuda else sum(kept.values())
        q.grad = k.grad = v.grad = None
    return statistics.median(seconds), memory


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--lengths", type=int, nargs="+", default=[1024, 2048, 4096])
    parser.add_argument("--heads", type=int, default=2)
    parser.add_argument("--width", type=int, default=32, help="of a head")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="a series ends where a pass takes longer")
    parser.add_argument("--only", nargs="+", default=[], help="kinds to measure")
    parser.add_argument("--plot", type=Path, help="draw time and memory into this SVG file")
    parser.add_argument("--draw", type=Path, help="draw the figures of this JSON file, and measure nothing")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if args.draw is not None:
        draw_record(args.draw)
        return
    if len(args.lengths) < 2:
        parser.error("a power needs two lengths at least")
    dtype = torch.bfloat16 if args.device == "cuda" else torch.float32
    torch.manual_seed(0)
    found = {}
    for name, make in kinds(args.width, args.device, dtype).items():
        if args.only and name not in args.only:
            continue
        points: list[tuple[int, float, int]] = []
        for n in args.lengths:
            try:
                points.append((n, *measure(make(n), n, args, dtype)))
            except torch.OutOfMemoryError:
                gc.collect()  # what failed still holds its tables
                torch.cuda.empty_cache()
                break
            if points[-1][1] > args.seconds:
                break
        found[name] = told = {"points": points, "time": None, "memory": None}
        if len(points) > 1:
            lengths, seconds, memory = zip(*points, strict=True)
            told |= {"time": power(lengths, seconds), "memory": power(lengths, memory)}
        if not args.json:
            print(line(name, points, told["time"], told["memory"]), flush=True)
    if args.json:
        print(json.dumps(found, indent=1))
    if args.plot is not None:
        cuda, threads = args.device == "cuda", torch.get_num_threads()
        who = torch.cuda.get_device_name() if cuda else f"CPU, {threads} thread{'s' * (threads > 1)}"
        measured = {name: told["points"] for name, told in found.items()}
        args.plot.write_text(picture(measured, f"{args.heads} heads of {args.width}, {who}"), "utf-8")


def draw_record(path: Path) -> None:
    """Draw recorded figures beside their file."""
    kept = json.loads(path.read_text(encoding="utf-8"))
    found = {name: [(int(n), s, m) for n, s, m in points] for name, points in kept["points"].items()}
    path.with_suffix(".svg").write_text(picture(found, kept["where"], kept["notes"]), encoding="utf-8")


def line(
    name: str, points: Sequence[tuple[int, float, int]], time_power: float | None, memory_power: float | None
) -> str:
    cells = [f"{n:>7,}: {1000 * s:>9.2f} ms {m / 2**20:>8.1f} MiB" for n, s, m in points]
    powers = "" if time_power is None or memory_power is None else f"n^{time_power:.2f} n^{memory_power:.2f}"
    return f"{name:<20} {powers:<14} " + "  ".join(cells)


if __name__ == "__main__":
    main()
