"""In from GGUF: models of the LLaMA family, whatever their numbers are packed as, made fp32 again, with their tokenizer.

llama.cpp turns neighboring numbers of a query and a key, and we, as Hugging Face, those half a head apart: in files of
the architecture "llama" the rows of both projections stand in another order, which is undone here.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import BadInput
from ...files import inside, naming, short
from ...models.llama import LlamaConfig
from ...parts.positions.absolute import frequencies
from ...parts.positions.rotary import Llama3Scaling
from ..binary import mapped
from ..load import Loaded, by, parameters, sized, some, with_room
from .file import Contents, is_gguf, read_contents
from .vocabulary import read_words

SUFFIX = ".gguf"
ARCHITECTURES = ("llama", "qwen2")

# {theirs: ours}
NAMES = {
    "token_embd.weight": "inputs.tokens.weight",
    "output_norm.weight": "stack.norm.weight",
    "output.weight": "head.linear.weight",
    "blk.{}.attn_norm.weight": "stack.blocks.{}.attention.norm.weight",
    "blk.{}.ffn_norm.weight": "stack.blocks.{}.feed_forward.norm.weight",
} | {
    f"blk.{{}}.{theirs}.{part}": f"stack.blocks.{{}}.{ours}.{part}"
    for theirs, ours in {
        "attn_q": "attention.layer.query",
        "attn_k": "attention.layer.key",
        "attn_v": "attention.layer.value",
        "attn_output": "attention.layer.out",
        "ffn_gate": "feed_forward.layer.gate",
        "ffn_up": "feed_forward.layer.up",
        "ffn_down": "feed_forward.layer.down",
    }.items()
    for part in ("weight", "bias")
}
TURNED = ("attn_q.", "attn_k.")  # whose rows stand in another order

# Settings of an architecture that change nothing here, or are read from the tensors.
HARMLESS = ("vocab_size", "rope.dimension_count", "attention.value_length", "attention.key_length")
FACTORS = "rope_freqs.weight"  # by how much slower each pair of numbers turns (LLaMA 3.1)
CLOSE = 1e-3


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
            raise BadInput(f"{path} is no GGUF file, nor a folder with one")
        file = inside(path, file.name) if path.is_dir() else file
        with mapped(file) as data, naming(file):
            contents = read_contents(data)
            config = read_config(contents)
            model = sized("llama", config)
            turned = contents.said["general.architecture"] == "llama"
            plan = check(contents, config, {name: tuple(w.shape) for name, w in parameters(model).items()})
            tokenizer, special = read_words(file, contents.said, config.vocab)
            model = with_room(model.to(dtype), device)
            ours = parameters(model)
            with torch.no_grad():
                for theirs, name in plan.items():
                    value = contents.tensors[theirs].tensor()
                    if turned and any(part in theirs for part in TURNED):
                        value = halved(value, config.key_width)
                    ours[name].copy_(value)
    return Loaded("llama", config, model.eval(), tokenizer, special)


def halved(rows: Tensor, key_width: int) -> Tensor:
    """Within each head, rows in pairs (0 1)(2 3).. put into halves: all first ones, then all second ones."""
    return rows.unflatten(0, (-1, key_width // 2, 2)).transpose(1, 2).flatten(0, 2)


def paired(rows: Tensor, key_width: int) -> Tensor:
    """The way back."""
    return rows.unflatten(0, (-1, 2, key_width // 2)).transpose(1, 2).flatten(0, 2)


class Settings:
    """What a file says of its architecture; it remembers what was asked for."""

    def __init__(self, contents: Contents) -> None:
        self.path, self.said = contents.path, contents.said
        self.architecture = contents.said.get("general.architecture")
        if self.architecture not in ARCHITECTURES:
            raise BadInput(
                f"{self.path} is of the architecture {short(self.architecture)}; heedful reads {', '.join(ARCHITECTURES)}"
            )
        self.asked: set[str] = set()

    def whole(self, name: str, default: int | None = None) -> int:
        value = self.get(name, default)
        if type(value) is not int or not 1 <= value < 2**31:
            raise BadInput(
                f"{self.path}: {self.architecture}.{name} is {short(value)}, not a whole number from 1 on"
            )
        return value

    def number(self, name: str, default: float | None = None) -> float:
        value = self.get(name, default)
        if type(value) not in (int, float) or not 0 < value < 1e30:
            raise BadInput(f"{self.path}: {self.architecture}.{name} is {short(value)}, not a number above 0")
        return float(str(np.float32(value)))  # stored in fp32: the decimal that was meant

    def get(self, name: str, default: Any = None) -> Any:
        self.asked.add(name)
        return self.said.get(f"{self.architecture}.{name}", default)

    def refuse_others(self) -> None:
        """A setting that nobody asked for may change what the model computes, unless it is nought."""
        for key, value in self.said.items():
            name = key.removeprefix(f"{self.architecture}.")
            known = name == key or name in self.asked or name in HARMLESS
            if not known and not is_nought(value) and (name, value) != ("rope.scaling.type", "none"):
                raise BadInput(f"{self.path} sets {key} to {short(value)}, which heedful does not implement")


def is_nought(value: Any) -> bool:
    return type(value) in (bool, int, float) and not value


def read_config(contents: Contents) -> LlamaConfig:
    settings = Settings(contents)
    tensors = contents.tensors
    if contents.said.get("split.count", 1) not in (0, 1):
        raise BadInput(
            f"{contents.path} is one of {short(contents.said['split.count'])} files that a model was split into: "
            f"join them (llama-gguf-split --merge), and name the whole"
        )
    if "token_embd.weight" not in tensors:
        raise BadInput(f"{contents.path} has no token_embd.weight")
    rows, width = matrix(contents, "token_embd.weight")
    heads, layers = settings.whole("attention.head_count"), settings.whole("block_count")
    if layers * 8 > len(tensors):
        raise BadInput(f"{contents.path} announces {layers} layers and holds only {len(tensors)} tensors")
    if settings.whole("embedding_length") != width:
        raise BadInput(f"{contents.path}: embedding_length is not {width}, which token_embd.weight has")
    if settings.get("attention.key_length") is None and width % heads:
        raise BadInput(f"{contents.path}: a width of {width} cannot be divided into {heads} heads")
    key_width = settings.whole("attention.key_length", max(width // heads, 1))
    for name in ("attention.value_length", "rope.dimension_count"):
        if settings.whole(name, key_width) != key_width:
            raise BadInput(
                f"{contents.path}: {settings.architecture}.{name} is not the width of a head, {key_width}"
            )
    if key_width % 2:
        raise BadInput(
            f"{contents.path} has heads of odd width {key_width}, whose numbers cannot be turned in pairs"
        )
    config = LlamaConfig(
        vocab=rows,
        context=settings.whole("context_length"),
        layers=layers,
        width=width,
        heads=heads,
        kv_heads=settings.whole("attention.head_count_kv", heads),
        key_width=key_width,
        hidden=settings.whole("feed_forward_length"),
        attention_bias="blk.0.attn_q.bias" in tensors,
        out_bias="blk.0.attn_q.bias" not in tensors or "blk.0.attn_output.bias" in tensors,
        feed_forward_bias="blk.0.ffn_up.bias" in tensors,
        rotary_base=settings.number("rope.freq_base", 10000.0),
        eps=settings.number("attention.layer_norm_rms_epsilon"),
        tied="output.weight" not in tensors,
        **read_stretch(settings),
    )
    settings.refuse_others()
    return replace(config, **read_factors(contents, config)) if FACTORS in tensors else config


def read_stretch(settings: Settings) -> dict[str, Any]:
    """Positions that all turn slower by one factor."""
    kind = settings.get("rope.scaling.type", "none")
    if kind != "linear":
        settings.asked.discard("rope.scaling.type")  # none is fine, others are refused with the rest
        return {}
    return {"stretch": "linear", "stretch_factor": settings.number("rope.scaling.factor", 1.0)}


def read_factors(contents: Contents, config: LlamaConfig) -> dict[str, Any]:
    """Positions that turn slower where they turn slowly, as LLaMA 3 has them; files hold no more than the outcome."""
    place = contents.tensors[FACTORS]
    if place.shape != (config.key_width // 2,) or config.stretch != "none":
        raise BadInput(
            f"{contents.path}: {FACTORS} is {by(place.shape)}, where {config.key_width // 2} are due"
        )
    held = place.tensor().double()
    most = float(held.max())
    if 1 <= most <= 1e6:
        w = frequencies(config.key_width, base=config.rotary_base)
        slower = Llama3Scaling(most, config.stretch_low, config.stretch_high, config.stretch_original)
        if bool((w / slower(w) - held).abs().le(CLOSE * held).all()):
            return {"stretch": "llama3", "stretch_factor": most}
    raise BadInput(f"{contents.path}: {FACTORS} are not those of LLaMA 3, and others are not read")


def matrix(contents: Contents, name: str) -> tuple[int, int]:
    shape = contents.tensors[name].shape
    if len(shape) != 2:
        raise BadInput(f"{contents.path}: {name} is {by(shape)}, where a matrix is expected")
    return shape[0], shape[1]


def check(contents: Contents, config: LlamaConfig, ours: dict[str, tuple[int, ...]]) -> dict[str, str]:
    """Hold every tensor against the model, before memory is taken: {theirs: ours}."""
    table = table_of(config.layers)
    plan = {theirs: name for theirs, name in table.items() if name in ours}
    missing = [theirs for theirs in plan if theirs not in contents.tensors]
    if missing:
        raise BadInput(f"{contents.path} lacks {some(missing)}")
    extra = sorted(contents.tensors.keys() - plan.keys() - {FACTORS})
    if extra:
        raise BadInput(f"{contents.path} holds {some(extra)}, which heedful has no place for")
    for theirs, name in plan.items():
        shape = contents.tensors[theirs].shape
        if shape != ours[name]:
            raise BadInput(f"{contents.path}: {theirs} is {by(shape)}, where {by(ours[name])} is due")
    return plan


def table_of(layers: int) -> dict[str, str]:
    """{theirs: ours} of every tensor that a model of so many layers may have."""
    table = {}
    for theirs, ours in NAMES.items():
        for layer in range(layers if "{}" in theirs else 1):
            table[theirs.format(layer)] = ours.format(layer)
    return table
