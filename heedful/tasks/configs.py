"""From a recipe's sizes to an architecture's config."""

from __future__ import annotations

from collections.abc import Callable
from math import isqrt
from typing import Any

from ..errors import BadInput
from ..files import one_line
from ..models.bahdanau import BahdanauConfig
from ..models.base.config import Config
from ..models.bert import BertConfig
from ..models.convs2s import ConvS2SConfig
from ..models.dmca import DMCAConfig
from ..models.gpt2 import GPT2Config
from ..models.gru import GRUConfig
from ..models.linear import LinearConfig
from ..models.lstm import LSTMConfig
from ..models.luong import LuongConfig
from ..models.mixture import MixtureConfig
from ..models.mixture_dmca import MixtureDMCAConfig
from ..models.mixture_transformer import MixtureTransformerConfig
from ..models.modern import ModernConfig
from ..models.rnn import RNNConfig
from ..models.seq2seq import Seq2SeqConfig
from ..models.sparse import SparseConfig
from ..models.transformer import TransformerConfig
from ..models.xl import XLConfig
from .origin import Origin
from .recipe.settings import ModelSettings, Recipe

# Translators that came before the Transformer.


def sizes_before(m: ModelSettings) -> dict[str, Any]:
    """The sizes that all of them have."""
    return m.pick("layers", "width", "dropout") | {"embedding_width": m.width}


def seq2seq_config(m: ModelSettings, vocab: dict[str, Any]) -> Config:
    return Seq2SeqConfig(**vocab, **sizes_before(m), cell=m.cell)


def bahdanau_config(m: ModelSettings, vocab: dict[str, Any]) -> Config:
    return BahdanauConfig(**vocab, **sizes_before(m), score_width=m.width, maxout_width=m.width)


def luong_config(m: ModelSettings, vocab: dict[str, Any]) -> Config:
    direction = None if m.score == "dot" else m.width  # as Bahdanau's, where the score allows it
    choices = m.pick("cell", "score", "input_feeding")
    return LuongConfig(**vocab, **sizes_before(m), **choices, encoder_width=direction)


def convs2s_config(m: ModelSettings, vocab: dict[str, Any]) -> Config:
    return ConvS2SConfig(
        **vocab, **sizes_before(m), kernel_size=m.kernel, more_layers=(), output_width=m.width
    )


CONFIGS_BEFORE: dict[str, Callable[[ModelSettings, dict[str, Any]], Config]] = {
    "seq2seq": seq2seq_config,
    "bahdanau": bahdanau_config,
    "luong": luong_config,
    "convs2s": convs2s_config,
}


# Language models of long texts.


def xl_config(vocab: int, m: ModelSettings) -> XLConfig:
    memory = m.memory or m.context
    return XLConfig(
        vocab,
        m.context,
        memory,
        m.recall or memory,
        m.context + memory,  # farther apart, no two tokens are in training
        m.layers,
        m.width,
        m.heads,
        m.hidden,
        m.activation,
        m.dropout,
    )


