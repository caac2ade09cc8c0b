"""The conversations of instruct: read, written down by a chat template, tokenized, and packed into rows.

A response is learned after the prompt that people's messages become by the chat template, exactly as
`heedful chat` gives it to the model. The template is the model's own. A model without one gets `PLAIN`, whose
marks are ordinary text, so every vocabulary can spell them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Protocol

import numpy as np
import torch

from ..corpora import instructions
from ..corpora.instructions import Instruction
from ..data.conversations import ASSISTANT, USER, Messages, read_conversations
from ..data.packing import Fitted
from ..data.report import Fault, Report
from ..data.store import Store, Tokens, write_store
from ..data.vocab import groups
from ..errors import BadInput
from ..files import one_line, write_json
from ..interop.hf.chat import DEFAULT, Chat, Refused
from ..interop.hf.chat_files import OF_RUN, as_kept, read_kept
from ..models.base.settings import Range
from ..train.loss import NOTHING
from .lm import PackedBatch
from .origin import Origin, vocabulary
from .recipe.settings import Recipe, TableSettings
from .task import VocabLike, not_empty, own_vocabulary

CORPUS = "instructions"


@dataclass(frozen=True)
class InstructData(TableSettings):
    """Prompts with responses, or conversations."""

    table: Annotated[str, "JSON lines with messages, or with prompt and response; or a table of these"] = ""
    max_length: Annotated[int, Range(0, 1 << 20), "tokens in a row; 0: as many as the model's context"] = 0
    max_response_length: Annotated[int, Range(1, 1 << 20), "tokens of a response, at most"] = 256
    prompt_column: Annotated[str, "key of the prompt, where there are no messages"] = "prompt"
    response_column: Annotated[str, "key of its response"] = "response"


@dataclass(frozen=True)
class ResponseRow:
    """A response, what was said before it, and for the built-in corpus what its judge knows."""

    before: Messages
    response: str
    instruction: Instruction | None = None

    @property
    def asked(self) -> str:
        """The last message before the response."""
        return self.before[-1][1]


def responses_in(messages: Messages) -> Iterator[ResponseRow]:
    """Every response of a conversation."""
    for place, (role, said) in enumerate(messages):
        if place and role == ASSISTANT:
            yield ResponseRow(messages[:place], said)


def rows_of(recipe: Recipe, split: str, report: Report) -> Iterator[ResponseRow]:
    """The responses of a split; if there are none, the file is named, and what was dropped of it."""
    d = recipe.data
    if d.corpus == CORPUS:
        for row in instructions.split(split):
            yield ResponseRow(((USER, row.prompt),), row.response, row)
        return
    path = d.table if split == "train" else d.valid_table
    if not path:
        files = "--data and --valid-data, conversations to learn from and to judge by"
        raise BadInput(f"give {files}, or --corpus {CORPUS}")
    found = read_conversations(path, d.prompt_column, d.response_column, report)
    rows = (row for messages in found for row in responses_in(messages))
    yield from not_empty(rows, lambda: f"there is no response in {path} ({report.sentence()})")


# Templates

PLAIN = (
    "{% for message in messages %}{{ message['role'] | capitalize }}: {{ message['content'] | trim }}\n"
    "{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}"
)


class TurnTemplate(Protocol):
    """Writes a response down: the prompt, and what a model is to write after it."""

    name: str

    def texts(self, row: ResponseRow) -> tuple[str, str] | Fault: ...


class PlainTemplate:
    """What `PLAIN` says, written down here: nothing has to be installed for it."""

    name = "User: ... Assistant: ..."

    def texts(self, row: ResponseRow) -> tuple[str, str]:
        before = "".join(f"{role.capitalize()}: {said.strip()}\n" for role, said in row.before)
        return f"{before}Assistant:", f" {row.response.strip()}"


class ModelTemplate:
    """The template of the model to start from.

    A response is what the template adds to the prompt when the response is there. Where it writes a finished
    response otherwise than one to come, the response follows the prompt as it is.
    """

    name = "the model's own"

    def __init__(self, chat: Chat) -> None:
        self.chat = chat

    def texts(self, row: ResponseRow) -> tuple[str, str] | Fault:
        before = [{"role": role, "content": said} for role, said in row.before]
        whole = [*before, {"role": ASSISTANT, "content": row.response}]
        prompt, finished = self.chat.one(before, True), self.chat.one(whole, False)
        for found in (prompt, finished):
            if isinstance(found, Refused):
                return Fault("refused by the chat template", f"the chat template {found.why}")
        added = str(finished).removeprefix(str(prompt))
        return str(prompt), row.response if added == finished else added


def template_of(run: Path) -> TurnTemplate:
    """That of a run: the one of the model that it started from, or the plain one, which is then written."""
    chat = read_kept(run)
    if chat is None:
        chat = Chat(OF_RUN, {DEFAULT: PLAIN}, {})
        write_json(run / OF_RUN, as_kept(chat))
    return template_by(chat)


def template_by(chat: Chat) -> TurnTemplate:
    """What writes by a chat template."""
    return PlainTemplate() if chat.template == PLAIN else ModelTemplate(chat)


# Tokens


@dataclass(frozen=True)
class ResponseTokens:
    """A prompt and a response with its end, as tokens."""

    prompt: Tokens
    response: Tokens

    @property
    def size(self) -> int:
        """Tokens that a model reads of it: all but the end."""
        return len(self.prompt) + len(self.response) - 1


def with_end(ids: list[int], end: int) -> list[int]:
    """Up to the end that the template wrote, or with one: nothing behind it would ever be written."""
    return ids[: ids.index(end) + 1] if end in ids else [*ids, end]


def tokenized(
    vocab: VocabLike, template: TurnTemplate, rows: Iterable[ResponseRow], report: Report, path: str
) -> Iterator[tuple[ResponseRow, ResponseTokens]]:
    """Rows with their tokens; those that the template refuses are reported."""
    written = []
    for number, row in enumerate(rows, 1):
        texts = template.texts(row)
        if isinstance(texts, Fault):
            report.bad(path, number, texts)
        else:
            written.append((row, texts))
    for group in groups(written, lambda one: len(one[1][0]) + len(one[1][1])):
        prompts = vocab.encode_batch([prompt for _, (prompt, _) in group])
        responses = vocab.encode_batch([said.rstrip() for _, (_, said) in group])
        for (row, _), prompt, response in zip(group, prompts, responses, strict=True):
            yield row, ResponseTokens(prompt, with_end(response, vocab.eos))


def prepare(recipe: Recipe, folder: Path, origin: Origin | None) -> tuple[Any, TurnTemplate, Store, Report]:
    """The vocabulary, the template and the tokenized responses, made once and kept in the run's folder."""
    d, report, data = recipe.data, Report(recipe.data.bad_lines), folder / "data"
    template = template_of(folder)  # first: whether texts may hold special tokens depends on it
    if origin is not None:
        vocab: Any = vocabulary(folder, origin)
    else:
        texts = (template.texts(row) for row in rows_of(recipe, "train", Report(d.bad_lines)))
        vocab = own_vocabulary(recipe, folder, ("".join(text) for text in texts if isinstance(text, tuple)))
    if data.is_dir():
        return vocab, template, Store.open(data, vocab.hash), report
    about: dict[str, Any] = {"vocab": vocab.hash, "corpus": d.corpus, "table": d.table}

    def rows() -> Iterator[dict[str, Tokens]]:
        found = tokenized(vocab, template, rows_of(recipe, "train", report), report, d.table)
        for _, tokens in found:
            yield {"prompt": tokens.prompt, "response": tokens.response}

    fields = {"prompt": "what was said before", "response": "the response and its end"}
    return vocab, template, write_store(data, fields, rows(), vocab.size, about), report


