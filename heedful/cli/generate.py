"""Continue texts with a language model.

Prints the continuation without the text. A terminal shows the answer to a single text token by token. On
stdin, each line is a text, and line ends in an answer become spaces; --json keeps them.

Examples: heedful generate runs/lm "def read(";
heedful generate runs/lm --sample --temperature 0.8 "Once upon";
heedful generate ./gpt2 --sample --top-p 0.9 --max-new-tokens 200 --seed 7 < prompts.txt;
heedful generate runs/lm --tree --max-new-tokens 8 "Once upon";
heedful generate ./gpt2-xl --draft ./gpt2 "The cat"; heedful generate ./smollm2 --chat "What is a mat?"
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..data.report import Fault
from ..errors import BadInput
from ..interop.hf.chat import Refused, conversation_of
from .shared.lines import Line, answer_lines
from .shared.options import TreeOptions, WriterOptions, takes_decoding
from .shared.trees import writer_for
from .shared.writing import TextWriter

if TYPE_CHECKING:
    from ..use.model import Model


@takes_decoding("generate")
@dataclass(frozen=True, kw_only=True)
class GenerateOptions(TreeOptions, WriterOptions):
    """The options of `heedful generate`."""

    chat: bool = False
    """Each text is a message, or a conversation: a JSON list of objects with a role and a content. The
    model's chat template formats it. Prints the model's answer."""


def generate(given: GenerateOptions) -> None:
    """Answer each line by what comes after it; or, as a message in a conversation, by the next one."""
    if given.chat and given.tree:
        raise BadInput("`tree` is for plain texts: leave out `chat`, or leave out `tree`")
    answer_lines(given, ChatWriter(given, "generate") if given.chat else writer_for(given, "generate"))


class ChatWriter(TextWriter):
    """generate --chat: each line is a message, or a conversation, which the model's template writes down."""

    def read_all(self, model: Model, lines: list[Line]) -> list[Line]:
        from ..use.generate import chat_of

        chat = chat_of(model)
        said = {
            n: conversation_of(line) for n, line in enumerate(lines) if isinstance(line, str) and line.strip()
        }
        whole = {n: messages for n, messages in said.items() if isinstance(messages, list)}
        written = dict(zip(whole, chat.render(list(whole.values())), strict=True)) if whole else {}
        found = list(lines)
        for n, messages in said.items():
            text = messages if isinstance(messages, Refused) else written[n]
            found[n] = Fault("unusable", told(text.why, messages)) if isinstance(text, Refused) else text
        return found


def told(why: str, said: object) -> str:
    """A fault in words: the line's own, or that of the template."""
    return f"the line {why}" if isinstance(said, Refused) else f"the chat template {why}"
