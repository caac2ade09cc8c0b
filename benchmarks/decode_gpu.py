"""Decoding on a GPU by kernels and graphs: `python -m benchmarks.decode_gpu [--part PART] [--size SIZE]`.

check: in fp32, the text is the one that the parts write, greedily and by beam, alone and in batches, also
after a long prompt; in bf16, scores are as near to those of fp32 as the parts' own. speed: in bf16, tokens a
second of whole calls (the prompt or source read, every token looked at), and of the graph alone. grid: a step
by its graph at three sizes, four batches and two lengths, beside the time that reading its weights, keys and
values takes at the speed of a copy. packed: products and steps of weights in 8 bits beside those of the same
weights in fp32. weights: a step after 32 tokens with the model's own weights, int8 and fp8, and the relative
error of these. `heedful evaluate RUN --text FILE --weights int8` measures the loss that they cost.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F

from heedful.bench.machine import ceilings
from heedful.decode.beam import beam_search
from heedful.decode.beam_settings import BeamSettings
from heedful.decode.greedy import greedy
from heedful.decode.step import step_of
from heedful.fast.cuda_graph import CHUNK, GraphStep
from heedful.fast.decoding import FastModel, for_decoding
from heedful.fast.kernels.folded import fold
from heedful.fast.kernels.linear import linear, linear_sum
from heedful.fast.kernels.norms import LAYER, NO_NORM, Norm, normalize
from heedful.fast.kernels.packed import KINDS, PackedWeight, packed, unpacked
from heedful.fast.rounding import round_weights
from heedful.models import gpt2, llama, transformer
from heedful.models.base.shells import Decoder, EncoderDecoder, decoder_of

VOCAB = 32000


def gpt2_124m() -> Decoder:
    torch.manual_seed(0)
    return gpt2.build(gpt2.GPT2Config()).cuda().eval()


def transformer_base() -> EncoderDecoder:
    torch.manual_seed(0)
    return transformer.build(transformer.TransformerConfig(vocab=VOCAB, target_vocab=VOCAB)).cuda().eval()


def tokens(rows: int, length: int) -> torch.Tensor:
    return torch.randint(VOCAB, (rows, length), device="cuda")


def lengths(rows: int, longest: int) -> torch.Tensor:
    """Between 1 and the longest, and one as long."""
    made = torch.randint(1, longest + 1, (rows,), device="cuda")
    made[0] = longest
    return made


def check(name: str, model: Decoder | EncoderDecoder) -> None:
    """The same text by graphs and without, of prompts and sources of unequal length.

    Three times: the third time the prompts are read by a graph too.
    """
    fast, settings = for_decoding(model), BeamSettings(width=4)
    for rows in (1, 3, 64):
        alike, apart, beams = 0, 0.0, 0
        for _ in range(3):
            reads = isinstance(model, EncoderDecoder)
            source = (tokens(rows, 24), lengths(rows, 24)) if reads else ()
            given = tokens(rows, 21), lengths(rows, 21)
            steps = [fast.step(*source, room=85) if i % 2 == 0 else step_of(model, *source) for i in range(4)]
            quick, plain = (greedy(step, *given, longest=60, eos=7) for step in steps[:2])
            alike += sum(a.tokens == b.tokens for a, b in zip(quick, plain, strict=True))
            apart = max([apart, *(abs(a.score - b.score) for a, b in zip(quick, plain, strict=True))])
            found, expected = (
                beam_search(step, *given, longest=40, eos=7, settings=settings) for step in steps[2:]
            )
            beams += sum(a[0].tokens == b[0].tokens for a, b in zip(found, expected, strict=True))
        print(
            f"{name}, fp32, {3 * rows} texts: {alike} alike, scores {apart:.1e} apart; "
            f"by beam 4, {beams} alike",
            flush=True,
        )


def speed(name: str, call: Callable[[], object], written: int) -> None:
    """Tokens a second: the median of five calls, after two."""
    call(), call()
    seconds = []
    for _ in range(5):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    print(f"{name:44} {written / statistics.median(seconds):9,.0f} tokens/s", flush=True)


def time_gpt2(rows: int, model: Decoder, new: int = 128) -> None:
    fast, prompts = for_decoding(model), tokens(rows, 32)

    def write() -> object:
        return greedy(fast.step(room=32 + new), prompts, longest=new)

    speed(f"GPT-2 124M, greedy, batch {rows}, 32 + {new}", write, rows * new)
    speed("    its prompts alone", lambda: fast.step(room=32 + new).last(prompts), rows * 32)
    step = fast.step(room=32 + new)
    step.last(prompts)
    step.last(prompts[:, :1])
    assert isinstance(step, GraphStep) and step.runner is not None
    runner, lengths = step.runner, step.runner.buffers.lengths_R.clone()

    def replay() -> None:
        runner.buffers.lengths_R.copy_(lengths)
        for _ in range(64):
            runner.run("score", runner.score)

    speed("    its graph alone", replay, rows * 64)


def time_transformer(rows: int, beam: int, model: EncoderDecoder) -> None:
    fast, source = for_decoding(model), tokens(rows, 64)
    start = torch.zeros(rows, 1, dtype=torch.long, device="cuda")

    def write() -> object:
        step = fast.step(source, room=66)
        if beam == 1:
            return greedy(step, start, longest=64)
        return beam_search(step, start, longest=64, eos=None, settings=BeamSettings(width=beam))

    speed(f"Transformer base, beam {beam}, batch {rows}, 64 + 64", write, rows * 64)
    if beam == 1:
        speed(
            "    its sources alone",
            lambda: fast.step(source, room=66).last(start),
            rows * 64,
        )


SIZES = {"124M": (12, 768, 12), "355M": (24, 1024, 16), "1.56B": (48, 1600, 25)}  # layers, width, heads


def gpt2_of(size: str, context: int) -> Decoder:
    """GPT-2 with random weights, as sure of itself as a trained model: scores of some spread."""
    layers, width, heads = SIZES[size]
    config = gpt2.GPT2Config(layers=layers, width=width, heads=heads, ffn_width=4 * width, context=context)
    with torch.device("cuda"):
        model = gpt2.build(config)
    return model.eval()


def llama_of(layers: int, width: int, heads: int, kv_heads: int) -> Decoder:
    torch.manual_seed(0)
    config = llama.LlamaConfig(
        layers=layers, width=width, heads=heads, kv_heads=kv_heads, ffn_width=3 * width, vocab=VOCAB
    )
    return llama.build(config).cuda().eval()


def check_long(name: str, model: Decoder) -> None:
    """Scores after a long prompt and some tokens, in fp32 and in bf16, beside the plain step in fp32."""
    for rows in (1, 4, 17, 64):
        prompts, more = tokens(rows, 700), tokens(rows, 5)
        found = {}
        for half in (False, True):
            some = copy.deepcopy(model).bfloat16() if half else model
            for step, how in ((for_decoding(some).step(room=1000), "kernels"), (step_of(some), "parts")):
                step.last(prompts)
                scores = [step.last(more[:, i : i + 1]).float().clone() for i in range(5)]
                found[how, half] = torch.stack(scores)
            del some
        exact = found["parts", False]
        errors = {key: ((scores - exact).norm() / exact.norm()).item() for key, scores in found.items()}
        print(
            f"{name}, {rows} rows after 700 tokens, relative to the parts in fp32: kernels in fp32 "
            f"{errors['kernels', False]:.1e}; in bf16 kernels {errors['kernels', True]:.1e}, "
            f"parts {errors['parts', True]:.1e}",
            flush=True,
        )


def time_step(
    size: str, fast: FastModel, rows: int, length: int, bandwidth: float, weights: str = "own"
) -> None:
    """A step by its graph after so many tokens, and its bound."""
    layers, width, _ = SIZES[size]
    step = fast.step(room=length + 128)
    step.last(tokens(rows, length))
    step.last(tokens(rows, 1))
    assert isinstance(step, GraphStep) and step.runner is not None
    runner, lengths = step.runner, step.runner.buffers.lengths_R.clone()
    runner.run("likeliest", runner.take_likeliest)
    best = float("inf")
    for _ in range(4):
        runner.buffers.lengths_R.copy_(lengths)
        runner.chosen.counts_R.zero_()
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(CHUNK):
            runner.run("likeliest", runner.take_likeliest)
        torch.cuda.synchronize()
        best = min(best, (time.perf_counter() - start) / CHUNK)
    own = decoder_of(fast.model).inputs.tokens.weight.dtype.itemsize
    read = (own if weights == "own" else 1) * (layers * 12 * width**2 + 50257 * width)
    read += own * rows * 2 * layers * width * (length + 12)
    print(
        f"{size:>6} {weights:4} batch {rows:3} after {length:5}: {1e3 * best:7.3f} ms "
        f"{rows / best:9,.0f} tokens/s, {read / bandwidth / best:4.0%} of the bound",
        flush=True,
    )


def time_weights(
    size: str, dtype: torch.dtype, kinds: list[str], batches: list[int], bandwidth: float
) -> None:
    """Steps with the model's own weights and with packed ones, whose relative error is told too."""
    model = gpt2_of(size, 2048).to(dtype)
    for kind in kinds:
        if kind != "own":
            weight = model.stack.blocks[0].feed_forward.layer.up.weight.detach()
            error = (unpacked(packed(weight, kind)) - weight).norm() / weight.norm()
            print(f"{size:>6} {kind:4} weights are off by {error.item():.4f} of their norm", flush=True)
        fast = for_decoding(model, "fp32" if kind == "own" else kind)
        for rows in batches:
            time_step(size, fast, rows, 32, bandwidth, kind)
        del fast


