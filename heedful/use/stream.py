"""Stream: a translation or a continuation piece by piece, as it is written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..decode.options import DecodingOptions, takes_options
from ..errors import BadInput
from . import generate, translate
from .languages import speaking
from .search import pieces, search_of
from .texts import Tokenized, usable

if TYPE_CHECKING:
    from .model import Model


def can(model: Model) -> bool:
    """Whether it translates or generates."""
    return translate.can(model) or generate.can(model)


@takes_options()
def stream(
    model: Model, text: str, *, source_lang: str | None = None, target_lang: str | None = None, **options: Any
) -> Iterator[str]:
    """The same text piece by piece, as it is written; no piece ends inside a character.

    text: one string. source_lang, target_lang: as in `translate`. options: those of
    `heedful.decode.options.DecodingOptions` without those of beam search. `prefix` is for encoder-decoders;
    `draft` and `draft_tokens` are for decoders. Returns an iterator of strings.

    >>> model = load("runs/toy-lm")
    >>> print(*model.stream("the cat", max_new_tokens=6), sep="|")
     |s|a|t| |o
    """
    model.check_can("stream")
    if not isinstance(text, str):
        raise BadInput(f"stream takes one text, a string, not {type(text).__name__}")
    model = speaking(model, source_lang, target_lang)
    how = model.decoding("translate" if translate.can(model) else "generate", options, beam=1)
    if how.width(1) > 1 or how.beam_groups > 1:
        raise BadInput("beam search decides at the end, so it cannot stream: leave out `beam`")
    if how.top:
        raise BadInput("a stream is text alone, without the most likely tokens: leave out `top`")
    if how.align:
        raise BadInput("words are aligned once all are written, so they cannot stream: leave out `align`")
    if translate.can(model):
        (row,) = usable(translate.encode(model, [text]))
    else:
        (row,) = generate.warn_of_notes(generate.encode(model, [text]))
    return streamed(model, row, how)


def streamed(model: Model, row: Tokenized, how: DecodingOptions, number: int = 0) -> Iterator[str]:
    """What `stream` gives; number: which text this is, among all that belong to one seed."""
    if translate.can(model):
        (request,) = translate.requests(model, [row], how, [number])
        search = translate.search_for(model, how, beam=1)
    else:
        (request,) = generate.requests(model, [row], how, [number])
        search = search_of(model, how)
    yield from pieces(model, search, request)
