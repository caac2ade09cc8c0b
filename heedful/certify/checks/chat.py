"""Chat: a conversation in, the prompt out, by the chat template of each side."""

from __future__ import annotations

from ...errors import BadInput, NotInstalled
from ...interop.hf.chat import Refused
from ..certificate import Check
from ..sides import Sides

NAME = "chat"
CONVERSATIONS = (
    [{"role": "user", "content": "What is a mat?"}],
    [
        {"role": "user", "content": "Hello!"},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": "  What is\na mat?  "},
    ],
)


def check(sides: Sides) -> Check | None:
    """Compare prompts as text; None if one side has no chat template."""
    ask, chat = getattr(sides.used, "chat", None), sides.ours.loaded.chat
    if ask is None or chat is None:
        return None
    sides.tell("comparing chat prompts")
    try:
        ours = chat.render([list(each) for each in CONVERSATIONS])
    except (BadInput, NotInstalled):
        return None  # the package that runs templates is missing
    pairs = [
        (a, ask(list(b))) for a, b in zip(ours, CONVERSATIONS, strict=True) if not isinstance(a, Refused)
    ]
    if not pairs or any(theirs is None for _, theirs in pairs):
        return None
    same = sum(str(a) == b for a, b in pairs)
    first = next(({"heedful": str(a), "other": b} for a, b in pairs if str(a) != b), None)
    faults = () if first is None else (f"chat prompts are equal in only {same} of {len(pairs)}",)
    result = {"equal": same, "of": len(pairs), "first_difference": first}
    return Check(NAME, f"{same} of {len(pairs)} prompts equal", {"conversations": len(pairs)}, result, faults)
