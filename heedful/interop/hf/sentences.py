"""Sentence embedders: what a folder's sentence-transformers files say about turning a text into one vector.

modules.json lists the steps: the model, a pooling of its vectors, and perhaps one that normalizes every
vector. Other files say how long a text may be, whether it is lowercased, what is put before every text, and
how many of a vector's numbers are kept.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import BadInput
from ...files import inside, is_plain, naming, present, read_json, read_text, short, stays
from ...models.hf.folder import read, read_unless_null
from .token_settings import TokenizerSettings

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MODULES, PROMPTS, ENCODER = "modules.json", "config_sentence_transformers.json", "sentence_bert_config.json"
CONFIG, TOKENIZER_CONFIG = "config.json", "tokenizer_config.json"
POOLINGS = ("cls", "mean", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
PACKAGE = "sentence_transformers.models"
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
    prompts: dict[str, str] = field(default_factory=dict)  # by name, for whoever asks for one
    prompt_name: str | None = None  # which of them stands before every text
    include_prompt: bool = True  # whether a prompt takes part in the pooling
    truncate_dim: int | None = None  # numbers of a vector that are kept
    similarity: str | None = None  # how two vectors are compared; only others use it
    padding: dict[str, str] = field(default_factory=dict)  # pad_token and padding_side, which others need

    @property
    def prompt(self) -> str:
        """What stands before every text."""
        return "" if self.prompt_name is None else self.prompts[self.prompt_name]

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


@dataclass(frozen=True)
class UnreadSentences:
    """Sentence-transformers files that heedful does not read: the model itself can be used."""

    why: str


def find_sentences(folder: Path) -> Sentences | UnreadSentences | None:
    """What the files say, or why it is not read; None for a folder that is no sentence embedder."""
    try:
        return read_sentences(folder)
    except BadInput as error:
        return UnreadSentences(str(error))


def read_sentences(folder: Path) -> Sentences | None:
    """What the files say; None for a folder that is no sentence embedder."""
    if not present(folder / MODULES):
        return None
    with naming(folder / MODULES):
        steps = [step_of(entry) for entry in read_list(inside(folder, MODULES))]
    kinds = [kind for kind, _ in steps]
    about = read_below(folder, "", PROMPTS)
    if about.get("model_type") == "CrossEncoder":  # which has scores and no vectors
        return None
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        remedy = "heedful embeds by Transformer, Pooling and perhaps Normalize: give `pooling` from a folder "
        remedy += "without that file, or use sentence-transformers"
        raise BadInput(f"{folder / MODULES} lists the steps {short(kinds)}; {remedy}")
    first, pooling = steps[0][1], steps[1][1]
    said = read_below(folder, first, ENCODER)
    poolings, whole = read_pooling(folder, pooling)
    with naming(folder / PROMPTS):
        prompts, name = read_prompts(about)
        kept, similarity = about.get("truncate_dim"), about.get("similarity_fn_name")
        if kept is not None and (type(kept) is not int or kept < 1):
            raise BadInput(f"truncate_dim is {short(kept)}, where a number of dimensions is expected")
    if name is not None and prompts[name] and not whole:
        raise BadInput(f"{folder / pooling / CONFIG} leaves its prompt out of the pooling, which is not read")
    with naming(folder / ENCODER):
        lower = read_unless_null(said, "do_lower_case", False)
        longest = read_length(said.get("max_seq_length")) or default_length(folder)
    similarity = similarity if isinstance(similarity, str) else None
    more = (prompts, name, whole, kept, similarity, read_padding(folder))
    return Sentences(poolings, len(kinds) == 3, longest, lower, *more)


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


def read_prompts(said: dict[str, Any]) -> tuple[dict[str, str], str | None]:
    """The prompts by name, and the name of the one that stands before every text."""
    listed, name = said.get("prompts") or {}, said.get("default_prompt_name")
    if not isinstance(listed, dict):
        raise BadInput(f"prompts is {short(listed)}, where an object of names and texts is expected")
    prompts = {key: text for key, text in listed.items() if isinstance(text, str)}
    if name is not None and (not isinstance(name, str) or name not in prompts):
        raise BadInput(f"it puts the prompt {short(name)} before every text, but has no such one")
    return prompts, name


def read_padding(folder: Path) -> dict[str, str]:
    """How others fill up short texts: with which token, if one is named, and at which side."""
    settings = TokenizerSettings(folder)
    side = "left" if settings.said.get("padding_side") == "left" else "right"
    token = settings.name("pad", None)
    return {"padding_side": side} | ({} if token is None else {"pad_token": token})


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


# Out

KINDS = ("Transformer", "Pooling", "Normalize")


def sentence_files(said: Sentences | None, width: int) -> dict[str, str]:
    """{name of a file: what is in it} that sentence-transformers of any version reads. width: of a vector."""
    if said is None:
        return {}
    steps = KINDS if said.normalize else KINDS[:2]
    modules = [
        {"idx": n, "name": str(n), "path": f"{n}_{kind}" if n else "", "type": f"{PACKAGE}.{kind}"}
        for n, kind in enumerate(steps)
    ]
    length = {} if said.longest is None else {"max_seq_length": said.longest}
    about: dict[str, Any] = {"prompts": said.prompts, "default_prompt_name": said.prompt_name}
    about |= {} if said.similarity is None else {"similarity_fn_name": said.similarity}
    about |= {} if said.truncate_dim is None else {"truncate_dim": said.truncate_dim}
    files = {
        MODULES: modules,
        ENCODER: length | {"do_lower_case": said.lower},
        PROMPTS: about,
        f"1_Pooling/{CONFIG}": pooling_config(said, width),
    }
    return {name: json.dumps(content, indent=2) + "\n" for name, content in files.items()}


def pooling_config(said: Sentences, width: int) -> dict[str, Any]:
    """A flag for each pooling; their names, where the order is another than that of the flags."""
    found = {"word_embedding_dimension": width, "include_prompt": said.include_prompt}
    if said.poolings != tuple(name for name in OLDER.values() if name in said.poolings):
        return found | {"pooling_mode": list(said.poolings)}
    return found | {flag: name in said.poolings for flag, name in OLDER.items()}
