"""How long a text must be to see all of a model: beyond every stride, block, window and segment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from torch import nn

from ...models.base.shells import Decoder
from ...parts.long.linear import CHUNK, KernelAttention
from ...parts.long.sparse import gather_pays
from ...parts.masks import Mask
from ...parts.view import View
from .proof import rules_in

SHORTEST = 130  # tokens: beyond the 128 of a kernel's tile
LONGEST = 2048  # tokens; a longer window is looked at by its rule only
UNLIMITED = 1 << 18  # tokens: no size of a structure, but a way to say that there is none
SIZES = ("reach", "kernel", "window", "stride", "block", "kernel_size")  # of parts, in tokens


def structure(decoder: Decoder) -> int:
    """The largest stride, block, window or segment of a decoder, in tokens."""
    of_masks = [size for mask in decoder.masks for size in sizes_of_mask(mask)]
    return max([1, *of_masks, *(size for size in sizes_of_parts(decoder) if size < UNLIMITED)])


def sizes_of_mask(mask: Mask) -> Iterator[int]:
    for rule in rules_in(mask):
        for field in fields(rule):  # type: ignore[arg-type]
            value = getattr(rule, field.name)
            if isinstance(value, int):
                yield value


def sizes_of_parts(model: nn.Module) -> Iterator[int]:
    for module in model.modules():
        if isinstance(module, KernelAttention):
            yield CHUNK
        for name in SIZES:
            value = vars(module).get(name)
            if isinstance(value, int):
                yield value


def revealing_length(decoder: Decoder) -> int:
    """Tokens beyond every structure of a decoder, and enough for its masks to be computed by gathering; as
    many as its positions have, where these are fewer."""
    longest = min(LONGEST, decoder.inputs.position.longest or LONGEST)
    length = max(SHORTEST, 2 * structure(decoder) + 2)
    for mask in decoder.masks:
        while length < longest and may_gather(mask) and not gather_pays(View(mask, length, length), 1):
            length += length // 2
    return min(length, longest)


def length_for_mask(mask: Mask, longest: int) -> int:
    """Tokens beyond every stride, block and window of one mask."""
    return min(longest, mask.longest or longest, max(SHORTEST, 2 * max([0, *sizes_of_mask(mask)]) + 2))


def may_gather(mask: Mask) -> bool:
    """Whether some length makes gathering worth its while."""
    return gather_pays(View(mask, LONGEST, LONGEST), 1)
