"""Pieces: tensors on disk as the processes of a run hold them, each a box of the whole with its place.

torch.distributed.checkpoint (DCP) says which box of a tensor a process holds, and which boxes on disk another
mesh needs for its own. What it would write itself has a pickle beside the tensors (`.metadata`). So the bytes
are ours: safetensors files, whose headers tell in JSON where each piece lies, and every word of them is
checked before anything is allocated.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..data import tensor_files
from ..errors import BadInput
from ..files import json_text, one_line, short
from ..interop.hf.weights import opened
from ..interop.loaded import by

PIECES = "pieces"  # the entry in a file's header: {name: {"shape": of the whole, "offsets": of the piece}}
AXES, LONGEST = 64, 1 << 62  # axes of a tensor, and places along one of them, at most
DTYPES = {name: dtype for dtype, name in tensor_files.TYPES.items()}


# Writing.


@dataclass(frozen=True)
class HeldPiece:
    """A box of a tensor, as one process holds it."""

    tensor: Tensor
    shape: tuple[int, ...]  # of the whole tensor
    offsets: tuple[int, ...]

    @property
    def whole(self) -> bool:
        return tuple(self.tensor.shape) == self.shape


def cut(tensors: Mapping[str, Tensor], rank: int = 0, size: int = 1) -> dict[str, HeldPiece]:
    """What one of several processes writes of some tensors: each box is written by one of those that hold it.

    No process asks another one. All of them count the tensors alike, the largest first, and take turns.
    """
    from torch.distributed.checkpoint.default_planner import create_default_local_save_plan
    from torch.distributed.checkpoint.utils import find_state_dict_object

    turns = sorted(tensors, key=lambda name: (-tensors[name].numel(), name))
    mine = {name: tensors[name] for turn, name in enumerate(turns) if writes(tensors[name], turn, rank, size)}
    found: dict[str, HeldPiece] = {}
    for item in create_default_local_save_plan(mine, is_coordinator=True).items:
        data: Any = item.tensor_data
        if data.chunk.sizes.numel() or not data.size.numel():  # a short axis may leave nothing for the last
            held = find_state_dict_object(mine, item.index).detach()
            found[item.index.fqn] = HeldPiece(held, tuple(data.size), tuple(data.chunk.offsets))
    return found


def writes(tensor: Any, turn: int, rank: int, size: int) -> bool:
    """Whether a process writes what it holds of a tensor: a copy of it is written once."""
    copies, copy = size, rank
    if hasattr(tensor, "device_mesh"):
        here = tensor.device_mesh.get_coordinate()
        if here is None:
            return False
        copies, copy = 1, 0
        for placement, at, length in zip(tensor.placements, here, tensor.device_mesh.shape, strict=True):
            if placement.is_replicate():
                copies, copy = copies * length, copy * length + at
    return turn % copies == copy


def about(pieces: Mapping[str, HeldPiece]) -> dict[str, str]:
    """What the header of a file says of its tensors, if some of them are no whole ones."""
    told = {
        name: {"shape": list(piece.shape), "offsets": list(piece.offsets)}
        for name, piece in pieces.items()
        if not piece.whole
    }
    return {PIECES: json.dumps(told, separators=(",", ":"), sort_keys=True)} if told else {}


def tensors_of(pieces: Mapping[str, HeldPiece]) -> dict[str, Tensor]:
    return {name: piece.tensor for name, piece in pieces.items()}


# Reading.


@dataclass(frozen=True)
class SavedPiece:
    """A piece on disk."""

    path: Path
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class SavedTensor:
    """A tensor on disk, in one or several pieces that together are the whole."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    boxes: tuple[SavedPiece, ...]

    def empty(self) -> Tensor:
        """Room for all of it."""
        return torch.empty(self.shape, dtype=self.dtype)


def stored_in(paths: Sequence[Path]) -> dict[str, SavedTensor]:
    """Every tensor of some files, from their headers; BadInput unless each is there exactly once."""
    found: dict[str, list[tuple[tuple[int, ...], torch.dtype, SavedPiece]]] = {}
    for path in paths:
        for name, shape, dtype, box in boxes_of(path):
            found.setdefault(name, []).append((shape, dtype, box))
    return {name: joined(name, pieces) for name, pieces in found.items()}


def boxes_of(path: Path) -> list[tuple[str, tuple[int, ...], torch.dtype, SavedPiece]]:
    """(name, shape of the whole, type, piece) of each tensor in a file."""
    with opened(path) as file:
        names = list(file.keys())
        slices = {name: file.get_slice(name) for name in names}
        said = (file.metadata() or {}).get(PIECES)
        kinds = {name: (tuple(part.get_shape()), part.get_dtype()) for name, part in slices.items()}
    told = {} if said is None else json_text(path, said)
    if unknown := sorted(told.keys() - kinds.keys()):
        raise refusal(path, unknown[0], "which the file does not hold")
    return [(name, *place(path, name, kinds[name], told.get(name))) for name in names]


def place(
    path: Path, name: str, kind: tuple[tuple[int, ...], str], said: Any
) -> tuple[tuple[int, ...], torch.dtype, SavedPiece]:
    """Where a piece lies, checked."""
    sizes, dtype = kind
    if dtype not in DTYPES:
        raise refusal(path, name, f"of the type {short(dtype)}")
    if said is None:
        said = {"shape": list(sizes), "offsets": [0] * len(sizes)}
    known: dict[str, Any] = said if isinstance(said, dict) else {}
    shape, offsets = known.get("shape", ()), known.get("offsets", ())
    if not (axes(shape) and axes(offsets) and len(shape) == len(offsets) == len(sizes)):
        raise refusal(path, name, f"in a place that cannot be: {short(said)}")
    if any(at + size > length for at, size, length in zip(offsets, sizes, shape, strict=True)):
        raise refusal(path, name, f"at {offsets}, {by(sizes)} large, in {by(tuple(shape))}: it sticks out")
    return tuple(shape), DTYPES[dtype], SavedPiece(path, tuple(offsets), sizes)


