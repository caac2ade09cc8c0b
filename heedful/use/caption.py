"""Caption: a sentence about the picture of each image file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Self, Unpack, overload

import numpy as np
import torch
from torch import Tensor

from ..data.images.prepare import ready_file
from ..interop.loaded import Captioner
from ..models.base.shells import EncoderDecoder, WithPictures
from .options import BEAM, Options, SearchOptions, refuse_draft, search_options, takes_options
from .results import Answer
from .search import Request, answers, search_of
from .texts import Tokenized, each

if TYPE_CHECKING:
    from .model import Model


def can(model: Model) -> bool:
    """Whether it reads images and writes texts."""
    return model.kind is Captioner


@overload
def caption(  # type: ignore[overload-overlap]
    model: Model, files: str, **options: Unpack[Options]
) -> Answer: ...
@overload
def caption(model: Model, files: Iterable[str], **options: Unpack[Options]) -> list[Answer]: ...
@takes_options("draft", "ahead")
def caption(model: Model, files: str | Iterable[str], **options: Unpack[Options]) -> Answer | list[Answer]:
    """A sentence about the picture of each image file, by a beam of 4 unless the options say otherwise.

    files: the name of a file, or several. options: those of decoding (see
    `heedful.use.options.SearchOptions`). A caption has at most as many tokens as those it was trained on, or
    `longest`. Returns an `Answer` for one name, a list for several."""
    model.check_can("caption")
    how = search_options(options)
    refuse_draft(how)
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
    model: Model, rows: Sequence[Tokenized], how: SearchOptions, numbers: Sequence[int]
) -> list[Answer]:
    """Captions of image files; numbers: which files these are, among all that belong to one seed."""
    search = search_of(model, how, BEAM, partial(with_pictures, model))
    prefix = model.wording.beginning(how.prefix)
    longest = how.longest or model.image_settings.max_length
    requests = [
        Request([model.wording.start], longest, row, number, prefix)
        for row, number in zip(rows, numbers, strict=True)
    ]
    return answers(model, search, requests)


def with_pictures(model: Model, network: EncoderDecoder, rows: Sequence[Tokenized]) -> EncoderDecoder:
    """The same network, shown the pictures of the files that it reads next."""
    from ..tasks.caption import read

    data = model.image_settings
    names = [row.text for row in rows]
    images = [one.pixels_HWC if isinstance(one, ReadyImage) else ready_file(one, data) for one in names]
    pixels_BHWC = torch.from_numpy(np.stack(images))
    encoder = WithPictures(network.encoder, read(network, data, pixels_BHWC))
    return EncoderDecoder(encoder, network.decoder)  # type: ignore[arg-type]
