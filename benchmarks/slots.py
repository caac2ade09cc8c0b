"""Rows that join and leave on a CPU: tokens per second beside one-by-one decoding, and the pause of a prompt.

    OMP_NUM_THREADS=2 python -m benchmarks.slots speed --model gpt2
    OMP_NUM_THREADS=2 python -m benchmarks.slots pause --model gpt2

Models have the demo's or GPT-2 124M's shape with random weights, packed in fp32, and scores as far apart as
a trained model's. All contenders run in one
process, in turns, and the best of several rounds counts: other programs on the machine only ever slow one.
With one thread (OMP_NUM_THREADS=1) processor time is measured, which other programs disturb least.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable, Iterator

import torch

from heedful.decode.filters import repetition_penalty, temperature, top_k, top_p
from heedful.decode.greedy import greedy
from heedful.decode.slots import Row, Slots
from heedful.fast.decoding import FastModel, for_decoding
from heedful.models import gpt2, transformer
from heedful.models.base.shells import Decoder, EncoderDecoder, decoder_of

HOW: dict[str, Callable[[], list]] = {
    "greedy": list,
    "top-p 0.9": lambda: [temperature(0.8), top_p(0.9)],
    "top-k 50": lambda: [temperature(0.8), top_k(50)],
    "top-p 0.9, penalty": lambda: [repetition_penalty(1.2), temperature(0.8), top_p(0.9)],
}


def demo() -> EncoderDecoder:
    """The shape of `heedful demo`."""
    sizes = {"width": 64, "ffn_width": 256, "decoder_ffn_width": 256, "heads": 4, "decoder_heads": 4}
    config = transformer.TransformerConfig(
        vocab=2798, target_vocab=2798, layers=3, decoder_layers=3, norm="pre", dropout=0.0, **sizes
    )
    return transformer.build(config).eval()


def gpt2_small() -> Decoder:
    """The shape of GPT-2 124M."""
    return gpt2.build(gpt2.PRESETS["gpt2"]).eval()


MODELS: dict[str, tuple[Callable[[], Decoder | EncoderDecoder], int, int]] = {  # with vocabulary and length
    "demo": (demo, 2798, 32),
    "gpt2": (gpt2_small, 50257, 24),
}


def clock() -> float:
    """Seconds: of the processor where one thread computes, else on the wall."""
    return time.process_time() if torch.get_num_threads() == 1 else time.perf_counter()


def sharpened(model: Decoder | EncoderDecoder) -> Decoder | EncoderDecoder:
    """The model with scores of a standard deviation of 4."""
    decoder, tokens_1T = decoder_of(model), torch.arange(1, 9)[None]
    source = () if isinstance(model, Decoder) else (tokens_1T,)
    decoder.head.scale = 4 * decoder.head.scale / model(*source, tokens_1T).std().item()
    return model


def random_rows(name: str, count: int, how: str, dice: random.Random) -> list[Row]:
    """Texts to write, none of which ends before its length."""
    _, vocab, longest = MODELS[name]

    def words(least: int, most: int) -> list[int]:
        return [dice.randrange(vocab) for _ in range(dice.randint(least, most))]

    return [
        Row(
            [1] if name == "demo" else words(4, 24),
            longest,
            source=words(6, 20) if name == "demo" else None,
            filters=HOW[how](),
            seed=None if how == "greedy" else number,
        )
        for number in range(count)
    ]


def one_by_one(fast: FastModel, rows: list[Row]) -> int:
    """Each text alone, greedily; the tokens written."""
    for row in rows:
        source = () if row.source is None else (torch.tensor([row.source]), torch.tensor([len(row.source)]))
        room = len(row.prompt) + row.longest
        greedy(fast.step(*source, room=room), torch.tensor([row.prompt]), longest=row.longest)
    return sum(row.longest for row in rows)


def joined(fast: FastModel, rows: list[Row]) -> int:
    """All texts together; the tokens written."""
    slots = Slots(fast.model)
    slots.add(rows)
    tokens = 0
    while slots.busy:
        tokens += len(slots.turn())
    return tokens


def speed(name: str, weights: str, rounds: int) -> Iterator[str]:
    """Tokens per second of each contender, the best of all rounds."""
    fast, best, dice = for_decoding(sharpened(MODELS[name][0]()), weights), {}, random.Random(1)
    contenders = {("one by one", 2): one_by_one}
    contenders |= {(how, count): joined for how in HOW for count in (1, 8, 32, 64)}
    for _ in range(rounds):
        for (how, count), run in contenders.items():
            rows = random_rows(name, count, "greedy" if run is one_by_one else how, dice)
            began = clock()
            rate = run(fast, rows) / (clock() - began)
            best[how, count] = max(rate, best.get((how, count), 0.0))
    alone = best["one by one", 2]
    for (how, count), rate in best.items():
        yield f"{how:>20} {count:3} rows {rate:8,.0f} tokens/s {rate / alone:6.2f} x one by one"


def pause(name: str, weights: str, rounds: int) -> Iterator[str]:
    """The longest and the median turn of 8 rows while a prompt of 400 tokens is read."""
    fast, dice = for_decoding(MODELS[name][0](), weights), random.Random(1)
    for prefill in (16, 32, 64, 128):
        found = []
        for _ in range(rounds):
            slots = Slots(fast.model, prefill)
            slots.add([Row([dice.randrange(1000)], 200) for _ in range(8)])
            times, alone = [], []
            for turn in range(12):
                began = clock()
                slots.turn()
                if turn > 3:
                    alone.append(clock() - began)
            slots.add([long := Row([dice.randrange(1000) for _ in range(400)], 9)])
            while not long.written:
                began = clock()
                slots.turn()
                times.append(clock() - began)
            found.append((sum(times), statistics.median(times), max(times), statistics.median(alone)))
        whole, middle, worst, alone_s = (1000 * min(column) for column in zip(*found, strict=True))
        yield (
            f"prefill {prefill:3}: a turn takes {middle:.0f} ms (worst {worst:.0f}) while a prompt is read, "
            f"{alone_s:.0f} without; the prompt is read in {whole:.0f} ms"
        )


def main() -> None:
    read = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    read.add_argument("what", choices=["speed", "pause"])
    read.add_argument("--model", choices=list(MODELS), default="demo")
    read.add_argument("--weights", default="fp32")
    read.add_argument("--rounds", type=int, default=3)
    given = read.parse_args()
    torch.manual_seed(0)
    with torch.no_grad():
        for line in (speed if given.what == "speed" else pause)(given.model, given.weights, given.rounds):
            print(line, flush=True)


if __name__ == "__main__":
    main()
