"""What a model makes of image files: their labels, their captions, and where it looks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from ..data.images.prepare import ready_file
from ..errors import BadInput
from ..models.base.shells import EncoderDecoder, WithPictures
from ..tasks.caption import read
from ..tasks.image_classify import data_of, guesses
from ..tasks.recipe.settings import DataSettings
from .results import Label
from .scoring import finite, label, recipe_of
from .writing import Given, Writing, check_number

if TYPE_CHECKING:
    from .model import Model


def data_for(model: Model) -> DataSettings:
    """How pictures are made ready for a model."""
    recipe = recipe_of(Path(model.folder)) if model.own else None
    found = data_of(recipe, model.config)
    if found.image != model.config.image:
        raise BadInput(
            f"{model.folder} reads {model.config.image} pixels a side, and its recipe says {found.image}: put back its own"
        )
    return found


@torch.no_grad()
def labeled_images(model: Model, files: list[str], batch: int) -> list[Label]:
    """The labels of image files."""
    check_number("batch", batch)
    data = data_for(model)
    names = model.loaded.labels or [str(number) for number in range(model.config.labels)]
    found: list[Label] = []
    for start in range(0, len(files), batch):
        pixels_BHWC = np.stack([ready_file(name, data) for name in files[start : start + batch]])
        shares = finite(guesses(model.model, data, pixels_BHWC), model).softmax(-1).tolist()
        found += [label(names, each) for each in shares]
    return found


def given_pictures(
    model: Model, files: list[str], how: Writing, numbers: Sequence[int]
) -> list[Given | None]:
    """Image files as a captioner is given them; what it reads are as many vectors as it sees of a picture."""
    prefix = model.wording.beginning(how.prefix)
    longest = how.longest or data_for(model).longest
    source = list(range(model.config.source))
    return [
        Given([model.wording.start], longest, source, number, prefix, name)
        for name, number in zip(files, numbers, strict=True)
    ]


def shown_pictures(model: Model, network: EncoderDecoder, files: Sequence[str]) -> EncoderDecoder:
    """The same network, shown the pictures of the files that it is about to read."""
    data = data_for(model)
    pixels_BHWC = torch.from_numpy(np.stack([ready_file(name, data) for name in files]))
    encoder = WithPictures(network.encoder, read(network, data, pixels_BHWC))
    return EncoderDecoder(encoder, network.decoder)  # type: ignore[arg-type]
