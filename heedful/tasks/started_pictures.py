"""Pictures of a run that starts from another model: made ready as for that model, as far as a recipe can say.

A recipe has one mean and one deviation for all channels, and resamples bilinearly.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

from ..data.images.prepare import preprocessing_of
from ..data.images.preprocessing import Preprocessing
from ..errors import BadInput
from ..files import inside, present, read_json
from ..interop.hf.image_processor import read_preprocessing
from ..interop.run.pictures import preprocessing_in_run
from ..interop.run.read import describe_run
from ..interop.run_folder import CONFIG, is_run
from ..models import model_types
from .recipe.choices import Choice
from .recipe.settings import NormalizedPictures


def preprocessing_at(folder: Path) -> Preprocessing | None:
    """How the pictures of a folder's model are made ready; None if nothing is known."""
    if is_run(folder):
        return preprocessing_in_run(folder, describe_run(folder)[1])
    said = read_json(inside(folder, CONFIG)) if present(folder / CONFIG) else {}
    if model_types().get(str(said.get("model_type"))) != "vit":
        return None
    return read_preprocessing(folder, said["model_type"], said.get("num_channels", 3))


def resize_of(how: Preprocessing) -> str | None:
    """The `data.resize` that does the same; None if none does."""
    if how.size is None:
        return None
    if how.pad:
        return "pad"
    side = how.size.shortest_edge
    if side and not how.size.longest_edge and how.crop == (side, side):
        return "crop"
    return "stretch" if how.size.height and how.crop is None else None


def taken_over(folder: str) -> Iterator[Choice]:
    """The settings of a recipe that come with the model to start from."""
    try:
        how = preprocessing_at(Path(folder))
    except BadInput:
        return  # whoever loads the model will say so
    if how is None:
        return
    resize = resize_of(how)
    if resize is not None:
        yield Choice("data.resize", resize, f"as {folder} reads pictures")
    if how.rescale == 1 / 255:
        for name, numbers in (("mean", how.mean), ("std", how.std)):
            value = round(fmean(numbers), 4)
            if 0 <= value <= 1 and (name == "mean" or value):
                yield Choice(f"data.{name}", value, f"as {folder} reads pictures")


def differences(how: Preprocessing, data: NormalizedPictures) -> Iterator[str]:
    """In what a run makes pictures ready otherwise than the model that it starts from."""
    if resize_of(how) != data.resize:
        yield f'data.resize is "{data.resize}", and its pictures are resized and cropped otherwise'
    if how.filter != preprocessing_of(data).filter:
        yield f"pictures are resampled bilinearly, and its own by {how.filter}"
    for name, value, theirs in (("mean", data.mean, how.mean), ("std", data.std, how.std)):
        if any(abs(one * how.rescale * 255 - value) > 1e-9 for one in theirs):
            told = ", ".join(f"{one:g}" for one in theirs)
            yield f"data.{name} is {value:g}, and its own {told}"