def check_packed(size: str) -> None:
    """Products of packed weights beside those of the same weights in fp32: the largest error of each case.

    Errors are relative to the largest number of the product. What comes out in bf16 is rounded by 2e-3.
    """
    _, width, _ = SIZES[size]
    shapes = {
        "qkv": (width, 3 * width), "out": (width, width), "up": (width, 4 * width),
        "down": (4 * width, width), "words": (width, 50257),
    }  # fmt: skip
    half = {"dtype": torch.bfloat16, "device": "cuda"}
    for kind in KINDS:
        for name, (K, N) in shapes.items():
            weight, other = (packed(torch.randn(N, K, **half) / K**0.5, kind) for _ in range(2))
            bias, gain, shift = (torch.randn(n, **half) for n in (N, K, K))
            errors = {}
            for rows in (1, 3, 17, 64, 200):
                given = torch.randn(rows, K, **half) + 0.5, weight, bias, torch.randn(rows, N, **half)
                try:
                    errors[rows] = max(packed_errors(*given, other, Norm(LAYER, gain, shift, 1e-5)))
                except Exception as error:  # noqa: BLE001 - a kernel that does not compile is one case
                    print(f"{size} {kind} {name}, {rows} rows: {type(error).__name__} {str(error)[-300:]}")
            listed = ", ".join(f"{rows} rows {error:.1e}" for rows, error in errors.items())
            print(f"{size} {kind} {name}: {listed}", flush=True)


