"""The picture of a lens: a table of tokens, layers down and positions across."""

from __future__ import annotations

from collections.abc import Sequence

from .look.drawing import Drawing, heading, notes, rise
from .look.shapes import FONT, FRAME, MARGIN, SMALL, Box, TextLabel, color, width_of
from .look.themes import ink_on

WIDEST, NARROWEST = 92, 34  # pixels of a column
ROOM = 1600  # pixels across, where columns can be narrower
HIGH = 24


def lens_picture(
    cells: Sequence[Sequence[tuple[str, float]]],
    predicted: Sequence[str],
    layers: Sequence[str],
    columns: Sequence[str],
    title: str,
) -> Drawing:
    """Cells with a token and its probability; a frame where the token is already the model's own."""
    picture = Drawing()
    left = MARGIN + max(width_of(name, FONT) for name in layers) + 8
    top = heading(picture, title) + rise(columns, FONT) + 8
    words = [token for row in cells for token, _ in row]
    wanted = min(WIDEST, max(width_of(word, SMALL + 1) + 10 for word in words))
    wide = max(NARROWEST, min(wanted, ROOM / len(columns)))
    for t, word in enumerate(columns):
        picture.add(TextLabel(left + wide * (t + 0.5), top - 6, word, FONT, rising=True))
    for n, (name, row) in enumerate(zip(layers, cells, strict=True)):
        y = top + HIGH * n
        picture.add(TextLabel(left - 8, y + 16, name, FONT, "end"))
        for t, (token, share) in enumerate(row):
            hint = f"{name}, after {columns[t]}: {token} {share:.3f}"
            own = token == predicted[t]
            box = Box(left + wide * t + 1, y + 1, wide - 2, HIGH - 2, color(share), None, 1, hint)
            edge = Box(
                box.x,
                box.y,
                box.width,
                box.height,
                None,
                FRAME if own else (204, 204, 204),
                1.5 if own else 0.7,
            )
            behind, middle = color(share), left + wide * (t + 0.5)
            shown = shortened(token, wide - 8)
            label = TextLabel(middle, y + 16, shown, SMALL + 1, "middle", ink_on(behind), on=behind)
            picture.add(box, edge, label)
    below = [
        "rows: layers, read by the last norm and the output head; columns: the token that is read",
        "color: the probability of the cell's token; frame: it is the token that the model predicts",
    ]
    notes(picture, left, top + HIGH * len(layers) + 14, 1.0, below)
    return picture


def shortened(word: str, room: float) -> str:
    """A word that fits into so many pixels."""
    while len(word) > 1 and width_of(word, SMALL + 1) > room:
        word = word[:-2] + "…" if word.endswith("…") else word[:-1] + "…"
    return word
