"""What CI cannot see: the kernels on a GPU, checked and timed in one run.

    python -m benchmarks.check_gpu [--out FILE]

1. SDPA (every backend, cuDNN included) and compiled FlexAttention against the formula in fp64, forwards and
   backwards, over generated problems; strided and fixed attention of long texts by the flash kernel; rows
   with nothing to attend to give zeros.
2. watch: the compiled graph before and after, the cost when it is off, the weights when it is on.
3. A compiled static-cache step: no recompilation over 64 tokens, equal to the uncached model.
4. Training steps recorded as graphs: the open ones to the bit.
5. Kernels timed side by side on sparse masks, so that the choice in attend_fused rests on numbers.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from helpers import attention_cases

from heedful.fast.async_loop import train_async
from heedful.fast.training import for_training
from heedful.models import gpt2, llama
from heedful.parts.attention import attend_plain
from heedful.parts.fused import attend_flex, attend_sdpa
from heedful.parts.long.flash import attend_flash, flash_pays
from heedful.parts.masks import PerHead, causal, full, window
from heedful.parts.packed_masks import document
from heedful.parts.places import Lengths
from heedful.parts.sparse_masks import fixed, fixed_steps, strided, strided_steps
from heedful.parts.view import View
from heedful.parts.watch import watch
from heedful.tasks import lm
from heedful.train.loop import LoopSettings, train
from heedful.train.optimizer import OPTIMIZERS
from heedful.train.schedule import constant

TOLERANCE = {
    torch.float32: (1e-5, 5e-5),
    torch.float16: (5e-3, 2e-2),
    torch.bfloat16: (3e-2, 1e-1),
}


def answer(attend: Callable[..., torch.Tensor], p: attention_cases.Problem) -> list[torch.Tensor]:
    out = attend(p.q, p.k, p.v, p.mask, p.bias, p.scale)
    out.backward(torch.linspace(-1, 1, out.numel(), device=out.device).view_as(out).to(out.dtype))
    return [out.detach(), *(leaf.grad for leaf in p.leaves())]


def error(found: list[torch.Tensor], exact: list[torch.Tensor], dtype: torch.dtype) -> float:
    """The largest error as a share of what is allowed; infinite for NaN."""
    worst = 0.0
    for i, (a, b) in enumerate(zip(found, exact, strict=True)):
        if not a.isfinite().all():
            return float("inf")
        size = max(1.0, float(b.abs().max()))
        worst = max(worst, float((a.double() - b).abs().max()) / (TOLERANCE[dtype][i > 0] * size))
    return worst


def check_sdpa(cases: int) -> dict[str, Any]:
    """Every backend that accepts a case must give the formula's answer."""
    backends = {
        "default": None,
        "flash": SDPBackend.FLASH_ATTENTION,
        "efficient": SDPBackend.EFFICIENT_ATTENTION,
        "cudnn": SDPBackend.CUDNN_ATTENTION,
        "math": SDPBackend.MATH,
    }
    ran: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    worst = dict.fromkeys(backends, 0.0)
    bad = []
    warnings.filterwarnings("ignore")  # each backend explains at length why it refuses a case
    for seed in range(cases):
        problem, dtype = attention_cases.make(
            seed, "cuda", sizes=(1, 3, 8, 17, 64, 130), widths=(8, 16, 32, 64), dtypes=tuple(TOLERANCE)
        )
        exact = answer(attend_plain, problem.to(torch.float64))
        for name, backend in backends.items():
            given = problem.to(dtype)
            try:
                if backend is None:
                    found = answer(attend_sdpa, given)
                else:
                    with sdpa_kernel(backend):
                        found = answer(attend_sdpa, given)
            except RuntimeError as refusal:
                if "No available kernel" not in str(refusal) and "cuDNN" not in str(refusal):
                    raise
                refused[name] += 1
                continue
            ran[name] += 1
            share = error(found, exact, dtype)
            worst[name] = max(worst[name], share)
            if share > 1:
                bad.append(f"{name}: {share:.2f} x the tolerance, {problem.about}")
    return {
        "ran": dict(ran),
        "refused": dict(refused),
        "worst": worst,
        "bad": bad[:20],
        "bad_count": len(bad),
    }


def check_flex(cases: int) -> dict[str, Any]:
    """Compiled FlexAttention, forwards and backwards; few shapes, since each is compiled."""
    worst, bad, ran = 0.0, [], 0
    kinds = [m for m in attention_cases.MASKS if m != "none"]
    for seed in range(cases):
        problem, dtype = attention_cases.make(
            seed,
            "cuda",
            sizes=(128, 200),
            widths=(16, 64),
            dtypes=(torch.float32, torch.bfloat16),
            masks=(kinds[seed % len(kinds)],),
            biases=("none", "none", "own"),
        )
        exact = answer(attend_plain, problem.to(torch.float64))
        share = error(answer(attend_flex, problem.to(dtype)), exact, dtype)
        worst, ran = max(worst, share), ran + 1
        if share > 1:
            bad.append(f"{share:.2f} x the tolerance, {problem.about}")
    return {"ran": ran, "worst": worst, "bad": bad}


