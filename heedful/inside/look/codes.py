"""Looking at a picture's codes: the picture, the code of every cell, and what the codes become again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from ...data.images.files import png_bytes
from ...interop.loaded import Loaded
from ...models.dvae import DVAE
from ...tasks.text_to_image.codes import bright
from .drawing import Drawing, Pictured
from .shapes import MARGIN, Raster, TextLabel

PANEL, GAP = 176, 16  # pixels of a panel, and between panels
SMALLEST, LARGEST = 3, 11  # of a number's letters


@dataclass(frozen=True)
class CodesLook(Pictured):
    """A picture as codes, and the picture that the codes give back.

    Attributes:
        loaded: The model.
        name: Name of the picture.
        pixels_HWC: The picture as the model reads it.
        codes: The codes, row by row.
        again_HWC: The picture from the codes.

    Example:
        >>> pixels_HWC = np.zeros((2, 2, 3), np.uint8)
        >>> CodesLook(None, "cat.png", pixels_HWC, [[7]], pixels_HWC).off
        0.0
    """

    loaded: Loaded = field(repr=False)
    name: str
    pixels_HWC: np.ndarray = field(repr=False)
    codes: list[list[int]]
    again_HWC: np.ndarray = field(repr=False)

    @property
    def off(self) -> float:
        """The average error of a pixel, as a share of its range."""
        return float(np.abs(self.again_HWC.astype(int) - self.pixels_HWC.astype(int)).mean()) / 255

    def sentence(self) -> str:
        """How much is left of the picture."""
        kinds = len({code for row in self.codes for code in row})
        cells = f"{len(self.codes)} x {len(self.codes[0])}"
        codes = f"{kinds} different codes of {self.loaded.config.codes:,}"
        return f"{self.name}: {cells} cells, {codes}; pixels off by {self.off:.4f}"

    def text(self) -> str:
        """The codes as a table."""
        width = max(len(str(code)) for row in self.codes for code in row)
        return "\n".join(" ".join(f"{code:>{width}}" for code in row) for row in self.codes)

    def picture(self) -> Drawing:
        """Three panels side by side."""
        made = Drawing()
        made.add(TextLabel(MARGIN, MARGIN + 12, "a picture as codes", bold=True))
        made.add(TextLabel(MARGIN, MARGIN + 30, self.sentence(), size=11))
        y, places = MARGIN + 44, [MARGIN + i * (PANEL + GAP) for i in range(3)]
        made.add(
            Raster(places[0], y, PANEL, PANEL, png_bytes(self.pixels_HWC)),
            Raster(places[2], y, PANEL, PANEL, png_bytes(self.again_HWC)),
        )
        high, wide = PANEL / len(self.codes), PANEL / len(self.codes[0])
        digits = len(str(self.loaded.config.codes - 1))
        size = max(SMALLEST, min(LARGEST, 1.4 * wide / digits))
        for r, row in enumerate(self.codes):
            for c, code in enumerate(row):
                x = places[1] + (c + 0.5) * wide
                made.add(TextLabel(x, y + (r + 0.5) * high + size / 3, str(code), size=size, anchor="middle"))
        for x, title in zip(places, ("the picture", "its codes", "drawn from them"), strict=True):
            made.add(TextLabel(x, y + PANEL + 14, title, size=9))
        return made

    def as_json(self) -> dict[str, Any]:
        """All the numbers."""
        return {
            "architecture": self.loaded.architecture,
            "image": self.name,
            "codes": self.codes,
            "of": self.loaded.config.codes,
            "off": self.off,
        }


@torch.no_grad()
def look_at_codes(loaded: Loaded, pixels_HWC: np.ndarray, name: str = "the picture") -> CodesLook:
    """The codes of a prepared picture (`data.images.prepare.ready`), and the picture drawn from them."""
    model = loaded.model
    assert isinstance(model, DVAE)
    weight = next(model.parameters())
    pixels_1HWC = torch.from_numpy(np.array(pixels_HWC[None])).to(weight.device)
    codes_1hw = model.encode(bright(pixels_1HWC).to(weight.dtype))
    again_1CHW = (model.decode(codes_1hw) * 255).round().to(torch.uint8)
    return CodesLook(
        loaded,
        name,
        np.asarray(pixels_HWC),
        codes_1hw[0].tolist(),
        again_1CHW[0].permute(1, 2, 0).cpu().numpy(),
    )
