"""Reading: the answers to questions that stand in a text, and which of several ways to go on from a text is right."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ..data.questions import FEWEST, Choice, Question
from ..errors import BadInput
from ..tasks import choose, span
from ..tasks.classify import row_of
from ..tasks.origin import Borrowed
from .results import Chosen, Found
from .scoring import finite, recipe_of
from .writing import check_number

if TYPE_CHECKING:
    from .model import Model

# How long rows of a Hugging Face folder are, which does not say: as BERT's authors had them for SQuAD.
LONGEST, OVERLAP, ANSWER = 384, 128, 30


def answered(model: Model, questions: list[str], contexts: list[str], batch: int) -> list[Found]:
    """What each question asks for, as its context has it."""
    check_number("batch", batch)
    for what, texts in {"question": questions, "context": contexts}.items():
        for place, text in enumerate(texts, 1):
            if not text.strip():
                raise BadInput(f"{what} {place} is empty")
    rows = [Question(q, c, (("", 0),)) for q, c in zip(questions, contexts, strict=True)]
    network: Any = model.model
    with torch.no_grad():
        found, _, _ = span.read(network, reader_of(model), rows, batch)
    for one in found:
        finite(torch.tensor(one.score), model)
    return [Found(one.text, one.start, one.end, one.score, one.probability) for one in found]


def reader_of(model: Model) -> span.Reader:
    """How a run, or a Hugging Face folder, reads questions."""
    if model.own:
        return span.reader_of(Path(model.folder), recipe_of(Path(model.folder)))
    tokenizer = model.wording.reads
    vocab = Borrowed(tokenizer, tokenizer.to_str(), model.special, model.folder)
    longest = min(LONGEST, model.config.context)
    special = 2 + len(vocab.between)
    asked = min(span.ASKED, (longest - special) // 2)  # a small model has room for a short question
    if asked < 1:
        raise BadInput(
            f"{model.folder} reads {longest} tokens, too few for a question and a text: use another model"
        )
    rooms = span.Rooms(longest, min(OVERLAP, longest // 2), special, asked)
    return span.Reader(vocab, row_of(model.config), rooms, ANSWER)


def chosen(model: Model, contexts: list[str], choices: Sequence[Sequence[str]], batch: int) -> list[Chosen]:
    """The likeliest choice for each text."""
    check_number("batch", batch)
    for place, (context, some) in enumerate(zip(contexts, choices, strict=True), 1):
        if len(some) < FEWEST or not all(isinstance(one, str) and one.strip() for one in some):
            raise BadInput(
                f"text {place} has {len(some)} choices: give two or more, each of which says something"
            )
        if not context.strip():
            raise BadInput(f"text {place} is empty")
    run = Path(model.folder)
    vocab, kind, make = choose.reader(run, recipe_of(run))
    rows = [Choice(context, tuple(some), 0) for context, some in zip(contexts, choices, strict=True)]
    found: list[Chosen] = []
    with torch.no_grad():
        for at in range(0, len(rows), batch):
            made = make(choose.numbers(vocab, rows[at : at + batch])).to(model.device)
            scores_BK = kind.scores(model.model, made)
            for row, scores_K in zip(rows[at : at + batch], scores_BK, strict=True):
                shares = finite(scores_K[: len(row.choices)], model).softmax(-1).tolist()
                number = max(range(len(shares)), key=shares.__getitem__)
                found.append(Chosen(row.choices[number], number, shares))
    return found
