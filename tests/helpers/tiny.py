"""Tiny models of every family with sizes that all differ, for the invariants."""

from __future__ import annotations

import torch
from torch import nn

from heedful.models import (
    albert,
    bart,
    bert,
    deberta,
    distilbert,
    ernie,
    gpt1,
    gpt2,
    gpt3,
    llama,
    mixture,
    mixture_transformer,
    modern,
    roberta,
    t5,
    transformer,
    vit,
)
from heedful.models.base.config import Config

VOCAB = 29

DECODERS: dict[str, tuple[object, Config]] = {
    "gpt1": (gpt1, gpt1.GPT1Config(vocab=VOCAB, context=31, layers=2, width=12, heads=3, hidden=20)),
    "gpt2": (gpt2, gpt2.GPT2Config(vocab=VOCAB, context=31, layers=2, width=12, heads=3, hidden=20)),
    "gpt3": (gpt3, gpt3.GPT3Config(vocab=VOCAB, context=31, layers=4, width=12, heads=3, band=4)),
    "modern": (modern, modern.ModernConfig(vocab=VOCAB, context=31, layers=2, width=12, heads=3, hidden=20)),
    "mixture": (
        mixture,
        mixture.MixtureConfig(
            vocab=VOCAB, context=31, layers=2, width=12, heads=3, hidden=20, experts=5, chosen=2
        ),
    ),
    "llama": (
        llama,
        llama.LlamaConfig(
            vocab=VOCAB, context=31, layers=2, width=12, heads=6, kv_heads=2, key_width=4, hidden=20
        ),
    ),
    "llama stretched, biased": (
        llama,
        llama.LlamaConfig(
            vocab=VOCAB, context=31, layers=2, width=12, heads=6, kv_heads=3, key_width=4, hidden=20, tied=True,
            attention_bias=True, out_bias=False, stretch="llama3", stretch_factor=4.0, stretch_original=16,
        ),
    ),
}  # fmt: skip
ENCODER_DECODERS: dict[str, tuple[object, Config]] = {
    "transformer": (
        transformer,
        transformer.TransformerConfig(
            vocab=VOCAB, target_vocab=VOCAB, layers=2, decoder_layers=3, width=12, heads=3, decoder_heads=2,
            hidden=20, decoder_hidden=14,
        ),
    ),
    "transformer pre-norm": (
        transformer,
        transformer.TransformerConfig(
            vocab=VOCAB, target_vocab=17, shared=False, layers=3, decoder_layers=2, width=12, heads=2,
            decoder_heads=3, hidden=20, decoder_hidden=14, norm="pre",
        ),
    ),
    "mixture_transformer": (
        mixture_transformer,
        mixture_transformer.MixtureTransformerConfig(
            vocab=VOCAB, target_vocab=VOCAB, layers=2, decoder_layers=3, width=12, heads=3, decoder_heads=2,
            hidden=20, decoder_hidden=14, experts=4, chosen=2, every=2,
        ),
    ),
    "t5": (t5, t5.T5Config(vocab=VOCAB, layers=2, decoder_layers=3, width=12, heads=3, key_width=5, hidden=20)),
    "t5 gated, untied": (
        t5,
        t5.T5Config(
            vocab=VOCAB, layers=3, decoder_layers=2, width=12, heads=2, key_width=5, hidden=20, gated=True,
            activation="gelu_tanh", tied=False, scaled=False,
        ),
    ),
    "bart": (
        bart,
        bart.BartConfig(
            vocab=VOCAB, context=31, layers=2, decoder_layers=3, width=12, heads=3, decoder_heads=2, hidden=20,
            decoder_hidden=14,
        ),
    ),
    "mbart": (
        bart,
        bart.BartConfig(
            vocab=VOCAB, context=31, layers=3, decoder_layers=2, width=12, heads=2, decoder_heads=3, hidden=20,
            decoder_hidden=14, norm="pre", scaled=True,
        ),
    ),
}  # fmt: skip
ENCODERS: dict[str, tuple[object, Config]] = {
    "bert": (
        bert,
        bert.BertConfig(
            vocab=VOCAB, context=31, layers=2, width=12, attention_heads=3, hidden=20, labels=5,
            heads=("pooled", "masked_lm", "next_sentence", "classify", "tag", "span"),
        ),
    ),
    "roberta": (
        roberta,
        roberta.RobertaConfig(
            vocab=VOCAB, context=31, offset=4, layers=2, width=12, attention_heads=3, hidden=20, labels=5,
            heads=("pooled", "masked_lm", "classify", "tag", "span"),
        ),
    ),
    "distilbert": (
        distilbert,
        distilbert.DistilBertConfig(
            vocab=VOCAB, context=31, layers=2, width=12, attention_heads=3, hidden=20, labels=5,
            heads=("masked_lm", "classify", "tag", "span"),
        ),
    ),
    "ernie": (
        ernie,
        ernie.ErnieConfig(
            vocab=VOCAB, context=31, layers=2, width=12, attention_heads=3, hidden=20, labels=5, tasks=6,
            heads=("pooled", "masked_lm", "next_sentence", "classify", "tag", "span"),
        ),
    ),
    "albert": (
        albert,
        albert.AlbertConfig(
            vocab=VOCAB, context=31, layers=2, width=12, attention_heads=3, hidden=20, labels=5, embedding=7,
            heads=("pooled", "masked_lm", "sentence_order", "classify", "tag", "span"),
        ),
    ),
    "deberta": (
        deberta,
        deberta.DebertaConfig(
            vocab=VOCAB, context=31, layers=2, width=12, attention_heads=3, hidden=20, labels=5, buckets=8, convolution=3,
            heads=("masked_lm", "classify", "tag", "span"),
        ),
    ),
}  # fmt: skip
VIT = vit.ViTConfig(
    image=12,
    patch=4,
    layers=2,
    width=12,
    attention_heads=3,
    hidden=20,
    labels=5,
    heads=("class_token", "pooled", "classify"),
)


def build(entry: tuple[object, Config], dtype: torch.dtype = torch.float64, seed: int = 11) -> nn.Module:
    """A model in evaluation mode whose every weight matters."""
    file, config = entry
    torch.manual_seed(seed)
    model = file.build(config)  # type: ignore[attr-defined]
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.2)
    return model.to(dtype).eval()
