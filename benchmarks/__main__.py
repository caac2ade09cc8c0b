"""`make bench`: what this machine does with this build, peers beside it, in a minute or so.

    python -m benchmarks

A training step of a small decoder (GPT-2's parts) against Hugging Face's GPT-2 of the same size, if transformers is
installed, cases taking turns; then the formula against the fused kernel. Medians after warm-up, one thread a core.
On a machine with a CUDA GPU, `python -m benchmarks.check_gpu` checks and times the kernels there.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F

from heedful.models import gpt2
from heedful.parts.attention import attend_fused, attend_plain
from heedful.parts.masks import View, causal

SIZES = {
    "4 layers of 128, 12 x 64 tokens": (4, 128, 4, 12, 64),
    "6 layers of 384, 4 x 256 tokens": (6, 384, 6, 4, 256),
}
VOCAB = 65


def take_turns(cases: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Milliseconds of each case: medians over rounds in which every case has its turn."""
    spans: dict[str, list[float]] = {name: [] for name in cases}
    for turn in range(rounds + 2):
        for name, run in cases.items():
            start = time.perf_counter()
            run()
            if turn >= 2:
                spans[name].append(1000 * (time.perf_counter() - start))
    return {name: statistics.median(found) for name, found in spans.items()}


def training_step(
    model: torch.nn.Module, scores: Callable[[torch.Tensor], torch.Tensor], rows: int, length: int
):  # type: ignore[no-untyped-def]
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    ids = torch.randint(VOCAB, (rows, length + 1))

    def step() -> None:
        loss = F.cross_entropy(scores(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()

    return step


def steps(layers: int, width: int, heads: int, rows: int, length: int) -> dict[str, Callable[[], object]]:
    config = gpt2.GPT2Config(
        vocab=VOCAB, context=length, layers=layers, width=width, heads=heads, hidden=4 * width,
        dropout=0.0, attention_dropout=0.0,
    )  # fmt: skip
    ours = gpt2.build(config)
    cases = {"heedful": training_step(ours, ours, rows, length)}
    try:
        import transformers
    except ImportError:
        print("transformers is not installed: no peer beside us")
        return cases
    theirs = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=VOCAB, n_positions=length, n_embd=width, n_layer=layers, n_head=heads, resid_pdrop=0.0,
            embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0,
        )
    )  # fmt: skip
    cases["transformers"] = training_step(
        theirs, lambda ids: theirs(ids, use_cache=False).logits, rows, length
    )
    return cases


def main() -> None:
    torch.manual_seed(0)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    for name, sizes in SIZES.items():
        found = take_turns(steps(*sizes), rounds=15)
        for case, span in found.items():
            ratio = f"{found['transformers'] / span:.2f} x transformers" if "transformers" in found else ""
            print(f"training step, {name}: {case:13} {span:8.1f} ms  {ratio}")
    for length in (64, 256, 1024):
        q, k, v = (torch.randn(4, 8, length, 64) for _ in range(3))
        view = View(causal(), length, length)
        found = take_turns(
            {"formula": partial(attend_plain, q, k, v, view), "fused": partial(attend_fused, q, k, v, view)},
            rounds=15,
        )
        print(
            f"attention, 4 x 8 heads x {length} x 64: formula {found['formula']:.2f} ms, fused {found['fused']:.2f} ms"
        )


if __name__ == "__main__":
    main()
