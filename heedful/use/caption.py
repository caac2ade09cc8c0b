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
    """A sentence about the picture of each image file, by a beam of 4 unless the options say otherwise.

    files: the name of a file, or several. options: those of `heedful.decode.options.DecodingOptions`. By
    default a caption has at most as many tokens as those of training. Returns an `Answer` for one name, a
    list for several."""
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
    """The same in turns: after each step of the search, others may have theirs."""
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
