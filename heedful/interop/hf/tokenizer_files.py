"""The tokenizer files written beside the weights, by which `AutoTokenizer` reads texts as heedful does."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import BadInput
from ...models.base.classifying import is_taught_here
from ...models.base.shells import Decoder, DecoderClassifier, WithHeads
from .chat_files import chat_files
from .generation import token_ids
from .languages import language_settings
from .marian import Marian, marian_files
from .sentences import Sentences
from .token_settings import TOKENIZER_CONFIG
from .tokenizer import TARGET_TOKENIZER, TOKENIZER

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from torch import nn

    from ..loaded import Loaded


def tokenizer_files(loaded: Loaded) -> dict[str, str | bytes]:
    """{name of a file: what is in it} of a model's tokenizers and chat templates; none if it has none."""
    from tokenizers import Tokenizer

    if loaded.tokenizer is None:
        return {}
    sides: list[Any] = [loaded.tokenizer, loaded.target_tokenizer]
    if all(isinstance(side, Marian) for side in sides):
        config = tokenizer_config(loaded, loaded.tokenizer) | {"tokenizer_class": "MarianTokenizer"}
        config["separate_vocabs"] = sides[0].numbers != sides[1].numbers
        return marian_files(*sides) | {TOKENIZER_CONFIG: as_json(config)} | chat_files(loaded.chat)
    text = tokenizer_text(loaded.tokenizer, loaded.model, loaded.special)
    config = tokenizer_config(loaded, Tokenizer.from_str(text))
    files: dict[str, str | bytes] = {TOKENIZER: text, TOKENIZER_CONFIG: as_json(config)}
    if loaded.target_tokenizer is not None:
        files[TARGET_TOKENIZER] = loaded.target_tokenizer.to_str()
    return files | chat_files(loaded.chat)


def tokenizer_text(tokenizer: Tokenizer, model: nn.Module, special: Mapping[str, int] | None = None) -> str:
    """tokenizer.json. It also puts around texts the special tokens that a run's task puts there."""
    from tokenizers import Tokenizer, processors

    made = Tokenizer.from_str(tokenizer.to_str())
    marks = marks_of(made, model, special or {})
    if marks:
        single, pair = (template.format(*marks) for template in AROUND[type(model)])
        known = [(token, made.token_to_id(token)) for token in dict.fromkeys(marks)]
        made.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=known)
    return made.to_str()


# What stands around one text, and around two, of which the second's segments are 1.
AROUND: dict[type, tuple[str, str]] = {
    WithHeads: ("{0} $A {1}", "{0} $A {1} $B:1 {2}:1"),
    DecoderClassifier: ("{0} $A {2}", "{0} $A {1} $B {2}"),
}
MARKS = {"bos": "[BOS]", "sep": "[SEP]", "eos": "[EOS]"}  # GPT-1's start, delimiter and extract


def marks_of(tokenizer: Tokenizer, model: nn.Module, special: Mapping[str, int]) -> list[str]:
    """The three tokens before, between and after texts; none where no task of heedful's puts any there."""
    own = all(tokenizer.token_to_id(token) is not None for token in (*MARKS.values(), "[CLS]"))
    if isinstance(model, WithHeads):
        return ["[CLS]", "[SEP]", "[SEP]"] if own and tokenizer.post_processor is None else []
    if not is_taught_here(model):
        return []
    if "sep" in special:  # of a vocabulary that came with another model
        return [mark(tokenizer, special[name], token) for name, token in MARKS.items()]
    return [*MARKS.values()] if own else []


def mark(tokenizer: Tokenizer, number: int, token: str) -> str:
    """The token of this number; where the vocabulary ends before it, it is added under a name."""
    if tokenizer.id_to_token(number) is None:
        tokenizer.add_special_tokens([token])
        if tokenizer.token_to_id(token) != number:
            given = tokenizer.token_to_id(token)
            fault = f"the model reads a token {number} that its tokenizer lacks and would number {given}"
            raise BadInput(f"{fault}: it cannot be saved as a Hugging Face folder")
    return str(tokenizer.id_to_token(number))


# Special tokens that the model itself does not name.
NAMED = {"unk": ("[UNK]", "<unk>"), "cls": ("[CLS]",), "sep": ("[SEP]",), "mask": ("[MASK]", "<mask>")}


def tokenizer_config(loaded: Loaded, tokenizer: Tokenizer) -> dict[str, Any]:
    """tokenizer_config.json: take tokenizer.json as it is, and call the special tokens by these names."""
    model: Any = loaded.model
    encoder, decoder = isinstance(model, WithHeads), isinstance(model, Decoder)
    numbers = token_ids(loaded)
    known = {
        name: tokenizer.id_to_token(numbers[f"{name}_token_id"])
        for name in ("pad", "bos", "eos", "sep")
        if f"{name}_token_id" in numbers
    }
    for name, spellings in NAMED.items():
        found = next((one for one in spellings if tokenizer.token_to_id(one) is not None), None)
        known.setdefault(name, found)
    names = {f"{name}_token": token for name, token in known.items() if token is not None}
    padding = loaded.sentences.padding if isinstance(loaded.sentences, Sentences) else {}
    several = encoder and tells_segments(model)
    reads = ["input_ids", *(["token_type_ids"] if several else []), "attention_mask"]
    context = getattr(loaded.config, "context", None)
    as_text = loaded.tokenizer is not None and loaded.tokenizer.encode_special_tokens
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_input_names": reads,
        "padding_side": "left" if decoder else "right",  # what is to go on must stand last
        **({} if context is None else {"model_max_length": context}),
        # A text that says [EOS] is only a text; [MASK] in a text for an encoder is a blank.
        **({"split_special_tokens": True} if as_text and not encoder else {}),
        **(names if loaded.chat is None else loaded.chat.tokens),  # what a template may name, and no more
        **padding,
        **language_settings(loaded.languages),
    }


def tells_segments(model: Any) -> bool:
    """Whether an encoder reads which of two texts a token belongs to. RoBERTa has one segment only."""
    segments = getattr(model.encoder.inputs, "segments", None)
    return segments is not None and len(segments.weight) > 1


def write_files(folder: Path, files: Mapping[str, str | bytes]) -> None:
    """Write {name: what is in it}."""
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)


def as_json(content: dict[str, Any]) -> str:
    return json.dumps(content, indent=2) + "\n"
