"""OPT (Zhang et al. 2022): GPT-3 with open weights; one size has post-norm and narrower embeddings."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated, Any

from torch import Tensor, nn

from ..parts.blocks import Block, Stack
from ..parts.embeddings import Inputs, Tied, TokenEmbedding, Untied
from ..parts.layers import NORMS, RESIDUALS, FeedForward
from ..parts.multihead import MultiHeadAttention
from ..parts.positions.absolute import LearnedAfter
from ..parts.positions.base import Positions
from .base.config import Config
from .base.fields import (
    Activation,
    AttentionDropout,
    Context,
    Dropout,
    EmbeddingWidth,
    FfnWidth,
    Heads,
    Layers,
    Norm,
    TieEmbeddings,
    Vocab,
    Width,
    ratio,
)
from .base.initialize import normal_
from .base.settings import same_as
from .base.shells import Decoder
from .hf.folder import ACTIVATION_NAMES, read, read_activation, read_unless_null, refuse_unless
from .hf.names import Table, same, weight_and_bias
from .transformer import attention_names

OFFSET = 2  # rows before the first position's; fairseq kept them for padding


@dataclass(frozen=True)
class OPTConfig(Config):
    vocab: Vocab = 50272
    context: Context = 2048
    layers: Layers = 12
    width: Width = 768
    embedding_width: EmbeddingWidth = same_as("width")
    heads: Heads = 12
    ffn_width: FfnWidth = ratio(4, "width")
    activation: Activation = "relu"
    norm: Norm = "pre"
    final_norm: Annotated[bool, "with pre-norm, a norm after the last layer"] = True
    norm_affine: Annotated[bool, "gain and bias in norms"] = True
    bias: Annotated[bool, "biases in attention and in the feed-forward layer"] = True
    dropout: Dropout = 0.1
    attention_dropout: AttentionDropout = 0.0
    tie_embeddings: TieEmbeddings = True


MODEL_TYPES = ("opt",)  # Hugging Face's
PRESETS = {
    "opt-125m": OPTConfig(),
    "opt-350m": OPTConfig(layers=24, width=1024, embedding_width=512, heads=16, norm="post"),
    "opt-1.3b": OPTConfig(layers=24, width=2048, heads=32),
}


class WidenedInputs(Inputs):
    """Inputs whose token vectors are made as wide as the model before positions are added."""

    def __init__(self, widen: nn.Linear, tokens: TokenEmbedding, position: LearnedAfter) -> None:
        super().__init__(tokens, position)
        self.widen = widen

    def sum(self, tokens_BT: Tensor, positions: Positions, segments_BT: Tensor | None = None) -> Tensor:
        return self.position.embed(self.widen(self.tokens(tokens_BT)), positions)


def build(config: OPTConfig) -> Decoder:
    """The decoder, with fresh weights: N(0, 0.02)."""
    c = config
    head = Tied() if c.tie_embeddings else Untied(c.embedding_width, c.vocab)
    model = Decoder(build_inputs(c), build_stack(c), head)
    normal_(model, std=0.02)
    return model


def build_inputs(c: OPTConfig) -> Inputs:
    tokens, position = TokenEmbedding(c.vocab, c.embedding_width), LearnedAfter(c.context, c.width, OFFSET)
    if c.embedding_width == c.width:
        return Inputs(tokens, position)
    return WidenedInputs(nn.Linear(c.embedding_width, c.width, bias=False), tokens, position)


def build_stack(c: OPTConfig) -> Stack:
    """After the last layer: the norm, if there is one, and the way back to narrower embeddings."""
    last: list[nn.Module] = [build_norm(c) if c.norm == "pre" and c.final_norm else nn.Identity()]
    if c.embedding_width != c.width:
        last.append(nn.Linear(c.width, c.embedding_width, bias=False))
    return Stack([build_block(c) for _ in range(c.layers)], nn.Sequential(*last) if last[1:] else last[0])


def build_block(c: OPTConfig) -> Block:
    residual = RESIDUALS[c.norm]
    attention = MultiHeadAttention(c.width, c.heads, bias=c.bias, dropout=c.attention_dropout)
    feed_forward = FeedForward(c.width, c.ffn_width, c.activation, bias=c.bias)
    return Block(
        residual(attention, build_norm(c), c.dropout), residual(feed_forward, build_norm(c), c.dropout)
    )


def build_norm(c: OPTConfig) -> nn.Module:
    return NORMS["layernorm"][0 if c.norm_affine else 1](c.width)


# Hugging Face


def read_config(theirs: dict[str, Any], names: Collection[str] = ()) -> OPTConfig:
    refuse_unless(theirs, "is_causal", True)
    width = read(theirs, "hidden_size", 768)
    before = read(theirs, "do_layer_norm_before", True)
    return OPTConfig(
        vocab=read(theirs, "vocab_size", 50272),
        context=read(theirs, "max_position_embeddings", 2048),
        layers=read(theirs, "num_hidden_layers", 12),
        width=width,
        embedding_width=read_unless_null(theirs, "word_embed_proj_dim", width),
        heads=read(theirs, "num_attention_heads", 12),
        ffn_width=read(theirs, "ffn_dim", 3072),
        activation=read_activation(theirs, "activation_function", "relu"),
        norm="pre" if before else "post",
        final_norm=not read(theirs, "_remove_final_layer_norm", False),
        norm_affine=read(theirs, "layer_norm_elementwise_affine", True),
        bias=read(theirs, "enable_bias", True),
        dropout=read(theirs, "dropout", 0.1),
        attention_dropout=read(theirs, "attention_dropout", 0.0),
        tie_embeddings=read(theirs, "tie_word_embeddings", True),
    )


def write_config(c: OPTConfig) -> dict[str, Any]:
    return {
        "model_type": "opt",
        "architectures": ["OPTForCausalLM"],
        "vocab_size": c.vocab,
        "max_position_embeddings": c.context,
        "num_hidden_layers": c.layers,
        "hidden_size": c.width,
        "word_embed_proj_dim": c.embedding_width,
        "num_attention_heads": c.heads,
        "ffn_dim": c.ffn_width,
        "activation_function": ACTIVATION_NAMES[c.activation],
        "do_layer_norm_before": c.norm == "pre",
        "_remove_final_layer_norm": not c.final_norm,
        "layer_norm_elementwise_affine": c.norm_affine,
        "enable_bias": c.bias,
        "dropout": c.dropout,
        "attention_dropout": c.attention_dropout,
        "tie_word_embeddings": c.tie_embeddings,
    }


def names(c: OPTConfig) -> Table:
    theirs, ours, narrow = "model.decoder.layers.{}", "stack.blocks.{}", c.embedding_width != c.width
    projections = [
        same("model.decoder.project_in.weight", "inputs.widen.weight"),
        same("model.decoder.project_out.weight", "stack.norm.1.weight"),
    ]
    head = [] if c.tie_embeddings else [same("lm_head.weight", "head.linear.weight")]
    return Table(
        [
            same("model.decoder.embed_tokens.weight", "inputs.tokens.weight"),
            same("model.decoder.embed_positions.weight", "inputs.position.table"),
            *attention_names(f"{theirs}.self_attn", f"{ours}.attention"),
            *weight_and_bias(f"{theirs}.fc1", f"{ours}.feed_forward.layer.up"),
            *weight_and_bias(f"{theirs}.fc2", f"{ours}.feed_forward.layer.down"),
            *weight_and_bias(f"{theirs}.final_layer_norm", f"{ours}.feed_forward.norm"),
            *weight_and_bias("model.decoder.final_layer_norm", "stack.norm.0" if narrow else "stack.norm"),
            *(projections if narrow else []),
            *head,
        ],
        prefix="model.",
        copies={"lm_head.weight": "model.decoder.embed_tokens.weight"} if c.tie_embeddings else {},
    )
