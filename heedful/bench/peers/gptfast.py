"""gpt-fast: its model.py, from a checkout of github.com/pytorch-labs/gpt-fast; greedy decoding, compiled.

gpt-fast is made for LLaMA (rotary positions, RMSNorm, a gated feed-forward without biases, an untied head).
At work with these parts it has heedful's weights, brought into its order as its convert_hf_checkpoint.py
does. Beside GPT-2 it has weights of its own: as many layers of the same width, and matrices of as many
numbers. The loop is that of its generate.py with the most likely token for a sampled one: the prompt as it
is, every further token by a compiled step. The compiler has the settings of generate.py, above all coordinate
descent tuning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from .. import units
from ..work import Decode, DecodeGPT2, DecodeLlama, Work
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
    if isinstance(work, DecodeLlama):
        return [Variant("compiled", compiled=True, same_weights=True)]
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
    assert isinstance(work, Decode)
    gptfast: Any = load_module(model_file(place, "gpt-fast"), "gptfast_model")
    torch.manual_seed(units.SEED)
    sizes = gptfast.ModelArgs(
        block_size=work.length,
        vocab_size=work.vocab,
        n_layer=work.layers,
        n_head=work.heads,
        dim=work.width,
        # three matrices where GPT-2 has two
        intermediate_size=work.hidden if isinstance(work, DecodeLlama) else 2 * work.hidden // 3,
    )
    with torch.device(place.device):
        model = gptfast.Transformer(sizes).to(dtype=place.dtype).eval()
    if isinstance(work, DecodeLlama) and place.weights is not None:
        found = load_file(Path(place.weights) / "model.safetensors")
        model.load_state_dict(converted(found, work), assign=False)
    with torch.device(place.device):
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


NAMES = {
    "self_attn.o_proj": "attention.wo",
    "mlp.gate_proj": "feed_forward.w1",
    "mlp.up_proj": "feed_forward.w3",
    "mlp.down_proj": "feed_forward.w2",
    "input_layernorm": "attention_norm",
    "post_attention_layernorm": "ffn_norm",
}


def converted(found: Mapping[str, Tensor], work: DecodeLlama) -> dict[str, Tensor]:
    """Hugging Face's weights under gpt-fast's names; rotary pairs lie side by side, and q, k, v are one."""
    D, H = work.width, work.heads

    def paired(weight_DD: Tensor) -> Tensor:
        return weight_DD.view(H, 2, D // H // 2, D).transpose(1, 2).reshape(D, D)

    weights = {
        "tok_embeddings.weight": found["model.embed_tokens.weight"],
        "norm.weight": found["model.norm.weight"],
        "output.weight": found["lm_head.weight"],
    }
    for i in range(work.layers):
        q_DD, k_DD, v_DD = (found[f"model.layers.{i}.self_attn.{name}_proj.weight"] for name in "qkv")
        weights[f"layers.{i}.attention.wqkv.weight"] = torch.cat([paired(q_DD), paired(k_DD), v_DD])
        for theirs, own in NAMES.items():
            weights[f"layers.{i}.{own}.weight"] = found[f"model.layers.{i}.{theirs}.weight"]
    return weights