def packed_errors(
    x: torch.Tensor,
    weight: PackedWeight,
    bias: torch.Tensor,
    kept: torch.Tensor,
    other: PackedWeight,
    norm: Norm,
) -> list[float]:
    """Of a plain product, one with everything around it, one that is gated, and one of several programs."""
    W, V, b = unpacked(weight), unpacked(other), bias.float()

    def error(found: torch.Tensor, expected: torch.Tensor) -> float:
        gap = (found.float() - expected).abs().max() / expected.abs().max()
        return gap.nan_to_num(torch.inf).item()

    folded = tuple(one for one in (fold(weight, bias, norm),) if one is not None)
    read = normalize(x, norm).float() if len(x) > 1 else normalize(x.float(), norm)
    everything = linear(x, weight, bias, norm=norm, folded=folded, activation="gelu_tanh", residual_MN=kept)
    found = [
        error(linear(x, weight, dtype=torch.float32), F.linear(x.float(), W)),
        error(everything, F.gelu(F.linear(read, W, b), approximate="tanh") + kept.float()),
        error(
            linear(x, weight, bias, activation="silu", gated=(other, bias)),
            F.silu(F.linear(x.float(), W, b)) * F.linear(x.float(), V, b),
        ),
    ]
    if len(x) > 1:
        found.append(
            error(linear_sum(x, weight, bias, kept, NO_NORM)[0], F.linear(x.float(), W, b) + kept.float())
        )
    return found


