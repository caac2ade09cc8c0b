"""Tiny random LLaMA-style decoders of Hugging Face; texts are longer than windows and original contexts."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import torch
import transformers as hf
from torch import Tensor, nn

from heedful.parts.places import At, Lengths
from helpers.hf_cases import Case, lengths_and_positions, pick

ROPES = [
    {"rope_type": "default"},
    {"rope_type": "linear", "factor": 3.0},
    {
        "rope_type": "llama3", "factor": 5.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 6},
    {
        "rope_type": "yarn", "factor": 2.5, "original_max_position_embeddings": 50, "beta_fast": 5.0,
        "beta_slow": 0.5, "truncate": False, "attention_factor": 0.7,
    },
    {"rope_type": "yarn", "factor": 3.0, "mscale": 0.7, "mscale_all_dim": 1.3, "beta_fast": 8},
]  # fmt: skip


def case(theirs: nn.Module, rng: random.Random, vocab: int) -> Case:
    """Scores at every token; right of each, padding on one side."""
    B, T = 3, rng.choice([12, 17])
    tokens = torch.randint(vocab, (B, T))
    lengths, positions, side = lengths_and_positions(rng, B, T)
    real = positions >= 0

    def compare(theirs: nn.Module, ours: nn.Module) -> Iterator[tuple[Tensor, Tensor]]:
        given = {"position_ids": positions.clamp(min=0)} if side == "left" else {}
        expected = theirs(input_ids=tokens, attention_mask=real.long(), **given).logits
        yield expected[real], ours(tokens, At(positions))[real]
        yield theirs(input_ids=tokens).logits.flatten(0, 1), ours(tokens).flatten(0, 1)
        if side == "right":
            yield expected[real], ours(tokens, Lengths(lengths))[real]

    return Case(theirs, compare)


def sizes(rng: random.Random, n: dict[str, int]) -> dict[str, Any]:
    """The settings that all of these have."""
    rope = {"rope_theta": rng.choice([10000.0, 500.0]), **rng.choice(ROPES)}
    given = {
        "vocab_size": n["vocab"], "hidden_size": rng.choice([12, 24]), "intermediate_size": n["hidden"],
        "num_hidden_layers": n["layers"], "num_attention_heads": 6,
        "num_key_value_heads": rng.choice([1, 2, 3, 6]), "tie_word_embeddings": rng.random() < 0.5,
        "max_position_embeddings": n["context"], "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": None,
        "rope_parameters": rope, "hidden_act": rng.choice(["silu", "silu", "gelu", "relu"]),
        "rms_norm_eps": rng.choice([1e-6, 1e-5]),
    }  # fmt: skip
    if rope["rope_type"] in ("llama3", "yarn") and rng.random() < 0.3:
        given["original_max_position_embeddings"] = 9
    return given | ({"is_causal": False} if rng.random() < 0.2 else {})


def kinds(rng: random.Random, layers: int) -> list[str]:
    """What each layer sees."""
    return [rng.choice(["full_attention", "sliding_attention"]) for _ in range(layers)]


def llama(rng: random.Random) -> Case:
    n = pick(rng)
    config = hf.LlamaConfig(
        **sizes(rng, n), head_dim=rng.choice([4, 10]), attention_bias=rng.random() < 0.5,
        mlp_bias=rng.random() < 0.5,
    )  # fmt: skip
    return case(hf.LlamaForCausalLM(config), rng, n["vocab"])


def mistral(rng: random.Random) -> Case:
    n = pick(rng)
    window = {"sliding_window": rng.choice([None, 1, 3, 7])}
    config = hf.MistralConfig(**sizes(rng, n), head_dim=rng.choice([None, 10]), **window)
    return case(hf.MistralForCausalLM(config), rng, n["vocab"])


def ministral(rng: random.Random) -> Case:
    n = pick(rng)
    config = hf.MinistralConfig(
        **sizes(rng, n), head_dim=rng.choice([4, 10]), sliding_window=rng.choice([2, 5]),
        layer_types=rng.choice([None, kinds(rng, n["layers"])]),
    )  # fmt: skip
    return case(hf.MinistralForCausalLM(config), rng, n["vocab"])


def windows(rng: random.Random, layers: int) -> dict[str, Any]:
    """Qwen's: none, from a layer on, or by name."""
    given = {"use_sliding_window": True, "sliding_window": rng.choice([1, 4, 6])}
    return rng.choice(
        [
            {},
            given | {"max_window_layers": rng.choice([0, 1, 2])},
            given | {"layer_types": kinds(rng, layers)},
        ]
    )


