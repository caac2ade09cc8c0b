"""Talk with a model in the terminal.

The model's chat template formats the conversation, and the answer appears word by word. A model without a
template continues the text so far. Type /help for the commands. Ctrl-C stops an answer, Ctrl-D leaves. On
stdin, each line is a message, and line ends in an answer become spaces.

Examples: heedful chat ./smollm2;
heedful chat ./smollm2 --system "Answer in one sentence." --sample --temperature 0.7;
heedful chat runs/lm --max-new-tokens 50; heedful chat ./smollm2 < messages.txt
"""

from __future__ import annotations

import contextlib
import json
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from .. import files
from ..data.report import Fault
from ..data.text_file import judge
from ..decode.options import decoding_options
from ..errors import BadInput, command
from ..files import present, short
from ..interop.run_folder import refuse_stage
from ..models import nearest
from ..use.texts import LONGEST
from .shared.lines import lines_at_hand, utf8_out, write
from .shared.options import Positional, WeightOptions, arg, decoding_arg, decoding_of, takes_decoding
from .shared.terminal import flat, say
from .shared.writing import check_decoding

if TYPE_CHECKING:
    from ..use.conversation import Conversation
    from ..use.model import Model

PROMPT = "> "
LENGTHS = "512; without a chat template: 100"
LINE_BY_LINE = ("translate", "summarize", "fill", "classify", "tag", "parse")
SEARCHES = [name for name, option in decoding_options().items() if option.use.needs == "beam"]
LEFT_OUT = ("beam", *SEARCHES, "batch", "top", "max_new_tokens")  # of those that generate has
COMMANDS = {
    "help": "show these commands",
    "new": "forget the conversation; the system prompt stays",
    "undo": "take back your last message and its answer",
    "again": "write another answer to your last message; with --sample it differs",
    "system": "TEXT: change the system prompt; without TEXT, remove it",
    "save": "FILE: write the messages as JSON",
    "quit": "leave, as Ctrl-D does",
}


@dataclass(frozen=True, kw_only=True)
class TalkOptions:
    """With whom to talk, and where."""

    run: Annotated[str, Positional, arg("RUN")]
    """The folder of a run, or a Hugging Face folder."""

    system: Annotated[str, arg("TEXT", "none")] = ""
    """System prompt: what the model reads before the conversation."""

    max_new_tokens: Annotated[int | None, decoding_arg("max_new_tokens", LENGTHS)] = None

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute; auto takes the GPU if there is one."""


@takes_decoding("generate", without=LEFT_OUT)
@dataclass(frozen=True, kw_only=True)
class ChatOptions(WeightOptions, TalkOptions):
    """The options of `heedful chat`."""


def chat(given: ChatOptions) -> None:
    """Answer messages until there are no more."""
    options = decoding_of(given, "generate")
    check_decoding("generate", options, given.run, json=False)
    utf8_out()
    typed = sys.stdin is not None and sys.stdin.isatty()
    if typed:
        say(f"loading {given.run} ...")
    model, talk = opened(given, options)
    if talk.chat is None:
        go_on = "; an empty line lets it write on" if typed else ""
        say(f"{given.run} has no chat template: it continues the text so far{go_on}")
    if typed:
        room = f", {talk.context:,} tokens of context" if talk.context else ""
        say(f"{model.architecture}, {model.parameter_count:,} parameters{room}; /help lists the commands")
    Chatting(talk, typed, sampled=talk.how.sample).run(typed_lines() if typed else piped_lines())


def opened(given: ChatOptions, options: dict[str, Any]) -> tuple[Model, Conversation]:
    """The model, and a conversation with it that has not begun."""
    from ..interop.loaded import IN_WORDS
    from ..use.conversation import Conversation
    from ..use.load import load

    model = load(given.run, given.device, weights=given.weights)
    if "generate" not in model.can:
        able = next((name for name in ("translate", "summarize", *model.can) if name in model.can), "")
        refuse_stage(Path(given.run), model.architecture, "chat")
        instead = f": `{command(able, given.run)}` answers each line" if able in LINE_BY_LINE else ""
        raise BadInput(f"{given.run} is {IN_WORDS[model.kind]}, which cannot chat{instead}")
    if isinstance(options.get("draft"), str):
        draft = load(options["draft"], model.device, weights=given.weights)
        options = options | {"draft": draft}
    return model, Conversation(model, options, given.system)


# Lines


def typed_lines() -> Iterator[str | Fault | None]:
    """What somebody types, line by line; None where Ctrl-C took a line back."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 (input() edits lines by it)
    while True:
        try:
            yield judge(typed_line().encode(errors="surrogateescape"), LONGEST)
        except EOFError:
            say("")
            return
        except KeyboardInterrupt:
            say("")
            yield None
        except UnicodeDecodeError:
            yield Fault("not UTF-8", "not UTF-8")


def typed_line() -> str:
    """A line that is typed after the prompt, which goes to stderr if stdout is no terminal."""
    if sys.stdout.isatty():
        return input(PROMPT)
    print(PROMPT, end="", file=sys.stderr, flush=True)
    return input()


