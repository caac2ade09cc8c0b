"""Answer: what a question asks for, as a text has it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import torch

from ..decode.options import check_batch
from ..decode.turns import Turns, finish
from ..errors import BadInput
from ..models.base.shells import Encoder
from .batches import finite
from .results import AnswerSpan
from .texts import Tokenized, both
from .wording import tokenize_by

if TYPE_CHECKING:
    from ..tasks.span import SpanReader
    from .model import Model

# How long rows of a Hugging Face folder are, which does not say: as BERT's authors had them for SQuAD.
LONGEST, OVERLAP, ANSWER = 384, 128, 30


def can(model: Model) -> bool:
    """Whether it is an encoder with a head for the span of an answer."""
    return model.kind is Encoder and "span" in model.output_heads


@overload
def answer(  # type: ignore[overload-overlap]
    model: Model, questions: str, contexts: str, *, batch: int = 32
) -> AnswerSpan: ...
@overload
def answer(
    model: Model, questions: Iterable[str], contexts: Iterable[str], *, batch: int = 32
) -> list[AnswerSpan]: ...
def answer(
    model: Model, questions: str | Iterable[str], contexts: str | Iterable[str], *, batch: int = 32
) -> AnswerSpan | list[AnswerSpan]:
    """Answer questions with spans of their contexts; a long context is read in windows that overlap.

    Args:
        questions: A string, or several.
        contexts: The text of each question.
        batch: Windows computed at once.

    Returns:
        An `AnswerSpan` for a string, a list for several.

    Raises:
        BadInput: The model learned no questions, or a question or a context is empty.

    Example:
        >>> found = heedful.load("runs/span").answer("who sleeps ?", "the dog eats . the cat sleeps .")
        >>> found, found.start, found.end
        ('cat', 19, 22)
    """
    model.check_can("answer")
    return both(questions, contexts, lambda a, b: answered(model, encode(model, a, b), batch))


def encode(model: Model, questions: list[str], contexts: list[str] | str) -> list[Tokenized]:
    """Each question and its context, one after the other. `text` is the context, and `spans` are places in
    it.

    contexts: one for each question, or one for all, whose words are then no words of each question.
    """
    vocab, shared = model.question_reader.vocab, isinstance(contexts, str)
    texts = [contexts] * len(questions) if isinstance(contexts, str) else contexts
    for what, some in {"question": questions, "context": texts}.items():
        for place, text in enumerate(some, 1):
            if not text.strip():
                raise BadInput(f"{what} {place} is empty")
    different = list(dict.fromkeys(texts))
    read = dict(zip(different, tokenize_by(vocab, different, spans=True), strict=True))
    rows = []
    for place, (asked, text) in enumerate(zip(tokenize_by(vocab, questions), texts, strict=True), 1):
        context = read[text]
        if not context.ids:
            raise BadInput(f"context {place} has nothing that the model reads")
        segments = [0] * len(asked.ids) + [1] * len(context.ids)
        unknown = asked.unknown + ([] if shared else context.unknown)
        rows.append(Tokenized(text, asked.ids + context.ids, unknown, context.spans, segments))
    return rows


def answered(model: Model, rows: list[Tokenized], batch: int) -> list[AnswerSpan]:
    """What each question asks for, as its context has it."""
    check_batch(batch)
    return finish(answer_in_turns(model, rows, batch))


@torch.no_grad()
def answer_in_turns(model: Model, rows: list[Tokenized], batch: int) -> Turns[list[AnswerSpan]]:
    """The same in turns: after each batch of windows, others may take a turn."""
    from ..tasks.span import read_in_turns
    from ..tasks.span_windows import TokenizedQuestion

    ends = [row.segments.count(0) for row in rows]
    items = [TokenizedQuestion(row.ids[:n], row.ids[n:]) for row, n in zip(rows, ends, strict=True)]
    network: Any = model.model
    contexts = [(row.text, row.spans) for row in rows]
    found, _, _ = yield from read_in_turns(network, model.question_reader, items, contexts, batch)
    for one in found:
        finite(torch.tensor(one.score), model.folder)
    return [AnswerSpan(one.text, one.start, one.end, one.score, one.probability) for one in found]


def reader_of(model: Model) -> SpanReader:
    """How a run, or a Hugging Face folder, reads questions."""
    from ..tasks import span
    from ..tasks.classify import row_of
    from ..tasks.origin import ForeignVocab
    from ..tasks.span_windows import LONGEST_QUESTION, WindowLayout

    if model.recipe is not None:
        return span.reader_of(Path(model.folder), model.recipe)
    tokenizer = model.wording.reads
    vocab = ForeignVocab(tokenizer, tokenizer.to_str(), model.special, model.folder)
    longest = min(LONGEST, model.config.context)
    special = 2 + len(vocab.between)
    asked = min(LONGEST_QUESTION, (longest - special) // 2)  # a small model has room for a short question
    if asked < 1:
        raise BadInput(
            f"{model.folder} reads {longest} tokens, too few for a question and a text: use another model"
        )
    rooms = WindowLayout(longest, min(OVERLAP, longest // 2), special, asked)
    return span.SpanReader(vocab, row_of(model.config), rooms, ANSWER)
