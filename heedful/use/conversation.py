"""Conversations: messages in turns, which the model's chat template writes down whole for every answer.

A model without a template goes on with the text so far instead, as `generate` does. When the context is full,
the oldest turns are left out; the system prompt stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..decode.kept import KeptStep
from ..decode.options import DecodingOptions
from ..errors import BadInput
from ..interop.hf.chat import Message, Refused
from ..models.base.shells import Decoder
from ..parts.cache import GrowingCache
from .generate import LONGEST
from .search import Request, search_of
from .texts import Tokenized
from .wording import table_of

if TYPE_CHECKING:
    from .model import Model

ANSWER = 512  # tokens of an answer in a chat, unless another limit is given
PROBE: list[Message] = [{"role": "user", "content": "hello"}]


class Conversation:
    """What was said, and how the model is given it.

    Args:
        model: A decoder.
        options: Those of `generate`.
        system: The system prompt, if the chat template takes one.
        keep: Read again only what has changed since the last answer.

    Example:
        >>> talk = Conversation(heedful.load("runs/lm"), {"max_new_tokens": 4})
        >>> talk.say("The old king")
        >>> "".join(talk.answer())
        ' is going to be'
        >>> talk.clear()
    """

    def __init__(self, model: Model, options: dict[str, Any], system: str = "", keep: bool = True) -> None:
        """options: those of `generate`. keep: read again only what has changed since the last answer."""
        model.check_can("generate")
        how = model.decoding("generate", options, beam=1)
        if how.width(1) > 1 or how.beam_groups > 1:
            raise BadInput("beam search decides at the end, so it cannot chat: leave out `beam`")
        self.model, self.chat = model, model.loaded.chat
        longest = how.max_new_tokens or (LONGEST if self.chat is None else ANSWER)
        self.how: DecodingOptions = replace(how, max_new_tokens=longest, max_length=None)
        self.messages: list[Message] = []
        self.first = 0  # the message that the model reads first
        self.answers = 0  # written so far: each has random numbers of its own
        self.note = ""  # what the context has no room for, if an answer was the first to find out
        self.cut = ""  # why the last answer ends in the middle, if it does
        self.context = context_of(model)
        self.kept = KeptStep() if keep and how.draft is None else None
        self.search = search_of(model, self.how)
        if self.kept is not None:
            self.search = replace(self.search, keep=self.kept.instead_of)
        self.system = ""
        self.set_system(system)

    def set_system(self, system: str) -> None:
        """Change the system prompt; one that the template does not take is refused."""
        if self.chat is None:
            if system:
                folder = self.model.folder
                raise BadInput(f"{folder} has no chat template, so it takes no system prompt: leave it out")
            return
        before, self.system = self.system, system
        try:
            self.rendered(PROBE)
        except BadInput:
            self.system = before
            raise

    # Turns

    def say(self, text: str) -> None:
        """Add a message of the user's.

        Args:
            text: The message.
        """
        self.messages.append({"role": "user", "content": text})

    def answer(self, is_stopped: Callable[[], bool] = lambda: False) -> Iterator[str]:
        """Write the model's answer piece by piece; what was written until it is stopped becomes its message.

        Nothing has changed if the messages do not fit the context.

        Args:
            is_stopped: Asked after every token whether to stop.

        Returns:
            An iterator of strings.
        """
        row = self.fitted()
        return self.written(row, is_stopped)

    def written(self, row: Tokenized, is_stopped: Callable[[], bool]) -> Iterator[str]:
        least, longest = self.how.bounds(len(row.ids), LONGEST)
        if self.context is not None and self.chat is not None:
            longest = min(longest, self.context - len(row.ids) + 1)  # the newest token is not fed
        request = Request(row.ids, min(least, longest), longest, None, self.answers, continues=True)
        self.answers, self.cut, said = self.answers + 1, "", ""
        text = self.search.text_so_far(request)
        try:
            for token in self.tokens(request, is_stopped):
                piece, _ = text.add(token, token in self.search.ends)
                said += piece
                if piece:
                    yield piece
            if rest := text.rest():
                said += rest
                yield rest
        finally:
            self.messages.append({"role": "assistant", "content": said})

    def tokens(self, request: Request, is_stopped: Callable[[], bool]) -> Iterator[int]:
        """The tokens of an answer as they come, up to its end or until it is stopped."""
        written = 0
        for news in self.search.streamed([request]):
            for token in news:
                yield token.token
                written += 1
                at_limit = written == request.longest and not token.ended
                self.cut = self.limit(written) if at_limit else ""
            if is_stopped():
                return

    def limit(self, tokens: int) -> str:
        """Why an answer ends after so many tokens."""
        if tokens < (self.how.max_new_tokens or 0):
            return f"the answer ends here: the context of {self.context:,} tokens is full"
        return f"the answer ends here: it has {tokens:,} tokens, the most that --max-new-tokens allows"

    def take_back(self) -> bool:
        """Forget the last answer and the message before it; False if there is none."""
        found = self.forget_answer()
        if self.messages and self.messages[-1]["role"] == "user":
            self.messages.pop()
            found = True
        self.first = min(self.first, len(self.messages))
        return found

    def forget_answer(self) -> bool:
        """Forget the last answer, so that another can be written; False if there is none."""
        if not self.messages or self.messages[-1]["role"] != "assistant":
            return False
        self.messages.pop()
        return True

    def clear(self) -> None:
        """Forget everything but the system prompt."""
        self.messages, self.first = [], 0

    # What the model reads

    def fitted(self) -> Tokenized:
        """The tokens of the conversation; without its oldest turns where the context has no room for them."""
        self.note, start = "", self.first
        row = self.row(start)
        while not self.fits(row):
            later = [n for n, said in enumerate(self.messages) if n > start and said["role"] == "user"]
            if not later:
                break
            row, start = self.row(later[0]), later[0]
        if self.context is not None and self.chat is not None and len(row.ids) > self.context:
            size = f"the message has {len(row.ids):,} tokens with all that goes before it"
            raise BadInput(f"{size}, and the model reads at most {self.context:,}: shorten it")
        if start > self.first:
            self.note = (
                f"the context of {self.context:,} tokens is full: "
                f"the model no longer reads the first {start} messages"
            )
        self.first = start
        return row

    def fits(self, row: Tokenized) -> bool:
        """Whether there is room for an answer, or at least a quarter of the context left for it."""
        if self.context is None:
            return True
        longest = self.how.max_new_tokens or ANSWER
        return len(row.ids) + min(longest, self.context // 4) <= self.context

    def row(self, start: int) -> Tokenized:
        """The tokens of the messages from this one on."""
        messages = self.messages[start:]
        text = joined(messages) if self.chat is None else self.rendered(messages)
        (row,) = self.model.wording.prompt([text])
        if not row.ids:
            raise BadInput(f"{self.model.folder} knows no token that begins a text: give it a first word")
        return row

    def rendered(self, messages: list[Message]) -> str:
        """Messages and the system prompt as the template writes them down."""
        assert self.chat is not None
        system = [{"role": "system", "content": self.system}] if self.system else []
        (found,) = self.chat.render([[*system, *messages]])
        if isinstance(found, Refused):
            raise BadInput(f"the chat template of {self.model.folder} {found.why}")
        return found


def joined(messages: list[Message]) -> str:
    """Messages as one text: an answer goes on where it was begun, and a message begins a line."""
    text = ""
    for message in messages:
        apart = "\n" if message["role"] == "user" and text and not text.endswith("\n") else ""
        text += apart + message["content"]
    return text


def context_of(model: Model) -> int | None:
    """How many tokens a decoder reads at most, by its table of positions or by its training; None: any."""
    network = model.model
    assert isinstance(network, Decoder)
    table = table_of(network)
    if table is not None or type(network.growing_cache()) is not GrowingCache:
        return table
    found: int | None = getattr(model.config, "context", None)
    return found
