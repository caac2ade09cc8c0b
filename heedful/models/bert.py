"""BERT (Devlin et al. 2019): an encoder alone, trained to fill in blanks, then fine-tuned through a head."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from torch import nn

from ..parts.blocks import Block, Stack
from ..parts.embeddings import Inputs, TokenEmbedding
from ..parts.layers import FeedForward, LayerNorm, PostNorm
from ..parts.multihead import MultiHeadAttention
from ..parts.positions.absolute import Learned
from .base.config import Config
from .base.fields import (
    RATE,
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
    Segments,
    Vocab,
    Width,
    ratio,
)
from .base.heads import Classify, MaskedLM, Pooled, Span, Tag
from .base.initialize import normal_
from .base.settings import same_as
from .base.shells import Encoder, WithHeads
from .hf.folder import (
    ACTIVATION_NAMES,
    read,
    read_activation,
    read_architecture,
    read_labels,
    read_or_null,
    refuse_unless,
    write_labels,
)
from .hf.names import Rule, Table, same, weight_and_bias


@dataclass(frozen=True)
class BertConfig(Config):
    vocab: Vocab = 30522
    context: Context = 512
    segments: Segments = 2
    layers: Layers = 12
    width: Width = 768
    heads: Heads = 12
    ffn_width: FfnWidth = ratio(4, "width")
    activation: Activation = "gelu"
    dropout: Dropout = 0.1
    attention_dropout: AttentionDropout = same_as("dropout")
    eps: Eps = 1e-12
    prediction_heads: PredictionHeads = ("pooled",)
    labels: Labels = 2
    classifier_dropout: Annotated[
        float | None, RATE, "dropout rate before the classifier; None: as dropout"
    ] = None

    @property
    def before_labels(self) -> float:
        """The dropout of heads that tell labels apart."""
        return self.dropout if self.classifier_dropout is None else self.classifier_dropout


MODEL_TYPES = ("bert",)  # Hugging Face's
PRESETS = {
    "bert-base": BertConfig(),
    "bert-large": BertConfig(layers=24, width=1024, heads=16, ffn_width=4096),
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
    return assemble(inputs, [build_block(c) for _ in range(c.layers)], build_heads(c))


def assemble(inputs: Inputs, blocks: list[Block], heads: dict[str, nn.Module]) -> WithHeads:
    """An encoder of these parts, and its heads."""
    model = WithHeads(Encoder(inputs, Stack(blocks)), heads)
    normal_(model, std=0.02)
    return model


def build_block(c: BertConfig) -> Block:
    attention = MultiHeadAttention(c.width, c.heads, dropout=c.attention_dropout)
    feed_forward = FeedForward(c.width, c.ffn_width, c.activation)
    return Block(
        PostNorm(attention, LayerNorm(c.width, c.eps), c.dropout),
        PostNorm(feed_forward, LayerNorm(c.width, c.eps), c.dropout),
    )


def build_heads(c: Any, name: str = "BERT", embedding: int | None = None) -> dict[str, nn.Module]:
    """Next-sentence and sentence labels are read off the same pooled vector.

    embedding: the width of embeddings, if it is another than the model's.
    """
    pooled = Pooled(c.width)
    for head in c.prediction_heads:
        if head in ("next_sentence", "classify") and "pooled" not in c.prediction_heads:
            raise ValueError(f'the head "{head}" reads the pooled vector: add "pooled" to prediction_heads')
    known: dict[str, Callable[[], nn.Module]] = {
        "pooled": lambda: pooled,
        "masked_lm": lambda: MaskedLM(c.width, c.vocab, c.activation, c.eps, embedding),
        "next_sentence": lambda: Classify(pooled, c.width, 2),
        "classify": lambda: Classify(pooled, c.width, c.labels, c.before_labels),
        "tag": lambda: Tag(c.width, c.labels, c.before_labels),
        "span": lambda: Span(c.width),
    }
    return make_heads(name, known, c.prediction_heads)


def make_heads(
    name: str, known: Mapping[str, Callable[[], nn.Module]], wanted: Collection[str]
) -> dict[str, nn.Module]:
    """The heads that are wanted, in the order in which a family lists them."""
    for head in wanted:
        if head not in known:
            raise ValueError(f'{name} has no head "{head}"; it has {", ".join(known)}')
    return {head: make() for head, make in known.items() if head in wanted}


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


SIGNS = {"masked_lm": "cls.predictions.bias", "next_sentence": "cls.seq_relationship.weight"}


def find_heads(
    theirs: dict[str, Any],
    names: Collection[str],
    architectures: Mapping[str, tuple[str, ...]] = ARCHITECTURES,
    signs: Mapping[str, str] = SIGNS,
    pooler: str | None = "pooler.dense.weight",
) -> tuple[str, ...]:
    """The architecture says which heads to expect; the file may hold more (bert-base-uncased does).

    signs: {head: a weight that only it has}. pooler: how the name of the pooling layer's weight ends;
    None: there is no such layer.
    """
    named = theirs.get("architectures")
    architecture = read_architecture(theirs, architectures) if named else by_weights(names, architectures)
    heads = set(architectures[architecture])
    heads |= {head for head, sign in signs.items() if sign in names}
    if any(name.startswith("embeddings.") for name in names):  # saved without its head, whatever it says
        heads &= {"pooled"}
    if names and pooler is not None:
        has_pooler = any(name.endswith(pooler) for name in names)
        heads = heads | {"pooled"} if has_pooler else heads
        if not has_pooler and architecture == next(iter(architectures)):  # saved without its pooling layer
            heads.discard("pooled")
    order = ("pooled", "masked_lm", "replaced", "next_sentence", "sentence_order", "classify", "tag", "span")
    return tuple(head for head in order if head in heads)


def by_weights(names: Collection[str], architectures: Mapping[str, tuple[str, ...]]) -> str:
    """The class whose head is in a file; the one without a head, where none of these is."""
    inner = ("pooler.dense.weight", "pooler.weight", "classifier.dense.weight", "pre_classifier.weight")
    head = None
    if "qa_outputs.weight" in names:
        head = "span"
    elif {"classifier.weight", "classifier.out_proj.weight"} & set(names):
        head = "classify" if any(name.endswith(inner) for name in names) else "tag"
    return next(name for name, heads in architectures.items() if head is None or head in heads)


def read_config(theirs: dict[str, Any], names: Collection[str] = ()) -> BertConfig:
    return BertConfig(**read_sizes(theirs, BertConfig()), prediction_heads=find_heads(theirs, names))


def read_sizes(theirs: dict[str, Any], usual: BertConfig) -> dict[str, Any]:
    """All settings but the heads, as BERT and its relatives name them; usual: what an absent one means."""
    refuse_unless(theirs, "position_embedding_type", "absolute")
    refuse_unless(theirs, "is_decoder", False)
    refuse_unless(theirs, "add_cross_attention", False)
    refuse_unless(theirs, "tie_word_embeddings", True)
    return {
        "vocab": read(theirs, "vocab_size", usual.vocab),
        "context": read(theirs, "max_position_embeddings", usual.context),
        "segments": read(theirs, "type_vocab_size", usual.segments),
        "layers": read(theirs, "num_hidden_layers", usual.layers),
        "width": read(theirs, "hidden_size", usual.width),
        "heads": read(theirs, "num_attention_heads", usual.heads),
        "ffn_width": read(theirs, "intermediate_size", usual.ffn_width),
        "activation": read_activation(theirs, "hidden_act", ACTIVATION_NAMES[usual.activation]),
        "dropout": read(theirs, "hidden_dropout_prob", usual.dropout),
        "attention_dropout": read(theirs, "attention_probs_dropout_prob", usual.attention_dropout),
        "eps": read(theirs, "layer_norm_eps", usual.eps),
        "labels": read_labels(theirs),
        "classifier_dropout": read_or_null(theirs, "classifier_dropout", 0.0),
    }


def write_config(c: BertConfig) -> dict[str, Any]:
    architecture = find_architecture(c.prediction_heads, ARCHITECTURES, "BertForPreTraining")
    return {"model_type": "bert", "architectures": [architecture], **write_sizes(c)}


def find_architecture(
    heads: Collection[str], architectures: Mapping[str, tuple[str, ...]], most: str | None = None
) -> str:
    """The class that has these heads; most: the one that has the most of them, if none has just these."""
    wanted = set(heads) - {"pooled"}  # a file may keep its pooling layer or not
    found = [name for name, its in architectures.items() if set(its) - {"pooled"} == wanted]
    if not found and most is None:
        raise KeyError(f"no class has the heads {', '.join(heads)} together")
    return found[0] if found else str(most)


def write_sizes(c: BertConfig) -> dict[str, Any]:
    """What `read_sizes` reads."""
    return {
        "vocab_size": c.vocab,
        "max_position_embeddings": c.context,
        "type_vocab_size": c.segments,
        "num_hidden_layers": c.layers,
        "hidden_size": c.width,
        "num_attention_heads": c.heads,
        "intermediate_size": c.ffn_width,
        "hidden_act": ACTIVATION_NAMES[c.activation],
        "hidden_dropout_prob": c.dropout,
        "attention_probs_dropout_prob": c.attention_dropout,
        "layer_norm_eps": c.eps,
        **write_labels(c.labels),
        **({} if c.classifier_dropout is None else {"classifier_dropout": c.classifier_dropout}),
    }


def names(c: BertConfig, prefix: str = "bert.", more: Collection[Rule] = ()) -> Table:
    """prefix and more: of a relative that is BERT with something added."""
    rules = [
        *encoder_names(prefix),
        *more,
        *weight_and_bias("cls.predictions.transform.dense", "heads.masked_lm.dense"),
        *weight_and_bias("cls.predictions.transform.LayerNorm", "heads.masked_lm.norm"),
        same("cls.predictions.bias", "heads.masked_lm.bias"),
        *weight_and_bias("cls.seq_relationship", "heads.next_sentence.linear"),
        *weight_and_bias(
            "classifier", f"heads.{'tag' if 'tag' in c.prediction_heads else 'classify'}.linear"
        ),
        *weight_and_bias("qa_outputs", "heads.span.linear"),
    ]
    return Table(
        rules,
        prefix=prefix,
        bare=c.prediction_heads in ((), ("pooled",)),
        copies={
            "cls.predictions.decoder.weight": f"{prefix}embeddings.word_embeddings.weight",
            "cls.predictions.decoder.bias": "cls.predictions.bias",
        },
        ignored=IGNORED,
        old=OLD,
    )


IGNORED = ("embeddings.position_ids",)
OLD = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}


def encoder_names(prefix: str) -> list[Rule]:
    """Embeddings, blocks and the pooling layer, of BERT and of relatives with its layout."""
    block, layer = "encoder.stack.blocks.{}", f"{prefix}encoder.layer.{{}}"
    return [
        same(f"{prefix}embeddings.word_embeddings.weight", "encoder.inputs.tokens.weight"),
        same(f"{prefix}embeddings.position_embeddings.weight", "encoder.inputs.position.table"),
        same(f"{prefix}embeddings.token_type_embeddings.weight", "encoder.inputs.segments.weight"),
        *weight_and_bias(f"{prefix}embeddings.LayerNorm", "encoder.inputs.norm"),
        *weight_and_bias(f"{layer}.attention.self.query", f"{block}.attention.layer.query"),
        *weight_and_bias(f"{layer}.attention.self.key", f"{block}.attention.layer.key"),
        *weight_and_bias(f"{layer}.attention.self.value", f"{block}.attention.layer.value"),
        *weight_and_bias(f"{layer}.attention.output.dense", f"{block}.attention.layer.out"),
        *weight_and_bias(f"{layer}.attention.output.LayerNorm", f"{block}.attention.norm"),
        *weight_and_bias(f"{layer}.intermediate.dense", f"{block}.feed_forward.layer.up"),
        *weight_and_bias(f"{layer}.output.dense", f"{block}.feed_forward.layer.down"),
        *weight_and_bias(f"{layer}.output.LayerNorm", f"{block}.feed_forward.norm"),
        *weight_and_bias(f"{prefix}pooler.dense", "heads.pooled.dense"),
    ]
