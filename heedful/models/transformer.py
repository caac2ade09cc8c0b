"""The Transformer (Vaswani et al. 2017): an encoder reads, a decoder writes.

Also Marian (Junczys-Dowmunt et al. 2018) and Pegasus (Zhang et al. 2020).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..errors import BadInput
from ..parts.embeddings import Tied, TokenEmbedding, Untied
from ..parts.positions.absolute import Sinusoidal
from .base.choices import POSITIONS, OpenConfig, Side, build_inputs, build_stack, unused, unusual
from .base.fields import (
    Activation,
    ActivationDropout,
    AttentionDropout,
    Context,
    DecoderFfnWidth,
    DecoderHeads,
    DecoderLayers,
    Dropout,
    FfnWidth,
    Heads,
    Layers,
    Norm,
    OutputBias,
    ScaleEmbeddings,
    ShareEmbeddings,
    TargetVocab,
    Vocab,
    Width,
    ratio,
)
from .base.initialize import xavier_
from .base.settings import same_as
from .base.shells import Decoder, Encoder, EncoderDecoder
from .hf.folder import ACTIVATION_NAMES, read, read_activation, read_unless_null, refuse_unless
from .hf.names import Fixed, Rule, Table, reshaped, same, weight_and_bias


@dataclass(frozen=True)
class TransformerConfig(OpenConfig):
    vocab: Vocab = 37000
    target_vocab: TargetVocab = 37000
    context: Context = 1024
    share_embeddings: ShareEmbeddings = True
    layers: Layers = 6
    decoder_layers: DecoderLayers = same_as("layers")
    width: Width = 512
    heads: Heads = 8
    decoder_heads: DecoderHeads = same_as("heads")
    ffn_width: FfnWidth = ratio(4, "width")
    decoder_ffn_width: DecoderFfnWidth = same_as("ffn_width")
    activation: Activation = "relu"
    norm: Norm = "post"
    scale_embeddings: ScaleEmbeddings = True
    output_bias: OutputBias = False
    dropout: Dropout = 0.1
    attention_dropout: AttentionDropout = 0.0
    activation_dropout: ActivationDropout = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.share_embeddings and self.vocab != self.target_vocab:
            raise ValueError(f"a shared vocabulary has one size, not {self.vocab} and {self.target_vocab}")


MODEL_TYPES = ("marian", "pegasus")  # Hugging Face's
PRESETS = {
    "transformer-base": TransformerConfig(),
    "transformer-big": TransformerConfig(
        width=1024, heads=16, decoder_heads=16, ffn_width=4096, decoder_ffn_width=4096, dropout=0.3
    ),
}


def build(config: TransformerConfig) -> EncoderDecoder:
    """The encoder-decoder, with fresh weights."""
    c = config
    reads, writes = sides_of(c)
    scale = math.sqrt(c.width) if c.scale_embeddings else 1.0
    source = TokenEmbedding(c.vocab, reads.token_width, scale)
    target = source if c.share_embeddings else TokenEmbedding(c.target_vocab, writes.token_width, scale)
    encoder = Encoder(build_inputs(reads, source), build_stack(reads))
    decoder = Decoder(build_inputs(writes, target), build_stack(writes), build_head(c, writes))
    model = EncoderDecoder(encoder, decoder)
    xavier_(model)
    return model


def sides_of(c: TransformerConfig) -> tuple[Side, Side]:
    """The encoder and the decoder."""
    reads, writes = POSITIONS[c.positions]
    encoder = Side(
        config=c,
        order=reads,
        layers=c.layers,
        heads=c.heads,
        ffn_width=c.ffn_width,
        eps=EPS,
        both_ways=True,
        **{name: getattr(c, name) for name in BOTH},
    )
    decoder = replace(encoder, order=writes, both_ways=False, cross=True)
    return encoder, replace(
        decoder, layers=c.decoder_layers, heads=c.decoder_heads, ffn_width=c.decoder_ffn_width
    )


EPS = 1e-5
BOTH = ("width", "context", "activation", "norm", "dropout", "attention_dropout", "activation_dropout")


def build_head(c: TransformerConfig, writes: Side) -> Tied | Untied:
    """The embeddings once more, unless positions have a part of the width."""
    if writes.token_width == c.width:
        return Tied(c.target_vocab if c.output_bias else None)
    return Untied(c.width, c.target_vocab, bias=c.output_bias)


# Hugging Face: with the norm after each layer as Marian, before it as Pegasus. Both have sinusoids in halves,
# at the paper's frequencies, and a bias on the scores.

MODEL_TYPE = {"post": "marian", "pre": "pegasus"}
CLASSES = {"post": "MarianMTModel", "pre": "PegasusForConditionalGeneration"}


COMMON_NAMES = {
    "num_attention_heads": "encoder_attention_heads",
    "hidden_size": "d_model",
    "num_hidden_layers": "encoder_layers",
}


def read_sizes(theirs: dict[str, Any]) -> dict[str, Any]:
    """What the configs of Marian, Pegasus and BART say in the same words."""
    return {
        "context": read(theirs, "max_position_embeddings", 1024),
        "layers": read(theirs, "encoder_layers", 12),
        "decoder_layers": read(theirs, "decoder_layers", 12),
        "width": read(theirs, "d_model", 1024),
        "heads": read(theirs, "encoder_attention_heads", 16),
        "decoder_heads": read(theirs, "decoder_attention_heads", 16),
        "ffn_width": read(theirs, "encoder_ffn_dim", 4096),
        "decoder_ffn_width": read(theirs, "decoder_ffn_dim", 4096),
        "activation": read_activation(theirs, "activation_function", "gelu"),
        "scale_embeddings": read(theirs, "scale_embedding", False),
        "dropout": read(theirs, "dropout", 0.1),
        "attention_dropout": read(theirs, "attention_dropout", 0.0),
        "activation_dropout": read(theirs, "activation_dropout", 0.0),
    }


def write_sizes(c: Any) -> dict[str, Any]:
    """The way back."""
    return {
        "max_position_embeddings": c.context,
        "encoder_layers": c.layers,
        "decoder_layers": c.decoder_layers,
        "d_model": c.width,
        "encoder_attention_heads": c.heads,
        "decoder_attention_heads": c.decoder_heads,
        "encoder_ffn_dim": c.ffn_width,
        "decoder_ffn_dim": c.decoder_ffn_width,
        "activation_function": ACTIVATION_NAMES[c.activation],
        "scale_embedding": c.scale_embeddings,
        "dropout": c.dropout,
        "attention_dropout": c.attention_dropout,
        "activation_dropout": c.activation_dropout,
        "tie_word_embeddings": True,
    }


def read_config(theirs: dict[str, Any], names: Collection[str] = ()) -> TransformerConfig:
    norm = "pre" if theirs.get("model_type") == MODEL_TYPE["pre"] else "post"
    for key in ("normalize_before", "add_final_layer_norm"):  # said by older configs, read by nobody
        refuse_unless(theirs, key, norm == "pre")
    refuse_unless(theirs, "normalize_embedding", False)
    refuse_unless(theirs, "static_position_embeddings", True)
    refuse_unless(theirs, "tie_word_embeddings", True)
    apart = norm == "post"  # Pegasus has one vocabulary
    vocab = read(theirs, "vocab_size", 58101 if apart else 50265)
    return TransformerConfig(
        vocab=vocab,
        target_vocab=read_unless_null(theirs, "decoder_vocab_size", vocab) if apart else vocab,
        share_embeddings=read(theirs, "share_encoder_decoder_embeddings", True) if apart else True,
        norm=norm,
        sinusoid_layout="halves",
        sinusoid_precision=read(theirs, "sinusoid_precision", "float32"),
        output_bias=True,
        **read_sizes(theirs),
    )


def write_config(c: TransformerConfig) -> dict[str, Any]:
    refuse_unlike_theirs(c)
    apart = {"decoder_vocab_size": c.target_vocab, "share_encoder_decoder_embeddings": c.share_embeddings}
    return {
        "model_type": MODEL_TYPE[c.norm],
        "architectures": [CLASSES[c.norm]],
        "is_encoder_decoder": True,
        "vocab_size": c.vocab,
        **(apart if c.norm == "post" else {}),
        **write_sizes(c),
        **({} if c.sinusoid_precision == "float32" else {"sinusoid_precision": c.sinusoid_precision}),
        "forced_eos_token_id": None,  # their classes would make the longest translation end
    }


def refuse_unlike_theirs(c: TransformerConfig) -> None:
    """What has no counterpart is refused with all that it differs in."""
    unlike = [f"{c.positions} positions"] if c.positions != "sinusoidal" else []
    unlike += (
        ["pre-norm with a vocabulary for each side"] if c.norm == "pre" and not c.share_embeddings else []
    )
    unlike += [f"{c.sinusoid_layout} sinusoids"] if c.sinusoid_layout != "halves" else []
    unlike += ["no bias on its scores"] if not c.output_bias else []
    unlike += unusual(c)
    if unlike:
        raise BadInput(
            f"Hugging Face has the transformer as Marian (post-norm) and as Pegasus (pre-norm, one "
            f"vocabulary), both with sinusoids alone, and this one is otherwise ({', '.join(unlike)}): "
            f"it cannot be saved as their folder; heedful.load reads the run's own folder, "
            f"and a run with model.positions=sinusoidal and the usual parts can be saved"
        )


def as_theirs(
    c: TransformerConfig, ours: Mapping[str, Tensor]
) -> tuple[TransformerConfig, Mapping[str, Tensor]]:
    """The same function with sinusoids in halves and a bias on the scores, where that is possible.

    Nothing says which coordinate of the model's width is which, except the sinusoids: reordered everywhere
    alike, the coordinates give the same scores.
    """
    if c.positions != "sinusoidal":
        return c, ours
    made = replace(c, sinusoid_layout="halves", output_bias=True, **unused(c))
    if c.sinusoid_layout == "interleaved":
        order_D = torch.cat([torch.arange(0, c.width, 2), torch.arange(1, c.width, 2)])
        ours = {name: reordered(name, weight, order_D) for name, weight in ours.items()}
    if not c.output_bias:
        like = next(iter(ours.values()))
        ours = {**ours, "decoder.head.bias": like.new_zeros(c.target_vocab)}
    return made, ours


WRITE_STREAM = ("out.weight", "out.bias", "down.weight", "down.bias", "norm.weight", "norm.bias")
READ_STREAM = ("query.weight", "key.weight", "value.weight", "up.weight", "tokens.weight")
OFF_STREAM = ("query.bias", "key.bias", "value.bias", "up.bias", "head.bias")


def reordered(name: str, weight: Tensor, order_D: Tensor) -> Tensor:
    """A weight whose side towards the model's width, if it has one, is put into this order."""
    order_D = order_D.to(weight.device)
    if name.endswith(WRITE_STREAM):
        return weight[order_D]
    if name.endswith(READ_STREAM):
        return weight[:, order_D]
    if name.endswith(OFF_STREAM):
        return weight
    raise KeyError(f"{name} has no name over there")


