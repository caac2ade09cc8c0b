"""The generation settings of a Hugging Face folder, and what they are in heedful's options.

They stand in generation_config.json, or, in older folders, in config.json. No torch here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import BadInput
from ...files import inside, naming, present, read_json, short

GENERATION = "generation_config.json"
CONFIG = "config.json"
TOP_K = 50  # transformers' default for sampling
STOPPING = {True: "first_B", False: "heuristic", "never": "exact"}  # by early_stopping

# Settings of `generate`, by the type of their values.
WHOLE = (
    "max_length", "min_length", "max_new_tokens", "min_new_tokens", "num_beams", "num_beam_groups", "top_k",
    "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "num_return_sequences",
    "prompt_lookup_num_tokens",
)  # fmt: skip
NUMBER = (
    "temperature", "top_p", "min_p", "top_h", "typical_p", "epsilon_cutoff", "eta_cutoff", "length_penalty",
    "repetition_penalty", "encoder_repetition_penalty", "diversity_penalty", "penalty_alpha",
    "guidance_scale", "max_time",
)  # fmt: skip
FLAGS = ("do_sample", "renormalize_logits", "remove_invalid_values", "token_healing")
TOKENS = (
    "pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id", "forced_bos_token_id",
    "forced_eos_token_id", "suppress_tokens", "begin_suppress_tokens",
)  # fmt: skip
ANYTHING = (
    "sequence_bias", "exponential_decay_length_penalty", "constraints", "force_words_ids", "dola_layers",
    "watermarking_config", "forced_decoder_ids",
)  # fmt: skip

# Settings that change answers and that heedful does not have, with the values that change nothing.
UNKNOWN: dict[str, tuple[Any, ...]] = {
    "num_beam_groups": (1,), "diversity_penalty": (0,), "penalty_alpha": (0,), "guidance_scale": (1,),
    "encoder_repetition_penalty": (1,), "sequence_bias": (), "exponential_decay_length_penalty": (),
    "constraints": (), "force_words_ids": (), "dola_layers": (), "watermarking_config": (),
    "forced_decoder_ids": (), "token_healing": (False,), "max_time": (),
}  # fmt: skip
UNKNOWN_IN_SAMPLING: dict[str, tuple[Any, ...]] = {
    "top_h": (), "typical_p": (1,), "epsilon_cutoff": (0,), "eta_cutoff": (0,),
}  # fmt: skip
UNKNOWN_IN_BEAMS: dict[str, tuple[Any, ...]] = {"renormalize_logits": (False,)}


def read_generation(folder: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """What a folder says of how to write: in a file of its own, or, as older ones do, in its config."""
    if present(folder / GENERATION):
        with naming(folder / GENERATION):
            said: Mapping[str, Any] = read_json(inside(folder, GENERATION))
    else:
        first = {"forced_bos_token_id": config.get("bos_token_id")}
        said = (first if config.get("force_bos_token_to_be_generated") is True else {}) | dict(config)
    return {name: value for name, value in said.items() if is_setting(name, value)}


def is_setting(name: str, value: Any) -> bool:
    """Whether this is a setting of their `generate`, and its value of the right kind."""
    if name in WHOLE:
        return type(value) is int
    if name in NUMBER:
        return type(value) in (int, float)
    if name in FLAGS:
        return type(value) is bool
    if name in TOKENS:
        return type(value) is int or (isinstance(value, list) and all(type(one) is int for one in value))
    if name == "bad_words_ids":
        return isinstance(value, list) and all(isinstance(row, list) and row for row in value)
    if name == "stop_strings":
        return isinstance(value, str) or (isinstance(value, list) and all(isinstance(s, str) for s in value))
    if name in ANYTHING:
        return value not in (None, [], {})
    return name == "early_stopping" and value in (True, False, "never")


def tokens_in(said: Any, vocab: int) -> list[int]:
    """One token or several, as a config says them; what is no number of the vocabulary is left out."""
    given = said if isinstance(said, list) else [said]
    return [number for number in given if type(number) is int and 0 <= number < vocab]


def as_options(said: Mapping[str, Any], vocab: int) -> dict[str, Any]:
    """A folder's settings as fields of `DecodingOptions`.

    What the folder does not say has transformers' default, except the greatest length (20 tokens there).
    """
    rows = [row for row in said.get("bad_words_ids", []) if tokens_in(row, vocab) == row]
    ends = tokens_in(said.get("eos_token_id"), vocab)
    tokens: dict[str, list[Any]] = {
        "forced_first": tokens_in(said.get("forced_bos_token_id"), vocab)[:1],
        "forced_last": tokens_in(said.get("forced_eos_token_id"), vocab),
        "suppress_tokens": tokens_in(said.get("suppress_tokens", []), vocab),
        "begin_suppress_tokens": tokens_in(said.get("begin_suppress_tokens", []), vocab),
        "bad_tokens": [tuple(row) for row in rows if row not in [[end] for end in ends]],
    }
    stops = said.get("stop_strings", [])
    numbers = {
        "stop": (stops,) if isinstance(stops, str) else tuple(stops),
        "beam": max(1, said.get("num_beams", 1)),
        "length_penalty": "power",
        "length_alpha": float(said.get("length_penalty", 1.0)),
        "stopping": STOPPING[said.get("early_stopping", False)],
        "sample": said.get("do_sample", False),
        "temperature": float(said.get("temperature", 1.0)),
        "top_k": said.get("top_k", TOP_K),
        "top_p": float(said.get("top_p", 1.0)),
        "min_p": float(said.get("min_p", 0.0)),
        "repetition_penalty": float(said.get("repetition_penalty", 1.0)),
        "no_repeat_ngram_size": said.get("no_repeat_ngram_size", 0),
        "encoder_no_repeat_ngram_size": said.get("encoder_no_repeat_ngram_size", 0),
        "min_new_tokens": said.get("min_new_tokens", 0),
        "max_new_tokens": said.get("max_new_tokens"),
        "min_length": 0 if "min_new_tokens" in said else said.get("min_length", 0),
        "max_length": None if "max_new_tokens" in said else said.get("max_length"),
    }
    return numbers | {name: tuple(value) for name, value in tokens.items()}


def refuse_unknown(said: Mapping[str, Any], folder: str, sample: bool, beam: bool) -> None:
    """Refuse settings that change answers and that heedful does not have."""
    tables = [UNKNOWN] + [UNKNOWN_IN_SAMPLING] * sample + [UNKNOWN_IN_BEAMS] * beam
    for name, neutral in (item for table in tables for item in table.items()):
        if name in said and said[name] not in neutral:
            raise BadInput(
                f"the generation settings of {folder} have {name} {short(said[name])}, which heedful does "
                f'not have: give folder_settings="ignore", and the settings that you want as options'
            )
