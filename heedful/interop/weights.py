"""Weights in safetensors files: what is there is checked before a byte of it is read."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ..errors import BadInput
from .files import MEGABYTE, inside, read_json

SINGLE, INDEX, PICKLE = "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin"
DTYPES = {"F64", "F32", "F16", "BF16"}


@dataclass(frozen=True)
class Stored:
    """A tensor in a file: where it is and what shape it has."""

    path: Path
    name: str
    shape: tuple[int, ...]


def find_weights(folder: Path) -> dict[str, Stored]:
    """Every tensor of a model folder by name, from one file or several shards."""
    if (folder / SINGLE).exists():
        return headers(inside(folder, SINGLE))
    if not (folder / INDEX).exists():
        raise BadInput(no_weights(folder))
    index = inside(folder, INDEX)
    shards = read_json(index, 64 * MEGABYTE).get("weight_map")
    if not isinstance(shards, dict) or not shards:
        raise BadInput(f"{index} has no weight_map")
    stored: dict[str, Stored] = {}
    for shard in dict.fromkeys(shards.values()):
        for name, tensor in headers(inside(folder, shard)).items():
            if shards.get(name) != shard:
                raise BadInput(f"{tensor.path} holds {name}, which {index.name} places in {shards.get(name)}")
            stored[name] = tensor
    for name, shard in shards.items():
        if name not in stored:
            raise BadInput(f"{index} places {name} in {shard}, which does not hold it")
    return stored


def no_weights(folder: Path) -> str:
    pickles = sorted(p.name for p in folder.glob("*.bin")) + sorted(p.name for p in folder.glob("*.pt"))
    if not pickles:
        return f"{folder} has no weights: neither {SINGLE} nor {INDEX} is there"
    return (
        f"{folder / pickles[0]} is a pickle, which can run code when it is read, so heedful does not read it; "
        f'where you trust it, convert it: python -c "import torch, safetensors.torch as s; '
        f"w = torch.load('{pickles[0]}', weights_only=True); "
        f"s.save_file({{k: v.clone().contiguous() for k, v in w.items()}}, '{SINGLE}')\""
    )


def headers(path: Path) -> dict[str, Stored]:
    """What a safetensors file holds, from its header alone."""
    with opened(path) as file:
        stored = {}
        for name in file.keys():  # noqa: SIM118 (not a dict)
            piece = file.get_slice(name)
            stored[name] = Stored(path, name, tuple(piece.get_shape()))
            if piece.get_dtype() not in DTYPES and not name.endswith(("position_ids", "attn.bias")):
                raise BadInput(
                    f"{path}: {name} is stored as {piece.get_dtype()}, not as a floating-point number"
                )
        return stored


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """A safetensors file; a truncated or altered one is named."""
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            yield file
    except (SafetensorError, OSError) as error:
        raise BadInput(
            f"{path} cannot be read: {error}; it may be cut short or altered, fetch it again"
        ) from None


def read_tensors(stored: Mapping[str, Stored]) -> Iterator[tuple[str, Tensor]]:
    """(key, tensor) one by one; the tensors lie in the file's own memory: copy what is kept."""
    for path in dict.fromkeys(tensor.path for tensor in stored.values()):
        with opened(path) as file:
            for key, tensor in stored.items():
                if tensor.path == path:
                    yield key, file.get_tensor(tensor.name)


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """A safetensors file, written aside and renamed, with the permissions of any new file."""
    handle, aside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    try:
        save_file({k: v.detach().cpu().contiguous() for k, v in tensors.items()}, aside, {"format": "pt"})
        publish(Path(aside), path)
    finally:
        Path(aside).unlink(missing_ok=True)


def publish(aside: Path, path: Path) -> None:
    """Give a finished file its name, after its bytes have reached the disk."""
    mask = os.umask(0)
    os.umask(mask)
    os.chmod(aside, 0o666 & ~mask)
    with open(aside, "rb") as file:
        os.fsync(file.fileno())
    os.replace(aside, path)