def sparse_config(vocab: int, m: ModelSettings) -> SparseConfig:
    stride = m.stride or max(2, isqrt(m.context))
    tail = m.tail or max(1, stride // 8)
    if tail > stride:
        raise BadInput(f"model.tail is {tail} and model.stride {stride}: a tail is no longer than its block")
    sizes = (vocab, m.context, m.layers, m.width, m.heads, m.hidden)
    return SparseConfig(*sizes, m.pattern, m.turns, stride, tail, m.dropout)


def dmca_config(vocab: int, m: ModelSettings) -> DMCAConfig:
    sizes = (vocab, m.context, m.layers, m.width, m.heads, m.hidden)
    return DMCAConfig(*sizes, m.kinds, m.block, m.look_back, m.compressed, m.norm, m.activation, m.dropout)


def mixture_dmca_config(vocab: int, m: ModelSettings) -> MixtureDMCAConfig:
    return MixtureDMCAConfig(**vars(dmca_config(vocab, m)), **experts_of(m))


def experts_of(m: ModelSettings) -> dict[str, Any]:
    """The settings of experts in a mixture's config."""
    return m.pick(
        "experts",
        top_k="chosen",
        moe_every="every",
        router="gate",
        balance_loss_weight="balance",
        capacity_factor="capacity",
    )


def linear_config(vocab: int, m: ModelSettings) -> LinearConfig:
    sizes = (vocab, m.context, m.layers, m.width, m.heads, m.hidden)
    return LinearConfig(*sizes, m.activation, m.dropout)


LONG_CONFIGS: dict[str, Callable[[int, ModelSettings], Config]] = {
    "xl": xl_config,
    "sparse": sparse_config,
    "dmca": dmca_config,
    "mixture_dmca": mixture_dmca_config,
    "linear": linear_config,
}


def translator_config(recipe: Recipe, vocab: int, target_vocab: int | None = None) -> TransformerConfig:
    """The config of a recipe's translator: one vocabulary and one embedding matrix for all three uses.

    With a vocabulary for each side, the source has an embedding matrix of its own; the output uses the
    target's.
    """
    m, target = recipe.model, vocab if target_vocab is None else target_vocab
    words: dict[str, Any] = {"vocab": vocab, "target_vocab": target, "share_embeddings": target_vocab is None}
    if m.architecture in CONFIGS_BEFORE:
        return CONFIGS_BEFORE[m.architecture](m, words)  # type: ignore[return-value]
    mixture = m.architecture == "mixture"
    kind, more = (MixtureTransformerConfig, experts_of(m)) if mixture else (TransformerConfig, {})
    return kind(
        **words,
        **m.pick("layers", "width", "heads", "activation", "norm", "positions"),
        **m.pick(ffn_width="hidden", max_distance="clip", relation_scope="scope"),
        decoder_layers=m.layers,
        decoder_heads=m.heads,
        decoder_ffn_width=m.hidden,
        dropout=m.dropout,
        attention_dropout=0.0,
        **more,
    )


# The files of architectures that are not the Transformer itself.
TRANSLATOR_FILES = {"mixture": "mixture_transformer", **{name: name for name in CONFIGS_BEFORE}}


RECURRENT_CONFIGS: dict[str, type[RNNConfig | GRUConfig | LSTMConfig]] = {
    "rnn": RNNConfig,
    "gru": GRUConfig,
    "lstm": LSTMConfig,
}


def decoder_config(recipe: Recipe, vocab: int, origin: Origin | None = None) -> GPT2Config | ModernConfig:
    """The config of a recipe's language model, or that of the model to start from."""
    if origin is not None:
        if isinstance(origin.config, XLConfig):
            raise BadInput(
                one_line(f"{origin.folder} remembers what it has read (xl): it cannot be started from yet")
            )
        return origin.config
    m = recipe.model
    if m.architecture in RECURRENT_CONFIGS:
        kind = RECURRENT_CONFIGS[m.architecture]
        return kind(vocab, m.context, m.layers, m.width, m.dropout)  # type: ignore[return-value]
    if m.architecture in LONG_CONFIGS:
        return LONG_CONFIGS[m.architecture](vocab, m)  # type: ignore[return-value]
    if m.architecture == "modern":
        return ModernConfig(vocab, m.context, m.layers, m.width, m.heads, m.hidden, m.dropout)
    mixture = m.architecture == "mixture"
    plain, more = (MixtureConfig, experts_of(m)) if mixture else (GPT2Config, {})
    return plain(
        vocab=vocab,
        **m.pick("context", "layers", "width", "heads", "activation", "dropout", ffn_width="hidden"),
        attention_dropout=m.dropout,
        **more,
    )


def bert_config(recipe: Recipe, vocab: int, heads: tuple[str, ...], labels: int = 2) -> BertConfig:
    """BERT's architecture at the recipe's sizes."""
    m = recipe.model
    if m.norm != "post":
        raise BadInput(f"BERT norms after each layer: model.norm is post here, not {m.norm}")
    return BertConfig(
        vocab=vocab,
        **m.pick("context", "layers", "width", "activation", "dropout", ffn_width="hidden"),
        heads=m.heads,
        attention_dropout=m.dropout,
        prediction_heads=heads,
        labels=labels,
    )
