"""preprocessor_config.json: how the pictures of a Hugging Face folder are made ready, read and written.

A key that is absent or null has the default of the image processor's class. Whatever the file wants done
that heedful does not do is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ...data.images.preprocessing import PictureSize, Preprocessing
from ...data.images.resample import FILTERS
from ...errors import BadInput
from ...files import inside, naming, present, read_json, short

PREPROCESSOR = "preprocessor_config.json"

HALF = [0.5, 0.5, 0.5]
CLIP = ([0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711])
COMMON = {"do_resize": True, "do_rescale": True, "do_normalize": True, "rescale_factor": 1 / 255}
SQUARE = COMMON | {"default_to_square": True, "image_mean": HALF, "image_std": HALF}
EDGE = COMMON | {"default_to_square": False, "image_mean": CLIP[0], "image_std": CLIP[1], "resample": 3}
EDGE |= {"size": {"shortest_edge": 224}, "do_center_crop": True, "crop_size": 224}
EDGE |= {"do_convert_rgb": True}
DEFAULTS: dict[str, dict[str, Any]] = {  # of each class
    "ViTImageProcessor": SQUARE | {"size": 224, "resample": 2},
    "DeiTImageProcessor": SQUARE | {"size": 256, "resample": 3, "do_center_crop": True, "crop_size": 224},
    "BitImageProcessor": EDGE,
    "CLIPImageProcessor": EDGE,
}
OF_MODELS = {"vit": "ViTImageProcessor", "deit": "DeiTImageProcessor"}
READ = (*SQUARE, "size", "resample", "do_center_crop", "crop_size", "do_convert_rgb")
# What does not change pixels: names, and how tensors are handed over.
BESIDE = (
    "image_processor_type", "feature_extractor_type", "processor_class", "auto_map", "data_format",
    "input_data_format", "return_tensors", "device", "disable_grouping", "image_seq_length",
    "_valid_processor_keys", "_processor_class", "use_fast",
)  # fmt: skip
SIZES = (
    {"height", "width"},
    {"shortest_edge"},
    {"shortest_edge", "longest_edge"},
    {"max_height", "max_width"},
)


def read_preprocessing(folder: Path, model_type: str, channels: int) -> Preprocessing | None:
    """How a folder's pictures are made ready; None if it does not say."""
    if not present(folder / PREPROCESSOR):
        return None
    with naming(folder / PREPROCESSOR):
        said = read_json(inside(folder, PREPROCESSOR))
        odd = [key for key, value in said.items() if key not in READ + BESIDE and value not in (None, False)]
        if odd:
            raise BadInput(f"{odd[0]} is {short(said[odd[0]])}, which heedful does not do to pictures")
        defaults = DEFAULTS[class_of(said, model_type)]
        return preprocessing(defaults | {k: v for k, v in said.items() if v is not None}, channels)


def class_of(said: Mapping[str, Any], model_type: str) -> str:
    """The image processor's class, by today's name."""
    older = str(said.get("feature_extractor_type") or "").replace("FeatureExtractor", "ImageProcessor")
    named = said.get("image_processor_type") or older or OF_MODELS[model_type]
    found = str(named).removesuffix("Fast").removesuffix("Pil")
    if found not in DEFAULTS:
        raise BadInput(f"its image processor is {short(named)}; heedful knows {', '.join(DEFAULTS)}")
    return found


def preprocessing(said: Mapping[str, Any], channels: int) -> Preprocessing:
    """The settings of a file in which nothing is absent."""
    switches = {key: said.get(key, False) for key in READ if key.startswith("do_")}
    for key, value in switches.items():
        if type(value) is not bool:
            raise BadInput(f"{key} must be true or false, not {short(value)}")
    if switches["do_convert_rgb"] and channels != 3:
        raise BadInput(f"do_convert_rgb makes 3 channels, and the model reads {channels}")
    resample = said["resample"]
    if type(resample) is not int or not 0 <= resample < len(FILTERS):
        raise BadInput(f"resample is {short(resample)}, where a number from 0 to {len(FILTERS) - 1} is due")
    crop = size_of("crop_size", said["crop_size"], True) if switches["do_center_crop"] else None
    if crop is not None and not crop.height:
        raise BadInput(f"crop_size is {short(said['crop_size'])}, where a height and a width are due")
    square = said["default_to_square"] is True
    normalize = switches["do_normalize"]
    return Preprocessing(
        channels,
        size_of("size", said["size"], square) if switches["do_resize"] else None,
        FILTERS[resample],
        None if crop is None else (crop.height, crop.width),
        number("rescale_factor", said["rescale_factor"]) if switches["do_rescale"] else 1.0,
        numbers("image_mean", said["image_mean"], channels) if normalize else (0.0,),
        numbers("image_std", said["image_std"], channels, zero=False) if normalize else (1.0,),
        on_white=switches["do_convert_rgb"],
    )


def size_of(key: str, value: Any, square: bool) -> PictureSize:
    """A size in any of its spellings: 224, [224, 224], {"height": 224, "width": 224}, edges."""
    if type(value) is int:
        value = {"height": value, "width": value} if square else {"shortest_edge": value}
    if isinstance(value, list) and len(value) == 2:
        value = dict(zip(("height", "width"), value, strict=True))
    known = {k: v for k, v in value.items() if v is not None} if isinstance(value, dict) else {}
    if known.keys() not in SIZES or not all(type(v) is int and 0 < v <= 1 << 14 for v in known.values()):
        raise BadInput(f"{key} is {short(value)}, which is no size of pictures that heedful knows")
    return PictureSize(**known)


def numbers(key: str, value: Any, channels: int, zero: bool = True) -> tuple[float, ...]:
    """A number for each channel: a list of them, or one for all."""
    listed = value if isinstance(value, list) else [value] * channels
    some = tuple(number(key, one, zero) for one in listed)
    if len(some) != channels:
        raise BadInput(f"{key} has {len(some)} numbers, and the model reads {channels} channels")
    return some


def number(key: str, value: Any, zero: bool = True) -> float:
    if type(value) not in (int, float) or not -1e6 < value < 1e6 or (value == 0 and not zero):
        raise BadInput(f"{key} must be a number, not {short(value)}")
    return float(value)


def preprocessor_config(how: Preprocessing) -> dict[str, Any]:
    """The content of preprocessor_config.json; refused if no image processor does the same."""
    if how.pad:
        raise BadInput(
            "its pictures are padded with the color of their edges (data.resize=pad), as no image processor "
            "of Hugging Face does: heedful.load reads the run's own folder"
        )
    edges = how.size is not None and not how.size.height
    size = {} if how.size is None else {k: v for k, v in asdict(how.size).items() if v}
    crop = how.crop and {"height": how.crop[0], "width": how.crop[1]}
    plain = how.mean == (0.0,) and how.std == (1.0,)
    mean, std = (list(some) * (how.channels if len(some) == 1 else 1) for some in (how.mean, how.std))
    return {
        # Older versions of transformers crop only in the second of these classes.
        "image_processor_type": "CLIPImageProcessor" if edges or crop else "ViTImageProcessor",
        "do_convert_rgb": how.channels == 3 and how.on_white,
        "do_resize": how.size is not None,
        **({"size": size} if size else {}),
        "resample": FILTERS.index(how.filter),
        "do_center_crop": crop is not None,
        **({"crop_size": crop} if crop else {}),
        "do_rescale": how.rescale != 1,
        "rescale_factor": how.rescale,
        "do_normalize": not plain,
        "image_mean": mean,
        "image_std": std,
    }
