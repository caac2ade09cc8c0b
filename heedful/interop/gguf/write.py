"""Write a GGUF file, which llama.cpp runs: models of the LLaMA family, in float32, float16 or q8_0."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from ...errors import BadInput
from ...models.base.shells import Decoder
from ...models.llama import LlamaConfig
from ..loaded import Loaded, check_export
from ..packages import needed, quiet
from .blocks import KINDS as PACKED
from .chat import chat_metadata
from .layout import TURNED, paired, table_of
from .vocabulary import SPECIAL, vocabulary_metadata

KINDS = ("float32", "float16", "q8_0")
FILE = "model.gguf"
TYPES = {"float32": "F32", "float16": "F16", "q8_0": "Q8_0"}
BLOCK = next(kind.block for kind in PACKED.values() if kind.name == "Q8_0")


def refuse(loaded: Loaded) -> str | None:
    """Why this model cannot be exported as a GGUF file, or None."""
    c = loaded.config
    if not isinstance(c, LlamaConfig) or loaded.architecture != "llama":
        return f"GGUF export supports the llama family, and this is a {loaded.architecture}"
    if type(loaded.model) is not Decoder:
        return "GGUF export supports language models, and this model has another head"
    if c.activation != "silu":
        return f"llama.cpp gates LLaMA's feed-forward layers with silu, and this model with {c.activation}"
    if c.rope_scaling != "none":
        return "GGUF export does not support scaled rotary positions"
    if c.qk_norm and (c.attention_bias or c.ffn_bias):
        return "llama.cpp's qwen3 has no biases, and this model has"
    if c.window is not None and c.window < c.context:
        return f"llama.cpp's llama has no window, and this model has one of {c.window} tokens"
    if not c.causal:
        return "llama.cpp's llama hides the tokens after each one, and this model sees them"
    if c.ffn_bias and is_qwen(c):
        return "llama.cpp's qwen2 has no biases in its feed-forward layers, and this model has"
    return refuse_tokenizer(loaded)


def refuse_tokenizer(loaded: Loaded) -> str | None:
    """Why its tokenizer cannot be described in a GGUF file, or None."""
    try:
        vocabulary(loaded)
    except BadInput as error:
        return str(error)
    return None


def architecture_of(c: LlamaConfig) -> str:
    """The architecture of llama.cpp that has such a model."""
    return "qwen3" if c.qk_norm else "qwen2" if is_qwen(c) else "llama"


def is_qwen(c: LlamaConfig) -> bool:
    """Biases on queries, keys and values alone are Qwen2's."""
    return c.attention_bias and not c.out_bias


def vocabulary(loaded: Loaded) -> dict[str, Any]:
    if loaded.tokenizer is None:
        return {"tokenizer.ggml.model": "no_vocab"}
    chat = chat_metadata(loaded.chat, loaded.tokenizer)
    keys = {name: f"tokenizer.ggml.{key}" for name, key in SPECIAL.items()}
    special = loaded.special | {name: chat[key] for name, key in keys.items() if key in chat}
    return vocabulary_metadata(loaded.tokenizer, special, loaded.config.vocab) | chat


def write(loaded: Loaded, folder: Path, kind: str = "float32") -> None:
    """Write model.gguf into a folder, which is there."""
    check_export(refuse(loaded), kind, KINDS, f"GGUF files are written as {', '.join(KINDS)}")
    c, gguf = loaded.config, needed("gguf", "gguf")
    architecture = architecture_of(c)
    with quiet():
        writer = gguf.GGUFWriter(str(folder / FILE), architecture)
        describe(writer, loaded, kind)
        for name, value in tensors(loaded, architecture).items():
            packed = TYPES[kind] if value.ndim == 2 else "F32"  # norms and biases are few
            if packed == "Q8_0" and value.shape[-1] % BLOCK:
                packed = "F16"
            dtype = gguf.GGMLQuantizationType[packed]
            writer.add_tensor(name, gguf.quants.quantize(value.numpy(), dtype), raw_dtype=dtype)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


def describe(writer: Any, loaded: Loaded, kind: str) -> None:
    """Write the metadata of the model and its vocabulary."""
    c = loaded.config
    writer.add_name(loaded.architecture)
    writer.add_context_length(c.context)
    writer.add_embedding_length(c.width)
    writer.add_block_count(c.layers)
    writer.add_feed_forward_length(c.ffn_width)
    writer.add_head_count(c.heads)
    writer.add_head_count_kv(c.kv_heads)
    writer.add_key_length(c.key_width)
    writer.add_value_length(c.key_width)
    writer.add_rope_dimension_count(c.key_width)
    writer.add_rope_freq_base(c.rotary_base)
    writer.add_layer_norm_rms_eps(c.eps)
    writer.add_vocab_size(c.vocab)
    writer.add_file_type({"float32": 0, "float16": 1, "q8_0": 7}[kind])
    for key, value in vocabulary(loaded).items():
        adds = {bool: writer.add_bool, int: writer.add_uint32, str: writer.add_string, list: writer.add_array}
        adds[type(value)](key, value)


def tensors(loaded: Loaded, architecture: str) -> dict[str, Tensor]:
    """Theirs by name, in fp32; llama.cpp turns neighbors, so the rows of queries and keys change places."""
    ours, found = dict(loaded.model.named_parameters()), {}
    for theirs, name in table_of(loaded.config.layers).items():
        if name in ours:
            value = ours[name].detach().float().cpu()
            turned = architecture == "llama" and any(part in theirs for part in TURNED)
            found[theirs] = (paired(value, loaded.config.key_width) if turned else value).contiguous()
    return found
