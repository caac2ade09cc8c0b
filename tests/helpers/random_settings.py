"""Random settings: a model of the zoo built again with other values of its config's fields, any of them."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers as hf
from torch import nn
from transformers.activations import ACT2FN

import heedful
from heedful.errors import BadInput
from helpers import hf_zoo

# What a config says that is no setting of the network: who wrote it, names of labels, numbers of tokens,
# how to return outputs, how to generate, and how weights were initialized.
NO_SETTING = (
    "architectures", "chunk_size_feed_forward", "dtype", "id2label", "initializer_cutoff_factor",
    "initializer_factor", "initializer_range", "init_std", "is_encoder_decoder", "label2id", "model_type",
    "output_attentions", "output_hidden_states", "problem_type", "return_dict", "transformers_version",
    "use_cache", "vocab_size", "decoder_vocab_size", "_name_or_path", "suffix", "forced_eos_token_id",
    "bad_words_ids", "num_beams", "max_length", "length_penalty",
)  # fmt: skip
EXTRA = {  # settings that code reads although not every config class lists them
    "is_causal": False, "is_decoder": False, "add_cross_attention": False, "tie_word_embeddings": True,
    "position_embedding_type": "absolute", "embedding_size": None, "attention_head_size": None,
}  # fmt: skip
WORDS = {
    "position_embedding_type": ("absolute", "relative_key", "relative_key_query"),
    "norm_rel_ebd": ("none", "layer_norm"),
    "rope_type": ("default", "linear", "dynamic", "yarn", "longrope", "llama3"),
    "classifier_pooling": ("cls", "mean"),
    "summary_type": ("first", "mean", "last", "cls_index"),
    "feed_forward_proj": ("relu", "gelu", "gated-gelu", "gated-relu", "gated-silu", "silu"),
    "way": ("c2p", "p2c", "p2p"),
    "layer": ("full_attention", "sliding_attention"),
}
INTEGERS = (1, 2, 3, 4, 5, 6, 8, 9, 12)
FLOATS = (0.0, 0.25, 0.5, 1.0, 2.0, 3.0, 40.0, 1e-3, 1e-6, 500.0)
TRIES = 40

Telling = Callable[[dict[str, Any], hf.PretrainedConfig], dict[str, Any]]


def settings_of(config: hf.PretrainedConfig) -> dict[str, Any]:
    """Every setting of a config that may change an output."""
    said = EXTRA | json.loads(config.to_json_string(use_diff=False))
    return {
        key: value
        for key, value in said.items()
        if key not in NO_SETTING and not key.endswith(("_token_id", "_ids", "_config", "version"))
    }


def other(rng: random.Random, key: str, value: Any) -> Any:
    """Another value for a setting, of the same kind; of any kind for one that is null."""
    if key == "is_causal":
        return rng.random() < 0.5
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice([*INTEGERS, value + 1, 2 * value])
    if isinstance(value, float):
        return rng.choice([*FLOATS, 2 * value])
    if isinstance(value, str):
        return rng.choice(words_for(key, value))
    if isinstance(value, list):
        return changed_list(rng, key, value)
    if isinstance(value, dict):
        return changed_dict(rng, value)
    return rng.choice([*INTEGERS, *FLOATS, True, False])


def words_for(key: str, value: str) -> tuple[str, ...]:
    if key in WORDS:
        return WORDS[key]
    return tuple(ACT2FN) if value in ACT2FN else (value,)


def changed_list(rng: random.Random, key: str, value: list[Any]) -> list[Any]:
    if key == "pos_att_type":
        return rng.sample(WORDS["way"], rng.randint(0, 3))
    if key == "layer_types":
        return [rng.choice(WORDS["layer"]) for _ in value]
    return rng.sample(value, len(value))


def changed_dict(rng: random.Random, value: dict[str, Any]) -> dict[str, Any]:
    """One entry changed, or several where the kind of rotation is: each kind has entries of its own."""
    made = copy.deepcopy(value)
    key = rng.choice(list(made)) if made else None
    if key is None or isinstance(made[key], dict):
        return made | ({} if key is None else {key: changed_dict(rng, made[key])})
    made[key] = other(rng, key, made[key])
    if key == "rope_type":
        made |= ROTATIONS.get(made[key], {})
    elif rng.random() < 0.3:
        made["partial_rotary_factor"] = 0.5
    return made


ROTATIONS: dict[str, dict[str, Any]] = {
    "linear": {"factor": 3.0},
    "dynamic": {"factor": 2.0},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 8},
    "llama3": {
        "factor": 5.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
}  # fmt: skip


class Meaningless(Exception):
    """Settings that transformers itself cannot build, save, load or compute."""


def outcome(name: str, seed: int, folder: Path) -> str:
    """What heedful makes of a random model with up to three settings changed: equal, refused, or a fault."""
    rng, case = random.Random(f"settings of {name} {seed}"), hf_zoo.make(name, seed)
    settings = settings_of(case.theirs.config)
    for number in range(TRIES):
        keys = rng.sample(list(settings), rng.choice((0, 1, 1, 2, 3)))
        changes = {key: other(rng, key, settings[key]) for key in keys}
        told = rng.choice(TELLINGS)
        try:
            found = compared(case, changes, folder / str(number), told)
        except Meaningless:
            continue
        known = found in ("equal", "refused")
        kind = type(case.theirs).__name__
        return found if known else f"{name} {seed}, {kind} with {changes} {told.__name__}: {found}"
    raise AssertionError(f"{name} {seed}: no settings of {TRIES} made sense")


def as_it_is(said: dict[str, Any], config: hf.PretrainedConfig) -> dict[str, Any]:
    return said


def without_its_class(said: dict[str, Any], config: hf.PretrainedConfig) -> dict[str, Any]:
    """As a config that was written by hand: only the weights say which class it is."""
    return {key: value for key, value in said.items() if key != "architectures"}


def in_common_names(said: dict[str, Any], config: hf.PretrainedConfig) -> dict[str, Any]:
    """With the names that all their families have in common in place of the family's own."""
    common = {own: name for name, own in config.attribute_map.items()}
    return {common.get(key, key): value for key, value in said.items()}


