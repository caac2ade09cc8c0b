"""Weights in safetensors files: what is there is checked before a byte of it is read."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ...errors import BadInput
from ...files import MEGABYTE, inside, present, read_json
from ..loaded import by
from ..run_folder import CONFIG

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
FLOATS = ("F64", "F32", "F16", "BF16")
MOST = 5000  # tensors; the largest published models of these families have a quarter of it
HEADER = 8 * MEGABYTE


@dataclass(frozen=True)
class Stored:
    """A tensor in a file: where it is, and what shape and type it has."""

    path: Path
    name: str
    shape: tuple[int, ...]
    dtype: str


def find_weights(folder: Path) -> dict[str, Stored]:
    """Every tensor of a model folder by name, from one file or several shards."""
    if present(folder / SINGLE):
        return headers(inside(folder, SINGLE))
    if present(folder / INDEX):
        return shards(folder, inside(folder, INDEX))
    raise BadInput(no_weights(folder))


def shards(folder: Path, index: Path) -> dict[str, Stored]:
    """Every tensor of a model in several files, of which an index says which holds what."""
    places = read_json(index).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise BadInput(f"{index} has no weight_map")
    check_count(index, len(places))
    stored: dict[str, Stored] = {}
    for path in {inside(folder, shard): None for shard in places.values()}:
        for name, tensor in headers(path).items():
            if places.get(name) != path.name:
                raise BadInput(f"{path} holds {name}, which {index} does not place there")
            stored[name] = tensor
    for name, shard in places.items():
        if name not in stored:
            raise BadInput(f"{index} places {name} in {shard}, which does not hold it")
    return stored


def no_weights(folder: Path) -> str:
    """Why nothing can be loaded, and for pickles what to do about it."""
    theirs = sorted(folder.glob("pytorch_model*.bin"))
    pickles = theirs or sorted(path for pattern in PICKLES for path in folder.glob(pattern))
    if any(folder.glob("*.onnx")):
        fault = f"{folder} holds ONNX graphs, which heedful writes and does not read"
        return f"{fault}: give the model they were made from"
    if not pickles:
        return f"{folder} has no weights: neither {SINGLE} nor {INDEX} is there; fetch the rest of the model"
    why = f"{pickles[0]} is a pickle, which can run code when it is read, so heedful does not read it"
    if not theirs:
        return f"{why}: save the weights as {SINGLE}"
    return (
        f"{why}; where you trust it, convert it: cd {shlex.quote(str(folder.absolute()))} && "
        f'python -c "import glob, torch, safetensors.torch as s; w = {{}}; '
        f"[w.update(torch.load(f, weights_only=True)) for f in glob.glob('pytorch_model*.bin')]; "
        f"s.save_file({{k: v.clone().contiguous() for k, v in w.items()}}, '{SINGLE}')\""
    )


def headers(path: Path) -> dict[str, Stored]:
    """What a safetensors file holds, from its header alone."""
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
    if size > HEADER:
        raise BadInput(broken(path, f"a header of {size} bytes, where at most {HEADER} are read"))
    with opened(path) as tensors:
        names = list(tensors.keys())
        check_count(path, len(names))
        pieces = {name: tensors.get_slice(name) for name in names}
        return {name: Stored(path, name, tuple(p.get_shape()), p.get_dtype()) for name, p in pieces.items()}


def check_tensor(tensor: Stored, shape: tuple[int, ...]) -> None:
    """Refuse a tensor that has another shape than the config asks for, or holds no floats."""
    if tensor.shape != shape:
        raise BadInput(
            f"{tensor.path}: {tensor.name} is {by(tensor.shape)}, but {CONFIG} asks for {by(shape)}"
        )
    if tensor.dtype not in FLOATS:
        raise BadInput(
            f"{tensor.path}: {tensor.name} is stored as {tensor.dtype}; heedful reads {', '.join(FLOATS)}"
        )


def check_count(path: Path, tensors: int) -> None:
    if tensors > MOST:
        raise BadInput(f"{path} names {tensors} tensors; at most {MOST} are read")


def broken(path: Path, why: str) -> str:
    return (
        f"{path} is not a whole safetensors file: {why:.200}; it may be cut short or altered, fetch it again"
    )


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """A safetensors file; a truncated or altered one is named."""
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            yield file
    except (SafetensorError, OSError) as error:
        raise BadInput(broken(path, str(error).rpartition("header: ")[2])) from None


def read_tensors(stored: Mapping[str, Stored]) -> Iterator[tuple[str, Tensor]]:
    """(key, tensor) one by one; the tensors lie in the file's own memory: copy what is kept."""
    for path in dict.fromkeys(tensor.path for tensor in stored.values()):
        with opened(path) as file:
            for key, tensor in stored.items():
                if tensor.path == path:
                    yield key, file.get_tensor(tensor.name)


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """A safetensors file, marked as PyTorch's so that transformers reads it."""
    save_file({k: v.detach().cpu().contiguous() for k, v in tensors.items()}, path, {"format": "pt"})
