"""Tiny random Hugging Face models of families that write: mT5, M2M100, OPT, GPT-NeoX, GPT-J, BLOOM."""

from __future__ import annotations

import random

import torch
import transformers as hf
from torch import nn

from helpers.hf_cases import Case, decoder_case, encoder_decoder_case, pairs, pick


def mt5(rng: random.Random) -> Case:
    n = pick(rng)
    config = hf.MT5Config(
        vocab_size=n["vocab"], d_model=n["width"], d_kv=rng.choice([3, 5]), d_ff=n["hidden"],
        num_layers=n["layers"], num_decoder_layers=rng.choice([1, 2]), num_heads=n["heads"],
        relative_attention_num_buckets=rng.choice([8, 32]),
        relative_attention_max_distance=rng.choice([6, 128]),
        feed_forward_proj=rng.choice(["relu", "gated-gelu", "gated-silu"]), decoder_start_token_id=0,
    )  # fmt: skip
    theirs = hf.MT5ForConditionalGeneration(config)
    if rng.random() < 0.6:  # the published ones have an output matrix of their own, and no config says so
        theirs.lm_head.weight = nn.Parameter(torch.zeros_like(theirs.shared.weight))
    return encoder_decoder_case(theirs, rng, n["vocab"], n["vocab"])


def m2m100(rng: random.Random) -> Case:
    n, pad = pick(rng), rng.choice([0, 1, 4])
    settings = pairs(rng, n) | {"pad_token_id": pad}
    theirs = hf.M2M100ForConditionalGeneration(hf.M2M100Config(**settings))
    return encoder_decoder_case(theirs, rng, n["vocab"], n["vocab"], pad)


def opt(rng: random.Random) -> Case:
    n = pick(rng)
    config = hf.OPTConfig(
        vocab_size=n["vocab"], hidden_size=n["width"], num_hidden_layers=n["layers"], ffn_dim=n["hidden"],
        max_position_embeddings=n["context"], num_attention_heads=n["heads"],
        do_layer_norm_before=rng.random() < 0.6, word_embed_proj_dim=rng.choice([None, 5, 8]),
        activation_function=rng.choice(["relu", "gelu"]), enable_bias=rng.random() < 0.7,
        layer_norm_elementwise_affine=rng.random() < 0.7, tie_word_embeddings=rng.random() < 0.7,
    )  # fmt: skip
    if rng.random() < 0.3:
        config._remove_final_layer_norm, config.num_hidden_layers = True, 1  # scores grow with each layer
        config.word_embed_proj_dim = 5
    return decoder_case(hf.OPTForCausalLM(config), rng, n["vocab"])


def gpt_neox(rng: random.Random) -> Case:
    n = pick(rng)
    head = n["width"] // n["heads"]
    config = hf.GPTNeoXConfig(
        vocab_size=n["vocab"], hidden_size=n["width"], num_hidden_layers=n["layers"],
        num_attention_heads=n["heads"], intermediate_size=n["hidden"], max_position_embeddings=n["context"],
        hidden_act=rng.choice(["gelu", "gelu_new", "relu"]), use_parallel_residual=rng.random() < 0.7,
        attention_bias=rng.random() < 0.6, tie_word_embeddings=rng.random() < 0.4,
        rope_parameters={
            "rope_type": "default", "rope_theta": rng.choice([10000.0, 500.0]),
            "partial_rotary_factor": rng.choice([2, head]) / head,
        },
    )  # fmt: skip
    return decoder_case(hf.GPTNeoXForCausalLM(config), rng, n["vocab"])


def gptj(rng: random.Random) -> Case:
    n = pick(rng)
    config = hf.GPTJConfig(
        vocab_size=n["vocab"], n_positions=n["context"], n_embd=n["width"], n_layer=n["layers"],
        n_head=n["heads"], n_inner=rng.choice([None, n["hidden"]]),
        rotary_dim=rng.choice([2, 4, n["width"] // n["heads"]]),
        activation_function=rng.choice(["gelu_new", "relu", "gelu"]),
        tie_word_embeddings=rng.random() < 0.4, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    return decoder_case(hf.GPTJForCausalLM(config), rng, n["vocab"])


def bloom(rng: random.Random) -> Case:
    n = pick(rng)
    config = hf.BloomConfig(
        vocab_size=n["vocab"], hidden_size=n["width"], n_layer=n["layers"], n_head=n["heads"],
        tie_word_embeddings=rng.random() < 0.7, seq_length=n["context"],
    )  # fmt: skip
    return decoder_case(hf.BloomForCausalLM(config), rng, n["vocab"], counts_itself=True)


FAMILIES = {f.__name__: f for f in (mt5, m2m100, opt, gpt_neox, gptj, bloom)}
