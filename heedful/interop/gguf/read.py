"""Read a GGUF file: a model of the LLaMA family, unpacked to fp32, with its tokenizer."""

from __future__ import annotations

from pathlib import Path

import torch

from ...errors import BadInput
from ...files import inside, naming
from ...models.base.skeleton import skeleton, with_room
from ...models.llama import LlamaConfig
from ..binary import mapped
from ..loaded import Loaded, by, some
from .chat import read_chat
from .config import FACTORS, read_config
from .file import Contents, is_gguf, read_contents
from .layout import TURNED, halved, table_of
from .vocabulary import read_vocabulary

SUFFIX = ".gguf"


def find(path: Path) -> Path | None:
    """The file itself, or the only one of a folder that has no config.json."""
    if path.is_file():
        return path if path.suffix == SUFFIX or is_gguf(path) else None
    if not path.is_dir() or (path / "config.json").exists():
        return None
    found = sorted(path.glob(f"*{SUFFIX}"))
    if len(found) > 1:
        raise BadInput(
            f"{path} holds {len(found)} GGUF files, {some([each.name for each in found])}: name one of them"
        )
    return found[0] if found else None


def is_one(path: Path) -> bool:
    """Whether a path is a GGUF file or a folder with one."""
    with naming(path):
        return find(path) is not None


def read(path: Path, device: str | torch.device = "cpu", dtype: torch.dtype = torch.float32) -> Loaded:
    """The model of a file, ready for use."""
    with naming(path):
        file = find(path)
        if file is None:
            raise BadInput(f"{path} is neither a GGUF file nor a folder with one")
        file = inside(path, file.name) if path.is_dir() else file
        with mapped(file) as data, naming(file):
            contents = read_contents(data)
            config = read_config(contents)
            model = skeleton("llama", config)
            turned = contents.metadata["general.architecture"] == "llama"
            plan = check(contents, config, {name: tuple(w.shape) for name, w in model.named_parameters()})
            tokenizer, special = read_vocabulary(file, contents.metadata, config.vocab)
            chat = read_chat(file, contents.metadata, tokenizer)
            model = with_room(model.to(dtype), device)
            ours = dict(model.named_parameters())
            with torch.no_grad():
                for theirs, name in plan.items():
                    value = contents.tensors[theirs].tensor()
                    if turned and any(part in theirs for part in TURNED):
                        value = halved(value, config.key_width)
                    ours[name].copy_(value)
    return Loaded("llama", config, model.eval(), tokenizer, special, chat=chat)


def check(contents: Contents, config: LlamaConfig, ours: dict[str, tuple[int, ...]]) -> dict[str, str]:
    """Hold every tensor against the model, before memory is taken: {theirs: ours}."""
    table = table_of(config.layers)
    plan = {theirs: name for theirs, name in table.items() if name in ours}
    missing = [theirs for theirs in plan if theirs not in contents.tensors]
    if missing:
        raise BadInput(f"{contents.path} lacks {some(missing)}")
    extra = sorted(contents.tensors.keys() - plan.keys() - {FACTORS})
    if extra:
        raise BadInput(f"{contents.path} holds {some(extra)}, which heedful does not use")
    for theirs, name in plan.items():
        shape = contents.tensors[theirs].shape
        if shape != ours[name]:
            raise BadInput(f"{contents.path}: {theirs} is {by(shape)}, where {by(ours[name])} is due")
    return plan
