"""Rows that join and leave on a GPU: the same texts as alone, and tokens per second beside other ways.

    python -m benchmarks.slots_gpu

1. Texts that join at random moments, greedy and sampled with filters, beside the same texts alone, in fp32
and bf16. 2. In bf16, tokens per second of 1, 8, 32 and 64 clients, each of which asks for the next text as
soon as it has one: while all of them are busy. Beside them, one text after the other, and a batch that
begins and ends together. 3. Memory after all rows have left.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial

import torch

from heedful.decode.filters import Filter, repetition_penalty, temperature, top_k, top_p
from heedful.decode.greedy import greedy
from heedful.decode.prompts import pad
from heedful.decode.sampling import sample
from heedful.decode.slots import Row, Slots
from heedful.fast import gpu_slots
from heedful.fast.decoding import FastModel, for_decoding, slots_for
from heedful.models import gpt2, transformer
from heedful.models.base.shells import Decoder, EncoderDecoder, decoder_of

PROMPT, NEW = 32, 128
HOW: dict[str, Callable[[], list[Filter]]] = {
    "greedy": list,
    "sampled": list,
    "temperature, top-k 50": lambda: [temperature(0.8), top_k(50)],
    "temperature, top-p 0.9": lambda: [temperature(0.8), top_p(0.9)],
    "top-k 50, top-p 0.9": lambda: [temperature(0.8), top_k(50), top_p(0.9)],
    "penalty, top-p 0.9": lambda: [repetition_penalty(1.2), temperature(0.8), top_p(0.9)],
}


def gpt2_124m() -> Decoder:
    torch.manual_seed(0)
    return gpt2.build(gpt2.GPT2Config()).cuda().eval()


def demo() -> EncoderDecoder:
    """The shape of `heedful demo`."""
    torch.manual_seed(0)
    sizes = {"width": 64, "ffn_width": 256, "decoder_ffn_width": 256, "heads": 4, "decoder_heads": 4}
    config = transformer.TransformerConfig(
        vocab=2798, target_vocab=2798, layers=3, decoder_layers=3, norm="pre", dropout=0.0, **sizes
    )
    return transformer.build(config).cuda().eval()


MODELS: dict[str, tuple[Callable[[], Decoder | EncoderDecoder], int]] = {
    "GPT-2 124M": (gpt2_124m, 50257),
    "demo translator": (demo, 2798),
}


def text(name: str, dice: random.Random, how: str = "greedy", shortest: int = PROMPT, new: int = NEW) -> Row:
    """A text to write, of the length asked for."""
    vocab = MODELS[name][1]
    words = [dice.randrange(vocab) for _ in range(dice.randint(shortest, PROMPT))]
    source = None if name.startswith("GPT") else words
    seed = None if how == "greedy" else dice.randrange(1 << 30)
    return Row([1] if source else words, new, source=source, filters=HOW[how](), seed=seed)


def alone(fast: FastModel, row: Row) -> list[int]:
    """What the text is when nothing else is written beside it."""
    source = () if row.source is None else pad([row.source], "cuda")
    step = fast.step(*source, room=len(row.prompt) + row.longest)
    prompt_1T, how = pad([row.prompt], "cuda")[0], {"longest": row.longest, "filters": row.filters}
    if row.seed is None:
        return greedy(step, prompt_1T, **how)[0].tokens
    return sample(step, prompt_1T, **how, seed=[row.seed])[0].tokens


def sharper(model: Decoder | EncoderDecoder) -> Decoder | EncoderDecoder:
    """Random weights find all words about as likely; this makes them as sure as trained ones."""
    with torch.no_grad():
        decoder_of(model).stack.norm.weight.mul_(8)
    return model


def check(name: str, fast: FastModel, kind: str, texts: int) -> None:
    """How many texts that join at random moments are the ones written alone."""
    dice, found = random.Random(1), {}
    for how in HOW:
        rows = [text(name, dice, how, 1, dice.randint(1, 64)) for _ in range(texts)]
        written: dict[Row, list[int]] = {row: [] for row in rows}
        slots, waiting = slots_for(fast), list(rows)
        while waiting or slots.busy:
            for _ in range(min(len(waiting), dice.choice([0, 0, 0, 1, 5]))):
                slots.add([waiting.pop()])
            for news in slots.turn():
                written[news.row].append(news.token)
        expected = {row: alone(fast, row) for row in rows}
        same = sum(written[row] == expected[row] for row in rows)
        tokens = sum(a == b for row in rows for a, b in zip(written[row], expected[row], strict=True))
        found[how] = f"{same} of {texts} ({100 * tokens / sum(map(len, expected.values())):.1f} % of tokens)"
    print(f"{name}, {kind}: " + "; ".join(f"{how}: {share}" for how, share in found.items()), flush=True)


def served(name: str, slots: Slots, clients: int, rounds: int, how: str = "greedy") -> dict[str, float]:
    """Clients that join at random moments and ask for text after text: figures while all of them are busy."""
    dice = random.Random(clients)
    joining = sorted(dice.randrange(NEW) for _ in range(clients))
    asked: dict[Row, float] = {}
    left, turn, tokens, began, ended = clients * rounds, 0, 0, 0.0, 0.0
    firsts: list[float] = []

    def ask() -> None:
        nonlocal left, ended
        row = text(name, dice, how)
        asked[row] = time.perf_counter()
        slots.add([row])
        left -= 1
        ended = ended or (time.perf_counter() if left == 0 else 0.0)

    while left or slots.busy:
        while joining and joining[0] <= turn:
            joining.pop(0)
            ask()
        if not joining and not began:
            began = time.perf_counter()
        for news in slots.turn():
            tokens += bool(began) and not ended
            if news.row in asked:
                firsts.append(time.perf_counter() - asked.pop(news.row))
            if news.last and left:
                ask()
        turn += 1
    firsts.sort()
    rank = min(len(firsts) - 1, int(0.99 * len(firsts)))
    return {
        "tokens/s": tokens / (ended - began),
        "first token p50 ms": 1000 * statistics.median(firsts),
        "p99": 1000 * firsts[rank],
    }


def rate(call: Callable[[], int], times: int = 3) -> float:
    """Tokens per second: the median of some calls, after two."""
    call(), call()
    found = []
    for _ in range(times):
        torch.cuda.synchronize()
        began = time.perf_counter()
        written = call()
        torch.cuda.synchronize()
        found.append(written / (time.perf_counter() - began))
    return statistics.median(found)


def one_by_one(name: str, fast: FastModel) -> int:
    dice = random.Random(2)
    return sum(len(alone(fast, text(name, dice))) for _ in range(4))


def static(name: str, fast: FastModel, rows: int) -> int:
    dice = random.Random(3)
    some = [text(name, dice) for _ in range(rows)]
    source = () if some[0].source is None else pad([row.source or [] for row in some], "cuda")
    prompts_BT = pad([row.prompt for row in some], "cuda")[0]
    step = fast.step(*source, room=prompts_BT.shape[1] + NEW)
    return sum(len(one.tokens) for one in greedy(step, prompts_BT, longest=NEW))


def say(name: str, what: str, figures: dict[str, float], alone: float, batch: float) -> None:
    told = ", ".join(f"{key} {value:,.2f}" for key, value in figures.items() if key != "tokens/s")
    tokens = figures["tokens/s"]
    print(
        f"{name:16} {what:36} {tokens:9,.0f} tokens/s  {tokens / alone:6.2f} x one by one  "
        f"{tokens / batch:5.2f} x the batch of 64  {told}",
        flush=True,
    )


def measure(name: str, fast: FastModel, rounds: int, kinds: list[str]) -> None:
    single, batch = rate(lambda: one_by_one(name, fast)), rate(lambda: static(name, fast, 64))
    say(name, "one by one", {"tokens/s": single}, single, batch)
    say(name, "a batch of 64", {"tokens/s": batch}, single, batch)
    slots = slots_for(fast)
    for clients in (1, 8, 32, 64):
        served(name, slots, clients, 2)
        say(name, f"{clients} clients", served(name, slots, clients, rounds), single, batch)
    held = torch.cuda.memory_allocated()
    for how in kinds:
        served(name, slots, 64, 2, how)
        say(name, f"64 clients, {how}", served(name, slots, 64, rounds // 2, how), single, batch)
    after = torch.cuda.memory_allocated()
    print(f"{name}: {held / 2**20:,.1f} MiB after the greedy rows, {after / 2**20:,.1f} MiB after the others")
    print(f"{name}: keys and values {slots.bytes / 2**20:,.1f} MiB, busy: {slots.busy}", flush=True)


def parts(name: str, fast: FastModel) -> Iterator[str]:
    """Where a turn of 64 rows goes."""
    slots, dice = slots_for(fast), random.Random(4)
    slots.add([text(name, dice, new=200) for _ in range(64)])
    for _ in range(8):
        slots.turn()
    assert isinstance(slots, gpu_slots.GPUSlots) and slots.lane is not None

    def milliseconds(call: Callable[[], object], times: int = 50) -> float:
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(times):
            call()
        torch.cuda.synchronize()
        return 1000 * (time.perf_counter() - began) / times

    def read(some: list[Row]) -> None:
        found = slots.reader.read(some)
        assert found is not None
        with slots.reader.handing_over(found):
            pass

    yield f"a turn of 64 rows {milliseconds(slots.turn):.3f} ms"
    for rows in (1, 4, 16, 64):
        slots.lane.step(rows)
        yield f"a step of {rows} rows {milliseconds(partial(slots.lane.step, rows)):.3f} ms"
    for rows in (4, 8, 16, 64):
        some = [text(name, dice) for _ in range(rows)]
        read(some), read(some)
        yield f"reading {rows} prompts {milliseconds(partial(read, some), 20):.3f} ms"


def main() -> None:
    read = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    read.add_argument("--texts", type=int, default=48, help="of each kind that are compared")
    read.add_argument("--rounds", type=int, default=12, help="texts of each client")
    read.add_argument("--patience", type=int, nargs="*", default=[], help="also with these waits for others")
    given = read.parse_args()
    for name, (make, _) in MODELS.items():
        check(name, for_decoding(sharper(make())), "fp32", given.texts)
        check(name, for_decoding(sharper(make()).bfloat16()), "bf16", given.texts)
        fast = for_decoding(make().bfloat16())
        measure(name, fast, given.rounds, [how for how in HOW if how != "greedy"])
        for line in parts(name, fast):
            print(f"{name}: {line}", flush=True)
        for patience in given.patience:
            gpu_slots.PATIENCE = patience
            slots = slots_for(fast)
            served(name, slots, 64, 2)
            figures = served(name, slots, 64, given.rounds)
            print(f"{name}: patience {patience}: {figures}", flush=True)


if __name__ == "__main__":
    main()
