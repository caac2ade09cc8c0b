"""A GGUF file of llama.cpp: its metadata, the places of its tensors, and the tensors.

    "GGUF", version, counts | keys with values | names, shapes, types, places of tensors | padding | tensors

Every length is checked against the size of the file first, and a tensor is read only when it is asked for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import BadInput
from ...files import short
from ..binary import ByteReader
from .blocks import KINDS, QuantizationType, unpack

MAGIC = b"GGUF"
VERSIONS = (2, 3)
ALIGNMENT = 32
MOST_TENSORS, MOST_KEYS = 5000, 5000
TEXTS = 2_000_000  # in all lists together; the largest vocabularies have 200,000 tokens and 400,000 merges
LONGEST = 65535  # bytes of a name or a token
LONGEST_TEXT = 4 << 20  # of any other text
RANK = 4

SCALARS = dict(enumerate(("u1", "i1", "<u2", "<i2", "<u4", "<i4", "<f4", "?"))) | {
    10: "<u8",
    11: "<i8",
    12: "<f8",
}
TEXT, LIST = 8, 9


@dataclass(frozen=True)
class StoredTensor:
    """A tensor of a file, not yet read."""

    name: str
    shape: tuple[int, ...]
    kind: QuantizationType
    data: memoryview

    def tensor(self) -> Tensor:
        """In fp32."""
        return torch.from_numpy(unpack(self.data, self.kind)).view(self.shape)


@dataclass(frozen=True)
class Contents:
    """What a file says, and its tensors."""

    path: Path
    metadata: dict[str, Any]
    tensors: dict[str, StoredTensor]


def is_gguf(path: Path) -> bool:
    """Whether a file begins as they do."""
    with open(path, "rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def read_contents(data: ByteReader) -> Contents:
    """Everything but the values of the tensors, checked."""
    if bytes(data.take(len(MAGIC), "its beginning")) != MAGIC:
        raise BadInput(f"{data.path} is not a GGUF file: it does not begin with GGUF")
    version = data.number("I", "the version")
    if version not in VERSIONS:
        raise BadInput(f"{data.path} is of version {version}; heedful reads GGUF 2 and 3, lowest byte first")
    tensors = data.several(data.number("Q", "the count of tensors"), 24, "tensors")
    keys = data.several(data.number("Q", "the count of keys"), 13, "keys")
    if tensors > MOST_TENSORS or keys > MOST_KEYS:
        raise data.broken(f"it announces {tensors} tensors and {keys} keys; at most {MOST_TENSORS} are read")
    metadata = read_keys(data, keys)
    alignment = metadata.get("general.alignment", ALIGNMENT)
    if type(alignment) is not int or alignment < 1 or alignment > 1 << 16 or alignment & (alignment - 1):
        raise BadInput(
            f"{data.path}: general.alignment is {short(alignment)}, not a power of two up to 65536"
        )
    infos = [read_info(data) for _ in range(tensors)]
    data.take(min(-data.at % alignment, data.left), "padding")
    return Contents(data.path, metadata, placed(data, infos, alignment))


# What is metadata


def read_keys(data: ByteReader, count: int) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    room = [TEXTS]
    for _ in range(count):
        key = read_text(data, "a key", LONGEST)
        if key in metadata:
            raise data.broken(f"it says {short(key)} twice")
        metadata[key] = read_value(data, data.number("I", f"the kind of {key}"), key, room)
    return metadata


def read_text(data: ByteReader, what: str, longest: int) -> str:
    length = data.number("Q", what)
    if length > longest:
        raise data.broken(f"{what} has {length} bytes, where at most {longest} are read")
    return data.text(length, what)


def read_value(data: ByteReader, kind: int, key: str, room: list[int]) -> Any:
    """A number, a text, a list of texts, or an array of numbers. room: how many more texts lists may hold."""
    what = f"the value of {key}"
    if kind in SCALARS:
        dtype = np.dtype(SCALARS[kind])
        return np.frombuffer(data.take(dtype.itemsize, what), dtype)[0].item()
    if kind == TEXT:
        return read_text(data, what, LONGEST_TEXT)
    if kind != LIST:
        raise data.broken(f"{what} has the unknown type {kind}")
    inner, count = data.number("I", what), data.number("Q", what)
    if inner in SCALARS:
        dtype = np.dtype(SCALARS[inner])
        return np.frombuffer(
            data.take(data.several(count, dtype.itemsize, what) * dtype.itemsize, what), dtype
        )
    if inner != TEXT:
        raise data.broken(f"{what} is a list of the unsupported type {inner}")
    room[0] -= data.several(count, 8, what)
    if room[0] < 0:
        raise data.broken(f"it has more than {TEXTS} texts in lists")
    return [read_text(data, what, LONGEST) for _ in range(count)]


# Tensors


def read_info(data: ByteReader) -> tuple[str, tuple[int, ...], QuantizationType, int]:
    """(name, shape, kind, where it begins after the padding); they write the last axis first."""
    name = read_text(data, "the name of a tensor", LONGEST)
    rank = data.number("I", f"the rank of {short(name)}")
    if not 1 <= rank <= RANK:
        raise data.broken(f"{short(name)} has {rank} axes, where 1 to {RANK} are read")
    shape = tuple(data.number("Q", f"the shape of {short(name)}") for _ in range(rank))[::-1]
    number, start = (
        data.number("I", f"the kind of {short(name)}"),
        data.number("Q", f"the place of {short(name)}"),
    )
    if number not in KINDS:
        known = ", ".join(kind.name for kind in KINDS.values())
        raise BadInput(f"{data.path}: {short(name)} is stored as kind {number}; heedful reads {known}")
    return name, shape, KINDS[number], start


def placed(
    data: ByteReader, infos: list[tuple[str, tuple[int, ...], QuantizationType, int]], alignment: int
) -> dict[str, StoredTensor]:
    """Each tensor's bytes, inside the file."""
    found: dict[str, StoredTensor] = {}
    begin, taken = data.at, 0
    for name, shape, kind, start in infos:
        count = math.prod(shape)
        if name in found:
            raise data.broken(f"it holds {short(name)} twice")
        if count == 0 or shape[-1] % kind.block:
            rows = f"{short(name)} has rows of {shape[-1]} values"
            raise data.broken(f"{rows}, which is not a multiple of its block size {kind.block}")
        size = count // kind.block * kind.bytes
        if start % alignment or begin + start + size > len(data.view):
            raise data.broken(
                f"{short(name)} would lie at {begin + start} and take {size} bytes of {len(data.view)}"
            )
        taken += size
        if taken > data.left:  # or a small file could unpack to any size
            raise data.broken(f"its tensors would take {taken} bytes and more of {data.left}: some overlap")
        found[name] = StoredTensor(name, shape, kind, data.view[begin + start : begin + start + size])
    return found
