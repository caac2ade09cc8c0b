"""Summarize: what a run that learned it writes about each article."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, overload

from ..decode.options import BEAM, DecodingOptions, takes_options
from ..decode.turns import Turns, finish
from ..models.base.shells import EncoderDecoder
from .results import Answer
from .search import Request, Search, answers, search_of
from .texts import Tokenized, each, usable
from .wording import judged

if TYPE_CHECKING:
    from .model import Model


def can(model: Model) -> bool:
    """Whether it is a run that learned to summarize: an encoder-decoder, or a decoder alone."""
    return model.task == "summarize"


@overload
def summarize(model: Model, texts: str, **options: Any) -> Answer: ...
@overload
def summarize(model: Model, texts: Iterable[str], **options: Any) -> list[Answer]: ...
@takes_options("summarize")
def summarize(model: Model, texts: str | Iterable[str], **options: Any) -> Answer | list[Answer]:
    """Summaries, by a beam of 4 unless the options choose another search.

    A summary is at most as long as those the run was trained on, or `max_new_tokens`.

    texts: an article, or several; `heedful.data.articles.Article` is one that has its title and its
    paragraphs. What is too long is cut, or the paragraphs that fit its title are read first, as the run has
    learned to. options: those of `heedful.decode.options.DecodingOptions`. Returns an `Answer` for a string,
    a list for several.

    >>> model = load("runs/toy-summarize")
    >>> model.summarize("the cat sat on the mat. the dog ate the fish.")
    'cat and dog'
    """
    model.check_can("summarize")
    how = model.decoding("summarize", options)
    return each(texts, lambda some: write(model, encode(model, some), how, range(len(some))))


def encode(model: Model, texts: list[str]) -> list[Tokenized]:
    """Of each article, what the run has learned to read."""
    return judged(model.wording.source(texts), model.model, least=0)


def write(
    model: Model, rows: Sequence[Tokenized], how: DecodingOptions, numbers: Sequence[int]
) -> list[Answer]:
    """Summaries of articles; numbers: which articles these are, among all that belong to one seed."""
    return finish(write_in_turns(model, rows, how, numbers))


def write_in_turns(
    model: Model, rows: Sequence[Tokenized], how: DecodingOptions, numbers: Sequence[int]
) -> Turns[list[Answer]]:
    """The same in turns: after each step of the search, others may have theirs."""
    search = search_for(model, how)
    return (yield from answers(model, search, requests(model, usable(rows), how, numbers)))


def search_for(model: Model, how: DecodingOptions) -> Search:
    """The search for summaries: a beam, where the options do not say otherwise."""
    return search_of(model, how, BEAM)


def requests(
    model: Model, rows: Sequence[Tokenized], how: DecodingOptions, numbers: Sequence[int]
) -> list[Request | None]:
    """Articles as a search is given them, for an encoder or for the decoder itself; None: no words."""
    assert model.recipe is not None
    words, longest = model.wording, model.recipe.data.max_summary_length
    prefix = [*how.forced_first, *words.beginning(how.prefix)]
    found: list[Request | None] = []
    for row, number in zip(rows, numbers, strict=True):
        if not row.text.strip() or not row.ids:
            found.append(None)
        elif model.kind is EncoderDecoder:
            found.append(Request([words.start], *how.bounds(1, longest), row, number, prefix))
        else:
            prompt = [*row.ids, words.named("[SEP]")]
            found.append(Request(prompt, *how.bounds(len(prompt), longest), None, number, prefix))
    return found