def check_sparse() -> dict[str, Any]:
    """Strided and fixed attention of long texts by the flash kernel, against the formula in fp64."""
    near, far = strided_steps(50)
    masks = {
        "strided": strided(50),
        "two strides": causal() & window(100) | far,
        "strided, by head": PerHead((near, far)),
        "fixed": fixed(48, 8),
        "fixed, a block of another length": fixed(50, 8),
        "fixed, a tail for each head": fixed(50, 8, 4),
        "fixed, second step": fixed_steps(50, 8)[1],
    }
    worst, refused = dict.fromkeys(masks, 0.0), []
    for name, mask in masks.items():
        for n, dtype in ((2400, torch.bfloat16), (2501, torch.float16), (2501, torch.bfloat16)):
            given = [torch.randn(2, 4, n, 64, device="cuda", dtype=dtype, requires_grad=True) for _ in "qkv"]
            if not flash_pays(given[0], given[2], View(mask, n, n, "cuda"), 0.0):
                refused.append(f"{name}, {n} tokens")
            exact = [x.detach().double().requires_grad_() for x in given]
            answers = []
            for some, attend in ((given, attend_flash), (exact, attend_plain)):
                out = attend(*some, View(mask, n, n, "cuda"))
                out.backward(torch.linspace(-1, 1, out.numel(), device="cuda").view_as(out).to(out.dtype))
                answers.append([out.detach(), *(x.grad for x in some)])
            worst[name] = max(worst[name], error(*answers, dtype))
    return {"worst": worst, "refused": refused}


