"""ModernBERT (Warner et al. 2024): BERT with rotary positions, gated GELU, no biases and local attention.

Two layers of three see a window around each token; every third sees the whole text.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Annotated, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import BadInput
from ..parts.blocks import Block, Stack
from ..parts.embeddings import Inputs, TokenEmbedding
from ..parts.layers import GainLayerNorm, GatedFeedForward, LayerNorm, PreNorm, activation
from ..parts.masks import full, window
from ..parts.multihead import MultiHeadAttention
from ..parts.positions.rotary import Rotary
from .base.config import Config
from .base.fields import (
    AMOUNT,
    SIZE,
    Activation,
    ActivationDropout,
    AttentionDropout,
    ClassifierDropout,
    Context,
    Dropout,
    Eps,
    FfnWidth,
    Heads,
    Labels,
    Layers,
    OutputBias,
    PredictionHeads,
    Vocab,
    Width,
    choices,
    one_of,
)
from .base.heads import FirstToken, MeanOverReal
from .base.initialize import normal_
from .base.settings import GIVEN, derived
from .base.shells import Encoder, WithHeads
from .bert import find_architecture, find_heads, make_heads
from .hf.folder import ACTIVATION_NAMES, read, read_activation, read_labels, refuse_unless, write_labels
from .hf.folder import one_of as one_of_theirs
from .hf.names import Rule, Table, same, stacked, weight_and_bias
from .hf.rope import read_base

POOLS = {"cls": FirstToken, "mean": MeanOverReal}
EVERY = 3  # one layer in so many sees the whole text


@dataclass(frozen=True)
class ModernBertConfig(Config):
    vocab: Vocab = 50368
    context: Context = 8192
    layers: Layers = 22
    width: Width = 768
    heads: Heads = 12
    ffn_width: FfnWidth = 1152
    activation: Activation = "gelu"
    window: Annotated[int, SIZE, "a windowed layer sees half of this many tokens on either side"] = 128
    windowed_layers: Annotated[tuple[int, ...], "the layers that see a window", GIVEN] = derived(
        f"all but one in {EVERY}", lambda made: tuple(i for i in range(made.layers) if i % EVERY)
    )
    rotary_base: Annotated[float, AMOUNT, "base of the rotary frequencies"] = 160000.0
    window_rotary_base: Annotated[float, AMOUNT, "the same of a windowed layer"] = 10000.0
    attention_bias: Annotated[bool, "biases in the attention projections"] = False
    ffn_bias: Annotated[bool, "biases in the feed-forward layer"] = False
    norm_bias: Annotated[bool, "biases in the norms"] = False
    dropout: Dropout = 0.0
    attention_dropout: AttentionDropout = 0.0
    activation_dropout: ActivationDropout = 0.0
    eps: Eps = 1e-05
    prediction_heads: PredictionHeads = ()
    labels: Labels = 2
    output_bias: OutputBias = True
    pool: Annotated[str, one_of("cls", "mean"), "a text is its first token, or the mean of all"] = "cls"
    head_bias: Annotated[bool, "a bias in the dense layer of the heads"] = False
    head_activation: Annotated[str, choices("layers.py", "ACTIVATIONS"), "activation of the heads"] = "gelu"
    classifier_dropout: ClassifierDropout = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if any(not 0 <= layer < self.layers for layer in self.windowed_layers):
            raise ValueError(f"windowed_layers are {self.windowed_layers}, of only {self.layers} layers")


MODEL_TYPES = ("modernbert",)  # Hugging Face's
PRESETS = {
    "modernbert-base": ModernBertConfig(),
    "modernbert-large": ModernBertConfig(layers=28, width=1024, heads=16, ffn_width=2624),
}


def build(config: ModernBertConfig) -> WithHeads:
    """The encoder and its heads, with fresh weights: N(0, 0.02)."""
    c = config
    inputs = Inputs(TokenEmbedding(c.vocab, c.width), norm=norm(c), dropout=c.dropout)
    stack = Stack([build_block(c, layer) for layer in range(c.layers)], norm(c))
    local = window(c.window // 2 + 1)  # the token itself, and half of the window before it and after it
    masks = [local if layer in c.windowed_layers else full() for layer in range(c.layers)]
    model = WithHeads(Encoder(inputs, stack, masks, zero_padding=c.pool == "mean"), build_heads(c))
    normal_(model, std=0.02)
    return model


def norm(c: ModernBertConfig) -> nn.Module:
    return LayerNorm(c.width, c.eps) if c.norm_bias else GainLayerNorm(c.width, c.eps)


def build_block(c: ModernBertConfig, layer: int) -> Block:
    """The first layer has no norm before its attention: the inputs already have one."""
    base = c.window_rotary_base if layer in c.windowed_layers else c.rotary_base
    attention = MultiHeadAttention(
        c.width,
        c.heads,
        bias=c.attention_bias,
        dropout=c.attention_dropout,
        position=Rotary(c.width // c.heads, "halves", base),
    )
    feed_forward = GatedFeedForward(c.width, c.ffn_width, c.activation, c.ffn_bias, c.activation_dropout)
    return Block(
        PreNorm(attention, norm(c) if layer else nn.Identity(), c.attention_dropout),
        PreNorm(feed_forward, norm(c)),
    )


class Prepared(nn.Module):
    """What every head begins with: a dense layer, an activation and a norm."""

    def __init__(self, c: ModernBertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(c.width, c.width, bias=c.head_bias)
        self.activation = activation(c.head_activation)
        self.norm = norm(c)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.norm(self.activation(self.dense(hidden)))


class FillAfter(nn.Module):
    """Fill in the blank: the embedding's own matrix and perhaps a bias, after `Prepared`."""

    def __init__(self, c: ModernBertConfig) -> None:
        super().__init__()
        self.prepare = Prepared(c)
        self.bias = nn.Parameter(torch.zeros(c.vocab)) if c.output_bias else None

    def forward(self, hidden_BTD: Tensor, inputs: Inputs) -> Tensor:
        return F.linear(self.prepare(hidden_BTD), inputs.tokens.weight, self.bias)


