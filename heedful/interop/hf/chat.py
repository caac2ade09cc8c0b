"""Chat templates: how a conversation is written down before a model is given it.

The template is a small program in Jinja's language; chat_files.py finds it. It is rendered in a process with
little time and memory (chat_child.py), and gives the text of transformers' `apply_chat_template`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import BadInput
from ...files import MEGABYTE, is_plain, one_line, short
from ..packages import needed
from . import chat_child

DEFAULT = "default"  # the name of the template that is used
LONGEST = MEGABYTE // 4  # characters of a template; the longest that are published have a tenth
WRITTEN = 100_000  # characters of what it writes
SECONDS, PATIENCE = 0.7, 20.0  # of the processor's time; and of anybody's, should it not even start
MEMORY = 48 * MEGABYTE  # beyond what the process has before it looks at the template
ANSWER = 8 * MEGABYTE  # bytes of all it writes
TOGETHER = 32  # conversations a process

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

    def render(self, conversations: Sequence[list[Message]], answer: bool = True) -> list[Prompt | Refused]:
        """Each conversation as a prompt, or why the template refuses it. answer: the model speaks next."""
        found: list[Prompt | Refused] = []
        for start in range(0, len(conversations), TOGETHER):
            found += self.some(conversations[start : start + TOGETHER], answer)
        return found

    def some(self, conversations: Sequence[list[Message]], answer: bool) -> list[Prompt | Refused]:
        asked = {
            "path": [place for place in sys.path if place],
            "template": self.template,
            "conversations": list(conversations),
            "given": self.tokens | {"add_generation_prompt": answer},
            "limits": {"seconds": SECONDS, "memory": MEMORY, "written": ANSWER},
            "longest": WRITTEN,
        }
        said = self.child(json.dumps(asked))
        if "error" in said:
            raise BadInput(one_line(f"{self.source} has a chat template that {said['error']}"))
        rendered = [text if isinstance(text, str) else Refused(str(text[1])) for text in said["texts"]]
        return [Prompt(text) if isinstance(text, str) else text for text in rendered]

    def child(self, asked: str) -> dict[str, Any]:
        """What a process says that renders the template; it can say no more than a file may hold."""
        needed("jinja2", "chat")
        try:
            import resource  # noqa: F401
        except ImportError:
            raise BadInput(
                "chat templates are not rendered on a system that cannot limit a process"
            ) from None
        command = [sys.executable, "-I", str(Path(chat_child.__file__))]
        with tempfile.TemporaryFile() as out:
            try:
                how: dict[str, Any] = {
                    "env": {},
                    "cwd": "/",
                    "timeout": PATIENCE,
                    "stderr": subprocess.DEVNULL,
                }
                done = subprocess.run(command, input=asked.encode("ascii"), stdout=out, check=False, **how)
            except subprocess.TimeoutExpired:
                return {"error": f"was not done after {PATIENCE:.0f} seconds"}
            out.seek(0)
            answer = out.read(ANSWER)
        if done.returncode != 0:
            limit = f"more than {SECONDS} seconds of work or {MEMORY // MEGABYTE} megabytes of memory"
            return {"error": f"was stopped: it takes {limit}"}
        try:
            said = json.loads(answer)
        except ValueError:
            said = None
        return said if isinstance(said, dict) else {"error": "gave no answer"}


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
