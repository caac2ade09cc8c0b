"""Tiny models from before the Transformer, with sizes that all differ, and inputs to decode them with."""

from __future__ import annotations

import torch
from torch import nn

from heedful.models import bahdanau, convs2s, gru, lstm, luong, rnn, seq2seq
from heedful.models.base.shells import EncoderDecoder
from helpers import tiny
from helpers.decoding_cases import Case

VOCAB = 29
PAIR = {"vocab": VOCAB, "target_vocab": VOCAB, "share_embeddings": True}
DECODERS = {
    "rnn": (rnn, rnn.RNNConfig(VOCAB, 31, 2, 7)),
    "gru": (gru, gru.GRUConfig(VOCAB, 31, 2, 7)),
    "lstm": (lstm, lstm.LSTMConfig(VOCAB, 31, 2, 7)),
}
ENCODER_DECODERS = {
    "seq2seq": (seq2seq, seq2seq.Seq2SeqConfig(**PAIR, layers=2, width=7, embedding_width=5)),
    "seq2seq, every step": (
        seq2seq,
        seq2seq.Seq2SeqConfig(
            **PAIR,
            cell="gru",
            layers=2,
            width=7,
            embedding_width=5,
            reverse_source=False,
            context_every_step=True,
        ),
    ),
    "bahdanau": (
        bahdanau,
        bahdanau.BahdanauConfig(
            VOCAB, VOCAB, False, 2, width=6, embedding_width=5, score_width=4, maxout_width=3
        ),
    ),
    "luong": (luong, luong.LuongConfig(**PAIR, layers=2, width=7, encoder_width=4, embedding_width=5)),
    "luong dot": (
        luong,
        luong.LuongConfig(
            **PAIR, cell="gru", layers=1, width=8, embedding_width=5, score="dot", input_feeding=False
        ),
    ),
    "luong concat": (
        luong,
        luong.LuongConfig(
            **PAIR, cell="gru", layers=1, width=8, encoder_width=6, embedding_width=5, score="concat"
        ),
    ),
    "convs2s": (
        convs2s,
        convs2s.ConvS2SConfig(
            VOCAB,
            VOCAB,
            False,
            31,
            layers=2,
            width=6,
            kernel_size=3,
            more_layers=(8, 2, 8, 1),
            embedding_width=5,
            output_width=4,
        ),
    ),
}
ATTENDING = ("bahdanau", "luong", "luong dot", "luong concat", "convs2s")
EVERY = DECODERS | ENCODER_DECODERS


def build(name: str, dtype: torch.dtype = torch.float64, seed: int = 11) -> nn.Module:
    return tiny.build(EVERY[name], dtype, seed)


class Before(Case):
    """The same as `Case`, of one of these."""

    def __init__(self, name: str, seed: int = 11, sharper: float = 1.0) -> None:
        self.name, self.vocab = name, VOCAB
        self.model = build(name, seed=seed)
        decoder = getattr(self.model, "decoder", self.model)
        decoder.head.scale = sharper
        made = torch.Generator().manual_seed(seed)
        self.translates = isinstance(self.model, EncoderDecoder)
        self.source = torch.randint(VOCAB, (3, 6), generator=made) if self.translates else None
        self.source_lengths = torch.tensor([6, 2, 5]) if self.translates else None
        self.prompts = torch.randint(VOCAB, (3, 4), generator=made)
        self.lengths = torch.tensor([2, 4, 1])
