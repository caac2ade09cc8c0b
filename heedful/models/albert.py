"""ALBERT (Lan et al. 2020): BERT with one block's weights for all layers and with narrower embeddings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from ..errors import BadInput
from ..parts.blocks import Block
from ..parts.embeddings import Inputs, TokenEmbedding
from ..parts.layers import LayerNorm
from ..parts.positions.absolute import Learned
from .base.fields import (
    Activation,
    AttentionDropout,
    ClassifierDropout,
    Dropout,
    EmbeddingWidth,
    PredictionHeads,
    Vocab,
)
from .base.heads import Classify, MaskedLM, Pooled, Span, Tag
from .base.shells import WithHeads
from .bert import (
    IGNORED,
    OLD,
    BertConfig,
    assemble,
    build_block,
    find_architecture,
    find_heads,
    make_heads,
    read_sizes,
    write_sizes,
)
from .hf.folder import read, refuse_unless
from .hf.names import Table, same, weight_and_bias

MOST_LAYERS = 1000  # which cost no weights, so that a file's size tells nothing of them


@dataclass(frozen=True)
class AlbertConfig(BertConfig):
    vocab: Vocab = 30000
    activation: Activation = "gelu_tanh"
    dropout: Dropout = 0.0
    attention_dropout: AttentionDropout = 0.0
    prediction_heads: PredictionHeads = ("pooled",)
    classifier_dropout: ClassifierDropout = 0.1
    embedding_width: EmbeddingWidth = 128

    @property
    def own_layers(self) -> int:
        """Layers with weights of their own."""
        return 1


MODEL_TYPES = ("albert",)  # Hugging Face's
PRESETS = {"albert-base-v2": AlbertConfig()}


class NarrowInputs(Inputs):
    """Inputs that are made as wide as the model at the end."""

    def __init__(self, widen: nn.Linear, *parts: Any) -> None:
        super().__init__(*parts)
        self.widen = widen

    def finish(self, x_BTE: Tensor) -> Tensor:
        return self.widen(super().finish(x_BTE))


def build(config: AlbertConfig) -> WithHeads:
    """The encoder and its heads, with fresh weights: N(0, 0.02)."""
    c = config
    inputs = NarrowInputs(
        nn.Linear(c.embedding_width, c.width),
        TokenEmbedding(c.vocab, c.embedding_width),
        Learned(c.context, c.embedding_width),
        nn.Embedding(c.segments, c.embedding_width),
        LayerNorm(c.embedding_width, c.eps),
        c.dropout,
    )
    blocks = [build_block(c) for _ in range(c.layers)]
    share(blocks)
    return assemble(inputs, blocks, build_heads(c))


def share(blocks: Sequence[Block]) -> None:
    """Give all blocks the weights of the first. They stay separate blocks, so that each can be watched."""
    for name, weight in blocks[0].named_parameters():
        owner, _, leaf = name.rpartition(".")
        for block in blocks[1:]:
            setattr(block.get_submodule(owner), leaf, weight)


def build_heads(c: AlbertConfig) -> dict[str, nn.Module]:
    """The order of sentences and sentence labels are read off the same pooled vector."""
    pooled = Pooled(c.width)
    for head in c.prediction_heads:
        if head in ("sentence_order", "classify") and "pooled" not in c.prediction_heads:
            raise ValueError(f'the head "{head}" reads the pooled vector: add "pooled" to prediction_heads')
    known: dict[str, Callable[[], nn.Module]] = {
        "pooled": lambda: pooled,
        "masked_lm": lambda: MaskedLM(c.width, c.vocab, c.activation, c.eps, c.embedding_width),
        "sentence_order": lambda: Classify(pooled, c.width, c.labels, c.before_labels),
        "classify": lambda: Classify(pooled, c.width, c.labels, c.before_labels),
        "tag": lambda: Tag(c.width, c.labels, c.before_labels),
        "span": lambda: Span(c.width),
    }
    return make_heads("ALBERT", known, c.prediction_heads)


# Hugging Face

ARCHITECTURES = {
    "AlbertModel": ("pooled",),
    "AlbertForMaskedLM": ("masked_lm",),
    "AlbertForPreTraining": ("pooled", "masked_lm", "sentence_order"),
    "AlbertForSequenceClassification": ("pooled", "classify"),
    "AlbertForTokenClassification": ("tag",),
    "AlbertForQuestionAnswering": ("span",),
}
SIGNS = {"masked_lm": "predictions.bias", "sentence_order": "sop_classifier.classifier.weight"}
USUAL = AlbertConfig(width=4096, heads=64, ffn_width=16384)  # their class's own sizes: ALBERT xxlarge


def read_config(theirs: dict[str, Any], names: Collection[str] = ()) -> AlbertConfig:
    refuse_unless(theirs, "num_hidden_groups", 1)
    refuse_unless(theirs, "inner_group_num", 1)
    sizes = read_sizes(theirs, USUAL)
    if sizes["layers"] > MOST_LAYERS:
        raise BadInput(f"num_hidden_layers is {sizes['layers']}; heedful builds at most {MOST_LAYERS}")
    sizes["classifier_dropout"] = read(theirs, "classifier_dropout_prob", USUAL.classifier_dropout)
    heads = find_heads(theirs, names, ARCHITECTURES, SIGNS, "pooler.weight")
    return AlbertConfig(
        **sizes, prediction_heads=heads, embedding_width=read(theirs, "embedding_size", USUAL.embedding_width)
    )


def write_config(c: AlbertConfig) -> dict[str, Any]:
    sizes = write_sizes(c)
    return {
        "model_type": "albert",
        "architectures": [find_architecture(c.prediction_heads, ARCHITECTURES, "AlbertForPreTraining")],
        "embedding_size": c.embedding_width,
        "classifier_dropout_prob": sizes.pop("classifier_dropout"),
        **sizes,
    }


def names(c: AlbertConfig) -> Table:
    inputs, block = "encoder.inputs", "encoder.stack.blocks.0"
    layer = "albert.encoder.albert_layer_groups.0.albert_layers.0"
    rules = [
        same("albert.embeddings.word_embeddings.weight", f"{inputs}.tokens.weight"),
        same("albert.embeddings.position_embeddings.weight", f"{inputs}.position.table"),
        same("albert.embeddings.token_type_embeddings.weight", f"{inputs}.segments.weight"),
        *weight_and_bias("albert.embeddings.LayerNorm", f"{inputs}.norm"),
        *weight_and_bias("albert.encoder.embedding_hidden_mapping_in", f"{inputs}.widen"),
        *weight_and_bias(f"{layer}.attention.query", f"{block}.attention.layer.query"),
        *weight_and_bias(f"{layer}.attention.key", f"{block}.attention.layer.key"),
        *weight_and_bias(f"{layer}.attention.value", f"{block}.attention.layer.value"),
        *weight_and_bias(f"{layer}.attention.dense", f"{block}.attention.layer.out"),
        *weight_and_bias(f"{layer}.attention.LayerNorm", f"{block}.attention.norm"),
        *weight_and_bias(f"{layer}.ffn", f"{block}.feed_forward.layer.up"),
        *weight_and_bias(f"{layer}.ffn_output", f"{block}.feed_forward.layer.down"),
        *weight_and_bias(f"{layer}.full_layer_layer_norm", f"{block}.feed_forward.norm"),
        *weight_and_bias("albert.pooler", "heads.pooled.dense"),
        *weight_and_bias("predictions.dense", "heads.masked_lm.dense"),
        *weight_and_bias("predictions.LayerNorm", "heads.masked_lm.norm"),
        same("predictions.bias", "heads.masked_lm.bias"),
        *weight_and_bias("sop_classifier.classifier", "heads.sentence_order.linear"),
        *weight_and_bias(
            "classifier", f"heads.{'tag' if 'tag' in c.prediction_heads else 'classify'}.linear"
        ),
        *weight_and_bias("qa_outputs", "heads.span.linear"),
    ]
    return Table(
        rules,
        prefix="albert.",
        bare=c.prediction_heads in ((), ("pooled",)),
        copies={
            "predictions.decoder.weight": "albert.embeddings.word_embeddings.weight",
            "predictions.decoder.bias": "predictions.bias",
        },
        ignored=IGNORED,
        old=OLD,
    )