class LabelAfter(nn.Module):
    """Scores for labels after `Prepared`: of the whole text if there is a pool, else of each token."""

    def __init__(self, c: ModernBertConfig, labels: int, pool: nn.Module | None = None) -> None:
        super().__init__()
        self.pool, self.prepare = pool, Prepared(c)
        self.dropout = nn.Dropout(c.classifier_dropout)
        self.linear = nn.Linear(c.width, labels)

    def forward(self, hidden_BTD: Tensor, inputs: nn.Module) -> Tensor:
        hidden = hidden_BTD if self.pool is None else self.pool(hidden_BTD, inputs)
        return self.linear(self.dropout(self.prepare(hidden)))


def build_heads(c: ModernBertConfig) -> dict[str, nn.Module]:
    known: dict[str, Callable[[], nn.Module]] = {
        "masked_lm": lambda: FillAfter(c),
        "classify": lambda: LabelAfter(c, c.labels, POOLS[c.pool]()),
        "tag": lambda: LabelAfter(c, c.labels),
        "span": lambda: LabelAfter(c, 2),
    }
    return make_heads("ModernBERT", known, c.prediction_heads)


# Hugging Face

ARCHITECTURES: dict[str, tuple[str, ...]] = {
    "ModernBertModel": (),
    "ModernBertForMaskedLM": ("masked_lm",),
    "ModernBertForSequenceClassification": ("classify",),
    "ModernBertForTokenClassification": ("tag",),
    "ModernBertForQuestionAnswering": ("span",),
}
FULL, SLIDING = "full_attention", "sliding_attention"


