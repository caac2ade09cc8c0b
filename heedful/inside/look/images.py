"""Looking at an image: the attention of a Vision Transformer, drawn over the image.

What is drawn is the attention of what the label is read off: the row of the class token, or, where all
patches are averaged, the mean of their rows. The rollout (inside/rollout.py) follows it through all layers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...data.images.files import png_bytes
from ...data.images.preprocessing import Preprocessing, in_channels
from ...data.images.resample import resample
from ...errors import BadInput, NotFinite
from ...interop.loaded import Loaded
from ...models.vit import ViTConfig
from ...parts.watch import watch
from ...tasks.image_classify import HEADS, scores
from ..rollout import rollout
from .drawing import Drawing, Pictured
from .heads import Head, choose, information
from .layers import paths_of
from .shades import shades
from .shapes import FRAME, MARGIN, Raster, TextLabel

PANEL, GAP, ROOM = 132, 12, 20  # pixels of a panel, between panels, and for the words below one
ACROSS = 6  # panels side by side
HEAT = np.array(FRAME, np.float64)  # the color of what is looked at, over the picture in pale gray
PALE, STRONG = 0.55, 0.9
FINE = 4  # pixels of the overlay for each one of a small picture


def patch_attention(weights_TT: Tensor, mean: bool, leading: int = 1) -> Tensor:
    """The share of each patch [rows, columns] in what the label is read off; that of the tokens before them
    is left out."""
    row_N = weights_TT[leading:, leading:].mean(0) if mean else weights_TT[0, leading:]
    side = round(len(row_N) ** 0.5)
    return row_N.unflatten(0, (side, side))


@dataclass(frozen=True)
class ImageLook(Pictured):
    """The attention of one picture, as `Model.look_at` finds it.

    Attributes:
        loaded: The model.
        name: Name of the picture.
        pixels_HWC: The picture as the model reads it.
        heads: All heads.
        chosen: The heads that pictures show.
        rollout_TT: Attention rollout through all layers.
        labels: (label, probability), most likely first; none if the model has no labels.
        mean: Whether the label is read from all patches, and not from a token of its own.

    Example:
        >>> pixels_HWC = np.zeros((8, 8, 3), np.uint8)
        >>> ImageLook(None, "cat.png", pixels_HWC, [], [], torch.eye(4), [("cat", 0.75)], True).sentence()
        'cat.png  →  cat 75%'
    """

    loaded: Loaded = field(repr=False)
    name: str
    pixels_HWC: np.ndarray = field(repr=False)
    heads: list[Head] = field(repr=False)
    chosen: list[Head] = field(repr=False)
    rollout_TT: Tensor = field(repr=False)
    labels: list[tuple[str, float]]
    mean: bool

    def grid(self, head: Head) -> Tensor:
        return patch_attention(head.weights_TS, self.mean, self.loaded.config.leading)

    @property
    def through(self) -> Tensor:
        """The rollout's attention to each patch."""
        return patch_attention(self.rollout_TT, self.mean, self.loaded.config.leading)

    def sentence(self) -> str:
        """What the model takes the picture for.

        Returns:
            The name of the picture with the three most likely labels.
        """
        if not self.labels:
            return self.name
        return f"{self.name}  →  " + ", ".join(f"{label} {share:.0%}" for label, share in self.labels[:3])

    def who(self) -> str:
        return "all patches" if self.mean else "the class token"

    # Pictures

    def picture(self) -> Drawing:
        """The picture, the rollout over it, and every head that was chosen."""
        made = Drawing()
        made.add(TextLabel(MARGIN, MARGIN + 12, f"attention of {self.who()}", bold=True))
        made.add(TextLabel(MARGIN, MARGIN + 30, self.sentence(), size=11))
        panels = [("the picture", None), ("rollout through all layers", self.through)]
        panels += [(head.name, self.grid(head)) for head in self.chosen]
        for i, (title, grid) in enumerate(panels):
            x = MARGIN + (i % ACROSS) * (PANEL + GAP)
            y = MARGIN + 44 + (i // ACROSS) * (PANEL + ROOM + GAP)
            made.add(Raster(x, y, PANEL, PANEL, png_bytes(overlaid(self.pixels_HWC, grid))))
            made.add(TextLabel(x, y + PANEL + 13, title, size=9))
        return made

    # Words

    def text(self, width: int = 100) -> str:
        """The rollout for a terminal, patch by patch."""
        table = self.through
        names = [str(i + 1) for i in range(len(table))]
        return shades(table.tolist(), names, names, width)

    def as_json(self) -> dict[str, Any]:
        """All the numbers."""
        return {
            "architecture": self.loaded.architecture,
            "image": self.name,
            "read_off": "mean" if self.mean else "class",
            "labels": dict(self.labels),
            "rollout": self.through.tolist(),
            "heads": [
                {
                    "layer": head.layer,
                    "head": head.head,
                    "path": head.path,
                    "information": information(head.weights_TS),
                    "weights": self.grid(head).tolist(),
                }
                for head in self.chosen
            ],
        }


def overlaid(pixels_HWC: np.ndarray, grid: Tensor | None) -> np.ndarray:
    """A picture in pale gray with its attention as heat, strongest where the grid is largest; without a grid,
    as it is."""
    height, width = pixels_HWC.shape[:2]
    pixels_HWC = np.broadcast_to(pixels_HWC, (height, width, 3))
    if grid is None:
        return np.ascontiguousarray(pixels_HWC)
    times = max(1, -(-FINE * 32 // height))
    large_HWC = pixels_HWC.repeat(times, 0).repeat(times, 1)
    shares = (grid / grid.max().clamp(min=1e-12)).clamp(0, 1)
    light_HW1 = (shares * 255).round().to(torch.uint8)[..., None].numpy()
    light_HW1 = resample(light_HW1, height * times, width * times)
    heat_HW1 = STRONG * light_HW1.astype(np.float64) / 255
    pale_HW1 = PALE * 255 + (1 - PALE) * in_channels(large_HWC, False).astype(np.float64)
    return np.rint(pale_HW1 + heat_HW1 * (HEAT - pale_HW1)).astype(np.uint8)


@torch.no_grad()
def look_at_image(
    loaded: Loaded,
    pixels_HWC: np.ndarray,
    how: Preprocessing,
    name: str = "the picture",
    *,
    layer: int | None = None,
    head: int | str | None = None,
) -> ImageLook:
    """What a model attends to in one image, which is ready for it (`Preprocessing.read`).

    layer: one of them, from 1. head: one of them, "mean", or "best"; without either, the mean of each layer's
    heads.
    """
    config, model = loaded.config, loaded.model
    if not isinstance(config, ViTConfig):
        raise BadInput(f"a {loaded.architecture} reads no pictures: give it a text")
    weight = next(model.parameters())
    x_BCHW = how.numbers(torch.from_numpy(np.array(pixels_HWC[None])).to(weight.device)).to(weight.dtype)
    with watch(model) as trace:
        hidden_BTD = model.encoder(x_BCHW)  # type: ignore[operator]
    if not torch.isfinite(hidden_BTD).all():
        raise NotFinite(
            "what this model makes of a picture is not a number: heedful doctor says which of its weights"
        )
    paths = paths_of(model, "self")
    weights = {path: trace[path].weights[-1][0].float().cpu() for path in paths.values()}
    heads = [Head(n, i + 1, path, each) for n, path in paths.items() for i, each in enumerate(weights[path])]
    within = heads if layer is None else [one for one in heads if one.layer == layer]
    if not within:
        raise BadInput(f"there is no layer {layer}: layers are counted from 1 to {len(paths)}")
    best = max(within, key=lambda one: information(one.weights_TS))
    chosen = choose(within, "mean" if layer is None and head is None else head, best)
    rolled_TT, labels = rollout([weights[path] for path in paths.values()]), labels_of(loaded, x_BCHW)
    pixels, mean = np.asarray(pixels_HWC), HEADS["mean"] in config.prediction_heads
    return ImageLook(loaded, name, pixels, heads, chosen, rolled_TT, labels, mean)


def labels_of(loaded: Loaded, x_BCHW: Tensor) -> list[tuple[str, float]]:
    """Every label with its probability, most likely first; none of a model without such a head."""
    if not set(HEADS.values()) & set(loaded.model.heads):  # type: ignore[arg-type]
        return []
    shares = loaded.problem.values(scores(loaded.model, x_BCHW).float())[0].tolist()  # type: ignore[arg-type]
    names = loaded.labels or [str(i) for i in range(len(shares))]
    return sorted(zip(names, shares, strict=True), key=lambda pair: -pair[1])
