"""Tiny models of every family with sizes that all differ, for the invariants."""

from __future__ import annotations

import torch
from torch import nn

from heedful.models import (
    albert,
    bart,
    bert,
    bloom,
    deberta,
    decoder,
    distilbert,
    electra,
    encoder,
    ernie,
    gemma3,
    gpt1,
    gpt2,
    gpt3,
    gpt_neox,
    gptj,
    llama,
    m2m100,
    mixture,
    mixture_transformer,
    modern,
    modernbert,
    mpnet,
    opt,
    roberta,
    t5,
    transformer,
    vit,
)
from heedful.models.base.config import Config

VOCAB = 29

SIZES = {"vocab": VOCAB, "width": 12, "ffn_width": 20}
ALONE = {**SIZES, "context": 31, "layers": 2}
SHALLOW = {**SIZES, "layers": 2, "decoder_layers": 3, "heads": 3}  # fewer layers in the encoder
DEEP = {**SIZES, "layers": 3, "decoder_layers": 2, "heads": 2}  # fewer in the decoder
THINNER, WIDER = ({"decoder_heads": heads, "decoder_ffn_width": 14} for heads in (2, 3))
READER = {**ALONE, "heads": 3, "labels": 5}
EVERY_TOKEN = ("masked_lm", "classify", "tag", "span")
LLAMA = {**ALONE, "heads": 6, "key_width": 4}
STRETCHED = {"rope_scaling": "llama3", "rope_factor": 4.0, "rope_original_context": 16}
YARN = {"rope_scaling": "yarn", "rope_factor": 4.0, "rope_original_context": 16, "rope_magnitude": 1.2}

OTHER = {"norm_kind": "rmsnorm", "norm_affine": False}

