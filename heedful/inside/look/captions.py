"""Looking at an image while a caption is written: the attention of each word, drawn over the image.

Every word of a caption is predicted from a query of its own, whose cross-attention shares out one weight over
all patches. What is drawn for a word is the row of weights by which it was chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...data.images.files import png_bytes
from ...data.images.preprocessing import Preprocessing
from ...decode.greedy import greedy
from ...decode.step import step_of
from ...errors import BadInput
from ...interop.loaded import Loaded
from ...models.base.shells import EncoderDecoder
from ...models.captioner import CaptionerConfig
from ...parts.watch import watch
from ...tasks.caption import LONGEST
from .drawing import Drawing, Pictured
from .heads import Head, choose, information
from .images import GAP, PANEL, ROOM, overlaid
from .inputs import decode, encode, ends_of, refuse_size
from .layers import paths_of, rows_of
from .shapes import MARGIN, Raster, TextLabel

ACROSS = 8  # panels side by side


@dataclass(frozen=True)
class CaptionLook(Pictured):
    """The cross-attention of one picture's caption, as `Model.look_at` finds it.

    Attributes:
        loaded: The model.
        name: Name of the picture.
        pixels_HWC: The picture as the model reads it.
        caption: The caption.
        words: Its tokens, without the end of the sentence.
        heads: All heads.
        chosen: The heads that pictures show, each with weights [T, patches].
        best: The head whose attention says most about which word is written.

    Example:
        >>> seen = heedful.load("runs/caption").look_at("pictures/red-blue-0.png")
        >>> grid = seen.grid(seen.best, word=0)
        >>> grid.shape[0] == grid.shape[1], seen.caption.split()[0] == seen.words[0].strip()
        (True, True)
    """

    loaded: Loaded = field(repr=False)
    name: str
    pixels_HWC: np.ndarray = field(repr=False)
    caption: str
    words: list[str]
    heads: list[Head] = field(repr=False)
    chosen: list[Head] = field(repr=False)
    best: Head = field(repr=False)

    def grid(self, head: Head, word: int) -> Tensor:
        """The attention of one word in a head.

        Args:
            head: The head.
            word: Number of the word, from 0.

        Returns:
            Weights, [rows, columns] of patches.
        """
        side = self.loaded.config.reading.grid
        return head.weights_TS[word].unflatten(0, (side, side))

    def sentence(self) -> str:
        return f"{self.name}  →  {self.caption}"

    # Pictures

    def picture(self) -> Drawing:
        """The picture, and then, for every head that was chosen, the picture as each word sees it."""
        made = Drawing()
        made.add(TextLabel(MARGIN, MARGIN + 12, "attention of each word", bold=True))
        made.add(TextLabel(MARGIN, MARGIN + 30, self.sentence(), size=11))
        y = MARGIN + 44.0
        self.add_panels(made, y, [("the picture", None)])
        for head in self.chosen:
            y += PANEL + ROOM + GAP
            made.add(TextLabel(MARGIN, y + 10, head.name, size=10))
            panels = [(word, self.grid(head, t)) for t, word in enumerate(self.words)]
            y = self.add_panels(made, y + ROOM, panels)
        return made

    def add_panels(self, made: Drawing, y: float, panels: Sequence[tuple[str, Tensor | None]]) -> float:
        """Rows of panels from y downwards; where the last row begins."""
        for i, (title, grid) in enumerate(panels):
            x, top = MARGIN + (i % ACROSS) * (PANEL + GAP), y + (i // ACROSS) * (PANEL + ROOM + GAP)
            made.add(Raster(x, top, PANEL, PANEL, png_bytes(overlaid(self.pixels_HWC, grid))))
            made.add(TextLabel(x, top + PANEL + 13, title, size=9))
        return y + (len(panels) - 1) // ACROSS * (PANEL + ROOM + GAP)

    # Words

    def text(self) -> str:
        """For a terminal: in the most informative of the chosen heads, the patch that each word attends to
        most."""
        head = max(self.chosen, key=lambda one: information(one.weights_TS))
        width = max(map(len, self.words))
        lines = []
        for t, word in enumerate(self.words):
            grid = self.grid(head, t)
            row, column = divmod(int(grid.argmax()), grid.shape[1])
            lines.append(f"{word:<{width}}  row {row + 1}, column {column + 1}  {float(grid.max()):.0%}")
        return "\n".join([f"{head.name}: the patch with the largest weight for each word", "", *lines])

    def as_json(self) -> dict[str, Any]:
        """All the numbers."""
        return {
            "architecture": self.loaded.architecture,
            "image": self.name,
            "caption": self.caption,
            "words": self.words,
            "heads": [
                {
                    "layer": head.layer,
                    "head": head.head,
                    "path": head.path,
                    "information": information(head.weights_TS),
                    "weights": [self.grid(head, t).tolist() for t in range(len(self.words))],
                }
                for head in self.chosen
            ],
        }


@torch.no_grad()
def look_at_caption(
    loaded: Loaded,
    pixels_HWC: np.ndarray,
    how: Preprocessing,
    name: str = "the picture",
    *,
    target: str | None = None,
    layer: int | None = None,
    head: int | str | None = None,
) -> CaptionLook:
    """Where each word of a caption looks in one picture, which is ready for the model
    (`Preprocessing.read`).

    target: the caption, instead of the model's own greedy one. layer: one of them, from 1. head: one of them,
    "mean", or "best"; without either, the mean of each layer's heads.
    """
    config, model = loaded.config, loaded.model
    assert isinstance(config, CaptionerConfig) and isinstance(model, EncoderDecoder)
    if config.source != "grid":
        raise BadInput(
            f"this model sees a picture as one vector ({config.source}), so its words have nothing to choose "
            "from: look at one that was trained with model.source=grid"
        )
    weight = next(model.parameters())
    x_1CHW = how.numbers(torch.from_numpy(np.array(pixels_HWC[None])).to(weight.device)).to(weight.dtype)
    start, eos = ends_of(loaded)
    answers = caption_of(loaded, x_1CHW, start, eos) if target is None else words_of(loaded, target)
    refuse_size(len(answers), "the caption")
    with watch(model) as trace:
        read_1T = torch.tensor([[start, *answers[:-1]]], device=x_1CHW.device)
        model.decoder.hidden(read_1T, source=model.read(x_1CHW))
    paths = paths_of(model, "cross")
    weights = {path: trace[path].weights[-1][0].float().cpu() for path in paths.values()}
    heads = [Head(n, i + 1, path, each) for n, path in paths.items() for i, each in enumerate(weights[path])]
    within = heads if layer is None else [one for one in heads if one.layer == layer]
    if not within:
        raise BadInput(f"there is no layer {layer}: layers are counted from 1 to {len(paths)}")
    best = max(within, key=lambda one: information(one.weights_TS))
    chosen = choose(within, "mean" if layer is None and head is None else head, best)
    words = [decode(loaded.tokenizer, [token]).strip() or "[UNK]" for token in answers]
    said = target if target is not None else decode(loaded.tokenizer, answers)
    return CaptionLook(loaded, name, np.asarray(pixels_HWC), said, words, heads, chosen, best)


def caption_of(loaded: Loaded, x_1CHW: Tensor, start: int, eos: int) -> list[int]:
    """The tokens that the model writes, always taking the most likely, without the end of sentence."""
    step = step_of(loaded.model, x_1CHW)  # type: ignore[arg-type]
    start_11 = torch.tensor([[start]], device=x_1CHW.device)
    return greedy(step, start_11, longest=LONGEST, eos=eos)[0].words


def words_of(loaded: Loaded, target: str) -> list[int]:
    """The tokens of a caption that is to have been written."""
    assert isinstance(loaded.model, EncoderDecoder)
    return encode(loaded.tokenizer, target, False, rows_of(loaded.model.decoder))
