"""Tensors on disk, in the safetensors format, written as carefully as everything else."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from ..errors import NotFinite
from ..files import writing

NOTHING: Mapping[str, str] = MappingProxyType({})

# In the order in which the safetensors library sorts them, widest last in its list and first in a file.
TYPES = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.float8_e5m2: "F8_E5M2",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.int16: "I16",
    torch.uint16: "U16",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int32: "I32",
    torch.uint32: "U32",
    torch.float32: "F32",
    torch.complex64: "C64",
    torch.float64: "F64",
    torch.int64: "I64",
    torch.uint64: "U64",
}


# Tensors, in the safetensors format: the library's own writer keeps a second copy of everything in memory, or
# writes with neither fsync nor umask, and what it wrote would have to be read again to be hashed.


def write_tensors(
    path: Path,
    tensors: Mapping[str, Tensor],
    about: Mapping[str, str] = NOTHING,
    ready: Callable[[str, Tensor], Tensor] = lambda name, tensor: tensor,
) -> dict[str, Any]:
    """A safetensors file, the same bytes as the library's; its size and SHA-256.

    about: what else its header says. ready: makes of each tensor, when its turn comes, what is written.
    """
    with writing(path) as file:
        file.write(header(tensors, about))
        for name in file_order(tensors):
            file.write(raw(ready(name, tensors[name])))
    return file.entry


def tensor_bytes(tensors: Mapping[str, Tensor], about: Mapping[str, str] = NOTHING) -> int:
    """How long the file will be."""
    return len(header(tensors, about)) + sum(t.numel() * t.element_size() for t in tensors.values())


def header(tensors: Mapping[str, Tensor], about: Mapping[str, str] = NOTHING) -> bytes:
    """Length, then JSON that says what lies where, padded to a multiple of eight."""
    start = 0
    entries: dict[str, Any] = {"__metadata__": {"format": "pt", **about}}
    for name in file_order(tensors):
        tensor = tensors[name]
        end = start + tensor.numel() * tensor.element_size()
        entries[name] = {
            "dtype": TYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [start, end],
        }
        start = end
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def file_order(tensors: Mapping[str, Tensor]) -> list[str]:
    """Wide types first, so that every tensor is aligned."""
    rank = {dtype: number for number, dtype in enumerate(TYPES)}
    return sorted(tensors, key=lambda name: (-rank[tensors[name].dtype], name))


def raw(tensor: Tensor) -> memoryview:
    """The bytes of a tensor."""
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data


def refuse_non_finite(where: str, tensors: Mapping[str, Tensor]) -> None:
    """Weights that are no numbers are never written over weights that are."""
    for name, tensor in tensors.items():
        if not is_finite(tensor.detach()):
            raise NotFinite(f"{where}: {name} holds a number that is not finite, so it is not saved")


def is_finite(tensor: Tensor) -> bool:
    ends = extremes(tensor)
    return ends is None or bool(torch.isfinite(ends).all())


def extremes(tensor: Tensor) -> Tensor | None:
    """The smallest and the largest number: both finite if all are, found 25 times as fast as asking each."""
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    if not tensor.is_floating_point() or not tensor.numel():
        return None
    if tensor.element_size() == 1:  # torch compares no 8-bit floats
        tensor = tensor.float()
    return torch.stack(tensor.aminmax())
