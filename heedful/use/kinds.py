"""The kinds of models, as types. What a model can do follows from its kind, its heads and its task."""

from __future__ import annotations

from ..interop.loaded import Loaded
from ..interop.run_folder import A_STAGE, OF_STAGES
from ..models.base.shells import Decoder, DecoderClassifier, Encoder, EncoderDecoder
from ..models.vit import PatchInputs


class ImageEncoder:
    """An encoder of images, with or without heads: a Vision Transformer."""


class Captioner:
    """An encoder-decoder that reads images and writes texts."""


class Stage:
    """One of the models that draw a picture together: it has no use of its own."""


IN_WORDS: dict[type, str] = {
    EncoderDecoder: "an encoder-decoder",
    Decoder: "a decoder",
    DecoderClassifier: "a classifier",
    Encoder: "an encoder",
    ImageEncoder: "a model of images",
    Captioner: "a captioner",
    Stage: A_STAGE,
}
TEXT_KINDS = (EncoderDecoder, Decoder, DecoderClassifier, Encoder)


def kind_of(loaded: Loaded) -> type:
    """One of the types above. Everything that is no other kind is an encoder with heads."""
    if loaded.architecture in OF_STAGES:
        return Stage
    network = loaded.model
    if isinstance(getattr(getattr(network, "encoder", None), "inputs", None), PatchInputs):
        return Captioner if isinstance(network, EncoderDecoder) else ImageEncoder
    shells = (EncoderDecoder, Decoder, DecoderClassifier)
    return next((shell for shell in shells if isinstance(network, shell)), Encoder)
