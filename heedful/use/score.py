"""Score: how likely a model finds texts, or targets as the answers to texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, overload

import torch
from torch import Tensor

from ..decode.prompts import pad
from ..errors import BadInput
from ..interop.loaded import IN_WORDS
from ..models.base.shells import Decoder, EncoderDecoder
from ..parts.places import Lengths
from . import translate
from .batches import in_batches
from .languages import first_tokens, speaking
from .results import Scored
from .texts import Tokenized, both, each, fault_of, usable
from .wording import judged, table_of

if TYPE_CHECKING:
    from .model import Model

SLICE = 256  # tokens scored at once: a vocabulary is wide


def can(model: Model) -> bool:
    """Whether it gives probabilities to the tokens of a text, or of a target."""
    return model.kind is EncoderDecoder or (model.kind is Decoder and model.task != "summarize")


@overload
def score(  # type: ignore[overload-overlap]
    model: Model,
    texts: str,
    targets: str | None = None,
    *,
    batch: int = 32,
    source_lang: str | None = None,
    target_lang: str | None = None,
) -> Scored: ...
@overload
def score(
    model: Model,
    texts: Iterable[str],
    targets: Iterable[str] | None = None,
    *,
    batch: int = 32,
    source_lang: str | None = None,
    target_lang: str | None = None,
) -> list[Scored]: ...
def score(
    model: Model,
    texts: str | Iterable[str],
    targets: str | Iterable[str] | None = None,
    *,
    batch: int = 32,
    source_lang: str | None = None,
    target_lang: str | None = None,
) -> Scored | list[Scored]:
    """Score how likely texts are; for an encoder-decoder, how likely targets are as the answers to texts.

    Where the model knows no token that begins a text, the first token is given and not scored.

    Args:
        texts: A string, or several.
        targets: One for each text; for an encoder-decoder only.
        batch: Texts computed at once.
        source_lang: As in `translate`.
        target_lang: As in `translate`.

    Returns:
        A `Scored` for a string, a list for several.

    Raises:
        BadInput: The model gives texts no probability, or targets are missing.

    Example:
        >>> model = heedful.load("runs/demo")
        >>> right = model.score("My aunts are curious.", "Mes tantes sont curieuses.")
        >>> wrong = model.score("My aunts are curious.", "Mes tantes sont rouges.")
        >>> right.total > wrong.total, round(wrong.perplexity, 1)
        (True, 4.6)
        >>> scored = heedful.load("runs/lm").score("The old king is")
        >>> scored.given, scored.tokens
        ([' The'], [' old', ' king', ' is'])
    """
    model.check_can("score")
    model = speaking(model, source_lang, target_lang)
    check_targets(model, targets is not None)
    if targets is None:
        return each(texts, lambda some: scored_texts(model, encode(model, some), batch))
    return both(texts, targets, lambda a, b: scored_pairs(model, encode(model, a), b, batch))


def check_targets(model: Model, given: bool) -> None:
    """Refuse texts without targets where pairs are scored, and targets where texts are."""
    pairs = model.kind is EncoderDecoder
    if pairs != given:
        remedy = "give their targets too" if pairs else "it has no use for targets"
        units = "pairs" if pairs else "texts"
        raise BadInput(f"{model.folder} is {IN_WORDS[model.kind]}, which scores {units}: {remedy}")


def encode(model: Model, texts: list[str]) -> list[Tokenized]:
    """Texts as an encoder reads them; or as a decoder does, after the token that begins a text."""
    words = model.wording
    if model.kind is EncoderDecoder:
        return judged(words.source(texts, spans=model.reads_trees), model.model)
    rows, begin = words.prompt(texts), words.begin
    if begin is not None:
        rows = [row if row.ids[:1] == [begin] else replace(row, ids=[begin, *row.ids]) for row in rows]
    table, before = table_of(model.model), 0 if begin is None else 1  # the last token is not fed
    return [replace(row, fault=fault_of(len(row.ids) - before, table, 2 - before)) for row in rows]


def scored_texts(model: Model, texts: list[Tokenized], batch: int) -> list[Scored]:
    """Each token of a text, given those before it."""
    rows = [row.ids for row in usable(texts)]
    network: Any = model.model

    def do(some: list[int]) -> Sequence[list[float]]:
        fed_BT, lengths_B = pad([rows[i][:-1] for i in some], model.device)
        hidden_BTD = network.hidden(fed_BT, Lengths(lengths_B))
        return log_probabilities(network, hidden_BTD, [rows[i][1:] for i in some])

    found, names = in_batches(rows, batch, do), model.wording.names
    return [Scored(names(row[1:]), each, names(row[:1])) for row, each in zip(rows, found, strict=True)]


def scored_pairs(model: Model, sources: list[Tokenized], targets: list[str], batch: int) -> list[Scored]:
    """Each token of a target and its end, given its source and the tokens before it."""
    rows, words = usable(sources), model.wording
    network: Any = model.model
    first_tokens(model, getattr(words, "first", []))  # or a refusal: a language must be known
    answers = [[*row, *words.ends[:1]] for row in words.target(targets)]
    table = network.decoder.inputs.position.longest
    for place, row in enumerate(answers, 1):
        if not row:
            raise BadInput(f"target {place} is empty")
        if table is not None and len(row) > table:
            raise BadInput(
                f"target {place} has {len(row):,} tokens, and the model writes at most {table:,}: cut it"
            )

    def do(some: list[int]) -> Sequence[list[float]]:
        source_BS, lengths_B = pad([rows[i].ids for i in some], model.device)
        fed_BT, _ = pad([[words.start, *answers[i][:-1]] for i in some], model.device)
        reader = network
        if model.reads_trees:
            reader = translate.read_with_trees(model, network, [rows[i] for i in some])
        source = reader.read(source_BS, Lengths(lengths_B))
        hidden_BTD = network.decoder.hidden(fed_BT, source=source)
        return log_probabilities(network.decoder, hidden_BTD, [answers[i] for i in some])

    found = in_batches([[*a.ids, *b] for a, b in zip(rows, answers, strict=True)], batch, do)
    start = words.names([words.start])
    return [Scored(words.names(row), each, start) for row, each in zip(answers, found, strict=True)]


def log_probabilities(decoder: Decoder, hidden_BTD: Tensor, answers: list[list[int]]) -> list[list[float]]:
    """log p of each row's answers, from the vectors that predict them."""
    sizes = [len(row) for row in answers]
    hidden_ND = torch.cat([hidden_TD[:size] for hidden_TD, size in zip(hidden_BTD, sizes, strict=True)])
    answers_N = torch.tensor([token for row in answers for token in row], device=hidden_ND.device)
    log_p: list[float] = []
    for some_ND, right_N in zip(hidden_ND.split(SLICE), answers_N.split(SLICE), strict=True):
        scores_NV = decoder.head(some_ND[None], decoder.inputs.tokens)[0].float()
        log_p += scores_NV.log_softmax(-1).gather(1, right_N[:, None])[:, 0].tolist()
    rest = iter(log_p)
    return [[next(rest) for _ in range(size)] for size in sizes]