# Rows


class Apart(Protocol):
    """Which responses stand in which row of a batch."""

    rows: int
    length: int

    def pieces(self, number: int) -> list[int]: ...


class OneEach:
    """A row for every response, for models that read across the conversations of a row."""

    def __init__(self, sizes: np.ndarray, length: int) -> None:
        self.rows, self.length = len(sizes), int(sizes.max(initial=1))

    def pieces(self, number: int) -> list[int]:
        return [number]


class ResponseRows:
    """Responses in rows of one length, which do not see each other; only responses have answers."""

    def __init__(self, tokens: Sequence[ResponseTokens], length: int, packed: bool = True) -> None:
        self.tokens = tokens
        sizes = np.array([one.size for one in tokens], np.int64)
        self.apart: Apart = (Fitted if packed else OneEach)(sizes, length)
        self.filled = float(sizes.sum()) / max(1, self.apart.rows * self.apart.length)

    def batch(self, rows: Sequence[int] | np.ndarray) -> PackedBatch:
        """Some rows as a batch."""
        shape = len(rows), self.apart.length
        tokens, answers = np.zeros(shape, np.int64), np.full(shape, NOTHING)
        documents = np.full(shape, -1)
        for row, number in enumerate(map(int, rows)):
            at = 0
            for place, piece in enumerate(self.apart.pieces(number)):
                one = self.tokens[piece]
                first, end = at + len(one.prompt) - 1, at + one.size
                tokens[row, at:end] = [*one.prompt, *one.response[:-1]]
                answers[row, first:end] = one.response
                documents[row, at:end] = place
                at = end
        tokens_BT, answers_BT, documents_BT = map(torch.from_numpy, (tokens, answers, documents))
        count = int((answers != NOTHING).sum())
        return PackedBatch(tokens_BT, answers_BT, documents_BT, count, tuple(map(int, rows)))


class StoredTokens(Sequence[ResponseTokens]):
    """The rows of a store that fit, without a copy of them in memory."""

    def __init__(self, store: Store, length: int, longest: int) -> None:
        self.store = store
        prompts, responses = store.lengths("prompt"), store.lengths("response")
        fits = (prompts > 0) & (prompts + responses - 1 <= length) & (responses <= longest)
        self.places = np.flatnonzero(fits)
        self.left_out = len(store) - len(self.places)

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, place: Any) -> Any:
        number = int(self.places[place])
        return ResponseTokens(self.store.row("prompt", number), self.store.row("response", number))


def check_fits(kept: StoredTokens, d: InstructData, length: int) -> None:
    if not len(kept):
        sizes = f"data.max_length ({length} tokens) or data.max_response_length ({d.max_response_length})"
        raise BadInput(one_line(f"no response is left to learn from: all {kept.left_out:,} are over {sizes}"))
