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
    """Translations, by a beam of 4 unless the options choose another search. An empty text has an empty one.

    texts: a string, or several. source_lang, target_lang: of a model that knows many languages (NLLB, M2M100,
    mBART), those to translate from and into, such as "eng_Latn". options: those of
    `heedful.decode.options.DecodingOptions`; the generation settings of a Hugging Face folder are their
    defaults. Without a limit, a translation has at most twice as many tokens as its source, and 20. Returns
    an `Answer` for a string, a list for several: strings with their score, their tokens and the next best.

    >>> model = load("runs/toy")
    >>> model.translate(["the cat sleeps", "i am a student"])
    ['le chat dort', 'je suis étudiant']
    >>> answer = model.translate("the cat sleeps", n_best=2, length_penalty="power", length_alpha=1.0)
    >>> len(answer.n_best), answer.tokens
    (2, [' le', ' chat', ' dort', '[EOS]'])
    >>> model.translate("the cat sleeps", prefix="le chien")
    'le chien dort'
    >>> model.translate("the cat sleeps", sample=True, temperature=0.1, seed=3)
    'le chat dort'
    >>> answer = model.translate("the cat sleeps", align=True)  # pairs of words, source and target
    >>> all(source < 3 and target < 3 for source, target in answer.alignment)
    True
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
    """The same in turns: after each step of the search, others may have theirs."""
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