DECODERS: dict[str, tuple[object, Config]] = {
    "gpt1": (gpt1, gpt1.GPT1Config(**ALONE, heads=3)),
    "gpt2": (gpt2, gpt2.GPT2Config(**ALONE, heads=3)),
    "gpt3": (gpt3, gpt3.GPT3Config(vocab=VOCAB, context=31, layers=4, width=12, heads=3, window=4)),
    "modern": (modern, modern.ModernConfig(**ALONE, heads=3)),
    "mixture": (mixture, mixture.MixtureConfig(**ALONE, heads=3, experts=5, top_k=2)),
    "decoder": (decoder, decoder.DecoderConfig(**ALONE, heads=3)),
    "decoder of other parts": (
        decoder,
        decoder.DecoderConfig(
            **ALONE, **OTHER, heads=3, positions="t5", score="bilinear", value_width=5, tie_embeddings=False
        ),
    ),
    "llama": (llama, llama.LlamaConfig(**LLAMA, kv_heads=2)),
    "llama stretched, biased": (
        llama,
        llama.LlamaConfig(
            **LLAMA, **STRETCHED, kv_heads=3, tie_embeddings=True, attention_bias=True, out_bias=False
        ),
    ),
    "llama windowed, normalized": (
        llama,
        llama.LlamaConfig(**LLAMA, **YARN, kv_heads=2, qk_norm=True, window=3, windowed_layers=(1,)),
    ),
    "opt narrow, unbiased": (
        opt,
        opt.OPTConfig(**ALONE, heads=3, embedding_width=10, bias=False, norm_affine=False),
    ),
    "gpt_neox": (gpt_neox, gpt_neox.GPTNeoXConfig(**ALONE, heads=2, rotary_width=2)),
    "gptj": (gptj, gptj.GPTJConfig(**ALONE, heads=2, rotary_width=4, tie_embeddings=True)),
    "bloom": (bloom, bloom.BloomConfig(vocab=VOCAB, context=31, layers=2, width=12, heads=3)),
    "gemma3": (gemma3, gemma3.Gemma3Config(**LLAMA, kv_heads=3, window=4, global_layers=(0,))),
}
ENCODER_DECODERS: dict[str, tuple[object, Config]] = {
    "transformer": (
        transformer,
        transformer.TransformerConfig(**SHALLOW, **THINNER, target_vocab=VOCAB),
    ),
    "transformer pre-norm": (
        transformer,
        transformer.TransformerConfig(**DEEP, **WIDER, target_vocab=17, share_embeddings=False, norm="pre"),
    ),
    "transformer of other parts": (
        transformer,
        transformer.TransformerConfig(
            **DEEP, **WIDER, **OTHER, target_vocab=VOCAB, positions="alibi", score="additive", key_width=6
        ),
    ),
    "mixture_transformer": (
        mixture_transformer,
        mixture_transformer.MixtureTransformerConfig(
            **SHALLOW, **THINNER, target_vocab=VOCAB, experts=4, top_k=2, moe_every=2
        ),
    ),
    "t5": (t5, t5.T5Config(**SHALLOW, key_width=5)),
    "t5 gated, untied": (
        t5,
        t5.T5Config(
            **DEEP, key_width=5, gated=True, activation="gelu_tanh", tie_embeddings=False, scale_output=False
        ),
    ),
    "bart": (bart, bart.BartConfig(**SHALLOW, **THINNER, context=31)),
    "mbart": (bart, bart.BartConfig(**DEEP, **WIDER, context=31, norm="pre", scale_embeddings=True)),
    "m2m100": (m2m100, m2m100.M2M100Config(**SHALLOW, **THINNER, context=31, offset=3)),
}
ENCODERS: dict[str, tuple[object, Config]] = {
    "bert": (
        bert,
        bert.BertConfig(
            **READER, prediction_heads=("pooled", "masked_lm", "next_sentence", *EVERY_TOKEN[1:])
        ),
    ),
    "encoder": (
        encoder,
        encoder.EncoderConfig(
            **READER, prediction_heads=("pooled", "masked_lm", "next_sentence", *EVERY_TOKEN[1:])
        ),
    ),
    "roberta": (
        roberta,
        roberta.RobertaConfig(**READER, offset=4, prediction_heads=("pooled", *EVERY_TOKEN)),
    ),
    "electra": (
        electra,
        electra.ElectraConfig(**READER, embedding_width=7, prediction_heads=(*EVERY_TOKEN, "replaced")),
    ),
    "mpnet": (mpnet, mpnet.MPNetConfig(**READER, prediction_heads=("pooled", *EVERY_TOKEN))),
    "distilbert": (distilbert, distilbert.DistilBertConfig(**READER, prediction_heads=EVERY_TOKEN)),
    "ernie": (
        ernie,
        ernie.ErnieConfig(
            **READER, tasks=6, prediction_heads=("pooled", "masked_lm", "next_sentence", *EVERY_TOKEN[1:])
        ),
    ),
    "albert": (
        albert,
        albert.AlbertConfig(
            **READER,
            embedding_width=7,
            prediction_heads=("pooled", "masked_lm", "sentence_order", *EVERY_TOKEN[1:]),
        ),
    ),
    "modernbert": (
        modernbert,
        modernbert.ModernBertConfig(
            **READER | {"layers": 4}, window=4, rotary_base=500.0, pool="mean", prediction_heads=EVERY_TOKEN
        ),
    ),
    "deberta version 1": (
        deberta,
        deberta.DebertaConfig(
            **READER,
            buckets=None,
            max_distance=5,
            norm_distances=False,
            share_projections=False,
            first_version=True,
            prediction_heads=EVERY_TOKEN,
        ),
    ),
    "deberta": (
        deberta,
        deberta.DebertaConfig(**READER, buckets=8, convolution=3, prediction_heads=EVERY_TOKEN),
    ),
}
VIT = vit.ViTConfig(
    image_size=12,
    patch_size=4,
    layers=2,
    width=12,
    heads=3,
    ffn_width=20,
    labels=5,
    prediction_heads=("class_token", "pooled", "classify"),
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
