"""Decoding on a GPU by kernels and graphs: `python -m benchmarks.decode_gpu [--part check|speed|grid]`.

check: in fp32, the text is the one that the parts write, greedily and by beam, alone and in batches, also
after a long prompt; in bf16, scores are as near to those of fp32 as the parts' own. speed: in bf16, tokens a
second of whole calls (the prompt or source read, every token looked at), and of the graph alone. grid: a step
by its graph at three sizes, four batches and two lengths, beside the time that reading its weights, keys and
values takes at the speed of a copy.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from collections.abc import Callable

import torch

from heedful.bench.machine import ceilings
from heedful.decode.beam import beam_search
from heedful.decode.beam_settings import BeamSettings
from heedful.decode.greedy import greedy
from heedful.decode.step import step_of
from heedful.fast.cuda_graph import CHUNK, GraphStep
from heedful.fast.decoding import for_decoding
from heedful.models import gpt2, llama, transformer
from heedful.models.base.shells import Decoder, EncoderDecoder

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


def time_step(size: str, model: Decoder, rows: int, length: int, bandwidth: float) -> None:
    """A step by its graph after so many tokens, and its bound."""
    layers, width, _ = SIZES[size]
    fast = for_decoding(model)
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
    read = 2 * (layers * 12 * width**2 + 50257 * width) + rows * 4 * layers * width * (length + 12)
    print(
        f"{size:>6} batch {rows:3} after {length:5}: {1e3 * best:7.3f} ms {rows / best:9,.0f} tokens/s, "
        f"{read / bandwidth / best:4.0%} of the bound",
        flush=True,
    )


@torch.no_grad()
def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--part", choices=["check", "speed", "grid"], action="append")
    options.add_argument("--size", choices=list(SIZES), action="append")
    asked = options.parse_args()
    parts = asked.part or ["check", "speed", "grid"]
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
                for rows in (1, 4, 16, 64):
                    time_step(size, model, rows, length, bandwidth)
            del model


if __name__ == "__main__":
    main()
