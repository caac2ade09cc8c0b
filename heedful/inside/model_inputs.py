"""One input of any model that attends: a text, a pair of texts, or an image, and one forward pass with it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..data.images.preprocessing import Preprocessing
from ..data.pieces import labels
from ..decode.greedy import greedy
from ..decode.step import step_of
from ..errors import BadInput
from ..interop.loaded import Captioner, ImageEncoder, Loaded
from ..models.base.shells import Decoder, DecoderClassifier, EncoderDecoder, WithHeads, shells_of
from ..parts.places import Lengths
from ..parts.watch import Watchable
from ..tasks.caption import LONGEST
from .look.inputs import InputTokens, axes, decode, encode, ends_of, given, places_for, reading, refuse_size
from .look.layers import kinds_of, rows_of


@dataclass(frozen=True)
class ModelInput:
    """What a model is given. Of a text that needs a tree, `reader` is the model with the tree."""

    words: InputTokens
    reader: nn.Module | None = field(default=None, repr=False)
    pixels_1CHW: Tensor | None = field(default=None, repr=False)


def input_of(
    loaded: Loaded,
    text: str | np.ndarray,
    target: str | None = None,
    most: int = 1024,
    preprocessing: Preprocessing | None = None,
) -> ModelInput:
    """A text as tokens, with its target where there is one; or an image that is ready for the model.

    preprocessing: of an image; by default that of the folder.
    """
    refuse_without_attention(loaded)
    if loaded.kind not in (ImageEncoder, Captioner):
        if not isinstance(text, str):
            raise BadInput(f"this {loaded.architecture} reads texts, not images: give it a text")
        reader = reading(loaded, text)
        return ModelInput(given(loaded, text, target, most), None if reader is loaded.model else reader)
    if isinstance(text, str):
        raise BadInput(f"a {loaded.architecture} reads images, not text: give the pixels of an image")
    how = preprocessing or loaded.preprocessing
    if how is None:
        raise BadInput("this model does not say how images are made ready for it: give `preprocessing`")
    weight = next(loaded.model.parameters())
    pixels_1CHW = how.numbers(torch.from_numpy(np.array(text[None])).to(weight.device)).to(weight.dtype)
    if loaded.kind is ImageEncoder:
        if target is not None:
            raise BadInput(f"this {loaded.architecture} writes no caption: leave out the target")
        refuse_size(loaded.config.tokens, "the image", most)
        return ModelInput(InputTokens("the image", []), None, pixels_1CHW)
    return ModelInput(caption_input(loaded, pixels_1CHW, target, most), None, pixels_1CHW)


def refuse_without_attention(loaded: Loaded) -> None:
    """Refuse a model in which nothing attends to anything."""
    attends = any(isinstance(module, Watchable) for module in loaded.model.modules())
    if not attends or not shells_of(loaded.model) or not kinds_of(loaded.model):
        raise BadInput(f"this {loaded.architecture} has no attention to look at")


def caption_input(loaded: Loaded, pixels_1CHW: Tensor, target: str | None, most: int) -> InputTokens:
    """A caption: the one that is given, or the model's own greedy one."""
    model: Any = loaded.model
    start, eos = ends_of(loaded)
    if target is None:
        start_11 = torch.tensor([[start]], device=pixels_1CHW.device)
        with torch.no_grad():
            found = greedy(step_of(model, pixels_1CHW), start_11, longest=min(LONGEST, most), eos=eos)
        answers = found[0].tokens
    else:
        answers = [*encode(loaded.tokenizer, target, False, rows_of(model.decoder)), eos]
    refuse_size(len(answers), "the caption", most)
    written = answers[:-1] if answers[-1] == eos else answers
    said = decode(loaded.tokenizer, written) if target is None else target
    return InputTokens("the image", [], [start, *answers[:-1]], answers, said)


def labels_of(loaded: Loaded, given: ModelInput, which: str) -> tuple[list[str], list[str]]:
    """The labels of queries and of keys: tokens, or rows and columns of patches."""
    if given.pixels_1CHW is None:
        return axes(loaded, given.words, which)
    if which == "cross":
        return labels(loaded.tokenizer, given.words.answers), source_labels(loaded)
    if which == "self" and given.words.read:
        read = labels(loaded.tokenizer, given.words.read)
        return read, read
    config = getattr(loaded.config, "reading", loaded.config)
    patches = patch_labels(config.grid, config.leading)
    return patches, patches


def source_labels(loaded: Loaded) -> list[str]:
    """What the words of a caption attend to: patches, or the one vector of an image."""
    config = loaded.config
    return patch_labels(config.reading.grid, 0) if config.source == "grid" else ["image"]


def patch_labels(grid: int, leading: int) -> list[str]:
    """[CLS] and such, then "row,column" of each patch, from 1."""
    first = ["[CLS]", "[DIST]"][:leading]
    return [*first, *(f"{row},{column}" for row in range(1, grid + 1) for column in range(1, grid + 1))]


@torch.no_grad()
def forward(model: Any, given: ModelInput) -> dict[str, Tensor]:
    """One forward pass: {what it is: output}. A decoder has "logits" [T, V], an encoder its heads."""
    device, words = next(model.parameters()).device, given.words
    read = given.pixels_1CHW
    if read is None:
        read = torch.tensor([words.ids], device=device)
    if isinstance(model, EncoderDecoder):
        read_1T = torch.tensor([words.read], device=device)
        reader: Any = given.reader or model
        image = given.pixels_1CHW is not None
        source = reader.read(read) if image else reader.read(read, places_for(model, words.ids))
        return {"logits": model.decoder(read_1T, source=source)[0]}
    if isinstance(model, Decoder):
        return {"logits": model(read)[0]}
    if isinstance(model, DecoderClassifier):
        return {"logits": model(read, Lengths(torch.tensor([len(words.ids)], device=device)))[0]}
    if isinstance(model, WithHeads):
        found = {"hidden": model.encoder(read)}
        found |= {name: head(found["hidden"], model.encoder.inputs) for name, head in model.heads.items()}
        return {name: output[0] for name, output in found.items()}
    return {"hidden": model(read)[0]}
