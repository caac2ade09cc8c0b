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
    """Summarize articles, by a beam of 4 unless the options choose another search.

    A summary is at most as long as those the run was trained on, or `max_new_tokens`. An article that is too
    long is cut, or the paragraphs that fit its title are read first, as the run has learned to.

    Args:
        texts: An article, or several: strings, or an `Article` with its title and paragraphs.

    Keyword Args:
        beam (int): Hypotheses kept at each step. 1 is greedy search. More are slower and often better. From 1
            to 1,000. Default: 4; generate, `sample` and `draft`: 1.
        n_best (int): Answers to return for each text, best first; at most the width of the beam. From 1 to
            1,000. Default: 1.
        length_penalty ("gnmt" or "power"): Divisor of a hypothesis' log-probability: gnmt is ((5 + length) /
            6)^alpha, power is length^alpha. Default: "gnmt".
        length_alpha (float): Exponent alpha of the length penalty. 0 means no penalty; larger values favor
            longer answers. From -5 to 5. Default: 0.6.
        stopping ("heuristic" or "first_B" or "exact"): When beam search stops. heuristic: no live hypothesis
            currently beats the finished ones. first_B: as many have finished as the beam is wide. exact: none
            can still win. Default: "heuristic".
        coverage_penalty (float): Weight of the penalty on source words that receive little attention;
            encoder-decoders only. From 0 to 1,000. Default: 0.0.
        beam_groups (int): Groups of beams for diverse beam search. Each group has `beam` hypotheses. From 1
            to 100. Default: 1.
        diversity_penalty (float): Cost of a token that an earlier group has written at the same position.
            From 0 to 1,000. Default: 0.0.
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
            is written. 0 means no limit. At least 0. Default: 0.
        bad_words (tuple[str] or list[str]): Words that are never written. Default: none.
        min_new_tokens (int): Minimum number of tokens to write before the end of the answer. At least 0.
            Default: 0.
        max_new_tokens (int): Maximum number of tokens to write. At least 1. Default: translate: 2 x source +
            20; generate: 100; others: as in training.
        stop (tuple[str] or list[str]): Text before which an answer ends. Default: none.
        prefix (str): Text that every answer begins with. Default: none.
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
        top (int): Most likely tokens to report at each token of an answer, with their log-probabilities. From
            0 to 1,000. Default: 0.
        batch (int): Texts computed at once. Use fewer if memory is short; answers stay the same. From 1 to
            100,000. Default: 32; writing on a GPU, 256.
        folder_settings ("use" or "ignore"): Whether the generation settings of a Hugging Face folder are the
            defaults of these options. Default: "use".

    Returns:
        An `Answer` for an article, a list for several.

    Raises:
        BadInput: The model learned no summaries, or an option does not fit.

    Example:
        >>> model = heedful.load("runs/summarize")
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
    """The same in turns: after each step of the search, others may take a turn."""
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
