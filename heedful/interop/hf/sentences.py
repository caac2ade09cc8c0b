"""Sentence embedders: what a folder's sentence-transformers files say about turning a text into one vector.

modules.json lists the steps: the model, a pooling of its vectors, and perhaps one that normalizes every
vector. Other files say how long a text may be, whether it is lowercased, and what is put before every text.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import BadInput
from ...files import inside, is_plain, naming, present, read_json, read_text, short, stays
from ...models.hf.folder import read, read_unless_null

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MODULES, PROMPTS, ENCODER = "modules.json", "config_sentence_transformers.json", "sentence_bert_config.json"
CONFIG, TOKENIZER_CONFIG = "config.json", "tokenizer_config.json"
POOLINGS = ("cls", "mean", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
OLDER = {  # one flag each, in this order
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}


@dataclass(frozen=True)
class Sentences:
    """How a folder makes vectors of texts."""

    poolings: tuple[str, ...]  # of POOLINGS; the vectors of several stand one after the other
    normalize: bool
    longest: int | None  # tokens of a text, its ends included; what is longer is cut
    lower: bool
    prompt: str  # before every text

    def reader(self, theirs: Tokenizer, longest: int | None) -> Tokenizer:
        """The folder's tokenizer with these settings. longest: the tokens at which it truncates."""
        from tokenizers import Tokenizer, normalizers

        made = Tokenizer.from_str(theirs.to_str())
        made.encode_special_tokens = theirs.encode_special_tokens
        if self.lower:
            first = [normalizers.Lowercase()]
            made.normalizer = normalizers.Sequence([*first, *([made.normalizer] if made.normalizer else [])])
        if longest is not None:
            made.enable_truncation(longest)
        return made


def read_sentences(folder: Path) -> Sentences | None:
    """What the files say; None for a folder that is no sentence embedder."""
    if not present(folder / MODULES):
        return None
    with naming(folder / MODULES):
        steps = [step_of(entry) for entry in read_list(inside(folder, MODULES))]
    kinds = [kind for kind, _ in steps]
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        remedy = "heedful embeds by Transformer, Pooling and perhaps Normalize: give `pooling` from a folder "
        remedy += "without that file, or use sentence-transformers"
        raise BadInput(f"{folder / MODULES} lists the steps {short(kinds)}; {remedy}")
    first, pooling = steps[0][1], steps[1][1]
    said = read_below(folder, first, ENCODER)
    poolings, whole = read_pooling(folder, pooling)
    prompt = read_prompt(folder)
    if prompt and not whole:
        raise BadInput(f"{folder / pooling / CONFIG} leaves its prompt out of the pooling, which is not read")
    with naming(folder / ENCODER):
        lower = read_unless_null(said, "do_lower_case", False)
        longest = read_length(said.get("max_seq_length")) or default_length(folder)
    return Sentences(poolings, len(kinds) == 3, longest, lower, prompt)


def read_list(path: Path) -> list[Any]:
    """A JSON list."""
    try:
        found = json.loads(read_text(path))
    except RecursionError:
        raise BadInput(f"{path} is nested too deeply to be read") from None
    except ValueError as error:
        raise BadInput(f"{path} is not valid JSON: {error}; mend it, or put a whole copy there") from None
    if not isinstance(found, list):
        raise BadInput(f"{path} holds {short(found)}, where a list [...] is expected")
    return found


def step_of(entry: Any) -> tuple[str, str]:
    """(its kind, the folder with its settings) of a step."""
    kind, path = (entry.get("type"), entry.get("path")) if isinstance(entry, dict) else (None, None)
    if not isinstance(kind, str) or not isinstance(path, str):
        raise BadInput(f"a step is {short(entry)}, where an object with a type and a path is expected")
    return kind.rpartition(".")[2], path.removesuffix("/")


def read_below(folder: Path, part: str, name: str) -> dict[str, Any]:
    """The settings in a folder of the folder; {} if there are none."""
    if part == "":
        return read_json(inside(folder, name)) if present(folder / name) else {}
    if not is_plain(part):
        raise BadInput(
            f"{folder / MODULES} names a folder {short(part)}: only plain names beside it are read"
        )
    path = folder / part / name
    if not present(path):
        return {}
    with naming(path):
        if not path.is_file():
            raise BadInput(f"{path} is not a regular file")
        if not stays(path.resolve(), folder.resolve()):
            raise BadInput(f"{path} is a link that leads out of its folder: copy the file there instead")
        return read_json(path)


def read_pooling(folder: Path, part: str) -> tuple[tuple[str, ...], bool]:
    """The poolings, and whether a prompt takes part in them."""
    said = read_below(folder, part, CONFIG)
    with naming(folder / part / CONFIG):
        whole = read(said, "include_prompt", True)
        named = said.get("pooling_mode")
        if named is None:
            flags = [mode for key, mode in OLDER.items() if read(said, key, False)]
            return tuple(flags) or ("mean",), whole
        modes = tuple(named) if isinstance(named, list) else (named,)
        if not modes or not all(mode in POOLINGS for mode in modes):
            raise BadInput(f"pooling_mode is {short(named)}; heedful knows {', '.join(POOLINGS)}")
        return modes, whole


def read_prompt(folder: Path) -> str:
    """What stands before every text; prompts for other purposes are for who asks for them."""
    said = read_below(folder, "", PROMPTS)
    name, prompts = said.get("default_prompt_name"), said.get("prompts") or {}
    if name is None:
        return ""
    prompt = prompts.get(name) if isinstance(name, str) and isinstance(prompts, dict) else None
    if not isinstance(prompt, str):
        raise BadInput(
            f"{folder / PROMPTS} puts the prompt {short(name)} before every text, but has no such one"
        )
    return prompt


def read_length(said: Any) -> int | None:
    if said is not None and (type(said) is not int or said < 3):
        raise BadInput(f"max_seq_length is {short(said)}, where a number of tokens is expected")
    return said


def default_length(folder: Path) -> int | None:
    """The default: as many tokens as the tokenizer and the model have room for."""
    sizes = [
        read_below(folder, "", TOKENIZER_CONFIG).get("model_max_length"),
        read_below(folder, "", CONFIG).get("max_position_embeddings"),
    ]
    known = [size for size in sizes if type(size) is int and 3 <= size < 1 << 31]
    return min(known, default=None)
