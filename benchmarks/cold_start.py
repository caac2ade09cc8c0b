"""Cold starts: `python -m benchmarks.cold_start RUN LINES [--device cuda]`.

Times `heedful translate RUN` of the first line and of all lines of a file, whole commands: with an empty
cache of compiled kernels and with one that earlier commands have filled; by the default, which begins with
the plain step, and with kernels from the first text on. Prints seconds to the first line and to the end.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

AT_ONCE = "import heedful.use.model as m; m.SOON = 0; "
RUN = "import sys; from heedful.cli.main import entry; sys.exit(entry())"


def timed(asked: argparse.Namespace, lines: bytes, cache: str, at_once: bool) -> tuple[float, float]:
    """Seconds to the first line of output, and to the end."""
    code = (AT_ONCE if at_once else "") + RUN
    words = ["translate", asked.run, "--beam", str(asked.beam), "--device", asked.device]
    environment = {**os.environ, "TRITON_CACHE_DIR": cache, "TORCHINDUCTOR_CACHE_DIR": cache}
    began = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-c", code, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(lines)
        process.stdin.close()
        process.stdout.readline()
        first = time.perf_counter() - began
        process.stdout.read()
    if process.returncode:
        raise SystemExit(f"heedful translate ended with exit code {process.returncode}")
    return first, time.perf_counter() - began


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("run")
    options.add_argument("lines", type=Path)
    options.add_argument("--device", default="cuda")
    options.add_argument("--beam", type=int, default=5)
    asked = options.parse_args()
    lines = asked.lines.read_bytes().splitlines(keepends=True)
    for at_once in (False, True):
        with tempfile.TemporaryDirectory() as cache:
            for state in ("empty", "filled"):
                for some in (lines[:1], lines):
                    first, whole = timed(asked, b"".join(some), cache, at_once)
                    how = "kernels from the first text on" if at_once else "default"
                    times = f"first after {first:.1f} s, all after {whole:.1f} s"
                    print(f"{how}, {state} cache, {len(some):,} lines: {times}", flush=True)


if __name__ == "__main__":
    main()
