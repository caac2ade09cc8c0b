"""DeBERTa, versions 1 to 3 (He et al. 2021): an encoder with separate scores for content and distance."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Annotated, Any

from torch import nn

from ..errors import BadInput
from ..parts.blocks import Block
from ..parts.disentangled import ConvolvedBlock, DisentangledAttention, Distances, ScaledByTerms
from ..parts.embeddings import Inputs, TokenEmbedding
from ..parts.layers import FeedForward, LayerNorm, PostNorm
from ..parts.multihead import MultiHeadAttention
from ..parts.positions.absolute import Learned
from .base.config import Config
from .base.fields import (
    RATE,
    SIZE,
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
    choices,
    ratio,
)
from .base.heads import Classify, MaskedLM, Pooled, Span, Tag
from .base.settings import GIVEN, same_as
from .base.shells import WithHeads
from .bert import assemble, find_architecture, find_heads, make_heads
from .hf.folder import (
    ACTIVATION_NAMES,
    one_of,
    read,
    read_activation,
    read_labels,
    read_or_null,
    refuse_unless,
    write_labels,
)
from .hf.names import Rule, Table, by_heads, same, weight_and_bias

WAYS = ("c2p", "p2c")


@dataclass(frozen=True)
class DebertaConfig(Config):
    vocab: Vocab = 128100
    context: Context = 512
    segments: Annotated[int | None, SIZE, "segment embeddings; None: it has none"] = None
    layers: Layers = 12
    width: Width = 768
    heads: Heads = 12
    ffn_width: FfnWidth = ratio(4, "width")
    activation: Activation = "gelu"
    dropout: Dropout = 0.1
    attention_dropout: AttentionDropout = same_as("dropout")
    eps: Eps = 1e-07
    absolute_positions: Annotated[bool, "add a learned position table at the input"] = False
    relative_positions: Annotated[bool, "learn a table of distances"] = True
    ways: Annotated[tuple[str, ...], "position scores: position to content, content to position"] = (
        "p2c",
        "c2p",
    )
    share_projections: Annotated[bool, "distances use the projections of content"] = True
    buckets: Annotated[
        int | None, SIZE, "distance buckets in each direction; None: every distance has a row"
    ] = 256
    max_distance: Annotated[int | None, SIZE, "greatest distance with its own vector; None: context"] = None
    norm_distances: Annotated[bool, "a norm of the table of distances"] = True
    convolution: Annotated[
        int | None, SIZE, "tokens that the first layer's convolution sees; None: it has none"
    ] = None
    convolution_activation: Annotated[
        str, choices("layers.py", "ACTIVATIONS"), "activation of the convolution"
    ] = "tanh"
    prediction_heads: PredictionHeads = ()
    labels: Labels = 2
    pool_activation: Annotated[str, choices("layers.py", "ACTIVATIONS"), "activation of the pooler"] = "gelu"
    pool_dropout: Annotated[float, RATE, "dropout rate of the pooler"] = 0.0
    classifier_dropout: Annotated[
        float | None, RATE, "dropout rate before the classifier; None: as dropout"
    ] = None
    legacy: Annotated[bool, "the masked-LM head has BERT's names"] = False
    first_version: Annotated[bool, "version 1: no bias of keys, and every distance has a row", GIVEN] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(set(self.ways)) < len(self.ways) or set(self.ways) - set(WAYS):
            raise ValueError(f"ways are {' and '.join(WAYS)}, not {self.ways}")
        if self.buckets is not None and not 2 <= self.buckets < 2 * self.reach - 2:
            raise ValueError(
                f"{self.buckets} buckets cannot be laid over distances up to {self.reach}: "
                f"half of them are exact"
            )
        later = (self.buckets, self.convolution) != (None, None)
        if self.first_version and (later or self.norm_distances or self.share_projections):
            raise ValueError(
                "version 1 has no buckets, no convolution, no norm of distances and no shared projections"
            )
        if self.convolution is not None and self.convolution % 2 == 0:
            raise ValueError(f"a convolution sees as many tokens before as after: not {self.convolution}")

    @property
    def reach(self) -> int:
        """The farthest distance with a vector of its own."""
        return self.max_distance or self.context

    @property
    def span(self) -> int:
        """Rows of distances, in each direction."""
        return self.buckets or self.reach


FIRST = DebertaConfig(
    vocab=50265, share_projections=False, buckets=None, norm_distances=False, first_version=True
)
MODEL_TYPES = ("deberta-v2", "deberta")  # Hugging Face's
PRESETS = {"deberta-v3-base": DebertaConfig(), "deberta-base": FIRST}


def build(config: DebertaConfig) -> WithHeads:
    """The encoder and its heads, with fresh weights: N(0, 0.02)."""
    c = config
    inputs = Inputs(
        TokenEmbedding(c.vocab, c.width),
        Learned(c.context, c.width) if c.absolute_positions else None,
        None if c.segments is None else nn.Embedding(c.segments, c.width),
        LayerNorm(c.width, c.eps),
        c.dropout,
    )
    table = build_table(c) if c.relative_positions else None
    blocks = [build_block(c, table) for _ in range(c.layers)]
    if c.convolution is not None:
        norm = LayerNorm(c.width, c.eps)
        blocks[0] = ConvolvedBlock(
            blocks[0], c.width, c.convolution, c.convolution_activation, norm, c.dropout
        )
    return assemble(inputs, blocks, build_heads(c))


def build_table(c: DebertaConfig) -> Distances:
    norm = LayerNorm(c.width, c.eps) if c.norm_distances else None
    return Distances(c.span, c.width, norm, None if c.buckets is None else (c.buckets, c.reach))


def build_block(c: DebertaConfig, table: Distances | None) -> Block:
    attention: MultiHeadAttention
    if table is None:
        score = ScaledByTerms(1 + len(c.ways))
        attention = MultiHeadAttention(c.width, c.heads, dropout=c.attention_dropout, score=score)
        if c.first_version:
            attention.key = nn.Linear(c.width, c.width, bias=False)
    else:
        attention = DisentangledAttention(
            c.width,
            c.heads,
            table,
            c.ways,
            c.share_projections,
            c.attention_dropout,
            c.dropout,
            key_bias=not c.first_version,
        )
    feed_forward = FeedForward(c.width, c.ffn_width, c.activation)
    return Block(
        PostNorm(attention, LayerNorm(c.width, c.eps), c.dropout),
        PostNorm(feed_forward, LayerNorm(c.width, c.eps), c.dropout),
    )


def build_heads(c: DebertaConfig) -> dict[str, nn.Module]:
    dropout = c.dropout if c.classifier_dropout is None else c.classifier_dropout
    pooled = Pooled(c.width, c.pool_activation, c.pool_dropout)
    known: dict[str, Callable[[], nn.Module]] = {
        "masked_lm": lambda: MaskedLM(c.width, c.vocab, c.activation, c.eps),
        "classify": lambda: Classify(pooled, c.width, c.labels, dropout),
        "tag": lambda: Tag(c.width, c.labels, c.dropout),
        "span": lambda: Span(c.width),
    }
    return make_heads("DeBERTa", known, c.prediction_heads)


# Hugging Face

PARTS: dict[str, tuple[str, ...]] = {
    "Model": (),
    "ForMaskedLM": ("masked_lm",),
    "ForSequenceClassification": ("classify",),
    "ForTokenClassification": ("tag",),
    "ForQuestionAnswering": ("span",),
}
ARCHITECTURES = {
    kind: {f"{name}{part}": heads for part, heads in PARTS.items()}
    for kind, name in (("deberta-v2", "DebertaV2"), ("deberta", "Deberta"))
}
OWN, BERTS = "lm_predictions.lm_head.dense.weight", "cls.predictions.transform.dense.weight"


def read_config(theirs: dict[str, Any], names: Collection[str] = ()) -> DebertaConfig:
    first = theirs.get("model_type") == "deberta"
    width = read(theirs, "hidden_size", 768 if first else 1536)
    heads = read(theirs, "num_attention_heads", 12 if first else 24)
    refuse_unless(theirs, "tie_word_embeddings", True)
    refuse_unless(theirs, "embedding_size", width)
    refuse_unless(theirs, "pooler_hidden_size", width)
    refuse_unless(theirs, "attention_head_size", width // heads)
    refuse_unless(theirs, "conv_groups", 1)
    refuse_unless(theirs, "talking_head", False)
    legacy = read(theirs, "legacy", True)
    if OWN in names or BERTS in names:  # published files have one or the other, whatever their config says
        legacy = OWN not in names
    return DebertaConfig(
        vocab=read(theirs, "vocab_size", 50265 if first else 128100),
        context=read(theirs, "max_position_embeddings", 512),
        segments=read_if_any(theirs, "type_vocab_size"),
        layers=read(theirs, "num_hidden_layers", 12 if first else 24),
        width=width,
        heads=heads,
        ffn_width=read(theirs, "intermediate_size", 3072 if first else 6144),
        activation=read_activation(theirs, "hidden_act", "gelu"),
        dropout=read(theirs, "hidden_dropout_prob", 0.1),
        attention_dropout=read(theirs, "attention_probs_dropout_prob", 0.1),
        eps=read(theirs, "layer_norm_eps", 1e-7),
        absolute_positions=read(theirs, "position_biased_input", True),
        relative_positions=read(theirs, "relative_attention", False),
        ways=read_ways(theirs),
        share_projections=not first and read(theirs, "share_att_key", False),
        buckets=None if first else read_if_any(theirs, "position_buckets"),
        max_distance=read_if_any(theirs, "max_relative_positions"),
        norm_distances=not first and read_norm(theirs),
        convolution=None if first else read_if_any(theirs, "conv_kernel_size"),
        convolution_activation=read_activation(theirs, "conv_act", "tanh"),
        prediction_heads=find_heads(
            theirs,
            names,
            ARCHITECTURES["deberta" if first else "deberta-v2"],
            {"masked_lm": BERTS if legacy else OWN},
            None,
        ),
        labels=read_labels(theirs),
        pool_activation=read_activation(theirs, "pooler_hidden_act", "gelu"),
        pool_dropout=read(theirs, "pooler_dropout", 0.0),
        classifier_dropout=read_or_null(theirs, "cls_dropout", 0.0),
        legacy=legacy,
        first_version=first,
    )


def read_if_any(theirs: dict[str, Any], key: str) -> int | None:
    """A size for which they write 0 or -1 where there is none."""
    return None if theirs.get(key, -1) in (-1, 0) else read(theirs, key, 1)


def read_ways(theirs: dict[str, Any]) -> tuple[str, ...]:
    """A list, or names with bars between them."""
    said = theirs.get("pos_att_type") or []
    said = [way.strip() for way in said.lower().split("|")] if isinstance(said, str) else said
    if not isinstance(said, list):
        raise BadInput(f"pos_att_type must be a list of {' and '.join(WAYS)}")
    return tuple(one_of(WAYS, "pos_att_type", way) for way in said)


def read_norm(theirs: dict[str, Any]) -> bool:
    said = read(theirs, "norm_rel_ebd", "none").lower().strip()
    return one_of(("none", "layer_norm"), "norm_rel_ebd", said) == "layer_norm"


def write_config(c: DebertaConfig) -> dict[str, Any]:
    kind = "deberta" if c.first_version else "deberta-v2"
    convolved = {"conv_kernel_size": c.convolution, "conv_act": ACTIVATION_NAMES[c.convolution_activation]}
    later = {
        "share_att_key": c.share_projections,
        "position_buckets": c.buckets or -1,
        "norm_rel_ebd": "layer_norm" if c.norm_distances else "none",
    }
    return {
        "model_type": kind,
        "architectures": [find_architecture(c.prediction_heads, ARCHITECTURES[kind])],
        "vocab_size": c.vocab,
        "max_position_embeddings": c.context,
        "type_vocab_size": c.segments or 0,
        "num_hidden_layers": c.layers,
        "hidden_size": c.width,
        "num_attention_heads": c.heads,
        "intermediate_size": c.ffn_width,
        "hidden_act": ACTIVATION_NAMES[c.activation],
        "hidden_dropout_prob": c.dropout,
        "attention_probs_dropout_prob": c.attention_dropout,
        "layer_norm_eps": c.eps,
        "position_biased_input": c.absolute_positions,
        "relative_attention": c.relative_positions,
        "pos_att_type": list(c.ways),
        "max_relative_positions": c.max_distance or -1,
        "pooler_hidden_act": ACTIVATION_NAMES[c.pool_activation],
        "pooler_hidden_size": c.width,
        "pooler_dropout": c.pool_dropout,
        "legacy": c.legacy,
        **({} if c.first_version else later),
        **({} if c.convolution is None else convolved),
        **({} if c.classifier_dropout is None else {"cls_dropout": c.classifier_dropout}),
        **write_labels(c.labels),
    }


def names(c: DebertaConfig) -> Table:
    first, block, layer = "encoder.stack.blocks.0", "encoder.stack.blocks.{}", "deberta.encoder.layer.{}"
    table, attention = f"{first}.attention.layer.position.table", f"{block}.attention.layer"
    rules = [
        same("deberta.embeddings.word_embeddings.weight", "encoder.inputs.tokens.weight"),
        same("deberta.embeddings.token_type_embeddings.weight", "encoder.inputs.segments.weight"),
        *weight_and_bias("deberta.embeddings.LayerNorm", "encoder.inputs.norm"),
        same("deberta.encoder.rel_embeddings.weight", f"{table}.weight"),
        *weight_and_bias("deberta.encoder.LayerNorm", f"{table}.norm"),
        *weight_and_bias("deberta.encoder.conv.conv", f"{first}.convolution"),
        *weight_and_bias("deberta.encoder.conv.LayerNorm", f"{first}.norm"),
        *(first_projections if c.first_version else projections)(c, f"{layer}.attention.self", attention),
        *weight_and_bias(f"{layer}.attention.output.dense", f"{attention}.out"),
        *weight_and_bias(f"{layer}.attention.output.LayerNorm", f"{block}.attention.norm"),
        *weight_and_bias(f"{layer}.intermediate.dense", f"{block}.feed_forward.layer.up"),
        *weight_and_bias(f"{layer}.output.dense", f"{block}.feed_forward.layer.down"),
        *weight_and_bias(f"{layer}.output.LayerNorm", f"{block}.feed_forward.norm"),
        *blank_names(c),
        *weight_and_bias("pooler.dense", "heads.classify.pool.dense"),
        *weight_and_bias(
            "classifier", f"heads.{'tag' if 'tag' in c.prediction_heads else 'classify'}.linear"
        ),
        *weight_and_bias("qa_outputs", "heads.span.linear"),
    ]
    places = "embeddings.position_embeddings.weight"  # published files have it even where nothing reads it
    if c.absolute_positions:
        rules.append(same(f"deberta.{places}", "encoder.inputs.position.table"))
    return Table(
        rules,
        prefix="deberta.",
        bare=not c.prediction_heads,
        copies={
            "cls.predictions.decoder.weight": "deberta.embeddings.word_embeddings.weight",
            "cls.predictions.decoder.bias": "cls.predictions.bias",
        }
        if c.legacy
        else None,
        ignored=("embeddings.position_ids", *(() if c.absolute_positions else (places,)), *DISCRIMINATOR),
    )


def projections(c: DebertaConfig, theirs: str, ours: str) -> list[Rule]:
    return [
        *weight_and_bias(f"{theirs}.query_proj", f"{ours}.query"),
        *weight_and_bias(f"{theirs}.key_proj", f"{ours}.key"),
        *weight_and_bias(f"{theirs}.value_proj", f"{ours}.value"),
        *weight_and_bias(f"{theirs}.pos_key_proj", f"{ours}.position.key"),
        *weight_and_bias(f"{theirs}.pos_query_proj", f"{ours}.position.query"),
    ]


def first_projections(c: DebertaConfig, theirs: str, ours: str) -> list[Rule]:
    """Those of version 1: one matrix for query, key and value, head after head, and their biases apart."""
    parts = (f"{ours}.{part}.weight" for part in ("query", "key", "value"))
    return [
        by_heads(f"{theirs}.in_proj.weight", c.heads, *parts),
        same(f"{theirs}.q_bias", f"{ours}.query.bias"),
        same(f"{theirs}.v_bias", f"{ours}.value.bias"),
        same(f"{theirs}.pos_proj.weight", f"{ours}.position.key.weight"),
        *weight_and_bias(f"{theirs}.pos_q_proj", f"{ours}.position.query"),
    ]


def blank_names(c: DebertaConfig) -> list[Rule]:
    """The head for blanks, which has had two spellings."""
    bias, inner = ("cls.predictions", "transform.") if c.legacy else ("lm_predictions.lm_head", "")
    return [
        *weight_and_bias(f"{bias}.{inner}dense", "heads.masked_lm.dense"),
        *weight_and_bias(f"{bias}.{inner}LayerNorm", "heads.masked_lm.norm"),
        same(f"{bias}.bias", "heads.masked_lm.bias"),
    ]


# What told replaced words from others in version 3's pre-training: no class of theirs reads it either.
DISCRIMINATOR = tuple(
    f"mask_predictions.{layer}.{which}"
    for layer in ("dense", "LayerNorm", "classifier")
    for which in ("weight", "bias")
)
