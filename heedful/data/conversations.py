"""Conversations to learn from: JSON lines, an object for each, or a table of prompts and responses.

    {"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]}
    {"prompt": "...", "response": "..."}

A table is tab-separated under a header: prompt, response. Every message of the assistant is a response, which
is learned after all that was said before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..files import short
from .questions import fault_in_text, read_objects
from .report import Fault, Report
from .tables import is_json, read_table

USER, ASSISTANT = "user", "assistant"
ROLES = ("system", USER, ASSISTANT)
MESSAGES = "messages"

Messages = tuple[tuple[str, str], ...]  # (role, what was said), one after the other


def read_conversations(
    path: str | Path, prompt: str = "prompt", response: str = "response", report: Report | None = None
) -> Iterator[Messages]:
    """Read conversations to learn from: JSON lines, or a table of prompts and responses.

    Args:
        path: The file, plain or gzip, or the name of a Hugging Face data set ("hf:NAME").
        prompt: Name of the column with prompts.
        response: Name of the column with responses.
        report: Where bad lines are counted, or refused. None: they are dropped.

    Yields:
        The messages of each good conversation as (role, text). The roles are system, user and assistant.

    Example:
        >>> _ = Path("said.jsonl").write_text('{"prompt": "Hello!", "response": "Good day."}')
        >>> list(read_conversations("said.jsonl"))
        [(('user', 'Hello!'), ('assistant', 'Good day.'))]
    """
    report = report or Report()
    if not is_json(path):
        rows = read_table(path, [prompt, response], report=report)
        yield from (((USER, asked), (ASSISTANT, said)) for asked, said in rows)
        return

    def read(found: dict[str, Any]) -> Messages | Fault:
        return messages_in(found[MESSAGES]) if MESSAGES in found else pair_in(found, prompt, response)

    yield from read_objects(path, read, (), report)


def read_prompts(
    path: str | Path, prompt: str = "prompt", response: str = "response", report: Report | None = None
) -> Iterator[tuple[Messages, str]]:
    """Read prompts, for learning from rewards: JSON lines, or a table of prompts and responses.

    Args:
        path: The file, plain or gzip, or the name of a Hugging Face data set ("hf:NAME").
        prompt: Name of the column with prompts.
        response: Name of the column with responses.
        report: Where bad lines are counted, or refused. None: they are dropped.

    Yields:
        (messages, response) of each good prompt; the response is "" where JSON lines have none.

    Example:
        >>> _ = Path("prompts.jsonl").write_text('{"prompt": "Count to 3."}')
        >>> list(read_prompts("prompts.jsonl"))
        [((('user', 'Count to 3.'),), '')]
    """
    report = report or Report()
    if not is_json(path):
        for asked, (_, said) in read_conversations(path, prompt, response, report):
            yield (asked,), said
        return
    yield from read_objects(path, lambda found: prompt_in(found, prompt, response), (), report)


def prompt_in(found: dict[str, Any], prompt: str, response: str) -> tuple[Messages, str] | Fault:
    """What is asked, and the response to it if there is one."""
    if MESSAGES not in found and response in found:
        pair = pair_in(found, prompt, response)
        return pair if isinstance(pair, Fault) else (pair[:1], pair[1][1])
    messages = checked_messages(found.get(MESSAGES, [{"role": USER, "content": found.get(prompt)}]), MESSAGES)
    if isinstance(messages, Fault):
        return messages
    last = messages[-1] if messages else (ASSISTANT, "")
    before = messages[:-1] if last[0] == ASSISTANT else messages
    if not before:
        return Fault("without a prompt", "there is nothing to respond to")
    return before, last[1] if last[0] == ASSISTANT else ""


def pair_in(found: dict[str, Any], prompt: str, response: str) -> Messages | Fault:
    """A prompt and its response."""
    for name in (prompt, response):
        if name not in found:
            return Fault("without a response", f'there is neither "{MESSAGES}" nor "{name}"')
        if fault := fault_in_text(found[name], name):
            return fault
    return (USER, found[prompt]), (ASSISTANT, found[response])


def messages_in(said: Any) -> Messages | Fault:
    """Messages of which one at least is a response to another."""
    found = checked_messages(said, MESSAGES)
    if not isinstance(found, Fault) and not any(role == ASSISTANT for role, _ in found[1:]):
        return Fault("without a response", f"no message of the {ASSISTANT} follows another")
    return found


def checked_messages(said: Any, name: str) -> Messages | Fault:
    """A list of messages under a name, each with a role and a text."""
    if not isinstance(said, list) or not all(isinstance(message, dict) for message in said):
        return Fault("of a wrong type", f'"{name}" is {short(said)}, where a list of messages is expected')
    found = []
    for message in said:
        role, content = message.get("role"), message.get("content")
        if role not in ROLES:
            return Fault(
                "with a wrong role", f'"role" is {short(role)}, where {", ".join(ROLES)} are expected'
            )
        if fault := fault_in_text(content, "content"):
            return fault
        found.append((role, content))
    return tuple(found)
