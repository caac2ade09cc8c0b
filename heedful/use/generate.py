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
    """Continue texts: greedily, unless the options choose sampling or a beam; at most 100 tokens.

    A text beyond the context loses its beginning, with a warning. When the context is full, decoding drops
    the older half and continues; beam search stops.

    Args:
        texts: A string, or several.

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
        draft (str or Model): Smaller model with the same vocabulary for speculative decoding. It changes the
            speed, not the text; with `sample`, not the distribution. Default: none.
        draft_tokens (int): With `draft`: tokens that the draft model proposes at a time. From 1 to 100.
            Default: 4.
        batch (int): Texts computed at once. Use fewer if memory is short; answers stay the same. From 1 to
            100,000. Default: 32; writing on a GPU, 256.
        folder_settings ("use" or "ignore"): Whether the generation settings of a Hugging Face folder are the
            defaults of these options. Default: "use".

    Returns:
        An `Answer` for a string, a list for several, without the given texts.

    Raises:
        BadInput: The model is no decoder, or an option does not fit.

    Example:
        >>> model = heedful.load("runs/lm")
        >>> model.generate("The old king", max_new_tokens=8)
        ' is going to be a very famous man'
        >>> model.generate("The old king", max_new_tokens=8, sample=True, top_k=1, seed=7)
        ' is going to be a very famous man'
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
    """The same in turns: after each step of the search, others may take a turn."""
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
    """Write a conversation by the model's chat template, for `generate` and `stream` to answer.

    Args:
        conversation: A message of the user's, or [{"role": ..., "content": ...}, ...].

    Returns:
        The prompt.

    Raises:
        BadInput: The model has no chat template, or the template refuses the conversation.

    Example:
        >>> heedful.load("runs/lm").chat_prompt("Hello")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        heedful.errors.BadInput: runs/lm has no chat template, so it is not a chat model: ...
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
