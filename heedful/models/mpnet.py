"""MPNet (Song et al. 2020): RoBERTa whose scores also have T5's bias for each bucket of distance."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from torch import nn

from ..errors import BadInput
from ..parts.blocks import Block
from ..parts.embeddings import Inputs, TokenEmbedding
from ..parts.layers import FeedForward, LayerNorm, PostNorm
from ..parts.multihead import MultiHeadAttention
from ..parts.positions.absolute import LearnedAfter
from ..parts.positions.relative import T5Buckets
from .base.config import Config
from .base.fields import (
    Activation,
    AttentionDropout,
    Context,
    Dropout,
    Eps,
    FfnWidth,
    Heads,
    Labels,
    Layers,
    PredictionHeads,
    Vocab,
    Width,
    ratio,
)
from .base.heads import Classify, MaskedLM, Pooled, Span, Tag
from .base.settings import same_as
from .base.shells import WithHeads
from .bert import IGNORED, OLD, assemble, find_architecture, find_heads, make_heads
from .hf.folder import ACTIVATION_NAMES, read, read_activation, read_labels, refuse_unless, write_labels
from .hf.names import Table, same, weight_and_bias

BUCKETS, FARTHEST = 32, 128  # of distances
PADDING = 1  # its number; positions count from the one after it, whatever a config calls padding
OFFSET = PADDING + 1


@dataclass(frozen=True)
class MPNetConfig(Config):
    vocab: Vocab = 30527
    context: Context = 512
    layers: Layers = 12
    width: Width = 768
    heads: Heads = 12
    ffn_width: FfnWidth = ratio(4, "width")
    activation: Activation = "gelu"
    dropout: Dropout = 0.1
    attention_dropout: AttentionDropout = same_as("dropout")
    eps: Eps = 1e-05
    prediction_heads: PredictionHeads = ("pooled",)
    labels: Labels = 2


MODEL_TYPES = ("mpnet",)  # Hugging Face's
PRESETS = {"mpnet-base": MPNetConfig()}


def build(config: MPNetConfig) -> WithHeads:
    """The encoder and its heads, with fresh weights: N(0, 0.02)."""
    c = config
    inputs = Inputs(
        TokenEmbedding(c.vocab, c.width),
        LearnedAfter(c.context, c.width, OFFSET),
        norm=LayerNorm(c.width, c.eps),
        dropout=c.dropout,
    )
    distance = T5Buckets(c.heads, BUCKETS, FARTHEST)
    return assemble(inputs, [build_block(c, distance) for _ in range(c.layers)], build_heads(c))


def build_block(c: MPNetConfig, distance: T5Buckets) -> Block:
    attention = MultiHeadAttention(c.width, c.heads, dropout=c.attention_dropout, position=distance)
    feed_forward = FeedForward(c.width, c.ffn_width, c.activation)
    return Block(
        PostNorm(attention, LayerNorm(c.width, c.eps), c.dropout),
        PostNorm(feed_forward, LayerNorm(c.width, c.eps), c.dropout),
    )


def build_heads(c: MPNetConfig) -> dict[str, nn.Module]:
    known: dict[str, Callable[[], nn.Module]] = {
        "pooled": lambda: Pooled(c.width),
        "masked_lm": lambda: MaskedLM(c.width, c.vocab, "gelu", c.eps),
        "classify": lambda: Classify(Pooled(c.width, dropout=c.dropout), c.width, c.labels, c.dropout),
        "tag": lambda: Tag(c.width, c.labels, c.dropout),
        "span": lambda: Span(c.width),
    }
    return make_heads("MPNet", known, c.prediction_heads)


# Hugging Face

ARCHITECTURES = {
    "MPNetModel": ("pooled",),
    "MPNetForMaskedLM": ("masked_lm",),
    "MPNetForSequenceClassification": ("classify",),
    "MPNetForTokenClassification": ("tag",),
    "MPNetForQuestionAnswering": ("span",),
}


def read_config(theirs: dict[str, Any], names: Collection[str] = ()) -> MPNetConfig:
    refuse_unless(theirs, "tie_word_embeddings", True)
    refuse_unless(theirs, "relative_attention_num_buckets", BUCKETS)
    refuse_unless(theirs, "pad_token_id", PADDING)
    rows = read(theirs, "max_position_embeddings", 512)
    if rows <= OFFSET:
        raise BadInput(f"max_position_embeddings is {rows}; the first {OFFSET} positions are not used")
    return MPNetConfig(
        vocab=read(theirs, "vocab_size", 30527),
        context=rows - OFFSET,
        layers=read(theirs, "num_hidden_layers", 12),
        width=read(theirs, "hidden_size", 768),
        heads=read(theirs, "num_attention_heads", 12),
        ffn_width=read(theirs, "intermediate_size", 3072),
        activation=read_activation(theirs, "hidden_act", "gelu"),
        dropout=read(theirs, "hidden_dropout_prob", 0.1),
        attention_dropout=read(theirs, "attention_probs_dropout_prob", 0.1),
        eps=read(theirs, "layer_norm_eps", 1e-12),
        prediction_heads=find_heads(theirs, names, ARCHITECTURES, {"masked_lm": "lm_head.dense.weight"}),
        labels=read_labels(theirs),
    )


def write_config(c: MPNetConfig) -> dict[str, Any]:
    return {
        "model_type": "mpnet",
        "architectures": [find_architecture(c.prediction_heads, ARCHITECTURES)],
        "vocab_size": c.vocab,
        "max_position_embeddings": c.context + OFFSET,
        "num_hidden_layers": c.layers,
        "hidden_size": c.width,
        "num_attention_heads": c.heads,
        "intermediate_size": c.ffn_width,
        "hidden_act": ACTIVATION_NAMES[c.activation],
        "hidden_dropout_prob": c.dropout,
        "attention_probs_dropout_prob": c.attention_dropout,
        "layer_norm_eps": c.eps,
        "relative_attention_num_buckets": BUCKETS,
        "pad_token_id": PADDING,
        **write_labels(c.labels),
    }


def names(c: MPNetConfig) -> Table:
    block, layer = "encoder.stack.blocks.{}", "mpnet.encoder.layer.{}"
    table = "encoder.stack.blocks.0.attention.layer.position.table"
    parts = {"q": "query", "k": "key", "v": "value", "o": "out"}
    rules = [
        same("mpnet.embeddings.word_embeddings.weight", "encoder.inputs.tokens.weight"),
        same("mpnet.embeddings.position_embeddings.weight", "encoder.inputs.position.table"),
        *weight_and_bias("mpnet.embeddings.LayerNorm", "encoder.inputs.norm"),
        same("mpnet.encoder.relative_attention_bias.weight", table),
        *(
            rule
            for a, b in parts.items()
            for rule in weight_and_bias(f"{layer}.attention.attn.{a}", f"{block}.attention.layer.{b}")
        ),
        *weight_and_bias(f"{layer}.attention.LayerNorm", f"{block}.attention.norm"),
        *weight_and_bias(f"{layer}.intermediate.dense", f"{block}.feed_forward.layer.up"),
        *weight_and_bias(f"{layer}.output.dense", f"{block}.feed_forward.layer.down"),
        *weight_and_bias(f"{layer}.output.LayerNorm", f"{block}.feed_forward.norm"),
        *weight_and_bias("mpnet.pooler.dense", "heads.pooled.dense"),
        *weight_and_bias("lm_head.dense", "heads.masked_lm.dense"),
        *weight_and_bias("lm_head.layer_norm", "heads.masked_lm.norm"),
        same("lm_head.bias", "heads.masked_lm.bias"),
        *weight_and_bias("classifier.dense", "heads.classify.pool.dense"),
        *weight_and_bias("classifier.out_proj", "heads.classify.linear"),
        *weight_and_bias("classifier", "heads.tag.linear"),
        *weight_and_bias("qa_outputs", "heads.span.linear"),
    ]
    return Table(
        rules,
        prefix="mpnet.",
        bare=c.prediction_heads in ((), ("pooled",)),
        copies={
            "lm_head.decoder.weight": "mpnet.embeddings.word_embeddings.weight",
            "lm_head.decoder.bias": "lm_head.bias",
        },
        ignored=IGNORED,
        old=OLD,
    )
