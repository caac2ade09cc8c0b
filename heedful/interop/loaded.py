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
    """A network with what belongs to it, as the readers of every format give it.

    Attributes:
        architecture: Name of the file in heedful/models that builds it.
        config: Its sizes and choices.
        model: The network.
        tokenizer: Of texts that it reads.
        special: Numbers of tokens with a meaning: pad, bos, eos, decoder_start.
        target_tokenizer: Of texts that it writes, if that is another one.
        labels: What a classifier tells apart, by their numbers.
        generation: Generation settings of a Hugging Face folder; None for any other.
        chat: The chat template.
        sentences: How a text becomes one vector.
        languages: Those of a translator that knows many.
        unlike: What a run does with the model that its weights do not show.
        problem: What a classifier's scores mean.
        preprocessing: How pictures are made ready.

    Example:
        >>> loaded = heedful.load("runs/demo").loaded
        >>> loaded.architecture, loaded.kind.__name__, loaded.special["pad"]
        ('transformer', 'EncoderDecoder', 0)
    """

    architecture: str
    config: Any
    model: nn.Module
    tokenizer: Tokenizer | None
    special: dict[str, int]
    target_tokenizer: Tokenizer | None = None
    labels: tuple[str, ...] = ()
    generation: dict[str, Any] | None = None
    chat: Chat | None = None
    sentences: Sentences | UnreadSentences | None = None
    languages: Languages | None = None
    unlike: str = ""
    problem: Problem = field(default_factory=Problem)
    preprocessing: Preprocessing | None = None

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
