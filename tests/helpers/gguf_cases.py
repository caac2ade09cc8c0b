"""Small models for GGUF, and files written byte by byte."""

import io
import json
import struct
from dataclasses import replace

import pytest
import torch
from tokenizers import Tokenizer, pre_tokenizers, processors, trainers

import heedful
from heedful.interop.gguf import write as to_gguf
from heedful.interop.gguf.vocabulary import SPLITS
from heedful.interop.hf.probes import corpus
from heedful.interop.loaded import Loaded
from heedful.models import llama
from heedful.models.llama import LlamaConfig
from helpers import tiny

SIZES = {
    "vocab": 293,
    "context": 47,
    "layers": 2,
    "width": 30,
    "heads": 6,
    "kv_heads": 2,
    "key_width": 8,
    "ffn_width": 64,
}
MODELS = {
    "llama": LlamaConfig(**SIZES),
    "tied": LlamaConfig(**SIZES, tie_embeddings=True, rotary_base=500.0, eps=1e-5),
    "biases": LlamaConfig(**SIZES, attention_bias=True, ffn_bias=True),
    "qwen2": LlamaConfig(
        **SIZES | {"key_width": 5 * 2, "heads": 3, "kv_heads": 1}, attention_bias=True, out_bias=False
    ),
}
# transformers reads Qwen3 from such files only with heads of this width
MODELS["qwen3"] = LlamaConfig(**SIZES | {"key_width": 128, "heads": 2, "kv_heads": 1}, qk_norm=True, eps=1e-5)
SPECIAL = {"bos": 0, "eos": 1, "pad": 2}
SPECIAL_TOKENS = ("<|begin|>", "<|end|>", "<|endoftext|>")


def bytes_tokenizer(pre="gpt-2", begins=False, size=280, special=SPECIAL_TOKENS):
    """A byte-level BPE that splits texts in a named way, with merges learned from a few of the probes."""
    spec = {
        "version": "1.0", "pre_tokenizer": SPLITS[pre], "decoder": SPLITS["gpt-2"],
        "normalizer": {"type": "NFC"} if pre == "qwen2" else None,
        "model": {"type": "BPE", "vocab": {}, "merges": [], "ignore_merges": pre == "llama-bpe"},
    }  # fmt: skip
    tokenizer = Tokenizer.from_str(json.dumps(spec))
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=list(special), initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(corpus(), trainer)
    spec = json.loads(tokenizer.to_str())
    spec["model"]["vocab"] |= {"Ġmats": len(spec["model"]["vocab"])}  # which no merges make
    tokenizer = Tokenizer.from_str(json.dumps(spec))
    if begins:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<|begin|> $A", special_tokens=[("<|begin|>", 0)]
        )
    return tokenizer


def loaded_of(config, tokenizer=None, special=SPECIAL):
    return Loaded("llama", config, tiny.build((llama, config), torch.float32), tokenizer, special)


@torch.no_grad()
def logits(model, ids):
    return model(torch.tensor([ids]))[0]


def entries(tokens, **other):
    """What every file says, for one made by hand."""
    c = MODELS["llama"]
    return {
        "general.architecture": "llama", "llama.context_length": c.context,
        "llama.embedding_length": c.width, "llama.block_count": c.layers,
        "llama.feed_forward_length": c.ffn_width, "llama.attention.head_count": c.heads,
        "llama.attention.head_count_kv": c.kv_heads, "llama.attention.key_length": c.key_width,
        "llama.attention.layer_norm_rms_epsilon": 1e-6, "tokenizer.ggml.tokens": tokens, **other,
    }  # fmt: skip


def text(value):
    data = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(data)) + data


def value_of(value):
    """Kind and value, as a file has them."""
    if isinstance(value, bytes):
        return value  # as it is, kind and all
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value) if value < 2**32 else struct.pack("<IQ", 10, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + text(value)
    if value and isinstance(value[0], str):
        return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(text, value))
    inner = (6, "f") if value and isinstance(value[0], float) else (5, "i")
    return struct.pack("<IIQ", 9, inner[0], len(value)) + struct.pack(f"<{len(value)}{inner[1]}", *value)


def file_of(said, tensors=None, version=3, counts=None, alignment=32):
    """A file by hand: {name: (shape, kind, bytes)}."""
    tensors = own_tensors() if tensors is None else tensors
    out = io.BytesIO()
    out.write(b"GGUF" + struct.pack("<IQQ", version, *(counts or (len(tensors), len(said)))))
    for key, value in said.items():
        out.write(text(key) + value_of(value))
    place = 0
    for name, (shape, kind, data) in tensors.items():
        out.write(text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape[::-1], kind, place))
        place += -(-len(data) // alignment) * alignment
    out.write(bytes(-out.tell() % alignment))
    for _, _, data in tensors.values():
        out.write(data + bytes(-len(data) % alignment))
    return out.getvalue()


def own_tensors(config=MODELS["llama"]):
    ours = loaded_of(config)
    return {
        name: (tuple(value.shape), 0, value.numpy().tobytes())
        for name, value in to_gguf.tensors(ours, "llama").items()
    }


TOKENS = [f"t{i}" for i in range(MODELS["llama"].vocab)]


def load_bytes(data, tmp_path):
    path = tmp_path / "a.gguf"
    path.write_bytes(data)
    return heedful.load(path)


# Bad files


@pytest.fixture
def small(tmp_path):
    config = replace(MODELS["llama"], layers=1, ffn_width=32, vocab=290)
    to_gguf.write(loaded_of(config, bytes_tokenizer()), tmp_path, "q8_0")
    return tmp_path / "model.gguf"
