"""Shapes of the kernels of packed weights, tried on a GPU."""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path

import torch
import triton

from heedful.fast.kernels import folded as folded_kernels
from heedful.fast.kernels.dependent_launch import early
from heedful.fast.kernels.folded import Folded, row_linear
from heedful.fast.kernels.linear import linear, linear_sum, matrix_kernel, sum_kernel
from heedful.fast.kernels.norms import LAYER, NO_NORM, Norm
from heedful.fast.kernels.packed import KINDS, PackedWeight

ROWS_1 = [(1, 1), (2, 1), (2, 2), (4, 1), (4, 2), (4, 4), (8, 4), (8, 8)]
ROWS_1_WIDE = [(1, 4), (2, 4), (2, 8), (4, 8), (1, 8), (4, 16)]
TILES = [
    (64, 128, 4, 4), (64, 128, 4, 6), (64, 256, 4, 3), (64, 256, 8, 3), (32, 256, 4, 4), (128, 128, 4, 4),
    (128, 128, 8, 4), (32, 128, 2, 5),
]  # fmt: skip
ENOUGH = 300e6  # bytes, more than the L2 cache holds
turn = [0, 1, 0]  # this process's share of the compilations, all shares, counter


def mine() -> bool:
    turn[2] += 1
    return turn[2] % turn[1] == turn[0]


def random_packed(N: int, K: int, kind: str) -> PackedWeight:
    raw = torch.randint(0, 112, (N, K), dtype=torch.uint8, device="cuda")
    return PackedWeight(raw.view(KINDS[kind][0]), torch.full((N,), 1e-3, device="cuda"), torch.bfloat16)


def timed(calls: list) -> float:
    """Microseconds of a call, all of them in one graph."""
    try:
        return timed_graph(calls)
    except Exception as error:  # a shape that does not fit
        say(f"failed: {type(error).__name__} {str(error)[:150]}")
        return float("inf")


def timed_graph(calls: list) -> float:
    if turn[1] > 1:
        calls[0]()
        torch.cuda.synchronize()
        return 0.0
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        calls[0]()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    best = float("inf")
    for _ in range(4):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        best = min(best, start.elapsed_time(end))
    return 1e3 * best / len(calls)


def copies(N: int, K: int, size: int) -> int:
    return 2 if turn[1] > 1 else max(4, int(ENOUGH / (N * K * size)))


def best_of(found: dict) -> str:
    if turn[1] > 1:
        return ""
    order = sorted((us, str(name).replace(" ", "")) for name, us in found.items())
    return " ".join(f"{name}={us:.1f}" for us, name in order[:5]) + f" .. {order[-1][1]}={order[-1][0]:.1f}"


def say(text: str) -> None:
    if turn[1] == 1:
        print(text, flush=True)


def via_bf16():
    """The kernel of one row, converting by way of bf16."""
    source = Path(folded_kernels.__file__).read_text()
    for name in ("w_NK", "w2_NK"):
        source = source.replace(f"{name}.to(tl.float32)", f"{name}.to(tl.bfloat16).to(tl.float32)")
    source = source.replace("from .", "from heedful.fast.kernels.")
    Path("/tmp/folded_via.py").write_text(source)
    spec = importlib.util.spec_from_file_location("folded_via", "/tmp/folded_via.py")
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules["folded_via"] = module
    spec.loader.exec_module(module)
    return module


def one_row() -> None:
    via, usual_shape = via_bf16(), folded_kernels.shape
    for K, N, normed in [
        (1600, 4800, True), (1600, 1600, False), (1600, 6400, True), (6400, 1600, False),
        (1600, 50257, True), (768, 2304, True), (768, 768, False), (768, 3072, True), (3072, 768, False),
    ]:  # fmt: skip
        half = {"dtype": torch.bfloat16, "device": "cuda"}
        x, b, r = torch.randn(1, K, **half), torch.randn(N, **half), torch.randn(1, N, **half)
        norm = Norm(LAYER, torch.ones(K, **half), torch.zeros(K, **half), 1e-5)
        vector = torch.randn(N, device="cuda")
        how = {"folded": (Folded(norm, vector, vector),)} if normed else {"residual_1N": r}
        found = {}
        plain = [torch.randn(N, K, **half) for _ in range(copies(N, K, 2))]
        folded_kernels.shape = usual_shape
        if mine():
            found["bf16"] = timed([lambda w=w: row_linear(x, w, b, **how) for w in plain])
        del plain
        for kind in KINDS:
            weights = [random_packed(N, K, kind) for _ in range(copies(N, K, 1))]
            for shape in ROWS_1_WIDE if K > 2048 else ROWS_1:
                for name, module in (("", folded_kernels), ("v", via)):
                    if (name and kind == "fp8") or not mine():
                        continue
                    module.shape = lambda *_, shape=shape: shape
                    given = how
                    if name and normed:
                        given = {"folded": (module.Folded(norm, vector, vector),)}
                    found[kind[0] + name, *shape] = timed(
                        [lambda w=w, m=module, g=given: m.row_linear(x, w, b, **g) for w in weights]
                    )
            del weights
        if turn[1] == 1:
            bf16 = found.pop("bf16")
            for letter in "if":
                some = {key: us for key, us in found.items() if key[0][0] == letter}
                us = min(some.values())
                say(
                    f"1 row {K}->{N} bf16 {bf16:.1f} us ({2e-3 * N * K / bf16:.0f} GB/s); "
                    f"{letter} {N * K / us / 1e3:.0f} GB/s: {best_of(some)}"
                )