TELLINGS: tuple[Telling, ...] = (as_it_is, as_it_is, as_it_is, without_its_class, in_common_names)


def compared(case: hf_zoo.Case, changes: dict[str, Any], folder: Path, told: Telling = as_it_is) -> str:
    """What heedful makes of a case with these settings. told: how the config says them."""
    theirs = rebuilt(case, changes, folder, told)
    try:
        ours = heedful.load(folder).model
    except BadInput:
        return "refused"
    except Exception as error:  # noqa: BLE001 (a crash is neither)
        return f"loading failed with {error!r}"
    with torch.no_grad():
        try:
            pairs = list(case.compare(theirs, ours))
        except Meaningless:
            raise
        except Exception as error:  # noqa: BLE001
            if isinstance(error, ValueError) and "does not fit" in str(error):  # the text is too long
                return "refused"
            return f"computing failed with {error!r}"
    if not all(torch.isfinite(expected).all() for expected, _ in pairs):
        raise Meaningless
    worst = max(float((a - b).abs().max() / max(1.0, float(a.abs().max()))) for a, b in pairs)
    return "equal" if worst < 1e-5 else f"different by {worst:.2g}"


def rebuilt(case: hf_zoo.Case, changes: dict[str, Any], folder: Path, told: Telling) -> nn.Module:
    """The case's model with these settings and new weights, as transformers reads it from the folder."""
    kind, config = type(case.theirs), case.theirs.config
    try:
        made = kind(type(config)(**json.loads(config.to_json_string(use_diff=False)) | changes))
        hf_zoo.spread(made)
        made.save_pretrained(folder)
        said = told(json.loads((folder / "config.json").read_text()), config)
        (folder / "config.json").write_text(json.dumps(said))
        made = kind.from_pretrained(folder).eval()
    except Exception as error:
        raise Meaningless from error
    compute = made.forward

    def forward(*given: Any, **more: Any) -> Any:
        try:
            return compute(*given, **more)
        except Exception as error:
            raise Meaningless from error

    made.forward = forward
    return made
