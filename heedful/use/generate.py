"""Generate: what a decoder writes after each text, and how a conversation becomes such a text."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, overload

from ..decode.options import DecodingOptions, takes_options
from ..decode.turns import Turns, finish
from ..errors import BadInput
from ..interop.hf.chat import Chat, Refused
from ..interop.hf.chat_files import FILE
from ..models.base.shells import Decoder
from ..parts.positions.base import UpTo
from .results import Answer
from .search import Request, Search, answers, search_of
from .texts import Tokenized, each, fault_of
from .wording import table_of

if TYPE_CHECKING:
    from .model import Model

LONGEST = 100  # tokens of a continuation, unless another limit is given


def can(model: Model) -> bool:
    """Whether it is a decoder, and not one that learned to summarize."""
    return model.kind is Decoder and model.task != "summarize"


@overload
def generate(model: Model, texts: str, **options: Any) -> Answer: ...
@overload
def generate(model: Model, texts: Iterable[str], **options: Any) -> list[Answer]: ...
@takes_options("generate")
def generate(model: Model, texts: str | Iterable[str], **options: Any) -> Answer | list[Answer]:
    """Continuations of texts: greedy, unless the options choose sampling or a beam; at most 100 tokens.

    texts: a string, or several. options: those of `heedful.decode.options.DecodingOptions`; the generation
    settings of a Hugging Face folder are their defaults. A text beyond the context loses its beginning, with
    a warning. When the context
    is full, decoding drops the older half and continues; beam search stops. Returns an `Answer` for a string,
    a list for several.

    >>> model = load("runs/toy-lm")
    >>> model.generate("the cat", max_new_tokens=10)
    ' sat on th'
    >>> model.generate("the cat", max_new_tokens=10, sample=True, top_k=1, seed=7)
    ' sat on th'
    """
    model.check_can("generate")
    how = model.decoding("generate", options)
    return each(texts, lambda some: write(model, warn_of_notes(encode(model, some)), how, range(len(some))))


def encode(model: Model, texts: list[str]) -> list[Tokenized]:
    """Texts as the decoder goes on from them, however long they are."""
    rows, network = model.wording.prompt(texts), model.model
    assert isinstance(network, Decoder)
    refuses = isinstance(network.inputs.position, UpTo)  # longer texts, when they are to be continued
    table = None if refuses else table_of(network)
    rows = [row if row.ids else replace(row, fault=fault_of(0, None, 1)) for row in rows]
    return [
        row if (note := note_on(len(row.ids), table)) is None else replace(row, note=note) for row in rows
    ]


def note_on(tokens: int, table: int | None) -> str | None:
    """What is not read of a prompt that is longer than the context, if it is."""
    if table is None or tokens <= table:
        return None
    read = max(1, table // 2)
    return f"has {tokens:,} tokens, and the model reads at most {table:,}: it reads the last {read:,}"


def warn_of_notes(rows: Sequence[Tokenized]) -> Sequence[Tokenized]:
    """The same rows; a warning says which of them are read in part."""
    for place, row in enumerate(rows, 1):
        if row.note:
            warnings.warn(f"text {place} {row.note}", stacklevel=4)
    return rows


def write(
    model: Model, rows: Sequence[Tokenized], how: DecodingOptions, numbers: Sequence[int]
) -> list[Answer]:
    """What comes after texts; numbers: which texts these are, among all that belong to one seed."""
    return finish(write_in_turns(model, rows, how, numbers))


def write_in_turns(
    model: Model, rows: Sequence[Tokenized], how: DecodingOptions, numbers: Sequence[int]
) -> Turns[list[Answer]]:
    """The same in turns: after each step of the search, others may have theirs."""
    search = search_for(model, how)
    return (yield from answers(model, search, requests(model, rows, how, numbers)))


def search_for(model: Model, how: DecodingOptions) -> Search:
    """The search for continuations: greedy, where the options do not say otherwise."""
    return search_of(model, how)


def requests(
    model: Model, rows: Sequence[Tokenized], how: DecodingOptions, numbers: Sequence[int]
) -> list[Request | None]:
    """Texts as a search is given them."""
    for place, row in enumerate(rows, 1):
        if not row.ids:
            raise BadInput(
                f"text {place} is empty, and {model.folder} knows no token that begins a text: "
                f"give it a first word"
            )
    found: list[Request | None] = []
    for row, number in zip(rows, numbers, strict=True):
        first = list(how.forced_first) if len(row.ids) == 1 else []  # as transformers: at the very beginning
        bounds = how.bounds(len(row.ids), LONGEST)
        found.append(Request(row.ids, *bounds, None, number, first, continues=True))
    return found


def chat_prompt(model: Model, conversation: str | list[dict[str, Any]]) -> str:
    """A conversation as the model's chat template writes it down, for `generate` and `stream` to answer.

    conversation: a message of the user's, or [{"role": ..., "content": ...}, ...].
    """
    said = [{"role": "user", "content": conversation}] if isinstance(conversation, str) else conversation
    (found,) = chat_of(model).render([said])
    if isinstance(found, Refused):
        raise BadInput(f"the chat template of {model.folder} {found.why}")
    return found


def chat_of(model: Model) -> Chat:
    """The chat template of a model; a model without one is refused."""
    if model.loaded.chat is None:
        why = f"{model.folder} has no chat template, so it is not a chat model"
        remedy = f"leave out `chat`, or put the template into its Hugging Face folder as {FILE}"
        raise BadInput(f"{why}: {remedy}")
    return model.loaded.chat
