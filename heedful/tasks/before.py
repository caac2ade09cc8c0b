"""The configs of translators that came before the Transformer, at a recipe's sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..models.bahdanau import BahdanauConfig
from ..models.base.config import Config
from ..models.convs2s import ConvS2SConfig
from ..models.luong import LuongConfig
from ..models.seq2seq import Seq2SeqConfig
from .recipe.settings import ModelSettings, Recipe


def of_seq2seq(m: ModelSettings, words: dict[str, Any]) -> Config:
    return Seq2SeqConfig(
        **words, cell=m.cell, layers=m.layers, width=m.width, embedding=m.width, dropout=m.dropout
    )


def of_bahdanau(m: ModelSettings, words: dict[str, Any]) -> Config:
    return BahdanauConfig(
        **words, layers=m.layers, width=m.width, embedding=m.width, alignment=m.width, maxout=m.width,
        dropout=m.dropout,
    )  # fmt: skip


def of_luong(m: ModelSettings, words: dict[str, Any]) -> Config:
    direction = None if m.score == "dot" else m.width  # as Bahdanau's, where the score allows it
    return LuongConfig(
        **words, cell=m.cell, layers=m.layers, width=m.width, direction=direction, embedding=m.width, score=m.score,
        input_feeding=m.input_feeding, dropout=m.dropout,
    )  # fmt: skip


def of_convs2s(m: ModelSettings, words: dict[str, Any]) -> Config:
    return ConvS2SConfig(
        **words, layers=m.layers, width=m.width, kernel=m.kernel, further=(), embedding=m.width, out=m.width,
        dropout=m.dropout,
    )  # fmt: skip


CONFIGS: dict[str, Callable[[ModelSettings, dict[str, Any]], Config]] = {
    "seq2seq": of_seq2seq,
    "bahdanau": of_bahdanau,
    "luong": of_luong,
    "convs2s": of_convs2s,
}


def config_of(recipe: Recipe, vocab: int, target_vocab: int | None = None) -> Config:
    """With a vocabulary for both sides, they share an embedding; the output has a matrix of its own."""
    other = vocab if target_vocab is None else target_vocab
    words = {"vocab": vocab, "target_vocab": other, "shared": target_vocab is None}
    return CONFIGS[recipe.model.architecture](recipe.model, words)
