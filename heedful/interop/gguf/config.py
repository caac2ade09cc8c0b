"""The config of a GGUF file: its metadata as a LLaMA's config, or a refusal of what heedful lacks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ...errors import BadInput
from ...files import short
from ...models.llama import LlamaConfig
from ...parts.positions.absolute import frequencies
from ...parts.positions.rotary import Llama3Scaling
from ..loaded import by
from .file import Contents

ARCHITECTURES = ("llama", "qwen2", "qwen3")
# Metadata of an architecture that change nothing here, or are read from the tensors.
HARMLESS = ("vocab_size", "rope.dimension_count", "attention.value_length", "attention.key_length")
FACTORS = "rope_freqs.weight"  # by how much slower each pair of numbers turns (LLaMA 3.1)
CLOSE = 1e-3


class Metadata:
    """What a file says of its architecture; it remembers what was asked for."""

    def __init__(self, contents: Contents) -> None:
        self.path, self.values = contents.path, contents.metadata
        self.architecture = contents.metadata.get("general.architecture")
        if self.architecture not in ARCHITECTURES:
            fault = f"{self.path} is of the architecture {short(self.architecture)}"
            known = f"heedful reads {', '.join(ARCHITECTURES)} from such files"
            raise BadInput(f"{fault}; {known}: try the Hugging Face folder that it was made from")
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

    def truth(self, name: str, default: bool) -> bool:
        value = self.get(name, default)
        if type(value) is not bool:
            raise BadInput(f"{self.path}: {self.architecture}.{name} is {short(value)}, not true or false")
        return value

    def get(self, name: str, default: Any = None) -> Any:
        self.asked.add(name)
        return self.values.get(f"{self.architecture}.{name}", default)

    def refuse_others(self) -> None:
        """A setting that is not implemented may change the output, unless it is zero, false or empty."""
        for key, value in self.values.items():
            name = key.removeprefix(f"{self.architecture}.")
            known = name == key or name in self.asked or name in HARMLESS
            if not known and not is_nought(value) and (name, value) != ("rope.scaling.type", "none"):
                raise BadInput(f"{self.path} sets {key} to {short(value)}, which heedful does not implement")


def is_nought(value: Any) -> bool:
    return type(value) in (bool, int, float) and not value


def read_config(contents: Contents) -> LlamaConfig:
    metadata = Metadata(contents)
    tensors = contents.tensors
    if contents.metadata.get("split.count", 1) not in (0, 1):
        count = short(contents.metadata["split.count"])
        part = f"{contents.path} is one of {count} parts of a model"
        raise BadInput(f"{part}: merge them (llama-gguf-split --merge), and give the merged file")
    if "token_embd.weight" not in tensors:
        raise BadInput(f"{contents.path} has no token_embd.weight")
    rows, width = matrix(contents, "token_embd.weight")
    heads, layers = metadata.whole("attention.head_count"), metadata.whole("block_count")
    if layers * 8 > len(tensors):
        raise BadInput(f"{contents.path} declares {layers} layers and holds only {len(tensors)} tensors")
    if metadata.whole("embedding_length") != width:
        raise BadInput(f"{contents.path}: embedding_length is not {width}, which token_embd.weight has")
    if metadata.get("attention.key_length") is None and width % heads:
        raise BadInput(f"{contents.path}: a width of {width} cannot be divided into {heads} heads")
    key_width = metadata.whole("attention.key_length", max(width // heads, 1))
    for name in ("attention.value_length", "rope.dimension_count"):
        if metadata.whole(name, key_width) != key_width:
            raise BadInput(
                f"{contents.path}: {metadata.architecture}.{name} is not the width of a head, {key_width}"
            )
    if key_width % 2:
        raise BadInput(
            f"{contents.path} has heads of odd width {key_width}, whose dimensions cannot be rotated in pairs"
        )
    config = LlamaConfig(
        vocab=rows,
        context=metadata.whole("context_length"),
        layers=layers,
        width=width,
        heads=heads,
        kv_heads=metadata.whole("attention.head_count_kv", heads),
        key_width=key_width,
        ffn_width=metadata.whole("feed_forward_length"),
        attention_bias="blk.0.attn_q.bias" in tensors,
        out_bias="blk.0.attn_q.bias" not in tensors or "blk.0.attn_output.bias" in tensors,
        ffn_bias="blk.0.ffn_up.bias" in tensors,
        rotary_base=metadata.number("rope.freq_base", 10000.0),
        eps=metadata.number("attention.layer_norm_rms_epsilon"),
        tie_embeddings="output.weight" not in tensors,
        qk_norm="blk.0.attn_q_norm.weight" in tensors,
        causal=metadata.truth("attention.causal", True),
        **read_scaling(metadata),
    )
    metadata.refuse_others()
    return replace(config, **read_factors(contents, config)) if FACTORS in tensors else config


def read_scaling(metadata: Metadata) -> dict[str, Any]:
    """Linear scaling of rotary positions."""
    kind = metadata.get("rope.scaling.type", "none")
    if kind != "linear":
        metadata.asked.discard("rope.scaling.type")  # none is fine, others are refused with the rest
        return {}
    return {"rope_scaling": "linear", "rope_factor": metadata.number("rope.scaling.factor", 1.0)}


def read_factors(contents: Contents, config: LlamaConfig) -> dict[str, Any]:
    """LLaMA 3's scaling of rotary positions. Files hold only its factors, one for each frequency."""
    place = contents.tensors[FACTORS]
    if place.shape != (config.key_width // 2,) or config.rope_scaling != "none":
        raise BadInput(
            f"{contents.path}: {FACTORS} is {by(place.shape)}, where {config.key_width // 2} are due"
        )
    held = place.tensor().double()
    most = float(held.max())
    if 1 <= most <= 1e6:
        w = frequencies(config.key_width, base=config.rotary_base)
        slower = Llama3Scaling(
            most, config.rope_low_freq_factor, config.rope_high_freq_factor, config.rope_original_context
        )
        if bool((w / slower(w) - held).abs().le(CLOSE * held).all()):
            return {"rope_scaling": "llama3", "rope_factor": most}
    raise BadInput(f"{contents.path}: {FACTORS} are not those of LLaMA 3, and heedful reads no others")


def matrix(contents: Contents, name: str) -> tuple[int, int]:
    shape = contents.tensors[name].shape
    if len(shape) != 2:
        raise BadInput(f"{contents.path}: {name} is {by(shape)}, where a matrix is expected")
    return shape[0], shape[1]
