"""Where chat templates are kept: in a Hugging Face folder's files, and in a run's chat.json.

A folder has them in tokenizer_config.json, one or several with names; or, before that, in files of their own.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from ...errors import BadInput
from ...files import inside, naming, present, read_json, read_text, short, stays
from .chat import DEFAULT, LONGEST, Chat
from .token_settings import NAMES, TOKENIZER_CONFIG, TokenizerSettings

FILE, MORE = "chat_template.jinja", "additional_chat_templates"
OF_RUN = "chat.json"
MOST = 64  # templates
LIMIT = 16 * LONGEST  # bytes of chat.json

# What their tokenizers call these tokens where the folder does not say.
ENDS = {"bos": "<s>", "eos": "</s>", "unk": "<unk>"}
BYTES = {"unk": "<|endoftext|>", "bos": "<|endoftext|>", "eos": "<|endoftext|>"}
HABITS = {
    "llama": ENDS,
    "gpt2": BYTES,
    "qwen2": {"unk": BYTES["unk"], "eos": BYTES["eos"], "pad": BYTES["eos"]},
}


def read_chat(folder: Path) -> Chat | None:
    """The chat templates of a Hugging Face folder; None if it has none."""
    own = templates_in_files(folder)
    source = folder / (FILE if own else TOKENIZER_CONFIG)
    settings = TokenizerSettings(folder)
    with naming(source):
        templates = own or templates_in_settings(settings.said.get("chat_template"))
        return Chat(str(source), templates, token_names(settings)) if templates else None


def templates_in_files(folder: Path) -> dict[str, str]:
    """{name: template} of files of their own."""
    found = {}
    if present(folder / FILE):
        with naming(folder / FILE):
            found[DEFAULT] = read_text(inside(folder, FILE), 4 * LONGEST)
    with naming(folder / MORE):
        for path in sorted((folder / MORE).glob("*.jinja"))[:MOST]:
            if not path.is_file() or not stays(path.resolve(), folder.resolve()):
                raise BadInput(f"{path} is a link that leads out of its folder: copy the file there instead")
            found[path.stem] = read_text(path, 4 * LONGEST)
    return found


def templates_in_settings(said: Any) -> dict[str, Any]:
    """{name: template} of what tokenizer_config.json says: one, a list of named ones, or an object."""
    if isinstance(said, dict):
        return said
    if not isinstance(said, list):
        return {} if said is None else {DEFAULT: said}
    for entry in said:
        if not isinstance(entry, dict) or type(entry.get("name")) is not str or "template" not in entry:
            raise BadInput(f"chat_template has {short(entry)}, where a name and a template are expected")
    return {entry["name"]: entry["template"] for entry in said}


def token_names(settings: TokenizerSettings) -> dict[str, str]:
    """What a template may name: bos_token and so on."""
    habits = {} if settings.generic else HABITS.get(settings.kind, {})
    tokens = {f"{name}_token": settings.name(name, habits.get(name)) for name in NAMES}
    return {name: token for name, token in tokens.items() if token is not None}


def chat_files(chat: Chat | None) -> dict[str, str]:
    """{name of a file: what is in it}, as transformers writes templates."""
    templates = {} if chat is None else chat.templates
    return {FILE if name == DEFAULT else f"{MORE}/{name}.jinja": text for name, text in templates.items()}


# Adapters beside a model


def read_beside(folder: Path, base: Path, below: Chat | None) -> Chat | None:
    """The chat templates in a folder of adapters, or those of the model below. Tokens are the model's, unless
    the adapters' folder names some."""
    own = read_chat(folder)
    if own is None or own.tokens:
        return own or below
    return replace(own, tokens=below.tokens if below else token_names(TokenizerSettings(base)))


# A run that began from such a folder


def as_kept(chat: Chat) -> dict[str, Any]:
    """What chat.json says."""
    return {"templates": chat.templates, "tokens": chat.tokens}


def read_kept(run: Path) -> Chat | None:
    """The chat templates of a run; None if it has none."""
    if not present(run / OF_RUN):
        return None
    with naming(run / OF_RUN):
        said = read_json(inside(run, OF_RUN), LIMIT)
        parts = [said.get("templates"), said.get("tokens")]
        texts = [text for part in parts if isinstance(part, dict) for text in part.values()]
        if not all(isinstance(part, dict) for part in parts) or not all(type(text) is str for text in texts):
            raise BadInput("this does not describe a chat template: restore the file of this run")
        return Chat(str(run / OF_RUN), said["templates"], said["tokens"])
