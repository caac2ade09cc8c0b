"""generation_config.json: how a model of a Hugging Face folder generates text, read and written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...files import inside, naming, present, read_json
from ...models.base.classifying import is_taught_here
from ...models.base.shells import Decoder, EncoderDecoder

if TYPE_CHECKING:
    from ..loaded import Loaded


GENERATION = "generation_config.json"
LONGEST = 512  # tokens of an answer, where a model's positions have no end
BEAM = {"num_beams": 4, "length_penalty": 0.6, "early_stopping": False}  # Vaswani et al. 2017
# Settings of `generate`, by the type of their values.
WHOLE = (
    "max_length", "min_length", "max_new_tokens", "min_new_tokens", "num_beams", "num_beam_groups", "top_k",
    "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "num_return_sequences",
)  # fmt: skip
NUMBER = ("temperature", "top_p", "min_p", "length_penalty", "repetition_penalty", "diversity_penalty")
TOKENS = (
    "pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id", "forced_bos_token_id",
    "forced_eos_token_id",
)  # fmt: skip


def read_generation(folder: Path, config: dict[str, Any]) -> dict[str, Any]:
    """What a folder says of how to write: in a file of its own, or, as older ones do, in its config."""
    said = config
    if present(folder / GENERATION):
        with naming(folder / GENERATION):
            said = read_json(inside(folder, GENERATION))
    return {name: value for name, value in said.items() if is_setting(name, value)}


def is_setting(name: str, value: Any) -> bool:
    """Whether this is a setting of their `generate`, and its value of the right kind."""
    if name in WHOLE:
        return type(value) is int
    if name in NUMBER:
        return type(value) in (int, float)
    if name in TOKENS:
        return type(value) is int or (isinstance(value, list) and all(type(one) is int for one in value))
    if name == "bad_words_ids":
        return isinstance(value, list) and all(isinstance(row, list) and row for row in value)
    return (name == "do_sample" and type(value) is bool) or (
        name == "early_stopping" and value in (True, False, "never")
    )


def generation_config(loaded: Loaded) -> dict[str, Any] | None:
    """How their `generate` is to write; None for a model that writes nothing."""
    if not isinstance(loaded.model, EncoderDecoder | Decoder):
        return None
    own: dict[str, Any] = {"max_length": getattr(loaded.config, "context", LONGEST)}
    own |= BEAM if isinstance(loaded.model, EncoderDecoder) else {"do_sample": False}
    return token_ids(loaded) | (loaded.generation or own)


def token_ids(loaded: Loaded) -> dict[str, int]:
    """The ids of special tokens, as their configs name them; only encoder-decoders have one to start with."""
    pairs = isinstance(loaded.model, EncoderDecoder)
    known = {name: number for name, number in loaded.special.items() if pairs or name != "decoder_start"}
    if is_taught_here(
        loaded.model
    ):  # theirs reads the last token that is no padding, so that eos must not be pad
        ends = known.get("eos")
        known = {name: number for name, number in known.items() if name != "pad" or number != ends}
        if known.get("bos", ends) != ends:
            known.setdefault("pad", known["bos"])
    return {f"{name}_token_id": number for name, number in known.items()}
