"""The chat templates of a GGUF file: keys of its metadata, one for each template."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import BadInput
from ...files import short
from ..hf.chat import DEFAULT, Chat

if TYPE_CHECKING:
    from tokenizers import Tokenizer

KEY, NAMES = "tokenizer.chat_template", "tokenizer.chat_templates"
# The ids of tokens that a template may name.
TOKENS = {
    "bos_token": "tokenizer.ggml.bos_token_id",
    "eos_token": "tokenizer.ggml.eos_token_id",
    "unk_token": "tokenizer.ggml.unknown_token_id",
    "sep_token": "tokenizer.ggml.seperator_token_id",  # as the format spells it
    "pad_token": "tokenizer.ggml.padding_token_id",
    "cls_token": "tokenizer.ggml.cls_token_id",
    "mask_token": "tokenizer.ggml.mask_token_id",
}


def read_chat(path: Path, metadata: dict[str, Any], tokenizer: Tokenizer | None) -> Chat | None:
    """The templates that a file holds; None if it has none."""
    others = metadata.get(NAMES, [])
    if not isinstance(others, list):
        raise BadInput(f"{path}: {NAMES} is {short(others)}, where a list of names is expected")
    keys = {DEFAULT: KEY} | {name: f"{KEY}.{name}" for name in others}
    templates = {name: metadata[key] for name, key in keys.items() if key in metadata}
    if not templates or tokenizer is None:
        return None
    ids = {name: metadata.get(key) for name, key in TOKENS.items()}
    known = {name: tokenizer.id_to_token(n) for name, n in ids.items() if type(n) is int and n >= 0}
    return Chat(str(path), templates, {name: token for name, token in known.items() if token is not None})


def chat_metadata(chat: Chat | None, tokenizer: Tokenizer) -> dict[str, Any]:
    """{key: value} that say the templates, and the ids of the tokens that they may name."""
    if chat is None:
        return {}
    said: dict[str, Any] = {
        KEY if name == DEFAULT else f"{KEY}.{name}": template for name, template in chat.templates.items()
    }
    others = [name for name in chat.templates if name != DEFAULT]
    said |= {NAMES: others} if others else {}
    numbers = {TOKENS[name]: tokenizer.token_to_id(token) for name, token in chat.tokens.items()}
    return said | {key: number for key, number in numbers.items() if number is not None}
