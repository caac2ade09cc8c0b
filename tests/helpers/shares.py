"""Checkpoints in several shares, written by one process as if it were many; and given a stranger's touch."""

import json
from pathlib import Path

import torch

from heedful.data import tensor_files
from heedful.runs import checkpoint
from heedful.runs.pieces import PIECES, HeldPiece

WHOLE = {"a": torch.arange(24.0).view(6, 4), "b": torch.arange(5), "c": torch.tensor(2.5)}


def pieces_of(rank: int, size: int) -> dict[str, HeldPiece]:
    """What a process holds: some rows of the matrix, and a whole tensor when it is its turn."""
    rows = WHOLE["a"].chunk(size)
    found = {"a": HeldPiece(rows[rank], (6, 4), (sum(map(len, rows[:rank])), 0))}
    plain = {name: WHOLE[name] for turn, name in enumerate(("b", "c")) if turn % size == rank}
    return found | {name: HeldPiece(t, tuple(t.shape), (0,) * t.ndim) for name, t in plain.items()}


def save(run: Path, step: int = 1, size: int = 3) -> Path:
    """A checkpoint of several processes."""
    entries, writing = {}, checkpoint.SaveInProgress(run, step)
    for rank in range(size):
        writing = checkpoint.SaveInProgress(run, step, 9, rank, size)
        entries |= writing.write({"model": pieces_of(rank, size)})
    writing.commit(entries, b"{}", {})
    return writing.folder


def seal(folder: Path, **more: str) -> None:
    """A manifest that vouches for whatever lies there now. more: names of files to be listed beside."""
    lying = [path for path in sorted(folder.iterdir()) if path.name != checkpoint.MANIFEST]
    entries = {p.name: {"bytes": p.stat().st_size, "sha256": checkpoint.file_hash(p)} for p in lying} | more
    told = {"format": checkpoint.FORMAT, "step": checkpoint.step_of(folder), "facts": {}, "files": entries}
    (folder / checkpoint.MANIFEST).write_bytes(checkpoint.sealed(told))


def rewrite(path: Path, tensors: dict[str, torch.Tensor], told: object) -> None:
    """A share with other tensors, and with whatever is said of their places."""
    about = {} if told is None else {PIECES: told if isinstance(told, str) else json.dumps(told)}
    path.unlink()
    tensor_files.write_tensors(path, tensors, about)
    seal(path.parent)
