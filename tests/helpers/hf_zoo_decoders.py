"""Tiny random Hugging Face models of families that write: mT5."""

from __future__ import annotations

import random

import torch
import transformers as hf
from torch import nn

from helpers.hf_cases import Case, encoder_decoder_case, pick


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


FAMILIES = {f.__name__: f for f in (mt5,)}