def qwen2(rng: random.Random) -> Case:
    n = pick(rng)
    config = hf.Qwen2Config(**sizes(rng, n), **windows(rng, n["layers"]))
    return case(hf.Qwen2ForCausalLM(config), rng, n["vocab"])


def qwen3(rng: random.Random) -> Case:
    n = pick(rng)
    config = hf.Qwen3Config(
        **sizes(rng, n), **windows(rng, n["layers"]), head_dim=rng.choice([4, 10]),
        attention_bias=rng.random() < 0.5,
    )  # fmt: skip
    return case(hf.Qwen3ForCausalLM(config), rng, n["vocab"])


def phi3(rng: random.Random) -> Case:
    n = pick(rng)
    heads = rng.choice([4, 10])
    given = sizes(rng, n) | {"hidden_size": 2 * heads, "max_position_embeddings": 40}
    given |= {"num_attention_heads": 2, "num_key_value_heads": rng.choice([None, 1, 2])}
    rope = rng.choice([{}, {}, longrope(rng, 2), longrope(rng, heads // 2)])
    share = 1.0 if len(rope.get("short_factor", [0] * 2)) != 2 else 4 / heads
    given["rope_parameters"] = {"rope_theta": 300.0, "partial_rotary_factor": share, **rope}
    config = hf.Phi3Config(
        **given | {"original_max_position_embeddings": rng.choice([17, 20]), "pad_token_id": 0},
        sliding_window=rng.choice([None, 5]),
    )  # fmt: skip
    return case(hf.Phi3ForCausalLM(config), rng, n["vocab"])


def longrope(rng: random.Random, count: int) -> dict[str, Any]:
    """Factors of so many frequencies, for short and for long texts."""
    short, long = ([rng.choice([1.0, 1.5, 2.25]) for _ in range(count)] for _ in range(2))
    magnitude = rng.choice([{}, {"attention_factor": 1.3}, {"factor": 8.0}])
    return {"rope_type": "longrope", "short_factor": short, "long_factor": long, **magnitude}


def gemma3(rng: random.Random) -> Case:
    n = pick(rng)
    given = sizes(rng, n) | {"rope_parameters": rng.choice([None, GEMMA_ROPE]), "hidden_act": None}
    config = hf.Gemma3TextConfig(
        **given, layer_types=kinds(rng, n["layers"]), head_dim=rng.choice([4, 10]),
        attention_bias=rng.random() < 0.3,
        query_pre_attn_scalar=rng.choice([7, 24]), sliding_window=rng.choice([2, 5]),
        hidden_activation=rng.choice(["gelu_pytorch_tanh", "silu"]),
        use_bidirectional_attention=rng.random() < 0.3,
    )  # fmt: skip
    return case(hf.Gemma3ForCausalLM(config), rng, n["vocab"])


GEMMA_ROPE = {
    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 3000.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
}


def gpt2_both_ways(rng: random.Random) -> Case:
    n = pick(rng)
    config = hf.GPT2Config(
        vocab_size=n["vocab"], n_positions=n["context"], n_embd=n["width"], n_layer=n["layers"],
        n_head=n["heads"], is_causal=False, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    return case(hf.GPT2LMHeadModel(config), rng, n["vocab"])


FAMILIES = {f.__name__: f for f in (llama, mistral, ministral, qwen2, qwen3, phi3, gemma3, gpt2_both_ways)}
