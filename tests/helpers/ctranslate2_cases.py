"""Small models of every kind that CTranslate2 holds."""

from dataclasses import replace

import torch

from heedful.interop.loaded import Loaded
from heedful.models import bert, gpt2, llama, transformer
from helpers import tiny

SPECIAL = {"pad": 0, "bos": 1, "eos": 2, "decoder_start": 1}
SIZES = {
    "vocab": 29, "target_vocab": 29, "context": 41, "layers": 2, "decoder_layers": 3, "width": 12, "heads": 3,
    "decoder_heads": 2, "ffn_width": 20, "decoder_ffn_width": 14,
}  # fmt: skip


def translator(**other):
    return transformer, transformer.TransformerConfig(**SIZES | other)


MODELS = {
    "post-norm": translator(),
    "pre-norm, two vocabularies": tiny.ENCODER_DECODERS["transformer pre-norm"],
    "rotary": translator(positions="rotary"),
    "as Marian": translator(
        output_bias=True, sinusoid_layout="halves", activation="silu", scale_embeddings=False
    ),
    "t5": tiny.ENCODER_DECODERS["t5"],
    "t5 gated, untied": tiny.ENCODER_DECODERS["t5 gated, untied"],
    "gpt1": tiny.DECODERS["gpt1"],
    "gpt2": tiny.DECODERS["gpt2"],
    "gpt2 untied": (
        gpt2,
        replace(tiny.DECODERS["gpt2"][1], tie_embeddings=False, eps=1e-3, activation="gelu"),
    ),
    "llama": tiny.DECODERS["llama"],
    "qwen2": (
        llama,
        replace(tiny.DECODERS["llama"][1], attention_bias=True, out_bias=False, tie_embeddings=True),
    ),
    "llama with normalized queries": (llama, replace(tiny.DECODERS["llama"][1], qk_norm=True)),
    "llama stretched": (llama, replace(tiny.DECODERS["llama"][1], rope_scaling="linear", rope_factor=2.0)),
    "llama 3 stretched": (
        llama,
        replace(
            tiny.DECODERS["llama"][1],
            rope_scaling="llama3",
            rope_factor=3.0,
            rope_high_freq_factor=2.5,
            rope_original_context=19,
        ),
    ),
    "bert": (bert, replace(tiny.ENCODERS["bert"][1], prediction_heads=("pooled",), labels=2)),
    "bert without a head": (bert, replace(tiny.ENCODERS["bert"][1], prediction_heads=(), labels=2)),
}


def loaded_of(entry, seed=11, **other):
    file, config = entry
    architecture = file.__name__.rpartition(".")[2]
    return Loaded(architecture, config, tiny.build(entry, torch.float32, seed), None, SPECIAL, **other)
