"""Stream: a translation or a continuation piece by piece, as it is written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..decode.options import NOT_STREAMED, DecodingOptions, takes_options
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


@takes_options(without=NOT_STREAMED)
def stream(
    model: Model, text: str, *, source_lang: str | None = None, target_lang: str | None = None, **options: Any
) -> Iterator[str]:
    """Write one text piece by piece; no piece ends inside a character.

    The pieces together are what `translate` with a beam of 1 or `generate` writes.

    Args:
        text: One string.
        source_lang: As in `translate`.
        target_lang: As in `translate`.

    Keyword Args:
        logit_bias (Mapping[int, float] or tuple[str]): Added to the logits of tokens, by their numbers. -100
            means never, 100 means nothing else. Default: none.
        repetition_penalty (float): Penalty on tokens that occur in the text so far. 1 means none; above 1
            discourages repetition. From 0.001 to 1,000. Default: 1.0.
        presence_penalty (float): Subtracted from the logits of tokens that the answer has already. Below 0
            encourages them. From -2 to 2. Default: 0.0.
        frequency_penalty (float): Subtracted from the logits of tokens as often as the answer has them
            already. From -2 to 2. Default: 0.0.
        no_repeat_ngram_size (int): No sequence of this many tokens occurs twice. 0 means no limit. At least
            0. Default: 0.
        encoder_no_repeat_ngram_size (int): No sequence of this many tokens of the source, or of the prompt,
            is written. 0 means no limit. At least 0. Default: 0. For models that can translate or summarize
            or generate.
        bad_words (tuple[str] or list[str]): Words that are never written. Default: none.
        min_new_tokens (int): Minimum number of tokens to write before the end of the answer. At least 0.
            Default: 0.
        max_new_tokens (int): Maximum number of tokens to write. At least 1. Default: translate: 2 x source +
            20; generate: 100; others: as in training.
        stop (tuple[str] or list[str]): Text before which an answer ends. Default: none.
        prefix (str): Text that every answer begins with. Default: none. For models that can translate or
            summarize or caption.
        sample (bool): Draw each token at random by its probability instead of searching. Default: False.
        temperature (float): With `sample`: divisor of the logits. Below 1 favors likely tokens. From 0.001 to
            1,000. Default: 1.0.
        top_k (int): With `sample`: draw from the k most likely tokens. 0 means all. At least 0. Default: 0.
        top_p (float): With `sample`: draw from the most likely tokens that together have this probability.
            From 0 to 1. Default: 1.0.
        min_p (float): With `sample`: draw from tokens with at least this fraction of the highest probability.
            From 0 to 1. Default: 0.0.
        seed (int): With `sample`: seed of the random numbers. A line gets the same answer whatever lines
            surround it. Default: 0.
        draft (str or Model): Smaller model with the same vocabulary for speculative decoding. It changes the
            speed, not the text; with `sample`, not the distribution. Default: none. For models that can
            generate.
        draft_tokens (int): With `draft`: tokens that the draft model proposes at a time. From 1 to 100.
            Default: 4. For models that can generate.
        folder_settings ("use" or "ignore"): Whether the generation settings of a Hugging Face folder are the
            defaults of these options. Default: "use".

    Returns:
        An iterator of strings.

    Raises:
        BadInput: The model writes no text, or an option does not fit.

    Example:
        >>> model = heedful.load("runs/lm")
        >>> list(model.stream("The old king", max_new_tokens=4))
        [' is', ' going', ' to', ' be']
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
