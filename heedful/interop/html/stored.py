"""The weights of a page beside those that it should have."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from ..loaded import Loaded
from ..rounding import in_half, tensor
from .page import PAGE, block_of
from .parts import describe
from .write import int8_of


def rounded(loaded: Loaded, folder: Path, kind: str) -> dict[str, Tensor]:
    """{parameter: its value as it is stored}: rows of matrices as int8, everything else as float16."""
    found = {}
    for name, value, rows in describe(loaded.model)[1]:
        if rows and kind == "int8":
            whole, scales = int8_of(value.detach().float().cpu().numpy())
            found[name] = tensor(whole.astype(np.float32) * scales)
        else:
            found[name] = in_half(value, "float16")
    return found


def expected(loaded: Loaded) -> dict[str, Tensor]:
    """{parameter: the value that should be stored}."""
    return {name: value.detach() for name, value, _ in describe(loaded.model)[1]}


def stored(folder: Path) -> dict[str, Tensor]:
    """{parameter: what the page holds}."""
    page = (folder / PAGE if folder.is_dir() else folder).read_text(encoding="utf-8")
    data = zlib.decompress(base64.b64decode(block_of(page, "weights")))
    return dict(tensors(json.loads(block_of(page, "spec"))["tensors"], data))


def tensors(described: list[dict[str, Any]], data: bytes) -> Iterator[tuple[str, Tensor]]:
    """Every tensor in float32, from bytes as `write.stored_bytes` makes them."""
    sizes = [int(np.prod(one["shape"])) for one in described]
    count = sum(size for one, size in zip(described, sizes, strict=True) if one["kind"] != "int8")
    halves = np.frombuffer(data, np.uint8, 2 * count).reshape(2, -1).T.copy().view("<f2")[:, 0]
    start, half = 2 * count, 0
    for one, size in zip(described, sizes, strict=True):
        if one["kind"] == "int8":
            whole = np.frombuffer(data, np.int8, size, start).reshape(one["shape"])
            scales = np.frombuffer(data, "<f4", len(whole), start + size)
            yield one["name"], tensor(whole.astype(np.float32) * scales[:, None])
            start += size + 4 * len(whole)
        else:
            yield one["name"], tensor(halves[half : half + size].astype(np.float32).reshape(one["shape"]))
            half += size
