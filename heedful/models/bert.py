"""BERT (Devlin et al. 2019): an encoder alone, trained to fill in blanks, then fine-tuned through a head."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from torch import nn

from ..parts.attention import MultiHeadAttention
from ..parts.blocks import Block, Stack
from ..parts.layers import FeedForward, Inputs, LayerNorm, PostNorm, TokenEmbedding
from ..parts.positions import Learned
from .config import Config
from .heads import Classify, MaskedLM, Pooled, Span, Tag
from .huggingface import (
    ACTIVATION_NAMES,
    read,
    read_activation,
    read_architecture,
    read_labels,
    refuse_unless,
)
from .initialise import normal_
from .names import Table, same, weight_and_bias
from .shells import Encoder, WithHeads


@dataclass(frozen=True)
class BertConfig(Config):
    vocab: int = 30522
    context: int = 512
    segments: int = 2
    layers: int = 12
    width: int = 768
    attention_heads: int = 12
    hidden: int = 3072
    activation: str = "gelu"
    dropout: float = 0.1
    attention_dropout: float = 0.1
    eps: float = 1e-12
    heads: tuple[str, ...] = ("pooled",)  # of: pooled, masked_lm, next_sentence, classify, tag, span
    labels: int = 2  # for classify and tag


PRESETS = {
    "bert-base": BertConfig(),
    "bert-large": BertConfig(layers=24, width=1024, attention_heads=16, hidden=4096),
}


def build(config: BertConfig) -> WithHeads:
    """The encoder and its heads, with fresh weights: N(0, 0.02)."""
    c = config
    inputs = Inputs(
        TokenEmbedding(c.vocab, c.width),
        Learned(c.context, c.width),
        nn.Embedding(c.segments, c.width),
        LayerNorm(c.width, c.eps),
        c.dropout,
    )
    encoder = Encoder(inputs, Stack([build_block(c) for _ in range(c.layers)]))
    model = WithHeads(encoder, build_heads(c))
    normal_(model, std=0.02)
    return model


def build_block(c: BertConfig) -> Block:
    attention = MultiHeadAttention(c.width, c.attention_heads, dropout=c.attention_dropout)
    feed_forward = FeedForward(c.width, c.hidden, c.activation)
    return Block(
        PostNorm(attention, LayerNorm(c.width, c.eps), c.dropout),
        PostNorm(feed_forward, LayerNorm(c.width, c.eps), c.dropout),
    )


def build_heads(c: BertConfig) -> dict[str, nn.Module]:
    """Next-sentence and sentence labels are read off the same pooled vector."""
    pooled = Pooled(c.width)
    known: dict[str, Callable[[], nn.Module]] = {
        "pooled": lambda: pooled,
        "masked_lm": lambda: MaskedLM(c.width, c.vocab, c.activation, c.eps),
        "next_sentence": lambda: Classify(pooled, c.width, 2),
        "classify": lambda: Classify(pooled, c.width, c.labels, c.dropout),
        "tag": lambda: Tag(c.width, c.labels, c.dropout),
        "span": lambda: Span(c.width),
    }
    for head in c.heads:
        if head not in known:
            raise ValueError(f'BERT has no head "{head}"; it has {", ".join(known)}')
        if head in ("next_sentence", "classify") and "pooled" not in c.heads:
            raise ValueError(f'the head "{head}" reads the pooled vector: add "pooled" to heads')
    return {head: make() for head, make in known.items() if head in c.heads}


# Hugging Face

ARCHITECTURES = {
    "BertModel": ("pooled",),
    "BertForMaskedLM": ("masked_lm",),
    "BertForNextSentencePrediction": ("pooled", "next_sentence"),
    "BertForPreTraining": ("pooled", "masked_lm", "next_sentence"),
    "BertForSequenceClassification": ("pooled", "classify"),
    "BertForTokenClassification": ("tag",),
    "BertForQuestionAnswering": ("span",),
}


def find_heads(theirs: dict[str, Any], names: Collection[str]) -> tuple[str, ...]:
    """The architecture says which heads to expect; the file may hold more (bert-base-uncased does)."""
    architecture = read_architecture(theirs, ARCHITECTURES)
    heads = set(ARCHITECTURES[architecture])
    for head, sign in {
        "masked_lm": "cls.predictions.bias",
        "next_sentence": "cls.seq_relationship.weight",
    }.items():
        if sign in names:
            heads.add(head)
    if names:
        has_pooler = any(name.endswith("pooler.dense.weight") for name in names)
        heads = heads | {"pooled"} if has_pooler else heads
        if not has_pooler and architecture == "BertModel":  # saved without its pooling layer
            heads.discard("pooled")
    order = ("pooled", "masked_lm", "next_sentence", "classify", "tag", "span")
    return tuple(head for head in order if head in heads)


def read_config(theirs: dict[str, Any], names: Collection[str] = ()) -> BertConfig:
    refuse_unless(theirs, "position_embedding_type", "absolute")
    refuse_unless(theirs, "is_decoder", False)
    refuse_unless(theirs, "add_cross_attention", False)
    refuse_unless(theirs, "tie_word_embeddings", True)
    dropout = read(theirs, "hidden_dropout_prob", 0.1)
    if theirs.get("classifier_dropout") is not None:
        refuse_unless(theirs, "classifier_dropout", dropout)
    return BertConfig(
        vocab=read(theirs, "vocab_size", 30522),
        context=read(theirs, "max_position_embeddings", 512),
        segments=read(theirs, "type_vocab_size", 2),
        layers=read(theirs, "num_hidden_layers", 12),
        width=read(theirs, "hidden_size", 768),
        attention_heads=read(theirs, "num_attention_heads", 12),
        hidden=read(theirs, "intermediate_size", 3072),
        activation=read_activation(theirs, "hidden_act", "gelu"),
        dropout=dropout,
        attention_dropout=read(theirs, "attention_probs_dropout_prob", 0.1),
        eps=read(theirs, "layer_norm_eps", 1e-12),
        heads=find_heads(theirs, names),
        labels=read_labels(theirs),
    )


def write_config(c: BertConfig) -> dict[str, Any]:
    wanted = set(c.heads) - {"pooled"}  # a file may keep its pooling layer or not
    architecture = next(
        (a for a, heads in ARCHITECTURES.items() if set(heads) - {"pooled"} == wanted), "BertForPreTraining"
    )
    return {
        "model_type": "bert",
        "architectures": [architecture],
        "vocab_size": c.vocab,
        "max_position_embeddings": c.context,
        "type_vocab_size": c.segments,
        "num_hidden_layers": c.layers,
        "hidden_size": c.width,
        "num_attention_heads": c.attention_heads,
        "intermediate_size": c.hidden,
        "hidden_act": ACTIVATION_NAMES[c.activation],
        "hidden_dropout_prob": c.dropout,
        "attention_probs_dropout_prob": c.attention_dropout,
        "layer_norm_eps": c.eps,
        "id2label": {str(i): f"LABEL_{i}" for i in range(c.labels)},
        "label2id": {f"LABEL_{i}": i for i in range(c.labels)},
    }


def names(c: BertConfig) -> Table:
    block, layer = "encoder.stack.blocks.{}", "bert.encoder.layer.{}"
    rules = [
        same("bert.embeddings.word_embeddings.weight", "encoder.inputs.tokens.weight"),
        same("bert.embeddings.position_embeddings.weight", "encoder.inputs.position.table"),
        same("bert.embeddings.token_type_embeddings.weight", "encoder.inputs.segments.weight"),
        *weight_and_bias("bert.embeddings.LayerNorm", "encoder.inputs.norm"),
        *weight_and_bias(f"{layer}.attention.self.query", f"{block}.attention.layer.query"),
        *weight_and_bias(f"{layer}.attention.self.key", f"{block}.attention.layer.key"),
        *weight_and_bias(f"{layer}.attention.self.value", f"{block}.attention.layer.value"),
        *weight_and_bias(f"{layer}.attention.output.dense", f"{block}.attention.layer.out"),
        *weight_and_bias(f"{layer}.attention.output.LayerNorm", f"{block}.attention.norm"),
        *weight_and_bias(f"{layer}.intermediate.dense", f"{block}.feed_forward.layer.up"),
        *weight_and_bias(f"{layer}.output.dense", f"{block}.feed_forward.layer.down"),
        *weight_and_bias(f"{layer}.output.LayerNorm", f"{block}.feed_forward.norm"),
        *weight_and_bias("bert.pooler.dense", "heads.pooled.dense"),
        *weight_and_bias("cls.predictions.transform.dense", "heads.masked_lm.dense"),
        *weight_and_bias("cls.predictions.transform.LayerNorm", "heads.masked_lm.norm"),
        same("cls.predictions.bias", "heads.masked_lm.bias"),
        *weight_and_bias("cls.seq_relationship", "heads.next_sentence.linear"),
        *weight_and_bias("classifier", f"heads.{'tag' if 'tag' in c.heads else 'classify'}.linear"),
        *weight_and_bias("qa_outputs", "heads.span.linear"),
    ]
    return Table(
        rules,
        prefix="bert.",
        bare=c.heads in ((), ("pooled",)),
        copies={
            "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
            "cls.predictions.decoder.bias": "cls.predictions.bias",
        },
        ignored=("embeddings.position_ids",),
        old={"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"},
    )