def read_config(theirs: dict[str, Any], names: Collection[str] = ()) -> ModernBertConfig:
    width, heads = read(theirs, "hidden_size", 768), read(theirs, "num_attention_heads", 12)
    layers = read(theirs, "num_hidden_layers", 22)
    refuse_unless(theirs, "tie_word_embeddings", True)
    if theirs.get("head_dim") is not None:
        refuse_unless(theirs, "head_dim", width // heads)
    if not theirs.get("architectures") and "classifier.weight" in names:
        raise BadInput("architectures is missing, and three classes have such weights: name one")
    whole, local = read_rotary(theirs)
    return ModernBertConfig(
        vocab=read(theirs, "vocab_size", 50368),
        context=read(theirs, "max_position_embeddings", 8192),
        layers=layers,
        width=width,
        heads=heads,
        ffn_width=read(theirs, "intermediate_size", 1152),
        activation=read_activation(theirs, "hidden_activation", "gelu"),
        window=read(theirs, "local_attention", 128),
        windowed_layers=read_windowed(theirs, layers),
        rotary_base=whole,
        window_rotary_base=local,
        attention_bias=read(theirs, "attention_bias", False),
        ffn_bias=read(theirs, "mlp_bias", False),
        norm_bias=read(theirs, "norm_bias", False),
        dropout=read(theirs, "embedding_dropout", 0.0),
        attention_dropout=read(theirs, "attention_dropout", 0.0),
        activation_dropout=read(theirs, "mlp_dropout", 0.0),
        eps=read(theirs, "norm_eps", 1e-5),
        prediction_heads=find_heads(theirs, names, ARCHITECTURES, find_signs(names), None),
        labels=read_labels(theirs),
        output_bias=read(theirs, "decoder_bias", True),
        pool=one_of_theirs(POOLS, "classifier_pooling", read(theirs, "classifier_pooling", "cls")),
        head_bias=read(theirs, "classifier_bias", False),
        head_activation=read_activation(theirs, "classifier_activation", "gelu"),
        classifier_dropout=read(theirs, "classifier_dropout", 0.0),
    )


def find_signs(names: Collection[str]) -> dict[str, str]:
    """The dense layer of a head is that of blanks, if no other head is there."""
    return {} if "classifier.weight" in names else {"masked_lm": "head.dense.weight"}


def read_windowed(theirs: dict[str, Any], layers: int) -> tuple[int, ...]:
    """The layers with a window: by a list of names, or all but one in so many."""
    kinds = theirs.get("layer_types")
    if kinds is None:
        every = read(theirs, "global_attn_every_n_layers", EVERY)
        return tuple(layer for layer in range(layers) if layer % every)
    if not isinstance(kinds, list) or len(kinds) != layers:
        raise BadInput(f"layer_types must be a list of {layers} names, one for each of num_hidden_layers")
    known = [one_of_theirs((FULL, SLIDING), "layer_types", kind) for kind in kinds]
    return tuple(layer for layer, kind in enumerate(known) if kind == SLIDING)


def read_rotary(theirs: dict[str, Any]) -> tuple[float, float]:
    """The bases of layers that see all and of those with a window, as today's configs or older ones say."""
    refuse_unless(theirs, "rope_scaling", None)
    said = theirs.get("rope_parameters") or {}
    kinds = [said.get(kind) or {} for kind in (FULL, SLIDING)] if isinstance(said, dict) else [None]
    if not all(isinstance(kind, dict) for kind in kinds):
        raise BadInput(f"rope_parameters must be an object with {FULL} and {SLIDING}")
    found = []
    for kind, older, base in ((FULL, "global_rope_theta", 160000.0), (SLIDING, "local_rope_theta", 10000.0)):
        turns = said.get(kind) or {}
        refuse_unless(turns, "rope_type", "default")
        found.append(read_base(turns, read(theirs, older, base)))
    return found[0], found[1]


def write_config(c: ModernBertConfig) -> dict[str, Any]:
    kinds = [SLIDING if layer in c.windowed_layers else FULL for layer in range(c.layers)]
    bases = {FULL: c.rotary_base, SLIDING: c.window_rotary_base}
    return {
        "model_type": "modernbert",
        "architectures": [find_architecture(c.prediction_heads, ARCHITECTURES)],
        "vocab_size": c.vocab,
        "max_position_embeddings": c.context,
        "num_hidden_layers": c.layers,
        "hidden_size": c.width,
        "num_attention_heads": c.heads,
        "intermediate_size": c.ffn_width,
        "hidden_activation": ACTIVATION_NAMES[c.activation],
        "local_attention": c.window,
        "layer_types": kinds,
        "rope_parameters": {
            kind: {"rope_type": "default", "rope_theta": base} for kind, base in bases.items()
        },
        "attention_bias": c.attention_bias,
        "mlp_bias": c.ffn_bias,
        "norm_bias": c.norm_bias,
        "embedding_dropout": c.dropout,
        "attention_dropout": c.attention_dropout,
        "mlp_dropout": c.activation_dropout,
        "norm_eps": c.eps,
        "decoder_bias": c.output_bias,
        "classifier_pooling": c.pool,
        "classifier_bias": c.head_bias,
        "classifier_activation": ACTIVATION_NAMES[c.head_activation],
        "classifier_dropout": c.classifier_dropout,
        **write_labels(c.labels),
    }


def names(c: ModernBertConfig) -> Table:
    block, layer = "encoder.stack.blocks.{}", "model.layers.{}"
    head = next((f"heads.{name}" for name in c.prediction_heads), "heads.none")
    attention, feed_forward = f"{block}.attention.layer", f"{block}.feed_forward.layer"
    rules: list[Rule] = [
        same("model.embeddings.tok_embeddings.weight", "encoder.inputs.tokens.weight"),
        *weight_and_bias("model.embeddings.norm", "encoder.inputs.norm"),
        *weight_and_bias(f"{layer}.attn_norm", f"{block}.attention.norm"),
        *several(f"{layer}.attn.Wqkv", *(f"{attention}.{part}" for part in ("query", "key", "value"))),
        *weight_and_bias(f"{layer}.attn.Wo", f"{attention}.out"),
        *weight_and_bias(f"{layer}.mlp_norm", f"{block}.feed_forward.norm"),
        *several(f"{layer}.mlp.Wi", f"{feed_forward}.gate", f"{feed_forward}.up"),
        *weight_and_bias(f"{layer}.mlp.Wo", f"{feed_forward}.down"),
        *weight_and_bias("model.final_norm", "encoder.stack.norm"),
        *weight_and_bias("head.dense", f"{head}.prepare.dense"),
        *weight_and_bias("head.norm", f"{head}.prepare.norm"),
        same("decoder.bias", "heads.masked_lm.bias"),
        *weight_and_bias("classifier", f"{head}.linear"),
    ]
    return Table(
        rules,
        prefix="model.",
        bare=not c.prediction_heads,
        copies={"decoder.weight": "model.embeddings.tok_embeddings.weight"},
    )


def several(theirs: str, *ours: str) -> list[Rule]:
    """Matrices of ours, and their biases, that are one of theirs."""
    kinds = ("weight", "bias")
    return [stacked(f"{theirs}.{kind}", *(f"{part}.{kind}" for part in ours)) for kind in kinds]
