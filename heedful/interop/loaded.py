"""A model that has been read: `Loaded`, its kind, and what the readers of every format share.

Kinds are types. What a model can do follows from its kind, its heads and its task.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..data.images.preprocessing import Preprocessing
from ..errors import BadInput
from ..models.base.shells import Decoder, DecoderClassifier, Encoder, EncoderDecoder
from ..models.vit import PatchInputs
from .hf.problem import Problem
from .run_folder import A_STAGE, OF_STAGES

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from .hf.chat import Chat
    from .hf.languages import Languages
    from .hf.sentences import Sentences, UnreadSentences


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


@dataclass(frozen=True)
class Loaded:
    """A model with what belongs to it."""

    architecture: str  # the file in heedful/models
    config: Any
    model: nn.Module
    tokenizer: Tokenizer | None
    special: dict[str, int]  # ids of tokens with a meaning: pad, bos, eos, decoder_start
    target_tokenizer: Tokenizer | None = None  # what the model writes, if that has a vocabulary of its own
    labels: tuple[str, ...] = ()  # what a classifier tells apart, by their numbers
    generation: dict[str, Any] | None = None  # how to write, as a Hugging Face folder says; None of any other
    chat: Chat | None = None  # how a conversation is written down
    sentences: Sentences | UnreadSentences | None = None  # how a text becomes one vector
    languages: Languages | None = None  # those of a translator that knows many
    unlike: str = ""  # what a run does with the model that its weights do not tell
    problem: Problem = field(default_factory=Problem)  # what a classifier's scores mean
    preprocessing: Preprocessing | None = None  # how its pictures are made ready

    @property
    def kind(self) -> type:
        """What sort of model it is: one of the types of `IN_WORDS`.

        Everything that is no other kind is an encoder with heads.
        """
        if self.architecture in OF_STAGES:
            return Stage
        network = self.model
        if isinstance(getattr(getattr(network, "encoder", None), "inputs", None), PatchInputs):
            return Captioner if isinstance(network, EncoderDecoder) else ImageEncoder
        shells = (EncoderDecoder, Decoder, DecoderClassifier)
        return next((shell for shell in shells if isinstance(network, shell)), Encoder)


Load = Callable[[Path, str | torch.device, torch.dtype], Loaded]  # reads a model of any format
SPECIAL = ("pad", "bos", "eos", "decoder_start")


def tokens_of(config: Any) -> int | None:
    """How many tokens a model knows; None if it reads none (images)."""
    sizes = [getattr(config, name) for name in ("vocab", "target_vocab") if hasattr(config, name)]
    return max(sizes, default=None)


def check_export(why: str | None, kind: str, kinds: tuple[str, ...], offer: str) -> None:
    """Refuse an export: for a reason, or for a way to store weights that the format does not have."""
    if why is not None:
        raise BadInput(why)
    if kind not in kinds:
        raise BadInput(f"{offer}, not {kind}")


def some(names: list[str]) -> str:
    """The first few of a list of names."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def by(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "a single number"