def piped_lines() -> Iterator[str | Fault | None]:
    """The lines of stdin."""
    for some in lines_at_hand(sys.stdin.buffer if sys.stdin is not None else None):
        yield from (judge(raw, LONGEST) for raw in some)


# Turns


class Chatting:
    """A conversation at a terminal, or line by line: messages are answered, commands are done."""

    def __init__(self, talk: Conversation, typed: bool, sampled: bool) -> None:
        self.talk, self.typed, self.sampled = talk, typed, sampled
        self.saved: set[Path] = set()

    def run(self, lines: Iterator[str | Fault | None]) -> None:
        """Do what each line asks for. At a terminal, what cannot be done is said, and the next line comes."""
        for number, line in enumerate(lines, 1):
            try:
                if line is not None and not self.goes_on(line):
                    return
            except BadInput as error:
                if not self.typed:
                    raise BadInput(f"line {number}: {error}") from None
                say(str(error))

    def goes_on(self, line: str | Fault) -> bool:
        """Do what a line asks for; False if it is to leave."""
        if isinstance(line, Fault):
            raise BadInput(line.why)
        if line.startswith("/") and not line.startswith("//"):
            name, _, rest = line[1:].partition(" ")
            return self.command(name, rest.strip())
        if line.strip():
            self.message(line[1:] if line.startswith("//") else line)
        elif self.typed and self.talk.chat is None and self.talk.messages:
            self.answer()
        return True

    def message(self, text: str) -> None:
        """Answer a message; one that cannot be answered is not kept."""
        self.talk.say(text)
        try:
            self.answer()
        except BadInput:
            self.talk.take_back()
            raise

    def answer(self) -> None:
        """Show the answer as it is written. Ctrl-C stops it, and what was said stays."""
        talk, before = self.talk, len(self.talk.messages)
        with StopKey(self.typed) as key:
            pieces = talk.answer(lambda: key.pressed)
            if talk.note:
                say(talk.note)
            try:
                for piece in pieces:
                    write(piece if self.typed else flat(piece))
            except KeyboardInterrupt:
                if not self.typed:
                    raise
            write("\n")
        if key.pressed:
            self.stopped(talk.messages[before:])
        elif talk.cut and talk.chat is not None:
            say(talk.cut)

    def stopped(self, said: list[dict[str, Any]]) -> None:
        """After Ctrl-C: an answer without a word is none, and its message is taken back."""
        if not any(message["content"] for message in said):
            self.talk.take_back()
            say("stopped before the first word: your message is taken back")

    # Commands

    def command(self, name: str, rest: str) -> bool:
        """Do a command; False if it is the one that leaves."""
        if name not in COMMANDS:
            hint = nearest(name, COMMANDS)
            raise BadInput(f"there is no command /{name}{hint}; a message that begins with / begins with //")
        if rest and name not in ("system", "save"):
            raise BadInput(f"/{name} stands alone: leave out {short(rest)}")
        if name != "quit":
            getattr(self, f"do_{name}")(*[rest] * (name in ("system", "save")))
        return name != "quit"

    def do_help(self) -> None:
        for name, what in COMMANDS.items():
            say(f"/{name:<7} {what}")

    def do_new(self) -> None:
        self.talk.clear()
        say("the conversation is forgotten")

    def do_undo(self) -> None:
        if not self.talk.take_back():
            raise BadInput("there is nothing to take back")
        say("your last message is taken back")

    def do_again(self) -> None:
        if not self.talk.forget_answer():
            raise BadInput("there is no answer yet: type a message")
        if not self.sampled:
            say("without --sample the answer is the same")
        self.answer()

    def do_system(self, text: str) -> None:
        self.talk.set_system(text)
        say("the system prompt is changed" if text else "there is no system prompt now")

    def do_save(self, name: str) -> None:
        if not name:
            raise BadInput("/save needs a FILE")
        path = Path(name).expanduser()
        if present(path) and path.absolute() not in self.saved:
            raise BadInput(f"{path} is there already: give another name, or move it away")
        system = [{"role": "system", "content": self.talk.system}] if self.talk.system else []
        messages = [*system, *self.talk.messages]
        files.write_text(path, json.dumps(messages, indent=2, ensure_ascii=False) + "\n")
        self.saved.add(path.absolute())
        say(f"{len(messages)} messages are in {path}")


class StopKey:
    """Ctrl-C while an answer is written: it ends after the token at work, or at once when pressed again."""

    def __init__(self, typed: bool) -> None:
        """typed: somebody sits there; for a script Ctrl-C ends everything."""
        self.typed, self.pressed = typed, False
        self.before: Any = None

    def __enter__(self) -> Self:
        if self.typed:
            self.before = signal.signal(signal.SIGINT, self.press)
        return self

    def press(self, number: int, frame: FrameType | None) -> None:
        if self.pressed:
            raise KeyboardInterrupt
        self.pressed = True

    def __exit__(self, *_: object) -> None:
        if self.typed:
            signal.signal(signal.SIGINT, self.before)
