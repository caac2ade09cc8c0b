"""The settings of a tokenizer: tokenizer_config.json, special_tokens_map.json and added_tokens.json.

They name the special tokens, add others, and switch lower case and the tokens around a text on and off.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import BadInput
from ...files import MEGABYTE, inside, naming, present, read_json, short
from ...models.hf.folder import read_unless_null

if TYPE_CHECKING:
    from tokenizers import AddedToken, Tokenizer

TOKENIZER_CONFIG, CONFIG = "tokenizer_config.json", "config.json"
SPECIAL, ADDED = "special_tokens_map.json", "added_tokens.json"
LIMIT = 48 * MEGABYTE  # some repeat every added token
NAMES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
AS_IT_IS = ("mistral", "mixtral", "ministral", "mistral3", "phi3", "modernbert")  # whatever class is named
GENERIC = ("PreTrainedTokenizerFast", "TokenizersBackend")  # classes of any family
FLAGS = ("lstrip", "rstrip", "normalized", "single_word", "special")
MOST = 1 << 16  # tokens added


class TokenizerSettings:
    """What a folder says, and what it means where it says nothing."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / TOKENIZER_CONFIG
        self.said = self.read(folder, TOKENIZER_CONFIG)
        self.model = self.read(folder, CONFIG).get("model_type")
        listed = self.said.get("added_tokens_decoder")
        older = listed is None  # and may say more elsewhere
        if older:
            self.said |= self.read(folder, SPECIAL)
            listed = self.read(folder, ADDED)
        if not isinstance(listed, dict) or len(listed) > MOST:
            raise BadInput(f"{self.path}: the added tokens are {short(listed)}, where at most {MOST} are due")
        if older:
            named = {self.name(which, None) for which in NAMES} | {token.content for token in self.more()}
            self.added = {
                self.number(number): self.old(name, name in named) for name, number in listed.items()
            }
        else:
            self.added = {self.number(number): self.whole(token) for number, token in listed.items()}

    @staticmethod
    def read(folder: Path, name: str) -> dict[str, Any]:
        if not present(folder / name):
            return {}
        with naming(folder / name):
            return read_json(inside(folder, name), LIMIT)

    @property
    def kind(self) -> str:
        """The family in lower case, from the tokenizer's class or else from the model's type; or ""."""
        named = self.said.get("tokenizer_class")
        if isinstance(named, str) and named not in GENERIC:
            return named.removesuffix("Fast").removesuffix("Tokenizer").lower()
        return str(self.model or "").replace("-", "").replace("_", "")

    @property
    def generic(self) -> bool:
        """Whether a tokenizer.json is taken as it is, by the folder's class or the model's."""
        named = self.said.get("tokenizer_class") in GENERIC and self.model != "qwen2"
        return named or self.model in AS_IT_IS

    def flag(self, name: str, default: bool) -> bool:
        with naming(self.path):
            return read_unless_null(self.said, name, default)

    def count(self, name: str, default: int) -> int:
        """A number of tokens."""
        with naming(self.path):
            found = read_unless_null(self.said, name, default)
            if not 0 <= found <= MOST:
                raise BadInput(f"{name} is {found}; it goes from 0 to {MOST}")
            return found

    # Tokens.

    def name(self, which: str, default: str | None) -> str | None:
        """What the token for a purpose (of NAMES) is called."""
        token = self.said.get(f"{which}_token", default)
        content = token.get("content") if isinstance(token, dict) else token
        if content is not None and (not isinstance(content, str) or not content):
            raise BadInput(f"{self.path}: {which}_token is {short(token)}, where a text is due")
        return content

    def special(self, defaults: dict[str, str]) -> list[AddedToken]:
        """The tokens that have a purpose, each once. defaults: {purpose: name}."""
        found: dict[str, AddedToken] = {}
        known = {token.content: token for token in self.added.values()}
        for which in NAMES:
            name = self.name(which, defaults.get(which))
            if name is not None:
                found.setdefault(name, known.get(name) or self.token(self.said.get(f"{which}_token", name)))
        for token in self.more():
            found.setdefault(token.content, token)
        return list(found.values())

    def more(self) -> list[AddedToken]:
        """Special tokens without a purpose of their own."""
        listed = self.said.get("extra_special_tokens") or self.said.get("additional_special_tokens") or []
        if isinstance(listed, dict):
            listed = list(listed.values())
        if not isinstance(listed, list) or len(listed) > MOST:
            raise BadInput(f"{self.path}: the special tokens are {short(listed)}, where a list is due")
        return [self.token(token) for token in listed]

    def token(self, given: Any) -> AddedToken:
        """A special token, from its name or from an object that says more of it."""
        if isinstance(given, dict):
            return self.whole(given | {"special": True})
        return self.whole({"content": given, "special": True, "normalized": False})

    def whole(self, given: Any) -> AddedToken:
        from tokenizers import AddedToken

        if not isinstance(given, dict) or not isinstance(given.get("content"), str) or not given["content"]:
            raise BadInput(f"{self.path} has the token {short(given)}, where an object with a content is due")
        flags = {name: given[name] for name in FLAGS if type(given.get(name)) is bool}
        return AddedToken(given["content"], **flags)

    def old(self, name: str, special: bool) -> AddedToken:
        """One that only added_tokens.json names."""
        return self.whole({"content": name, "special": special, "normalized": not special})

    def number(self, given: Any) -> int:
        whole = isinstance(given, str) and len(given) < 12 and given.isascii() and given.isdigit()
        if not whole and (type(given) is not int or not 0 <= given < 2**32):
            raise BadInput(f"{self.path} has {short(given)} where the number of an added token is due")
        return int(given)


