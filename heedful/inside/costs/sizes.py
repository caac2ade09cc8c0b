"""What if: other sizes of a model, the length at which attention costs most, and the largest batch that fits.

config = changed(loaded.config, {"layers": 12, "width": 768, "heads": 12, "ffn_width": 3072})
model = skeleton(loaded.architecture, config)
crossover(model), largest_batch(model, 24 * 2**30, length=512)
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...errors import BadInput
from ...models.base.settings import Setting, settings_of, unknown
from ...models.base.shells import EncoderDecoder
from .estimate import costs, inputs_of, patches_of
from .models import model_cost
from .part import Part
from .tally import Tally

STEP = 3 * 2**10  # tokens between the lengths that growth is read from
LONGEST = 2**24  # tokens: where the search for a crossover ends
MOST_LAYERS = 256  # blocks that are built to be counted
MOST_EXPERTS = 1024
# Settings that decide what a model costs: whole numbers, and the kinds of its parts.
SIZES = (
    "layers", "decoder_layers", "width", "heads", "decoder_heads", "kv_heads", "key_width", "ffn_width",
    "decoder_ffn_width", "embedding_width", "score_width", "maxout_width", "experts", "top_k", "vocab",
    "target_vocab", "context", "image_size", "patch_size",
)  # fmt: skip
KINDS = ("positions", "score", "compress", "source")


def sizes_of(config: Any) -> dict[str, Setting]:
    """{name: setting} of a config that decide what its model costs. A shared vocabulary has one size."""
    known = settings_of(type(config))
    shared = getattr(config, "share_embeddings", False)
    return {
        name: known[name]
        for name in (*SIZES, *KINDS)
        if name in known and getattr(config, name) is not None and not (shared and name == "target_vocab")
    }


def changed(config: Any, sizes: Mapping[str, Any]) -> Any:
    """The config with other sizes, checked by its own ranges; a model that is too deep is refused."""
    known, found = sizes_of(config), {}
    for name, value in sizes.items():
        if name not in known:
            raise BadInput(f"there is no size {unknown(name, known)}")
        found[name] = known[name].convert(name, value)
    if "vocab" in found and getattr(config, "share_embeddings", False):
        found["target_vocab"] = found["vocab"]
    layers = sum({"layers": 0, "decoder_layers": 0, **vars(config), **found}[name] for name in SIZES[:2])
    if layers > MOST_LAYERS:
        raise BadInput(f"the model would have {layers:,} layers, and {MOST_LAYERS} are the most")
    if found.get("experts", 0) > MOST_EXPERTS:
        raise BadInput(f"a layer would have {found['experts']:,} experts, and {MOST_EXPERTS:,} are the most")
    try:
        return replace(config, **found)
    except ValueError as error:
        raise BadInput(str(error)) from None


def lengths_of(model: Any) -> tuple[tuple[int, int | None], tuple[int, int | None] | None]:
    """The least and greatest length of a model, and of its source if it has one; None: there is no end."""
    inputs = inputs_of(model)
    if not isinstance(model, EncoderDecoder):
        fixed = patches_of(model.encoder) if hasattr(getattr(model, "encoder", None), "inputs") else None
        position = getattr(inputs, "position", None)
        return (fixed or 1, fixed or getattr(position, "longest", None)), None
    fixed, position = patches_of(model.encoder), model.decoder.inputs.position
    return (1, position.longest), (fixed or 1, fixed or inputs.position.longest)


@dataclass(frozen=True)
class Growth:
    """How FLOPs grow with the length n: the numbers beside 1, n and n^2."""

    pairs: tuple[float, float, float]  # between queries and keys
    all: tuple[float, float, float]

    def share(self, length: int) -> float:
        """The share of FLOPs that are between queries and keys."""
        pairs, all = (a + b * length + c * length**2 for a, b, c in (self.pairs, self.all))
        return pairs / max(1.0, all)


def growth(model: Any) -> Growth:
    """How the FLOPs of a model grow; a source is as long as the text, unless it is an image."""
    parts = [cost_at(model, STEP * number) for number in (1, 2, 3)]
    return Growth(fitted([part.pairs for part in parts]), fitted([part.flops for part in parts]))


def cost_at(model: Any, length: int) -> Part:
    fixed = patches_of(model.encoder) if isinstance(model, EncoderDecoder) else None
    return model_cost(Tally(1, 4), model, length, fixed or length)


def fitted(values: list[int]) -> tuple[float, float, float]:
    """The polynomial through the values at one, two and three STEPs."""
    one, two, three = values
    square = (three - 2 * two + one) / 2
    line = two - one - 3 * square
    return one - line - square, line / STEP, square / STEP**2


def crossover(model: Any) -> int | None:
    """The least length at which the products between queries and keys cost as much as everything else.

    The source of an encoder-decoder is taken to be as long, unless it is an image.

    Args:
        model: The network.

    Returns:
        The length; None if there is no such length below 16 million tokens.

    Example:
        >>> crossover(heedful.load("runs/lm").model)
        385
    """

    def is_beyond(length: int) -> bool:
        part = cost_at(model, length)
        return 2 * part.pairs >= part.flops

    found = growth(model)
    a, b, c = (2 * pairs - all for pairs, all in zip(found.pairs, found.all, strict=True))
    if c > 0 and b * b >= 4 * a * c:  # where the polynomial is exact, its root is the answer
        root = math.ceil((math.sqrt(b * b - 4 * a * c) - b) / (2 * c) - 1e-6)
        for guess in (root, root + 1):
            if 1 < guess <= LONGEST and is_beyond(guess) and not is_beyond(guess - 1):
                return guess
    if not is_beyond(LONGEST):
        return None
    return bisect_left(range(1, LONGEST), True, key=is_beyond) + 1


def largest_batch(
    model: Any,
    room: int,
    length: int = 512,
    source_length: int | None = None,
    precision: str = "fp32",
    use: str = "training",
) -> int | None:
    """The largest batch whose training or inference fits into memory.

    Args:
        model: The network.
        room: Bytes.
        length: Tokens of a row.
        source_length: Tokens of a source, if the model reads one.
        precision: As in `costs`.
        use: "training" or "inference".

    Returns:
        Rows; 0 if none fits; None if a row more needs no more memory.

    Example:
        >>> largest_batch(heedful.load("runs/lm").model, room=2**30, length=32)
        2884
    """

    def needed(batch: int) -> int:
        return costs(model, batch, length, source_length, precision).memory[use]

    one, two = needed(1), needed(2)  # every further row takes as much, up to rounding
    if one == two:
        return None
    guess = 1 + (room - one) // (two - one)
    near = range(max(1, guess - 1), guess + 2)
    return near.start - 1 + bisect_right(near, room, key=needed)
