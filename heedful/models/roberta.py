"""RoBERTa (Liu et al. 2019): BERT trained longer on more text, without sentence pairs.

XLM-RoBERTa (Conneau et al. 2020) and CamemBERT (Martin et al. 2020) are the same network for other languages.

Positions count from the number of the padding token. The sentence head has a layer of its own, where BERT
reads the pooled vector of pre-training.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Annotated, Any

from torch import nn

from ..errors import BadInput
from ..parts.embeddings import Inputs, TokenEmbedding
from ..parts.layers import LayerNorm
from ..parts.positions.absolute import LearnedAfter
from .base.fields import SIZE, Eps, PredictionHeads, Segments, Vocab, one_of
from .base.heads import Classify, MaskedLM, Pooled, Span, Tag
from .base.settings import GIVEN
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
from .hf.folder import one_of as one_of_theirs
from .hf.folder import read_token
from .hf.names import Table, same, weight_and_bias


@dataclass(frozen=True)
class RobertaConfig(BertConfig):
    vocab: Vocab = 50265
    segments: Segments = 1
    eps: Eps = 1e-05
    prediction_heads: PredictionHeads = ("pooled",)
    offset: Annotated[int, SIZE, "unused rows before the first of the position table"] = 2
    published_as: Annotated[
        str,
        one_of("roberta", "xlm-roberta", "camembert"),
        "name under which Hugging Face has this network",
        GIVEN,
    ] = "roberta"


MODEL_TYPES = ("roberta", "xlm-roberta", "camembert")  # Hugging Face's
PRESETS = {
    "roberta-base": RobertaConfig(),
    "xlm-roberta-base": RobertaConfig(vocab=250002, published_as="xlm-roberta"),
    "camembert-base": RobertaConfig(vocab=32005, published_as="camembert"),
}


def build(config: RobertaConfig) -> WithHeads:
    """The encoder and its heads, with fresh weights: N(0, 0.02)."""
    c = config
    inputs = Inputs(
        TokenEmbedding(c.vocab, c.width),
        LearnedAfter(c.context, c.width, c.offset),
        nn.Embedding(c.segments, c.width),
        LayerNorm(c.width, c.eps),
        c.dropout,
    )
    return assemble(inputs, [build_block(c) for _ in range(c.layers)], build_heads(c))


def build_heads(c: RobertaConfig) -> dict[str, nn.Module]:
    known: dict[str, Callable[[], nn.Module]] = {
        "pooled": lambda: Pooled(c.width),
        "masked_lm": lambda: MaskedLM(c.width, c.vocab, "gelu", c.eps),
        "classify": lambda: Classify(
            Pooled(c.width, dropout=c.before_labels), c.width, c.labels, c.before_labels
        ),
        "tag": lambda: Tag(c.width, c.labels, c.before_labels),
        "span": lambda: Span(c.width),
    }
    return make_heads("RoBERTa", known, c.prediction_heads)


# Hugging Face

PARTS = {
    "Model": ("pooled",),
    "ForMaskedLM": ("masked_lm",),
    "ForSequenceClassification": ("classify",),
    "ForTokenClassification": ("tag",),
    "ForQuestionAnswering": ("span",),
}
CLASSES = {"roberta": "Roberta", "xlm-roberta": "XLMRoberta", "camembert": "Camembert"}
ARCHITECTURES = {
    kind: {f"{name}{part}": heads for part, heads in PARTS.items()} for kind, name in CLASSES.items()
}
# What settings mean that a config leaves out.
USUAL = {
    "roberta": RobertaConfig(segments=2, eps=1e-12),
    "xlm-roberta": RobertaConfig(vocab=30522, segments=2, eps=1e-12),
    "camembert": RobertaConfig(vocab=30522, segments=2, eps=1e-12),
}


def read_config(theirs: dict[str, Any], names: Collection[str] = ()) -> RobertaConfig:
    kind = one_of_theirs(MODEL_TYPES, "model_type", theirs.get("model_type", "roberta"))
    sizes = read_sizes(theirs, USUAL[kind])
    offset = read_token(theirs, "pad_token_id", 1, sizes["vocab"]) + 1
    if sizes["context"] <= offset:
        raise BadInput(
            f"max_position_embeddings is {sizes['context']}, and places count from pad_token_id on: "
            f"the first token's would be {offset}"
        )
    sizes["context"] -= offset
    heads = find_heads(theirs, names, ARCHITECTURES[kind], {"masked_lm": "lm_head.dense.weight"})
    return RobertaConfig(**sizes, prediction_heads=heads, offset=offset, published_as=kind)


def write_config(c: RobertaConfig) -> dict[str, Any]:
    return {
        "model_type": c.published_as,
        "architectures": [find_architecture(c.prediction_heads, ARCHITECTURES[c.published_as])],
        **write_sizes(c),
        "max_position_embeddings": c.context + c.offset,
        "pad_token_id": c.offset - 1,
    }


def names(c: RobertaConfig) -> Table:
    rules = [
        *encoder_names("roberta."),
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
        prefix="roberta.",
        bare=c.prediction_heads in ((), ("pooled",)),
        copies={
            "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
            "lm_head.decoder.bias": "lm_head.bias",
        },
        ignored=IGNORED,
        old=OLD,
    )
