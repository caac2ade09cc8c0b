"""gpt-fast: its model.py, from a checkout of github.com/pytorch-labs/gpt-fast; greedy decoding, compiled.

gpt-fast is made for LLaMA (rotary positions, RMSNorm, a gated feed-forward without biases, an untied head),
so it has weights of its own: as many layers of the same width, and matrices of as many numbers. The loop is
that of its generate.py with the most likely token for a sampled one: the prompt as it is, every further token
by a compiled step. The compiler has the settings of generate.py, above all coordinate descent tuning.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from importlib import import_module
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from .. import units
from ..work import DecodeGPT2, Work
from . import Place, Variant, load_module
from .nanogpt import model_file

# The settings of its generate.py, by the module of torch that has them.
SETTINGS: dict[str, dict[str, Any]] = {
    "torch._inductor.config": {
        "coordinate_descent_tuning": True,
        "triton.unique_kernel_names": True,
        "fx_graph_cache": True,
    },
    "torch._functorch.config": {"enable_autograd_cache": True},
}
CHECKOUT = "github.com/pytorch-labs/gpt-fast"


def variants(work: Work) -> list[Variant]:
    if not isinstance(work, DecodeGPT2):
        return []
    return [Variant("compiled", compiled=True, differs="LLaMA's parts at GPT-2's sizes, weights of its own")]


def set_compiler() -> None:
    """Compile as generate.py does. The settings stay: every peer has a process of its own."""
    for module, settings in SETTINGS.items():
        config = import_module(module)
        for name, value in settings.items():
            *parts, last = name.split(".")
            setattr(reduce(getattr, parts, config), last, value)


def build(work: Work, variant: Variant, place: Place) -> Callable[[], Any]:
    assert isinstance(work, DecodeGPT2)
    gptfast: Any = load_module(model_file(place, "gpt-fast"), "gptfast_model")
    torch.manual_seed(units.SEED)
    sizes = gptfast.ModelArgs(
        block_size=work.length,
        vocab_size=work.vocab,
        n_layer=work.layers,
        n_head=work.heads,
        dim=work.width,
        intermediate_size=2 * work.hidden // 3,  # three matrices where GPT-2 has two
    )
    with torch.device(place.device):
        model = gptfast.Transformer(sizes).to(dtype=place.dtype).eval()
        model.setup_caches(max_batch_size=work.batch, max_seq_length=work.length)
    prompts_BT = units.prompts(work, place)
    start = torch.arange(work.prompt, device=place.device)

    def one(tokens_B1: Any, position: Any) -> Any:
        return model(tokens_B1, position)[:, -1].argmax(-1, keepdim=True)

    set_compiler()
    fast = torch.compile(one, mode="reduce-overhead", fullgraph=True)

    @torch.no_grad()
    def generate() -> Any:
        tokens_B1 = one(prompts_BT, start)
        position = torch.tensor([work.prompt], device=place.device)
        written = [tokens_B1]
        with sdpa_kernel(SDPBackend.MATH):  # gpt-fast's choice: the compiler fuses it better
            for _ in range(work.new - 1):
                tokens_B1 = fast(tokens_B1, position).clone()
                position += 1
                written.append(tokens_B1)
        return torch.cat(written, 1)

    return generate
