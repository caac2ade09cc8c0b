"""Translate: what an encoder-decoder writes for each text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, overload

from ..data.trees import Parsed, words_of_pieces
from ..decode.options import BATCH, BEAM, DecodingOptions, takes_options
from ..decode.turns import Turns, finish
from ..errors import BadInput
from ..models.base.shells import EncoderDecoder
from .align import aligned
from .languages import first_tokens, speaking
from .results import Answer
from .search import Request, Search, answers, search_of
from .texts import Tokenized, each, usable
from .wording import judged

if TYPE_CHECKING:
    from .model import Model


def can(model: Model) -> bool:
    """Whether it is an encoder-decoder, and not one that learned to summarize."""
    return model.kind is EncoderDecoder and model.task != "summarize"


Code = str | None  # a language


@overload
def translate(
    model: Model, texts: str, *, source_lang: Code = None, target_lang: Code = None, **options: Any
) -> Answer: ...
@overload
def translate(
    model: Model, texts: Iterable[str], *, source_lang: Code = None, target_lang: Code = None, **options: Any
) -> list[Answer]: ...
@takes_options("translate")
def translate(
    model: Model,
    texts: str | Iterable[str],
    *,
    source_lang: Code = None,
    target_lang: Code = None,
    **options: Any,
) -> Answer | list[Answer]:
    """Translate texts, by a beam of 4 unless the options choose another search.

    Without a limit, a translation has at most twice as many tokens as its source, and 20. An empty text has
    an empty translation.

    Args:
        texts: A string, or several.
        source_lang: For a model that knows many languages (NLLB, M2M100, mBART), the language to translate
            from, such as "eng_Latn".
        target_lang: The language to translate into.

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
        align (bool): Link each word of an answer to a source word by attention. Default: False.
        batch (int): Texts computed at once. Use fewer if memory is short; answers stay the same. From 1 to
            100,000. Default: 32; writing on a GPU, 256.
        folder_settings ("use" or "ignore"): Whether the generation settings of a Hugging Face folder are the
            defaults of these options. Default: "use".

    Returns:
        An `Answer` for a string, a list for several: strings with their score, tokens and next best.

    Raises:
        BadInput: The model is no translator, or an option does not fit.

    Example:
        >>> model = heedful.load("runs/demo")
        >>> model.translate(["The small girl eats a red apple.", "My aunts are curious."])
        ['La petite fille mange une pomme rouge.', 'Mes tantes sont curieuses.']
        >>> answer = model.translate("My aunts are curious.", n_best=2, length_penalty="power")
        >>> len(answer.n_best), answer.tokens
        (2, [' Mes', ' tantes', ' sont', ' curieuses', '.', '[EOS]'])
        >>> model.translate("My aunts are curious.", sample=True, temperature=0.1, seed=3)
        'Mes tantes sont curieuses.'
        >>> model.translate("My aunts are curious.", align=True).alignment[:2]  # (source word, target word)
        [(0, 0), (1, 1)]
    """
    model.check_can("translate")
    model = speaking(model, source_lang, target_lang)
    how = model.decoding("translate", options)
    return each(texts, lambda some: write(model, encode(model, some), how, range(len(some))))


def encode(model: Model, texts: list[str]) -> list[Tokenized]:
    """Texts as the encoder reads them, with the place of each token."""
    return judged(model.wording.source(texts, spans=True), model.model, least=0)


def write(
    model: Model, rows: Sequence[Tokenized], how: DecodingOptions, numbers: Sequence[int]
) -> list[Answer]:
    """Translations of texts; numbers: which texts these are, among all that belong to one seed."""
    return finish(write_in_turns(model, rows, how, numbers))


def write_in_turns(
    model: Model, rows: Sequence[Tokenized], how: DecodingOptions, numbers: Sequence[int]
) -> Turns[list[Answer]]:
    """The same in turns: after each step of the search, others may take a turn."""
    search = search_for(model, how)
    found = yield from answers(model, search, requests(model, usable(rows), how, numbers))
    if how.align:
        yield
        align_answers(model, rows, found, how.batch or BATCH)
    return found


def align_answers(model: Model, rows: Sequence[Tokenized], found: list[Answer], batch: int) -> None:
    """Give every answer, and the next best, its alignment."""
    pairs = [(row, one) for row, best in zip(rows, found, strict=True) for one in best.n_best]
    written = [(row, one) for row, one in pairs if row.ids and one.strip()]
    read = partial(read_with_trees, model) if model.reads_trees else lambda network, rows: network
    links = aligned(model, read, [row for row, _ in written], [str(one) for _, one in written], batch)
    for _, one in pairs:
        one.alignment = []
    for (_, one), some in zip(written, links, strict=True):
        one.alignment = some


def search_for(model: Model, how: DecodingOptions, beam: int = BEAM) -> Search:
    """The search for translations; an encoder that needs trees is given those of the texts."""
    return search_of(model, how, beam, partial(read_with_trees, model) if model.reads_trees else None)


def requests(
    model: Model, rows: Sequence[Tokenized], how: DecodingOptions, numbers: Sequence[int]
) -> list[Request | None]:
    """Texts as a search is given them; None for a text that says nothing."""
    words = model.wording
    prefix = [*first_tokens(model, how.forced_first), *words.beginning(how.prefix)]
    found: list[Request | None] = []
    for row, number in zip(rows, numbers, strict=True):
        bounds = how.bounds(1, 2 * len(row.ids) + 20 + len(prefix))
        silent = not row.text.strip() or not row.ids
        found.append(None if silent else Request([words.start], *bounds, row, number, prefix))
    return found


# Trees


def read_with_trees(model: Model, network: Any, rows: Sequence[Tokenized]) -> Any:
    """The network, given the trees of the texts that it reads next."""
    from ..tasks.translate import with_trees
    from ..tasks.translate_data import TokenTree

    trees = []
    for place, row in enumerate(rows, 1):
        if not isinstance(row.text, Parsed):
            raise BadInput(
                f"{model.folder} reads sentences with their trees, and text {place} has none: "
                f"give `trees`, a CoNLL-U file as `heedful parse` writes it, "
                f"or from Python what model.parse gives"
            )
        trees.append(TokenTree(words_of_pieces(row.text, row.spans), row.text.heads))
    return with_trees(network, trees)
