"""`python -m heedful.bench` is `heedful bench`, for machines that have torch and little else."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

from ..errors import BadInput
from .command import run_bench


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise BadInput(f"{message}: see python -m heedful.bench --help")


def parser() -> argparse.ArgumentParser:
    """The options of `heedful bench`, as heedful/cli/bench.py has them; a test holds the two together."""
    p = Parser(
        prog="python -m heedful.bench",
        description="Measure the speed of this build beside the peers that are installed.",
    )
    option = p.add_argument
    option("what", nargs="?", default="peers", choices=["peers", "scaling", "costs"])
    option(
        "--work", action="append", default=[], metavar="NAME", help="a workload, or the beginning of its name"
    )
    option("--only", action="append", default=[], metavar="TEXT", help="contenders whose name contains it")
    option("--peer", action="append", default=[], metavar="NAME=PATH", help="nanogpt, gpt-fast, or a file")
    option("--device", default="auto", choices=["auto", "cpu", "cuda"])
    option(
        "--threads", type=int, metavar="INT", help="CPU threads of each contender (default: as torch would)"
    )
    option(
        "--rounds", type=int, metavar="INT", help="turns of each contender (default: depends on --seconds)"
    )
    option(
        "--seconds",
        type=float,
        default=10.0,
        metavar="FLOAT",
        help="time limit for the slowest, per workload",
    )
    option(
        "--at-once",
        type=int,
        default=1,
        metavar="INT",
        help="contenders that start (and compile) in parallel",
    )
    option("--against", default="length", choices=["length", "batch", "size"], help="scaling: what grows")
    option("--utilization", type=float, metavar="FLOAT", help="costs: share of the peak matrix-product rate")
    option("--small", action="store_true", help="tiny sizes, only to check that everything works")
    option("--list", action="store_true", help="only list workloads and contenders")
    option("--json", action="store_true", help="print one JSON object instead of tables")
    option("--output", metavar="FILE", help="file to which results are appended, one JSON object per line")
    return p


def main(args: Sequence[str] | None = None) -> int:
    """Every ending is an exit code and at most one sentence."""
    try:
        return run_bench(parser().parse_args(args))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except Exception as error:  # noqa: BLE001 (no traceback reaches the user)
        if os.environ.get("HEEDFUL_DEBUG") == "1":
            traceback.print_exc()
        known = isinstance(error, BadInput)
        print(f"error: {error}" if known else f"error: {type(error).__name__}: {error}", file=sys.stderr)
        return 2 if known else 1


if __name__ == "__main__":
    sys.exit(main())