def attention_names(theirs: str, ours: str) -> list[Rule]:
    parts = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "out_proj": "out"}
    names = weight_and_bias(f"{theirs}_layer_norm", f"{ours}.norm")
    for a, b in parts.items():
        names += weight_and_bias(f"{theirs}.{a}", f"{ours}.layer.{b}")
    return names


def stack_names(side: str, norm: str) -> list[Rule]:
    """Of one side's blocks, and of the norm after the last; BART has the same names."""
    theirs, ours = f"model.{side}.layers.{{}}", f"{side}.stack.blocks.{{}}"
    last = weight_and_bias(f"model.{side}.layer_norm", f"{side}.stack.norm")
    return [
        *(last if norm == "pre" else []),
        *attention_names(f"{theirs}.self_attn", f"{ours}.attention"),
        *(attention_names(f"{theirs}.encoder_attn", f"{ours}.cross") if side == "decoder" else []),
        *weight_and_bias(f"{theirs}.fc1", f"{ours}.feed_forward.layer.up"),
        *weight_and_bias(f"{theirs}.fc2", f"{ours}.feed_forward.layer.down"),
        *weight_and_bias(f"{theirs}.final_layer_norm", f"{ours}.feed_forward.norm"),
    ]


def names(c: TransformerConfig) -> Table:
    encoder, decoder = "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"
    if c.share_embeddings:
        embeddings = [same("model.shared.weight", "encoder.inputs.tokens.weight")]
        copies = {name: "model.shared.weight" for name in (encoder, decoder, "lm_head.weight")}
    else:
        embeddings = [
            same(encoder, "encoder.inputs.tokens.weight"),
            same(decoder, "decoder.inputs.tokens.weight"),
        ]
        copies = {"lm_head.weight": decoder}
    bias = reshaped("final_logits_bias", "decoder.head.bias", (1, c.target_vocab), (c.target_vocab,))
    return Table(
        [
            *embeddings,
            *stack_names("encoder", c.norm),
            *stack_names("decoder", c.norm),
            *([bias] if c.output_bias else []),
        ],
        copies=copies,
        fixed={f"model.{side}.embed_positions.weight": sinusoid_table(c) for side in ("encoder", "decoder")},
    )


def sinusoid_table(c: TransformerConfig) -> Fixed:
    """What their files may hold of the sinusoids."""
    sinusoids = Sinusoidal(c.width, layout="halves", precision=c.sinusoid_precision)
    return Fixed((c.context, c.width), lambda: sinusoids.encode(torch.arange(c.context)).float())
