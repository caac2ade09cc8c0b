"""The vocabularies of a CTranslate2 folder, and the tokenizers beside them."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import BadInput
from ...files import MEGABYTE, inside, naming, present, read_text, short
from ..hf.token_settings import reads_special_tokens_as_text
from ..hf.tokenizer import guarded, read_target, read_tokenizer
from ..loaded import SPECIAL
from ..run_folder import CONFIG

if TYPE_CHECKING:
    from tokenizers import Tokenizer


MODEL = "model.bin"
VOCABULARIES = (
    "source_vocabulary.json",
    "shared_vocabulary.json",
    "vocabulary.json",
    "target_vocabulary.json",
)
WORDS = 64 * MEGABYTE  # of a vocabulary
PADDING = "<pad>"


def read_vocabularies(folder: Path, config: Any, zero: bool) -> list[list[str]]:
    """The vocabularies: one, or those of source and target."""
    found = []
    for name in VOCABULARIES:
        for path in (folder / name, (folder / name).with_suffix(".txt")):
            if present(path):
                found.append(read_vocabulary(inside(folder, path.name)) + ([PADDING] if zero else []))
                break
    sizes = (config.vocab, getattr(config, "target_vocab", config.vocab))
    for words, rows in zip(found, sizes, strict=False):
        if len(words) != rows:
            raise BadInput(f"{folder} has {len(words)} tokens in a vocabulary and {rows} embedding rows")
    return found


def read_vocabulary(path: Path) -> list[str]:
    """A JSON list of words, or one on each line."""
    text = read_text(path, WORDS)
    if path.suffix == ".txt":
        return text.removesuffix("\n").split("\n")
    with naming(path):
        try:
            words = json.loads(text)
        except RecursionError:
            raise BadInput(f"{path} is nested too deeply to be read") from None
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise BadInput(f"{path} is not a list of tokens")
    return words


def tokenizers(
    folder: Path, config: Any, words: list[list[str]], said: dict[str, Any]
) -> tuple[Tokenizer | None, Tokenizer | None]:
    """The tokenizers beside the model; without them, a token is a word between spaces, as for CTranslate2."""
    two = not getattr(config, "share_embeddings", True)
    tokenizer = read_tokenizer(folder, config.vocab)
    if tokenizer is not None:
        target = read_target(folder, config.target_vocab) if hasattr(config, "target_vocab") else None
        for each in (tokenizer, target):
            if each is not None and reads_special_tokens_as_text(folder):
                each.encode_special_tokens = True
        return tokenizer, target
    made = [guarded(folder / MODEL, len(each), partial(spaced, each, said)) for each in words]
    return made[0], made[-1] if two else None


def spaced(words: list[str], said: dict[str, Any]) -> Tokenizer:
    """Words between spaces, the ends of a source put around them where the config asks for it."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    numbers = ids_of(words)
    unknown = said.get("unk_token")
    known = unknown if isinstance(unknown, str) and unknown in numbers else None
    tokenizer = Tokenizer(models.WordLevel(numbers, unk_token=known) if known else models.WordLevel(numbers))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    ends = [
        said.get(f"{end}_token") if said.get(f"add_source_{end}") is True else None for end in ("bos", "eos")
    ]
    if any(end is not None for end in ends):
        for end in ends:
            if end is not None and (not isinstance(end, str) or end not in numbers):
                raise BadInput(f"{CONFIG} puts {short(end)} around a source, which the vocabulary lacks")
        around = [f"{end}" for end in ends if end is not None]
        template = [*([ends[0]] if ends[0] else []), "$A", *([ends[1]] if ends[1] else [])]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=template, special_tokens=[(end, numbers[end]) for end in dict.fromkeys(around)]
        )
    return tokenizer


def special_ids(said: dict[str, Any], words: list[str], zero: bool, encodes: bool) -> dict[str, int]:
    """The ids of special tokens."""
    named = {} if encodes else {name: said.get(f"{name}_token") for name in SPECIAL}
    ids = ids_of(words)
    found = {name: ids[word] for name, word in named.items() if isinstance(word, str) and word in ids}
    return found | (dict.fromkeys(("pad", "decoder_start"), len(words) - 1) if zero else {})


def ids_of(words: list[str]) -> dict[str, int]:
    """{word: id}; of equal words, the first."""
    return {word: number for number, word in reversed(list(enumerate(words)))}