def check_packed_steps() -> None:
    """Scores of packed steps beside those of the parts with the same rounded weights, in fp32."""
    for name, model in (("GPT-2 124M", gpt2_124m()), ("LLaMA", llama_of(4, 768, 12, 4))):
        for kind in KINDS:
            exact_model = copy.deepcopy(model)
            round_weights(exact_model, kind)
            for half in (False, True):
                some = copy.deepcopy(model).bfloat16() if half else model
                fast, errors = for_decoding(some, kind), []
                for rows in (1, 3, 17, 64):
                    start, more = tokens(rows, 1), tokens(rows, 4)
                    step, exact = fast.step(room=9), step_of(exact_model)
                    step.last(start), exact.last(start)
                    assert isinstance(step, GraphStep) and step.runner is not None
                    step.runner.buffers.lengths_R.zero_()  # once more: prompts are read with the model's own
                    step.last(start)
                    scores = [
                        torch.stack([one.last(more[:, i : i + 1]).float().clone() for i in range(4)])
                        for one in (step, exact)
                    ]
                    errors.append(((scores[0] - scores[1]).norm() / scores[1].norm()).item())
                listed = ", ".join(f"{error:.1e}" for error in errors)
                print(f"{name}, {kind} beside rounded, {'bf16' if half else 'fp32'}: {listed}", flush=True)


@torch.no_grad()
def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    every = ["check", "speed", "grid", "packed", "weights"]
    options.add_argument("--part", choices=every, action="append")
    options.add_argument(
        "--weights", choices=["own", *KINDS], action="append", help="of the part of that name"
    )
    options.add_argument("--rows", type=int, action="append", help="of the parts grid and weights")
    options.add_argument(
        "--dtype", choices=["bfloat16", "float32"], default="bfloat16", help="of the part weights"
    )
    options.add_argument("--size", choices=list(SIZES), action="append")
    asked = options.parse_args()
    parts, batches = asked.part or every, asked.rows or [1, 4, 16, 64]
    if "check" in parts:
        check("GPT-2 124M", gpt2_124m())
        check("LLaMA, 4 layers of 768, 12 heads on 4", llama_of(4, 768, 12, 4))
        check("Transformer base", transformer_base())
        check_long("GPT-2 124M", gpt2_124m())
        check_long("LLaMA", llama_of(4, 768, 12, 4))
        check_long("LLaMA of 1,600", llama_of(3, 1600, 25, 25))
    if "speed" in parts:
        small, base = gpt2_124m().bfloat16(), transformer_base().bfloat16()
        for rows in (1, 64):
            time_gpt2(rows, small)
            time_transformer(rows, 1, base)
        time_transformer(64, 4, base)
        del small, base
    if "grid" in parts:
        bandwidth = ceilings("cuda", 1, False)["bandwidth"]
        for size in asked.size or SIZES:
            model = gpt2_of(size, 2048).bfloat16()
            for length in (32, 1024):
                for rows in batches:
                    time_step(size, for_decoding(model), rows, length, bandwidth)
            del model
    if "packed" in parts:
        for size in asked.size or SIZES:
            check_packed(size)
        if "124M" in (asked.size or SIZES):
            check_packed_steps()
    if "weights" in parts:
        bandwidth = ceilings("cuda", 1, False)["bandwidth"]
        for size in asked.size or SIZES:
            kinds = asked.weights or ["own", *KINDS]
            time_weights(size, getattr(torch, asked.dtype), kinds, batches, bandwidth)


if __name__ == "__main__":
    main()
