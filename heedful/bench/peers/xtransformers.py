"""x-transformers: its encoder and decoder with fused attention, and weights of their own."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from .. import units
from ..work import FULL, TrainGPT2, TrainTransformer, Work, dropout_of
from . import Place, Variant

PACKAGE, DISTRIBUTION = "x_transformers", "x-transformers"
INSTALL = "pip install x-transformers"


def variants(work: Work) -> list[Variant]:
    if not work.trains or (isinstance(work, TrainGPT2) and work.attention != FULL):
        return []
    differs = "weights of its own, GELU, norms first, no biases in attention; the vocabulary filled up"
    if dropout_of(work):
        differs += "; dropout inside attention and feed-forward layers only"
    return [Variant("", differs=differs), Variant("compiled", compiled=True, differs=differs)]


def build(work: Work, variant: Variant, place: Place) -> Callable[[], Any]:
    xt = import_module("x_transformers")
    torch.manual_seed(units.SEED)
    if isinstance(work, TrainGPT2):
        model = XLanguageModel(xt, work).to(place.device)
        return units.training(model, model, [units.windows(work, place)], variant.compiled, place)
    assert isinstance(work, TrainTransformer)
    translator = XTranslator(xt, work).to(place.device)
    return units.training(translator, translator, units.pairs(work, place), variant.compiled, place)


def sizes(work: Any) -> dict[str, Any]:
    """Of a stack."""
    return {
        "dim": work.width,
        "depth": work.layers,
        "heads": work.heads,
        "attn_dim_head": work.width // work.heads,
        "attn_flash": True,
        "ff_mult": work.hidden / work.width,
        "attn_dropout": dropout_of(work),
        "ff_dropout": dropout_of(work),
    }


class XLanguageModel(nn.Module):
    """From windows to their loss."""

    def __init__(self, xt: Any, work: TrainGPT2) -> None:
        super().__init__()
        stack = xt.Decoder(**sizes(work))
        self.body = xt.TransformerWrapper(
            num_tokens=units.padded(work.vocab),
            max_seq_len=work.length,
            tie_embedding=True,
            attn_layers=stack,
        )

    def forward(self, windows_BT: Tensor) -> Tensor:
        return units.cross_entropy(self.body(windows_BT[:, :-1]), windows_BT[:, 1:])


class XTranslator(nn.Module):
    """From sources and targets to their loss. XTransformer itself cannot tie its output to the embedding."""

    def __init__(self, xt: Any, work: TrainTransformer) -> None:
        super().__init__()
        vocab = units.padded(work.vocab)
        self.encoder = xt.TransformerWrapper(
            num_tokens=vocab,
            max_seq_len=work.source,
            return_only_embed=True,
            attn_layers=xt.Encoder(**sizes(work)),
        )
        self.decoder = xt.TransformerWrapper(
            num_tokens=vocab,
            max_seq_len=work.target,
            tie_embedding=True,
            attn_layers=xt.Decoder(**sizes(work), cross_attend=True),
        )
        self.decoder.token_emb = self.encoder.token_emb

    def forward(self, source_BS: Tensor, target_BT: Tensor) -> Tensor:
        scores_BTV = self.decoder(target_BT[:, :-1], context=self.encoder(source_BS))
        return units.cross_entropy(scores_BTV, target_BT[:, 1:])
