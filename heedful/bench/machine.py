"""The machine: what it is, what it can do at best, and how long and how much memory something took on it.

Ceilings are measured, not looked up: the rate of a large matrix product, and of a large copy (bytes read
plus bytes written), both on random numbers.
"""

from __future__ import annotations

import ctypes
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

CUBE = {"cpu": 1024, "cuda": 8192}  # side of the matrices
COPIED = {"cpu": 1 << 28, "cuda": 1 << 32}  # bytes


def describe(device: str, threads: int | None) -> dict[str, Any]:
    """Device, threads, hardware and versions; nothing that tells whose machine it is."""
    import torch

    from ..train.device import find_device

    kind = find_device(device).type
    if threads is not None:
        torch.set_num_threads(threads)
    found: dict[str, Any] = {
        "device": kind,
        "threads": torch.get_num_threads(),
        "memory": memory_of(kind),
        "hardware": {"cpu": cpu_name(), "cores": cores(), "gpu": None},
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
    }
    if kind == "cuda":
        found["hardware"]["gpu"] = torch.cuda.get_device_name()
        found["versions"] |= {"cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}
    return found


def cpu_name() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def cores() -> int:
    """Those this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_of(device: str) -> int | None:
    """Bytes that are free now."""
    if device == "cuda":
        import torch

        return torch.cuda.mem_get_info()[0]
    with suppress(OSError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("MemAvailable")).split()[1])
    return None


def set_threads(threads: int) -> None:
    """For torch, if the contender has any use for torch."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(threads)


# Ceilings.


def ceilings(device: str, threads: int, small: bool) -> dict[str, float]:
    """FLOPs a second of a matrix product in the precision used there, and bytes a second of a copy."""
    import torch

    torch.set_num_threads(threads)
    side, size = (64, 1 << 16) if small else (CUBE[device], COPIED[device])
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    found = {"flops": product_rate(side, device, dtype), "bandwidth": copy_rate(size, device)}
    give_back(device)
    return found


def product_rate(side: int, device: str, dtype: torch.dtype) -> float:
    import torch

    a, b = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
    out = torch.empty_like(a)
    return median_rate(lambda: torch.mm(a, b, out=out), 2 * side**3, device)


def copy_rate(size: int, device: str) -> float:
    import torch

    x = torch.rand(size // 4, device=device)
    y = torch.empty_like(x)
    return median_rate(lambda: y.copy_(x), 2 * size, device)


def median_rate(run: Callable[[], object], amount: float, device: str, seconds: float = 1.0) -> float:
    """The median rate over a second, after a few runs that do not count."""
    for _ in range(3):
        run()
    spans: list[float] = []
    end = finished(device) + seconds
    while len(spans) < 5 or (time.perf_counter() < end and len(spans) < 200):
        began = finished(device)
        run()
        spans.append(finished(device) - began)
    return amount / statistics.median(spans)


# Time and memory.


def finished(device: str) -> float:
    """The time, once the device has done all it was given."""
    if device == "cuda":
        import torch

        torch.cuda.synchronize()
    return time.perf_counter()


def start_counting(device: str) -> int:
    """From here on the most memory in use is looked for; bytes in use now."""
    if device == "cuda":
        import torch

        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated()
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)  # what was freed is not in use
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the highest mark starts over
    return resident("VmRSS") or 0


def most_used(device: str, before: int) -> int | None:
    """Bytes in use at most since `start_counting`, beyond those that were then; None where nobody counts."""
    if device == "cuda":
        import torch

        return torch.cuda.max_memory_allocated() - before
    most = resident("VmHWM")
    return None if most is None else max(0, most - before)


def resident(name: str) -> int | None:
    """A figure of this process' memory, on Linux."""
    with suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith(name)).split()[1])
    return None


def give_back(device: str) -> None:
    """Return memory that is only kept for later: the next contender may need it."""
    if device == "cuda":
        import torch

        torch.cuda.empty_cache()


def busy() -> float | None:
    """Processor seconds that all processes of this machine have used; None where nobody counts."""
    with suppress(OSError, ValueError, IndexError):
        user, nice, system, _, _, irq, softirq = map(int, Path("/proc/stat").read_text().split()[1:8])
        return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")
    return None
