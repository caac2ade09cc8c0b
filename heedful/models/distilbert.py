"""DistilBERT (Sanh et al. 2019): BERT with half its layers, distilled, without segments and pooling."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Annotated, Any

from torch import nn

from ..parts.blocks import Block
from ..parts.embeddings import Inputs, TokenEmbedding
from ..parts.layers import FeedForward, LayerNorm, PostNorm
from ..parts.multihead import MultiHeadAttention
from ..parts.positions.absolute import Learned
from .base.config import Config
from .base.fields import (
    RATE,
    Activation,
    AttentionDropout,
    ClassifierDropout,
    Context,
    Dropout,
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
from .bert import IGNORED, assemble, find_architecture, find_heads, make_heads
from .hf.folder import ACTIVATION_NAMES, read, read_activation, read_labels, refuse_unless, write_labels
from .hf.names import Table, same, weight_and_bias

EPS = 1e-12


@dataclass(frozen=True)
class DistilBertConfig(Config):
    vocab: Vocab = 30522
    context: Context = 512
    layers: Layers = 6
    width: Width = 768
    heads: Heads = 12
    ffn_width: FfnWidth = ratio(4, "width")
    activation: Activation = "gelu"
    dropout: Dropout = 0.1
    attention_dropout: AttentionDropout = same_as("dropout")
    classifier_dropout: ClassifierDropout = 0.2
    span_dropout: Annotated[float, RATE, "dropout rate before the span head"] = 0.1
    prediction_heads: PredictionHeads = ()
    labels: Labels = 2


MODEL_TYPES = ("distilbert",)  # Hugging Face's
PRESETS = {"distilbert-base": DistilBertConfig()}


def build(config: DistilBertConfig) -> WithHeads:
    """The encoder and its heads, with fresh weights: N(0, 0.02)."""
    c = config
    inputs = Inputs(
        TokenEmbedding(c.vocab, c.width),
        Learned(c.context, c.width),
        norm=LayerNorm(c.width, EPS),
        dropout=c.dropout,
    )
    return assemble(inputs, [build_block(c) for _ in range(c.layers)], build_heads(c))


def build_block(c: DistilBertConfig) -> Block:
    """BERT's, but that what attention says is not dropped."""
    attention = MultiHeadAttention(c.width, c.heads, dropout=c.attention_dropout)
    feed_forward = FeedForward(c.width, c.ffn_width, c.activation)
    return Block(
        PostNorm(attention, LayerNorm(c.width, EPS)),
        PostNorm(feed_forward, LayerNorm(c.width, EPS), c.dropout),
    )


def build_heads(c: DistilBertConfig) -> dict[str, nn.Module]:
    known: dict[str, Callable[[], nn.Module]] = {
        "masked_lm": lambda: MaskedLM(c.width, c.vocab, c.activation, EPS),
        "classify": lambda: Classify(Pooled(c.width, "relu"), c.width, c.labels, c.classifier_dropout),
        "tag": lambda: Tag(c.width, c.labels, c.dropout),
        "span": lambda: Span(c.width, c.span_dropout),
    }
    return make_heads("DistilBERT", known, c.prediction_heads)


# Hugging Face

ARCHITECTURES: dict[str, tuple[str, ...]] = {
    "DistilBertModel": (),
    "DistilBertForMaskedLM": ("masked_lm",),
    "DistilBertForSequenceClassification": ("classify",),
    "DistilBertForTokenClassification": ("tag",),
    "DistilBertForQuestionAnswering": ("span",),
}


COMMON_NAMES = {"hidden_size": "dim", "num_attention_heads": "n_heads", "num_hidden_layers": "n_layers"}


def read_config(theirs: dict[str, Any], names: Collection[str] = ()) -> DistilBertConfig:
    """Whether its positions began as sinusoids makes no difference: the table is in the file."""
    refuse_unless(theirs, "tie_word_embeddings", True)
    return DistilBertConfig(
        vocab=read(theirs, "vocab_size", 30522),
        context=read(theirs, "max_position_embeddings", 512),
        layers=read(theirs, "n_layers", 6),
        width=read(theirs, "dim", 768),
        heads=read(theirs, "n_heads", 12),
        ffn_width=read(theirs, "hidden_dim", 3072),
        activation=read_activation(theirs, "activation", "gelu"),
        dropout=read(theirs, "dropout", 0.1),
        attention_dropout=read(theirs, "attention_dropout", 0.1),
        classifier_dropout=read(theirs, "seq_classif_dropout", 0.2),
        span_dropout=read(theirs, "qa_dropout", 0.1),
        prediction_heads=find_heads(
            theirs, names, ARCHITECTURES, {"masked_lm": "vocab_transform.weight"}, None
        ),
        labels=read_labels(theirs),
    )


def write_config(c: DistilBertConfig) -> dict[str, Any]:
    return {
        "model_type": "distilbert",
        "architectures": [find_architecture(c.prediction_heads, ARCHITECTURES)],
        "vocab_size": c.vocab,
        "max_position_embeddings": c.context,
        "n_layers": c.layers,
        "dim": c.width,
        "n_heads": c.heads,
        "hidden_dim": c.ffn_width,
        "activation": ACTIVATION_NAMES[c.activation],
        "dropout": c.dropout,
        "attention_dropout": c.attention_dropout,
        "seq_classif_dropout": c.classifier_dropout,
        "qa_dropout": c.span_dropout,
        **write_labels(c.labels),
    }


def names(c: DistilBertConfig) -> Table:
    block, layer = "encoder.stack.blocks.{}", "distilbert.transformer.layer.{}"
    rules = [
        same("distilbert.embeddings.word_embeddings.weight", "encoder.inputs.tokens.weight"),
        same("distilbert.embeddings.position_embeddings.weight", "encoder.inputs.position.table"),
        *weight_and_bias("distilbert.embeddings.LayerNorm", "encoder.inputs.norm"),
        *weight_and_bias(f"{layer}.attention.q_lin", f"{block}.attention.layer.query"),
        *weight_and_bias(f"{layer}.attention.k_lin", f"{block}.attention.layer.key"),
        *weight_and_bias(f"{layer}.attention.v_lin", f"{block}.attention.layer.value"),
        *weight_and_bias(f"{layer}.attention.out_lin", f"{block}.attention.layer.out"),
        *weight_and_bias(f"{layer}.sa_layer_norm", f"{block}.attention.norm"),
        *weight_and_bias(f"{layer}.ffn.lin1", f"{block}.feed_forward.layer.up"),
        *weight_and_bias(f"{layer}.ffn.lin2", f"{block}.feed_forward.layer.down"),
        *weight_and_bias(f"{layer}.output_layer_norm", f"{block}.feed_forward.norm"),
        *weight_and_bias("vocab_transform", "heads.masked_lm.dense"),
        *weight_and_bias("vocab_layer_norm", "heads.masked_lm.norm"),
        same("vocab_projector.bias", "heads.masked_lm.bias"),
        *weight_and_bias("pre_classifier", "heads.classify.pool.dense"),
        *weight_and_bias(
            "classifier", f"heads.{'tag' if 'tag' in c.prediction_heads else 'classify'}.linear"
        ),
        *weight_and_bias("qa_outputs", "heads.span.linear"),
    ]
    return Table(
        rules,
        prefix="distilbert.",
        bare=not c.prediction_heads,
        copies={"vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight"},
        ignored=IGNORED,
    )