def axes(said: Any) -> bool:
    """A list of numbers that may be the lengths of axes."""
    if not isinstance(said, list) or len(said) > AXES:
        return False
    return all(type(n) is int and 0 <= n <= LONGEST for n in said)


def joined(name: str, pieces: Sequence[tuple[tuple[int, ...], torch.dtype, SavedPiece]]) -> SavedTensor:
    """One tensor of its pieces, which must agree, and cover it without a gap and without an overlap."""
    shape, dtype, first = pieces[0]
    for other, kind, box in pieces:
        if other != shape or kind != dtype:
            raise refusal(
                box.path, name, f"as {by(other)} of {kind}, and {first.path.name} as {by(shape)} of {dtype}"
            )
    boxes = [box for _, _, box in pieces]
    held, needed = sum(math.prod(box.sizes) for box in boxes), math.prod(shape)
    if held != needed:
        raise refusal(first.path, name, f"in pieces of {held} numbers in all, where {by(shape)} has {needed}")
    if clash := overlap(boxes):
        raise refusal(
            clash[1].path, name, f"at {list(clash[1].offsets)}, over the piece in {clash[0].path.name}"
        )
    return SavedTensor(shape, dtype, tuple(boxes))


def overlap(boxes: Sequence[SavedPiece]) -> tuple[SavedPiece, SavedPiece] | None:
    """Two boxes that share a place; found along the axis that is cut most often."""
    full = [box for box in boxes if math.prod(box.sizes)]
    if len(full) < 2:
        return None
    ndim = len(full[0].sizes)
    if not ndim:
        return full[0], full[1]
    axis = max(range(ndim), key=lambda axis: len({box.offsets[axis] for box in full}))
    in_order = sorted(full, key=lambda box: box.offsets[axis])
    for number, box in enumerate(in_order):
        end = box.offsets[axis] + box.sizes[axis]
        for other in in_order[number + 1 :]:
            if other.offsets[axis] >= end:
                break
            if all(
                a < b + n and b < a + m
                for a, m, b, n in zip(box.offsets, box.sizes, other.offsets, other.sizes, strict=True)
            ):
                return box, other
    return None


def refusal(path: Path, name: str, why: str) -> BadInput:
    return BadInput(one_line(f"{path} holds {short(name)} {why}"))


def read_into(
    stored: Mapping[str, SavedTensor],
    targets: Mapping[str, Tensor],
    vouch: Callable[[Path], None] = lambda path: None,
) -> None:
    """Fill tensors of any placement with what they hold of the stored ones; nothing else is read.

    vouch: called with each file before it is read; it may refuse.
    """
    for name, target in targets.items():
        fits(name, stored[name], target)
    for path, reads in planned(stored, targets).items():
        vouch(path)
        with opened(path) as file:
            for name, item, box in reads:
                local = local_part(targets[name])
                for axis, (at, length) in enumerate(zip(item.dest_offsets, item.lengths, strict=True)):
                    local = local.narrow(axis, at, length)
                local.copy_(read_box(file, name, box, item.storage_offsets, item.lengths))


def fits(name: str, stored: SavedTensor, target: Tensor) -> None:
    """Refuse a tensor of another shape or type than is expected."""
    if (stored.shape, stored.dtype) != (tuple(target.shape), target.dtype):
        found, expected = (f"{by(tuple(t.shape)) or 'one number'} of {t.dtype}" for t in (stored, target))
        raise refusal(stored.boxes[0].path, name, f"as {found}, where {expected} is expected")


def planned(stored: Mapping[str, SavedTensor], targets: Mapping[str, Tensor]) -> dict[Path, list[Any]]:
    """For each file: (name, what to read of it, the piece), by DCP's resharding."""
    from torch.distributed.checkpoint.default_planner import create_default_local_load_plan
    from torch.distributed.checkpoint.metadata import (
        ChunkStorageMetadata,
        Metadata,
        TensorProperties,
        TensorStorageMetadata,
    )

    def described(tensor: SavedTensor) -> TensorStorageMetadata:
        chunks = [ChunkStorageMetadata(torch.Size(b.offsets), torch.Size(b.sizes)) for b in tensor.boxes]
        return TensorStorageMetadata(TensorProperties(dtype=tensor.dtype), torch.Size(tensor.shape), chunks)

    metadata = Metadata({name: described(stored[name]) for name in targets})
    found: dict[Path, list[Any]] = {}
    for item in create_default_local_load_plan(dict(targets), metadata).items:
        name, number = item.storage_index.fqn, item.storage_index.index
        assert number is not None
        box = stored[name].boxes[number]
        found.setdefault(box.path, []).append((name, item, box))
    return found


def local_part(tensor: Tensor) -> Tensor:
    """What this process holds of a tensor."""
    return tensor.to_local().detach() if hasattr(tensor, "to_local") else tensor.detach()


def read_box(file: Any, name: str, box: SavedPiece, offsets: Sequence[int], lengths: Sequence[int]) -> Tensor:
    """Some of a piece. The library gives less where a slice runs over the end, so it must not."""
    if tuple(lengths) == box.sizes:
        return file.get_tensor(name)
    return file.get_slice(name)[tuple(slice(at, at + n) for at, n in zip(offsets, lengths, strict=True))]