def several_rows() -> None:
    half = {"dtype": torch.bfloat16, "device": "cuda"}
    device = torch.device("cuda")
    for K, N in [(1600, 4800), (1600, 6400), (1600, 50257), (1600, 1600), (6400, 1600), (768, 2304)]:
        for M in (16, 64):
            x, b, r = torch.randn(M, K, **half), torch.randn(N, **half), torch.randn(M, N, **half)
            shares, out = (
                N < 2000,
                torch.empty(M, N, dtype=torch.float32 if N > 50000 else torch.bfloat16, device=device),
            )
            found = {}
            rows = N + 47 if N > 50000 else N  # as the decoder pads it
            plain = [torch.randn(rows, K, **half) for _ in range(copies(N, K, 2))]

            def usual(w, x=x, b=b, r=r, shares=shares, N=N):
                if shares:
                    return linear_sum(x, w, b, r, NO_NORM)
                if N > 50000:
                    return torch.mm(x, w.t(), out_dtype=torch.float32)
                return linear(x, w, b)

            if mine():
                found["bf16"] = timed([lambda w=w: usual(w) for w in plain])
            del plain
            parts = torch.empty(16, M, N, device=device)
            for kind in KINDS:
                if kind == "fp8" and N != 6400:
                    continue
                weights = [random_packed(N, K, kind) for _ in range(copies(N, K, 1))]
                BM = max(16, triton.next_power_of_2(M))
                for BN, BK, warps, stages in TILES[::2] if shares else TILES:
                    if BM == 64 and (BK * (2 * BM + BN) * stages > 220_000 or warps < 4):
                        continue
                    for P in (4, 8) if shares else (1,):
                        part = triton.cdiv(triton.cdiv(K, P), BK) * BK if shares else 0
                        if not mine():
                            continue
                        grid = (triton.cdiv(N, BN), triton.cdiv(M, BM), triton.cdiv(K, part) if part else 1)

                        def call(w, grid=grid, part=part, BM=BM, BN=BN, BK=BK, warps=warps, stages=stages):
                            matrix_kernel[grid](
                                x, w.numbers_NK, x, w.scales_N, x, b, x, x, parts if part else out, M, N, K,
                                ACT=0, GATED=False, PACKED=True, BIAS=not part, RESIDUAL=False, PART=part,
                                TURNED=True, BM=BM, BN=BN, BK=BK, num_warps=warps, num_stages=stages,
                                **early(device),
                            )  # fmt: skip
                            if part:
                                sum_kernel[(M,)](
                                    parts, b, r, x, x, out, out, M, N, grid[2], BIAS=True, KIND=0, EPS=0.0,
                                    BN=triton.next_power_of_2(N), num_warps=4, **early(device),
                                )  # fmt: skip

                        found[kind[0], BN, BK, warps, stages, grid[2]] = timed(
                            [lambda w=w, call=call: call(w) for w in weights]
                        )
                del weights
            if turn[1] == 1:
                bf16 = found.pop("bf16")
                for letter in "if":
                    some = {key: us for key, us in found.items() if key[0] == letter}
                    if some:
                        us = min(some.values())
                        say(
                            f"{M} rows {K}->{N} bf16 {bf16:.1f} us ({2e-3 * N * K / bf16:.0f} GB/s); "
                            f"{letter} {N * K / us / 1e3:.0f} GB/s: {best_of(some)}"
                        )


@torch.no_grad()
def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--warm", help="I/N: compile the I-th share of N, and time nothing")
    asked = options.parse_args()
    if asked.warm:
        turn[:2] = map(int, asked.warm.split("/"))
    one_row()
    several_rows()


if __name__ == "__main__":
    main()