def check_empty_rows() -> dict[str, Any]:
    """Strictly causal: the first row sees nobody. Zeros forwards, zeros backwards, in every backend and
    Flex."""
    results = {}
    names = {
        "cudnn": SDPBackend.CUDNN_ATTENTION,
        "efficient": SDPBackend.EFFICIENT_ATTENTION,
        "math": SDPBackend.MATH,
    }
    for name, backend in {**names, "flex": None}.items():
        q, k, v = (
            torch.randn(2, 4, 128, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
            for _ in range(3)
        )
        view = View(causal(strict=True), 128, 128, "cuda")
        if backend is None:
            out = attend_flex(q, k, v, view)
        else:
            with sdpa_kernel(backend):
                out = attend_sdpa(q, k, v, view)
        out.sum().backward()
        zero = bool((out[:, :, 0] == 0).all() and (q.grad[:, :, 0] == 0).all())
        finite = all(bool(t.isfinite().all()) for t in (out, q.grad, k.grad, v.grad))
        results[name] = "zeros" if zero and finite else "NOT ZERO" if finite else "NaN"
    return results


def milliseconds(run: Callable[[], object], warm: int = 5, times: int = 20) -> float:
    for _ in range(warm):
        run()
    spans = []
    for _ in range(times):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        spans.append(start.elapsed_time(end))
    return statistics.median(spans)


def check_watch() -> dict[str, Any]:
    torch.manual_seed(0)
    model = gpt2.build(gpt2.GPT2Config(layers=4, dropout=0.0, attention_dropout=0.0)).cuda().bfloat16().eval()
    ids = torch.randint(50257, (4, 512), device="cuda")
    compiled = torch.compile(model, fullgraph=True)
    with torch.no_grad():
        before = milliseconds(lambda: compiled(ids))
        torch._dynamo.utils.counters.clear()
        with watch(compiled) as trace:
            compiled(ids)
        again = milliseconds(lambda: compiled(ids))
        float_model = model.float()
        with watch(float_model, also=("q", "k")) as exact:
            float_model(ids)
    record = exact["stack.blocks.0.attention.layer"]
    from heedful.parts.attention import attention_weights

    expected = attention_weights(record.q[0], record.k[0], View(causal(), 512, 512, "cuda"))
    return {
        "ms_before": before,
        "ms_after": again,
        "ratio": again / before,
        "recompiled": dict(torch._dynamo.utils.counters["frames"]),
        "recorded": len(trace.weights()),
        "weights_error": float((record.weights[0] - expected).abs().max()),
    }


def check_static_cache() -> dict[str, Any]:
    torch.manual_seed(0)
    config = llama.LlamaConfig(
        vocab=997, layers=3, width=96, heads=6, kv_heads=2, key_width=16, ffn_width=160
    )
    model = llama.build(config).cuda().eval()
    ids = torch.randint(997, (3, 72), device="cuda")
    lengths = torch.tensor([8, 3, 5], device="cuda")
    with torch.no_grad():
        cache = model.static_cache(3, 128)
        step = torch.compile(lambda token: model(token, cache=cache), fullgraph=True, mode="reduce-overhead")
        model(ids[:, :8], Lengths(lengths), cache=cache)
        from torch._dynamo.utils import counters

        counters.clear()
        found = torch.cat([step(ids[:, t : t + 1]).clone() for t in range(8, 72)], 1)
        compiled = counters["stats"].get("unique_graphs", 0)
        worst = 0.0
        for b, n in enumerate(lengths.tolist()):
            alone = model(torch.cat([ids[b, :n], ids[b, 8:]])[None])[0, n:]
            worst = max(worst, float((found[b] - alone).abs().max()))
    return {"compiled_graphs": compiled, "max_error": worst}


def check_recorded(steps: int = 20) -> dict[str, Any]:
    """Training with steps recorded as graphs, with open ones, and by the plain loop: losses and weights,
    dropout included.

    "open" must be what is recorded, to the bit; the plain loop does the same in an order of its own.
    """
    config = gpt2.GPT2Config(vocab=97, context=32, layers=2, width=48, heads=4, ffn_width=96, dropout=0.2)
    found: dict[str, Any] = {}
    for kind in ("adamw", "muon"):
        ends: dict[str, tuple[list[float], torch.Tensor]] = {}
        for way in ("plain", "open", "recorded"):
            torch.manual_seed(0)
            model = for_training(gpt2.build(config).cuda())
            settings = LoopSettings(1e-3, constant(3), steps, precision="bf16", device=torch.device("cuda"))
            optimizers = OPTIMIZERS[kind](model, 1e-3, 0.1)
            given = (model, windows_of, lm.loss_of, optimizers, settings)
            made = train(*given) if way == "plain" else train_async(*given, steady=way == "recorded")
            losses = [progress.loss for progress in made]
            ends[way] = losses, torch.cat([p.detach().flatten() for p in model.parameters()])
        (open_losses, open_weights), (losses, weights) = ends["open"], ends["recorded"]
        found[kind] = {
            "alike to the bit": losses == open_losses and torch.equal(weights, open_weights),
            "weights apart from the plain loop's": float((weights - ends["plain"][1]).abs().max()),
            "last loss": losses[-1],
        }
    return found


def windows_of(step: int) -> list[lm.WindowBatch]:
    tokens = torch.randint(97, (6, 33), generator=torch.Generator().manual_seed(step))
    return [lm.WindowBatch(tokens[:4]), lm.WindowBatch(tokens[4:])]


def time_kernels() -> list[dict[str, Any]]:
    """SDPA with a dense mask against Flex with a block mask, forward and backward, bf16."""
    rows = []
    for S in (1024, 2048, 4096, 8192):
        B, H, K = max(1, 16384 // S), 12, 64
        ids = (torch.arange(S, device="cuda") // 300)[None].expand(B, S).contiguous()
        rules = {
            "causal": causal(),
            "window 256": causal() & window(256),
            "document 300": causal() & document(ids),
            "strided": strided(64),
            "fixed": fixed(128, 8),
            "full": full(),
        }
        for name, rule in rules.items():
            q, k, v = (
                torch.randn(B, H, S, K, device="cuda", dtype=torch.bfloat16, requires_grad=True)
                for _ in range(3)
            )
            view = View(rule, S, S, "cuda")

            def both(attend: Callable[..., torch.Tensor]) -> float:
                def run() -> None:
                    attend(q, k, v, view).backward(q)  # noqa: B023

                return milliseconds(run, warm=3, times=8)

            row = {"S": S, "B": B, "mask": name, "sdpa_ms": both(attend_sdpa), "flex_ms": both(attend_flex)}
            row["flex_speedup"] = row["sdpa_ms"] / row["flex_ms"]
            rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="write the results here as JSON")
    parser.add_argument("--cases", type=int, default=320)
    parser.add_argument("--flex-cases", type=int, default=30)
    parser.add_argument("--only", help="one check by name")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("this check needs a CUDA GPU, and there is none here")
    torch.backends.cuda.matmul.allow_tf32 = False
    torch._dynamo.config.recompile_limit = 512
    results: dict[str, Any] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    checks = {
        "sdpa": lambda: check_sdpa(options.cases),
        "sparse": check_sparse,
        "empty rows": check_empty_rows,
        "watch": check_watch,
        "static cache": check_static_cache,
        "recorded": check_recorded,
        "flex": lambda: check_flex(options.flex_cases),
        "kernels": time_kernels,
    }
    for name, check in checks.items():
        if options.only not in (None, name):
            continue
        start = time.time()
        try:
            results[name] = check()
        except Exception as failure:  # noqa: BLE001 (the other checks should still run)
            results[name] = f"FAILED: {type(failure).__name__}: {str(failure)[:2000]}"
        print(f"## {name} ({time.time() - start:.0f} s)\n{json.dumps(results[name], indent=1)}", flush=True)
        if options.out:
            options.out.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
