"""ELECTRA (Clark et al. 2020): BERT trained to tell which tokens a small generator has replaced.

Generator and discriminator are one network with different heads; embeddings may be narrower than the model.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from torch import nn

from ..parts.embeddings import Inputs, TokenEmbedding
from ..parts.layers import LayerNorm
from ..parts.positions.absolute import Learned
from .albert import NarrowInputs
from .base.fields import EmbeddingWidth, FfnWidth, Heads, PredictionHeads, Width, ratio
from .base.heads import Classify, MaskedLM, Pooled, Replaced, Span, Tag
from .base.shells import WithHeads
from .bert import (
    IGNORED,
    OLD,
    BertConfig,
    assemble,
    build_block,
    encoder_names,
    find_architecture,
    find_heads,
    make_heads,
    read_sizes,
    write_sizes,
)
from .hf.folder import read
from .hf.names import Table, same, weight_and_bias


@dataclass(frozen=True)
class ElectraConfig(BertConfig):
    width: Width = 256
    heads: Heads = 4
    ffn_width: FfnWidth = ratio(4, "width")
    prediction_heads: PredictionHeads = ()
    embedding_width: EmbeddingWidth = 128


MODEL_TYPES = ("electra",)  # Hugging Face's
PRESETS = {
    "electra-small": ElectraConfig(prediction_heads=("replaced",)),
    "electra-base": ElectraConfig(
        width=768, heads=12, ffn_width=3072, embedding_width=768, prediction_heads=("replaced",)
    ),
}


def build(config: ElectraConfig) -> WithHeads:
    """The encoder and its heads, with fresh weights: N(0, 0.02)."""
    c = config
    parts = (
        TokenEmbedding(c.vocab, c.embedding_width),
        Learned(c.context, c.embedding_width),
        nn.Embedding(c.segments, c.embedding_width),
        LayerNorm(c.embedding_width, c.eps),
        c.dropout,
    )
    narrow = c.embedding_width != c.width
    inputs = NarrowInputs(nn.Linear(c.embedding_width, c.width), *parts) if narrow else Inputs(*parts)
    return assemble(inputs, [build_block(c) for _ in range(c.layers)], build_heads(c))


def build_heads(c: ElectraConfig) -> dict[str, nn.Module]:
    known: dict[str, Callable[[], nn.Module]] = {
        "masked_lm": lambda: MaskedLM(c.width, c.vocab, "gelu", c.eps, c.embedding_width),
        "replaced": lambda: Replaced(c.width, c.activation),
        "classify": lambda: Classify(
            Pooled(c.width, "gelu", c.before_labels), c.width, c.labels, c.before_labels
        ),
        "tag": lambda: Tag(c.width, c.labels, c.before_labels),
        "span": lambda: Span(c.width),
    }
    return make_heads("ELECTRA", known, c.prediction_heads)


# Hugging Face

ARCHITECTURES: dict[str, tuple[str, ...]] = {
    "ElectraModel": (),
    "ElectraForMaskedLM": ("masked_lm",),
    "ElectraForPreTraining": ("replaced",),
    "ElectraForSequenceClassification": ("classify",),
    "ElectraForTokenClassification": ("tag",),
    "ElectraForQuestionAnswering": ("span",),
}
SIGNS = {
    "masked_lm": "generator_predictions.dense.weight",
    "replaced": "discriminator_predictions.dense.weight",
}
USUAL = ElectraConfig()


def read_config(theirs: dict[str, Any], names: Collection[str] = ()) -> ElectraConfig:
    return ElectraConfig(
        **read_sizes(theirs, USUAL),
        prediction_heads=find_heads(theirs, names, ARCHITECTURES, SIGNS, None),
        embedding_width=read(theirs, "embedding_size", USUAL.embedding_width),
    )


def write_config(c: ElectraConfig) -> dict[str, Any]:
    return {
        "model_type": "electra",
        "architectures": [find_architecture(c.prediction_heads, ARCHITECTURES)],
        "embedding_size": c.embedding_width,
        **write_sizes(c),
    }


def names(c: ElectraConfig) -> Table:
    rules = [
        *encoder_names("electra."),
        *weight_and_bias("electra.embeddings_project", "encoder.inputs.widen"),
        *weight_and_bias("generator_predictions.dense", "heads.masked_lm.dense"),
        *weight_and_bias("generator_predictions.LayerNorm", "heads.masked_lm.norm"),
        same("generator_lm_head.bias", "heads.masked_lm.bias"),
        *weight_and_bias("discriminator_predictions.dense", "heads.replaced.dense"),
        *weight_and_bias("discriminator_predictions.dense_prediction", "heads.replaced.linear"),
        *weight_and_bias("classifier.dense", "heads.classify.pool.dense"),
        *weight_and_bias("classifier.out_proj", "heads.classify.linear"),
        *weight_and_bias("classifier", "heads.tag.linear"),
        *weight_and_bias("qa_outputs", "heads.span.linear"),
    ]
    return Table(
        rules,
        prefix="electra.",
        bare=not c.prediction_heads,
        copies={"generator_lm_head.weight": "electra.embeddings.word_embeddings.weight"},
        ignored=IGNORED,
        old=OLD,
    )
