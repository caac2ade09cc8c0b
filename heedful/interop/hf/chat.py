"""Chat templates: how a conversation is written down before a model is given it.

The template is a small program in Jinja's language; chat_files.py finds it. It is rendered in a process with
little time and memory (chat_process.py), and gives the text of transformers' `apply_chat_template`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ...errors import BadInput
from ...files import MEGABYTE, is_plain, one_line, short
from .chat_process import TemplateProcess

DEFAULT = "default"  # the name of the template that is used
LONGEST = MEGABYTE // 4  # characters of a template; the longest that are published have a tenth

Message = dict[str, Any]


class Prompt(str):
    """A conversation as a template wrote it down: nothing goes around it any more."""

    __slots__ = ()


@dataclass(frozen=True)
class Refused:
    """Why a conversation cannot be written down."""

    why: str


@dataclass(frozen=True)
class Chat:
    """A model's templates, and what they may name."""

    source: str  # the file they came from
    templates: dict[str, str]  # by name
    tokens: dict[str, str]  # bos_token and so on

    def __post_init__(self) -> None:
        """Check the templates, which come from a file."""
        for name, template in self.templates.items():
            if not isinstance(template, str):
                raise BadInput(f"the chat template of {self.source} is {short(template)}, and not a text")
            if not is_plain(name):
                raise BadInput(f"{self.source} names a chat template {short(name)}: use a plain name")
            if len(template) > LONGEST:
                size = f"a chat template of {len(template):,} characters"
                raise BadInput(f"{self.source} has {size}; at most {LONGEST:,} are read")
            if any("\ud800" <= letter <= "\udfff" for letter in template):
                raise BadInput(f"the chat template of {self.source} has half a character")

    @property
    def template(self) -> str:
        """The default template."""
        if DEFAULT not in self.templates:
            known = ", ".join(self.templates)
            raise BadInput(f"{self.source} has the chat templates {known}, and none is named {DEFAULT}")
        return self.templates[DEFAULT]

    @cached_property
    def process(self) -> TemplateProcess:
        """What renders the default template, in a process that starts with the first conversation."""
        return TemplateProcess(self.template, self.tokens)

    def render(self, conversations: Iterable[list[Message]], answer: bool = True) -> list[Prompt | Refused]:
        """Each conversation as a prompt, or why the template refuses it. answer: the model speaks next."""
        return [self.one(messages, answer) for messages in conversations]

    def one(self, messages: list[Message], answer: bool) -> Prompt | Refused:
        said = self.process.render(messages, answer)
        if "error" in said:
            raise BadInput(one_line(f"{self.source} has a chat template that {said['error']}"))
        return Prompt(said["text"]) if "text" in said else Refused(str(said["refused"]))


def conversation_of(line: str) -> list[Message] | Refused:
    """What somebody typed: a message of the user's, or a list of messages in JSON."""
    if not line.lstrip().startswith("[{"):
        return [{"role": "user", "content": line}]
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return Refused("begins like a list of messages, and is not valid JSON")
    for message in said:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            return Refused(
                "is a list of something else than messages: each is an object with a role and a content"
            )
        if not isinstance(message.get("content"), str):
            return Refused(f"has a message of the {short(message['role'])} without a content")
    return said
