"""Stream: a translation or a continuation piece by piece, as it is written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Unpack

from ..errors import BadInput
from . import generate, translate
from .options import Options, SearchOptions, refuse_draft, refuse_prefix, search_options, takes_options
from .search import pieces, search_of
from .texts import Tokenized

if TYPE_CHECKING:
    from .model import Model


def can(model: Model) -> bool:
    """Whether it translates or generates."""
    return translate.can(model) or generate.can(model)


@takes_options()
def stream(model: Model, text: str, **options: Unpack[Options]) -> Iterator[str]:
    """The same text piece by piece, as it is written; no piece ends inside a character.

    text: one string. options: those of decoding (see `heedful.use.options.SearchOptions`) except those of a
    beam. An encoder-decoder has a use for `prefix`, a decoder for `draft` and `ahead`. Returns an iterator of
    strings.

    >>> model = load("runs/toy-lm")
    >>> print(*model.stream("the cat", longest=6), sep="|")
     |s|a|t| |o
    """
    model.check_can("stream")
    if not isinstance(text, str):
        raise BadInput(f"stream takes one text, a string, not {type(text).__name__}")
    how = search_options(options)
    (refuse_draft if translate.can(model) else refuse_prefix)(how)
    if how.width(1) > 1 or (how.groups or 1) > 1:
        raise BadInput("a beam decides at the end, so nothing can be streamed: leave out `beam`")
    (row,) = (translate if translate.can(model) else generate).encode(model, [text])
    return streamed(model, row, how)


def streamed(model: Model, row: Tokenized, how: SearchOptions, number: int = 0) -> Iterator[str]:
    """What `stream` gives; number: which text this is, among all that belong to one seed."""
    if translate.can(model):
        (request,) = translate.requests(model, [row], how, [number])
        search = translate.search_for(model, how, beam=1)
    else:
        (request,) = generate.requests(model, [row], how, [number])
        search = search_of(model, how)
    yield from pieces(model, search, request)
