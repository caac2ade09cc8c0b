"""The settings beside a tokenizer.json: which of them go before what the file says, as in `transformers`.

Its class for any family takes the file as it is, and adds tokens. Its classes of families make some steps
anew, from tokenizer_config.json.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ...errors import BadInput
from ...files import naming, objects
from ...models.hf.folder import read_unless_null
from .pipelines import metaspace_of_llama
from .token_settings import TokenizerSettings, add_listed

if TYPE_CHECKING:
    from tokenizers import Tokenizer

BYTE_LEVEL = ("gpt2", "roberta", "bart", "qwen2")  # families that make this step anew


def with_settings(tokenizer: Tokenizer, settings: TokenizerSettings, rows: int | None) -> Tokenizer:
    """What a tokenizer.json describes, changed as the settings beside it say."""
    if not settings.generic:
        tokenizer = as_bert(as_llama(with_prefix(tokenizer, settings), settings), settings)
        check_steps_of_family(tokenizer, settings)
    add_beside(tokenizer, settings, rows)
    return tokenizer


def add_beside(tokenizer: Tokenizer, settings: TokenizerSettings, rows: int | None) -> None:
    """Tokens that the settings list: they are added, or change the flags of those that are there. Then
    special tokens that the settings name and the file lacks, while the model has room for them."""
    from tokenizers import AddedToken

    add_listed(tokenizer, settings)
    known = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    room = 0 if rows is None else max(0, rows - tokenizer.get_vocab_size())
    for token in settings.special({}):
        new = tokenizer.token_to_id(token.content) is None
        if token.content not in known and (room or not new):
            tokenizer.add_tokens([token])
            room -= new
        elif settings.kind == "qwen2" and not settings.generic:  # whose special tokens take no spaces along
            tokenizer.add_tokens([AddedToken(token.content, special=True)])


def as_bert(tokenizer: Tokenizer, settings: TokenizerSettings) -> Tokenizer:
    """BERT's capitals and accents, if the settings speak of them."""
    from tokenizers import normalizers

    step = tokenizer.normalizer
    if isinstance(step, normalizers.BertNormalizer) and "do_lower_case" in settings.said:
        state = {"lowercase": step.lowercase, "handle_chinese_chars": step.handle_chinese_chars}
        accents = {} if step.strip_accents is None else {"strip_accents": step.strip_accents}
        tokenizer.normalizer = normalizers.BertNormalizer(
            clean_text=step.clean_text, **cleaning(settings, state | accents)
        )
    return tokenizer


def as_llama(tokenizer: Tokenizer, settings: TokenizerSettings) -> Tokenizer:
    """LLaMA's spaces, where the folder names LLaMA's class: before the first word, or after every token."""
    named = str(settings.said.get("tokenizer_class")).removesuffix("Fast") == "LlamaTokenizer"
    spec = json.loads(tokenizer.to_str())
    if named and not has_step(spec, "ByteLevel"):
        tokenizer.normalizer = None
        tokenizer.pre_tokenizer, tokenizer.decoder = metaspace_of_llama(settings)
    return tokenizer


def with_prefix(tokenizer: Tokenizer, settings: TokenizerSettings) -> Tokenizer:
    """A space before a text that is read by its bytes, if the settings say so."""
    from tokenizers import Tokenizer

    spec = json.loads(tokenizer.to_str())
    if settings.kind not in BYTE_LEVEL or settings.said.get("add_prefix_space") is None:
        return tokenizer
    for step in objects(spec["pre_tokenizer"]):
        if step.get("type") == "ByteLevel":
            step["add_prefix_space"] = settings.flag("add_prefix_space", False)
    return Tokenizer.from_str(json.dumps(spec))


def check_steps_of_family(tokenizer: Tokenizer, settings: TokenizerSettings) -> None:
    """Refuse a tokenizer.json of ALBERT or DeBERTa that does not do what the settings say."""
    if settings.kind not in ("albert", "debertav2"):
        return
    spec, albert = json.loads(tokenizer.to_str()), settings.kind == "albert"
    spaced = any(step.get("prepend_scheme") == "always" for step in objects(spec["pre_tokenizer"]))
    done = {"do_lower_case": has_step(spec, "Lowercase"), "add_prefix_space": spaced}
    said = {"do_lower_case": settings.flag("do_lower_case", albert)}
    said |= {"add_prefix_space": settings.flag("add_prefix_space", True)}
    if albert:
        done["keep_accents"] = not has_step(spec, "StripAccents")
        said["keep_accents"] = settings.flag("keep_accents", False)
    for name, wanted in said.items():
        if done[name] != wanted:
            fault = f"{name} is {str(wanted).lower()}, and tokenizer.json does the opposite"
            raise BadInput(f"{settings.path}: {fault}: remove one of the two")


def has_step(spec: dict[str, Any], kind: str) -> bool:
    """Whether a text goes through a step of this kind."""
    steps = [spec["normalizer"], spec["pre_tokenizer"]]
    return any(step.get("type") == kind for part in steps for step in objects(part))


def cleaning(settings: TokenizerSettings, already: dict[str, bool]) -> dict[str, Any]:
    """Arguments of BERT's normalizer: lower case drops accents too, unless the folder says otherwise."""
    with naming(settings.path):
        accents, chinese = already.get("strip_accents"), already.get("handle_chinese_chars", True)
        if settings.said.get("strip_accents") is not None:
            accents = settings.flag("strip_accents", False)
        return {
            "lowercase": read_unless_null(settings.said, "do_lower_case", already["lowercase"]),
            "strip_accents": accents,
            "handle_chinese_chars": read_unless_null(settings.said, "tokenize_chinese_chars", chinese),
        }
