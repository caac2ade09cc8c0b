"""Families of Hugging Face that heedful does not read: why, and what to do instead."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ...files import short

# {model_type: (how it differs, the closest family that heedful reads; none if there is no close one)}
RELATIVES = {
    "bigbird_pegasus": ("its encoder attends in blocks", "pegasus"),
    "big_bird": ("it attends in blocks", "roberta"),
    "blenderbot": ("it normalizes in another place", "bart"),
    "codegen": ("it stores queries, keys and values in another order", "gptj"),
    "falcon": ("it shares key/value heads and one norm", "gpt_neox"),
    "fsmt": ("it is fairseq's translator", "marian"),
    "gemma": ("it scales its embeddings and norms", "gemma3_text"),
    "gemma2": ("it caps its scores", "gemma3_text"),
    "gemma3": ("it also reads pictures", "gemma3_text"),
    "gemma3n": ("its layers have embeddings of their own", "gemma3_text"),
    "gpt_bigcode": ("all its query heads share one key/value head", "gpt2"),
    "gpt_neo": ("every second layer sees only nearby tokens", "gpt2"),
    "gpt_oss": ("it is a mixture of experts", "llama"),
    "granite": ("it multiplies embeddings, scores and residuals by constants", "llama"),
    "led": ("its encoder attends in windows", "bart"),
    "longformer": ("it attends in windows", "roberta"),
    "longt5": ("its encoder attends in windows", "t5"),
    "mistral3": ("it also reads pictures", "mistral"),
    "mixtral": ("it is a mixture of experts", "mistral"),
    "mpt": ("its norms have no bias, and its query, key and value are one matrix", "bloom"),
    "nllb-moe": ("it is a mixture of experts", "m2m_100"),
    "olmo": ("its norms have no weights", "llama"),
    "olmo2": ("it normalizes after each layer", "llama"),
    "phi": ("its layers are parallel and share a norm", "gpt_neox"),
    "phimoe": ("it is a mixture of experts", "phi3"),
    "plbart": ("it is mBART with another vocabulary layout", "mbart"),
    "qwen2_moe": ("it is a mixture of experts", "qwen2"),
    "qwen2_5_vl": ("it also reads pictures", "qwen2"),
    "qwen2_vl": ("it also reads pictures", "qwen2"),
    "qwen3_moe": ("it is a mixture of experts", "qwen3"),
    "stablelm": ("it rotates a part of each head, and its norms have a bias", "gpt_neox"),
    "starcoder2": ("its feed-forward layers are not gated", "llama"),
    "switch_transformers": ("it is a mixture of experts", "t5"),
    "umt5": ("every layer has positions of its own", "mt5"),
    "xlm": ("it adds language embeddings", "xlm-roberta"),
    "xlm-roberta-xl": ("it normalizes before each layer", "xlm-roberta"),
    "xlnet": ("it attends twice, in two streams", "bert"),
}
NO_TEXT = ("audio", "speech", "wav2vec2", "whisper", "hubert", "wavlm", "encodec", "seamless", "clap")


def refusal(kind: Any, known: Collection[str]) -> str:
    """The end of the sentence that refuses a model_type, which begins with the name of the file."""
    same = [name for name in known if isinstance(kind, str) and plain(name) == plain(kind)]
    if same:
        return f'model_type is {short(kind)}; did you mean "{same[0]}"?'
    reads = ", ".join(sorted(known))
    why, closest = RELATIVES.get(str(kind), ("", ""))
    if any(part in str(kind) for part in NO_TEXT):
        why = "it reads sound"
    fault = f"heedful does not read the model_type {short(kind)}" + (f" ({why})" if why else "")
    remedy = f"or take a {closest} model" if closest in known else f"or take one of {reads}"
    return f"{fault}: use transformers for it, {remedy}"


def plain(name: str) -> str:
    """A name without the signs and capitals in which spellings differ."""
    return "".join(letter for letter in name.lower() if letter.isalnum())