def mask_takes_space(settings: TokenizerSettings, name: str) -> None:
    """The space before a blank belongs to the blank, unless the folder says more of it than its name."""
    if isinstance(mask := settings.said.get("mask_token", name), str):
        settings.said["mask_token"] = {"content": mask, "lstrip": True, "normalized": False}


def add_tokens(
    tokenizer: Tokenizer, settings: TokenizerSettings, defaults: dict[str, str], rows: int | None
) -> None:
    """Add the tokens of the folder, in the order of their ids, and the special tokens.

    A special token that the vocabulary lacks, and that only the family names, is added if the model has room
    for it.
    """
    add_listed(tokenizer, settings)
    room = 0 if rows is None else max(0, rows - tokenizer.get_vocab_size())
    kept = []
    for token in settings.special(defaults):
        new = tokenizer.token_to_id(token.content) is None
        if not new or room:
            kept.append(token)
            room -= new
    tokenizer.add_special_tokens(kept)


def add_listed(tokenizer: Tokenizer, settings: TokenizerSettings) -> None:
    """Add the tokens that the folder lists with their ids, in the order of these."""
    tokenizer.add_tokens([token for _, token in sorted(settings.added.items())])
    for number, token in settings.added.items():
        found = tokenizer.token_to_id(token.content)
        if found != number:
            raise BadInput(
                f"{settings.path} gives {short(token.content)} the number {number}, where {found} is due"
            )


def put_ends(tokenizer: Tokenizer, settings: TokenizerSettings, bos: str | None, eos: str | None) -> None:
    """What a decoder's tokenizer puts before and after a text, if the folder says that it does."""
    from tokenizers import processors

    named = {"bos": settings.name("bos", bos), "eos": settings.name("eos", eos)}
    before, after = (
        token if token is not None and settings.flag(f"add_{which}_token", False) else None
        for which, token in named.items()
    )
    single = " ".join([*([f"{before}:0"] if before else []), "$A:0", *([f"{after}:0"] if after else [])])
    second = " ".join([*([f"{before}:1"] if before else []), "$B:1", *([f"{after}:1"] if after else [])])
    ends = [(token, tokenizer.token_to_id(token)) for token in dict.fromkeys((before, after)) if token]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=single, pair=f"{single} {second}", special_tokens=ends
    )


def reads_special_tokens_as_text(folder: Path) -> bool:
    """Whether a folder says that a text which spells a special token is only a text."""
    if not present(folder / TOKENIZER_CONFIG):
        return False
    with naming(folder / TOKENIZER_CONFIG):
        return read_json(inside(folder, TOKENIZER_CONFIG), LIMIT).get("split_special_tokens") is True
