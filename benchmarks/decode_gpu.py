"""Decoding on a GPU by kernels and graphs: `python -m benchmarks.decode_gpu`.

1. In fp32, the text is the one that the parts write, greedily and by beam, alone and in batches. 2. In
bf16, tokens a second of whole calls (the prompt or source read, every token looked at), and of the graph
alone.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

from heedful.decode.beam import beam_search
from heedful.decode.beam_settings import BeamSettings
from heedful.decode.greedy import greedy
from heedful.decode.step import step_of
from heedful.fast.cuda_graph import GraphStep
from heedful.fast.decoding import for_decoding
from heedful.models import gpt2, transformer
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


@torch.no_grad()
def main() -> None:
    check("GPT-2 124M", gpt2_124m())
    check("Transformer base", transformer_base())
    small, base = gpt2_124m().bfloat16(), transformer_base().bfloat16()
    for rows in (1, 64):
        time_gpt2(rows, small)
        time_transformer(rows, 1, base)
    time_transformer(64, 4, base)


if __name__ == "__main__":
    main()
