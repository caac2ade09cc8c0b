"""The Transformer (Vaswani et al. 2017): an encoder reads, a decoder writes. Also Marian and Pegasus."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..errors import BadInput
from ..parts.blocks import Block, Stack
from ..parts.embeddings import Inputs, Tied, TokenEmbedding
from ..parts.layers import RESIDUALS, FeedForward, LayerNorm
from ..parts.multihead import MultiHeadAttention
from ..parts.positions import POSITIONS as SCHEMES
from ..parts.positions.absolute import Sinusoidal
from ..parts.positions.base import NoPosition, Position, PositionSizes
from ..parts.positions.syntax import SCOPES
from .base.config import Config
from .base.initialize import xavier_
from .base.shells import Decoder, Encoder, EncoderDecoder
from .hf.folder import ACTIVATION_NAMES, read, read_activation, read_unless_null, refuse_unless
from .hf.names import Fixed, Rule, Table, reshaped, same, weight_and_bias


@dataclass(frozen=True)
class TransformerConfig(Config):
    vocab: int = 37000
    target_vocab: int = 37000
    context: int = (
        1024  # the longest sentence an exported model promises to read; sinusoids themselves never end
    )
    share_embeddings: bool = True  # one matrix for source, target and output, as with a joint vocabulary
    layers: int = 6
    decoder_layers: int = 6
    width: int = 512
    heads: int = 8
    decoder_heads: int = 8
    ffn_width: int = 2048
    decoder_ffn_width: int = 2048
    activation: str = "relu"
    norm: str = "post"  # or "pre"
    positions: str = "sinusoidal"  # or another of POSITIONS
    max_distance: int = 16  # of relative positions: distances beyond count as this one (Shaw's k)
    relation_scope: str = (
        "edge"  # of relative positions in a tree: related are words one "edge" apart, or all on one "path"
    )
    sinusoid_layout: str = "interleaved"  # of the sinusoids; Hugging Face's is "halves"
    scale_embeddings: bool = True  # embeddings times sqrt(width)
    output_bias: bool = False
    dropout: float = 0.1
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.share_embeddings and self.vocab != self.target_vocab:
            raise ValueError(f"a shared vocabulary has one size, not {self.vocab} and {self.target_vocab}")
        if self.norm not in RESIDUALS:
            raise ValueError(f'norm is "pre" or "post", not "{self.norm}"')
        if self.positions not in POSITIONS:
            raise ValueError(f"positions are {', '.join(POSITIONS)}, not {self.positions!r}")
        if self.relation_scope not in SCOPES:
            raise ValueError(f'scope is "edge" or "path", not "{self.relation_scope}"')


@dataclass(frozen=True)
class Order:
    """How order enters one side: an encoding at the input, a distance in the self-attention."""

    input: type[Position] = NoPosition
    attention: type[Position] = NoPosition


def order_of(schemes: Sequence[str], has_tree: bool) -> Order:
    """The order of one side. A target has no tree while it is written: positions from syntax are the
    encoder's alone, and the decoder has those of the plain sentence (Wang, Tu, Wang and Shi 2019)."""
    kinds = [SCHEMES[name] for name in schemes]
    return Order(**{kind.place: kind if has_tree else kind.without_tree or kind for kind in kinds})


CHOICES: dict[str, tuple[str, ...]] = {name: (name,) for name, kind in SCHEMES.items() if kind.place} | {
    "sinusoidal+rotary": ("sinusoidal", "rotary"),
    "structural": ("structural-absolute", "structural-relative"),
}
# {name: (the encoder's, the decoder's)}
POSITIONS = {name: (order_of(some, True), order_of(some, False)) for name, some in CHOICES.items()}


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
    scale = math.sqrt(c.width) if c.scale_embeddings else 1.0
    source = TokenEmbedding(c.vocab, c.width, scale)
    target = source if c.share_embeddings else TokenEmbedding(c.target_vocab, c.width, scale)
    reads, writes = POSITIONS[c.positions]
    encoder = Encoder(
        build_inputs(c, source, reads), build_stack(c, c.layers, c.heads, c.ffn_width, reads, cross=False)
    )
    decoder = Decoder(
        build_inputs(c, target, writes),
        build_stack(c, c.decoder_layers, c.decoder_heads, c.decoder_ffn_width, writes, cross=True),
        Tied(c.target_vocab if c.output_bias else None),
    )
    model = EncoderDecoder(encoder, decoder)
    xavier_(model)
    return model


def build_inputs(c: TransformerConfig, tokens: TokenEmbedding, order: Order) -> Inputs:
    return Inputs(tokens, build_position(order.input, c, c.heads), dropout=c.dropout)


def build_position(kind: type[Position], c: TransformerConfig, heads: int) -> Position:
    """A scheme at the sizes of a config. Each layer and head has its own distances, as in Shaw's base."""
    return kind.build(PositionSizes(c.width, heads, c.sinusoid_layout, c.max_distance, c.relation_scope))


def build_stack(
    c: TransformerConfig, layers: int, heads: int, hidden: int, order: Order, cross: bool
) -> Stack:
    blocks = [build_block(c, heads, hidden, order, cross) for _ in range(layers)]
    return Stack(blocks, LayerNorm(c.width) if c.norm == "pre" else None)


def build_block(c: TransformerConfig, heads: int, hidden: int, order: Order, cross: bool) -> Block:
    residual = RESIDUALS[c.norm]
    distance = build_position(order.attention, c, heads)

    def attention(position: Position) -> MultiHeadAttention:
        return MultiHeadAttention(c.width, heads, position=position, dropout=c.attention_dropout)

    feed_forward = FeedForward(c.width, hidden, c.activation, dropout=c.activation_dropout)
    return Block(
        residual(attention(distance), LayerNorm(c.width), c.dropout),
        residual(feed_forward, LayerNorm(c.width), c.dropout),
        residual(attention(NoPosition()), LayerNorm(c.width), c.dropout) if cross else None,
    )


# Hugging Face: with the norm after each layer as Marian, before it as Pegasus. Both have sinusoids in halves,
# at the paper's frequencies, and a bias on the scores.

MODEL_TYPE = {"post": "marian", "pre": "pegasus"}
CLASSES = {"post": "MarianMTModel", "pre": "PegasusForConditionalGeneration"}


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
    if unlike:
        raise BadInput(
            f"Hugging Face has the transformer as Marian (post-norm) and as Pegasus (pre-norm, one "
            f"vocabulary), both with sinusoids alone, and this one is otherwise ({', '.join(unlike)}): "
            f"it cannot be saved as their folder; heedful.load reads the run's own folder, "
            f"and a run with model.positions=sinusoidal can be saved"
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
    distance, scope = (
        TransformerConfig.max_distance,
        TransformerConfig.relation_scope,
    )  # which sinusoids have no use for
    made = replace(c, sinusoid_layout="halves", output_bias=True, max_distance=distance, relation_scope=scope)
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
    sinusoids = Sinusoidal(c.width, layout="halves")
    return Fixed((c.context, c.width), lambda: sinusoids.encode(torch.arange(c.context)).float())
