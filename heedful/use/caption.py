"""Caption: a sentence about the picture of each image file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Self, overload

import numpy as np
import torch
from torch import Tensor

from ..decode.options import BEAM, DecodingOptions, takes_options
from ..decode.turns import Turns, finish
from ..interop.loaded import Captioner
from ..models.base.shells import EncoderDecoder, WithPictures
from .results import Answer
from .search import Request, answers, search_of
from .texts import Tokenized, each

if TYPE_CHECKING:
    from .model import Model


def can(model: Model) -> bool:
    """Whether it reads images and writes texts."""
    return model.kind is Captioner


@overload
def caption(model: Model, files: str, **options: Any) -> Answer: ...
@overload
def caption(model: Model, files: Iterable[str], **options: Any) -> list[Answer]: ...
@takes_options("caption")
def caption(model: Model, files: str | Iterable[str], **options: Any) -> Answer | list[Answer]:
    """Describe the pictures of image files, by a beam of 4 unless the options choose another search.

    Without a limit, a caption has at most as many tokens as those of training.

    Args:
        files: The name of an image file, or several.

    Keyword Args:
        beam (int): Hypotheses kept at each step. 1 is greedy search. More are slower and often better. From 1
            to 1,000. Default: 4; generate, `sample` and `draft`: 1.
        n_best (int): Answers to return for each text, best first; at most the width of the beam. From 1 to
            1,000. Default: 1.
        length_penalty ("gnmt" or "power"): Divisor of a hypothesis' log-probability: gnmt is ((5 + length) /
            6)^alpha, power is length^alpha. Default: "gnmt".
        length_alpha (float): Exponent alpha of the length penalty. 0 means no penalty; larger values favor
            longer answers. From -5 to 5. Default: 0.6.
        stopping ("heuristic" or "first_B" or "exact"): When beam search stops. heuristic: no live hypothesis
            currently beats the finished ones. first_B: as many have finished as the beam is wide. exact: none
            can still win. Default: "heuristic".
        coverage_penalty (float): Weight of the penalty on source words that receive little attention;
            encoder-decoders only. From 0 to 1,000. Default: 0.0.
        beam_groups (int): Groups of beams for diverse beam search. Each group has `beam` hypotheses. From 1
            to 100. Default: 1.
        diversity_penalty (float): Cost of a token that an earlier group has written at the same position.
            From 0 to 1,000. Default: 0.0.
        logit_bias (Mapping[int, float] or tuple[str]): Added to the logits of tokens, by their numbers. -100
            means never, 100 means nothing else. Default: none.
        repetition_penalty (float): Penalty on tokens that occur in the text so far. 1 means none; above 1
            discourages repetition. From 0.001 to 1,000. Default: 1.0.
        presence_penalty (float): Subtracted from the logits of tokens that the answer has already. Below 0
            encourages them. From -2 to 2. Default: 0.0.
        frequency_penalty (float): Subtracted from the logits of tokens as often as the answer has them
            already. From -2 to 2. Default: 0.0.
        no_repeat_ngram_size (int): No sequence of this many tokens occurs twice. 0 means no limit. At least
            0. Default: 0.
        bad_words (tuple[str] or list[str]): Words that are never written. Default: none.
        min_new_tokens (int): Minimum number of tokens to write before the end of the answer. At least 0.
            Default: 0.
        max_new_tokens (int): Maximum number of tokens to write. At least 1. Default: translate: 2 x source +
            20; generate: 100; others: as in training.
        stop (tuple[str] or list[str]): Text before which an answer ends. Default: none.
        prefix (str): Text that every answer begins with. Default: none.
        sample (bool): Draw each token at random by its probability instead of searching. Default: False.
        temperature (float): With `sample`: divisor of the logits. Below 1 favors likely tokens. From 0.001 to
            1,000. Default: 1.0.
        top_k (int): With `sample`: draw from the k most likely tokens. 0 means all. At least 0. Default: 0.
        top_p (float): With `sample`: draw from the most likely tokens that together have this probability.
            From 0 to 1. Default: 1.0.
        min_p (float): With `sample`: draw from tokens with at least this fraction of the highest probability.
            From 0 to 1. Default: 0.0.
        seed (int): With `sample`: seed of the random numbers. A line gets the same answer whatever lines
            surround it. Default: 0.
        top (int): Most likely tokens to report at each token of an answer, with their log-probabilities. From
            0 to 1,000. Default: 0.
        batch (int): Texts computed at once. Use fewer if memory is short; answers stay the same. From 1 to
            100,000. Default: 32; writing on a GPU, 256.
        folder_settings ("use" or "ignore"): Whether the generation settings of a Hugging Face folder are the
            defaults of these options. Default: "use".

    Returns:
        An `Answer` for one file, a list for several.

    Raises:
        BadInput: The model writes no captions, or a file is no picture.

    Example:
        >>> heedful.load("runs/caption").caption("pictures/red-blue-0.png")
        'red above blue'
    """
    model.check_can("caption")
    how = model.decoding("caption", options)
    return each(files, lambda names: write(model, encode(model, names), how, range(len(names))))


class ReadyImage(str):
    """An image that is ready for the model, where the name of a file would stand."""

    pixels_HWC: np.ndarray

    def __new__(cls, pixels_HWC: Tensor) -> Self:
        self = super().__new__(cls, "an image")
        self.pixels_HWC = pixels_HWC.numpy()
        return self


def encode(model: Model, files: Sequence[str | Tensor]) -> list[Tokenized]:
    """The names of files, or pixels that are ready; the decoder sees a fixed number of vectors of each."""
    names = [one if isinstance(one, str) else ReadyImage(one) for one in files]
    return [Tokenized(name, list(range(model.config.source_length))) for name in names]


def write(
    model: Model, rows: Sequence[Tokenized], how: DecodingOptions, numbers: Sequence[int]
) -> list[Answer]:
    """Captions of image files; numbers: which files these are, among all that belong to one seed."""
    return finish(write_in_turns(model, rows, how, numbers))


def write_in_turns(
    model: Model, rows: Sequence[Tokenized], how: DecodingOptions, numbers: Sequence[int]
) -> Turns[list[Answer]]:
    """The same in turns: after each step of the search, others may take a turn."""
    from ..tasks.caption import LONGEST

    search = search_of(model, how, BEAM, partial(with_pictures, model))
    prefix = [*how.forced_first, *model.wording.beginning(how.prefix)]
    bounds = how.bounds(1, LONGEST if model.recipe is None else model.recipe.data.max_length)
    requests = [
        Request([model.wording.start], *bounds, row, number, prefix)
        for row, number in zip(rows, numbers, strict=True)
    ]
    return (yield from answers(model, search, requests))


def with_pictures(model: Model, network: EncoderDecoder, rows: Sequence[Tokenized]) -> EncoderDecoder:
    """The same network, shown the pictures of the files that it reads next."""
    weight = next(model.model.parameters())
    names = [row.text for row in rows]
    images = [one.pixels_HWC if isinstance(one, ReadyImage) else model.read_picture(one) for one in names]
    x_BCHW = model.preprocessing.numbers(torch.from_numpy(np.stack(images)).to(weight.device))
    encoder = WithPictures(network.encoder, x_BCHW.to(weight.dtype))
    return EncoderDecoder(encoder, network.decoder)  # type: ignore[arg-type]
