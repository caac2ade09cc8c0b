"""Facts about a model, without torch: what can be known of a folder before anything is loaded.

Sizes come from config.json and from the headers of the weights. What the files do not say is None. Loading
the model has the last word.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import BadInput
from ..files import MEGABYTE, inside, naming, present, read_json
from ..models import FAMILIES, kind_of, model_types
from .hf.chat_files import read_chat, read_kept
from .run_files import recipe
from .run_folder import CONFIG, OF_STAGES, WEIGHTS, is_run

INDEX = "model.safetensors.index.json"
HEADER = 8 * MEGABYTE  # bytes of the header of a file of weights
FLOATS = ("F64", "F32", "F16", "BF16")
TABLES = (".attn.bias", ".masked_bias", ".inv_freq", "position_ids")  # numbers that are no weights
SINUSOIDS = {"transformer": "embed_positions.weight"}  # those of Marian and Pegasus
CONTEXTS = ("max_position_embeddings", "n_positions", "seq_length")  # as Hugging Face calls the context
SHIFTED = {"mpnet": 2}  # places of a position table that no token has
COUNTED_FROM_PAD = ("roberta",)
WITHOUT_ATTENTION = ("elmo", "elmo_reader", "gru", "lstm", "rnn", "seq2seq")
WRITES = {"Decoder": "generate", "EncoderDecoder": "translate"}
# What heads are good for, by the names of a run and by the ends of Hugging Face's classes.
HEADS = {"masked_lm": "fill", "classify": "classify", "span": "answer", "tag": "tag", "arcs": "parse"}
CLASSES = {
    "ForMaskedLM": "fill",
    "ForPreTraining": "fill",
    "ForSequenceClassification": "classify",
    "ForImageClassification": "classify",
    "ForImageClassificationWithTeacher": "classify",
    "ForQuestionAnswering": "answer",
    "ForTokenClassification": "tag",
}
OTHER_HEADS = ("ElectraForPreTraining",)  # it tells replaced tokens from others
WRITERS = ("translate", "summarize", "caption", "generate", "stream")
ORDER = (*WRITERS, "score", "fill", "classify", "choose", "answer", "tag", "parse", "embed", "look")


@dataclass(frozen=True)
class ModelFacts:
    """What is known of a model that is not loaded."""

    own: bool  # a run of heedful's own, not a Hugging Face folder
    architecture: str  # the file in heedful/models
    task: str  # what a run was trained for; "" of any other model
    can: tuple[str, ...]  # the methods of heedful.load(...) that it has a use for
    parameters: int | None  # numbers in its files of weights
    vocab: int | None  # tokens that it knows
    context: int | None  # tokens that it reads at most
    chat: bool  # whether it has a chat template


def facts(folder: Path) -> ModelFacts:
    """What the files of a run or of a Hugging Face folder say of its model."""
    if not present(folder / CONFIG):
        raise BadInput(f"{folder / CONFIG} is missing: a model is a folder with a {CONFIG} and its weights")
    with naming(folder / CONFIG):
        said = read_json(inside(folder, CONFIG))
    return facts_of_run(folder, said) if is_run(folder) else facts_of_folder(folder, said)


def facts_of_run(folder: Path, said: dict[str, Any]) -> ModelFacts:
    architecture, sizes = said.get("heedful"), said.get("config")
    if architecture not in FAMILIES or not isinstance(sizes, dict):
        raise BadInput(
            f"{folder / CONFIG} describes no architecture of heedful: restore the file of this run"
        )
    task = str(recipe(folder).get("task", ""))
    named = sizes.get("prediction_heads", ())
    heads = {HEADS[name] for name in named if name in HEADS} if isinstance(named, list) else set()
    labels = bool(number(said, "labels"))
    vocab = max((size for name in ("vocab", "target_vocab") if (size := number(sizes, name))), default=None)
    can = abilities(architecture, {"classify"} if labels else heads, task, labels)
    if str(sizes.get("positions")).startswith("structural"):  # they need trees beside the text
        can = tuple(name for name in can if name not in ("embed", "look"))
    return ModelFacts(
        True,
        architecture,
        task,
        can,
        parameters(folder, architecture),
        vocab,
        number(sizes, "context"),
        read_kept(folder) is not None,
    )


def facts_of_folder(folder: Path, said: dict[str, Any]) -> ModelFacts:
    model_type, known = said.get("model_type"), model_types()
    if not isinstance(model_type, str) or model_type not in known:
        raise BadInput(f"{folder / CONFIG} has a model_type of {model_type!r}, which heedful does not read")
    architecture, names = known[model_type], said.get("architectures")
    name = str(names[0]) if isinstance(names, list) and names else ""
    heads = {what for end, what in CLASSES.items() if name.endswith(end) and name not in OTHER_HEADS}
    context = next((found for key in CONTEXTS if (found := number(said, key))), None)
    if context is not None:
        context -= SHIFTED.get(architecture, 0)
        if architecture in COUNTED_FROM_PAD:
            context -= (number(said, "pad_token_id") if "pad_token_id" in said else 1) or 0
            context -= 1
    classes = "classify" in heads and kind_of(architecture) == "Decoder"
    can = abilities(architecture, heads, "", classes)
    vocab, chat = number(said, "vocab_size"), read_chat(folder) is not None
    return ModelFacts(False, architecture, "", can, parameters(folder, architecture), vocab, context, chat)


def abilities(architecture: str, heads: set[str], task: str, labels: bool) -> tuple[str, ...]:
    """The methods that a model has a use for. heads: what its heads are good for. labels: a decoder that
    tells labels apart, and writes nothing."""
    kind = kind_of(architecture)
    if architecture in OF_STAGES:
        return ()
    if kind == "PictureToText":
        return ("caption", "look")
    if kind == "PictureEncoder":
        return tuple(name for name in ORDER if name == "look" or name in heads & {"classify"})
    found = {"embed"} if architecture in WITHOUT_ATTENTION else {"embed", "look"}
    if labels or kind not in WRITES:
        chosen = {"choose"} if task == "choose" and "classify" in heads else heads
        return tuple(name for name in ORDER if name in found | chosen)
    found |= {"summarize"} if task == "summarize" else {WRITES[kind], "stream"}
    if kind == "EncoderDecoder" or task != "summarize":
        found.add("score")
    return tuple(name for name in ORDER if name in found)


def number(said: Mapping[str, Any], name: str) -> int | None:
    """A whole number from 0 on; None if it is no such thing."""
    found = said.get(name)
    return found if type(found) is int and found >= 0 else None


# Weights


def parameters(folder: Path, architecture: str = "") -> int | None:
    """How many weights the files of a folder hold; None if there are none, or they cannot be read."""
    try:
        names = [WEIGHTS] if present(folder / WEIGHTS) else shard_names(folder)
        tables = (*TABLES, SINUSOIDS[architecture]) if architecture in SINUSOIDS else TABLES
        return sum(numbers_in(inside(folder, name), tables) for name in names) if names else None
    except (BadInput, OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def shard_names(folder: Path) -> list[str]:
    places = read_json(inside(folder, INDEX), HEADER).get("weight_map") if present(folder / INDEX) else {}
    return sorted(set(places.values())) if isinstance(places, dict) else []


def numbers_in(path: Path, tables: tuple[str, ...] = TABLES) -> int:
    """Weights in a safetensors file, by its header. tables: ends of the names of what is computed."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        if size > HEADER:
            raise BadInput(f"{path} has a header of {size} bytes, where at most {HEADER} are read")
        entries = json.loads(file.read(size))
    kept = [entry for name, entry in entries.items() if not name.endswith((*tables, "__metadata__"))]
    return sum(math.prod(entry["shape"]) for entry in kept if entry["dtype"] in FLOATS)
