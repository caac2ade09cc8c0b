"""Choose: the one of several ways to go on that goes best with a text, by a run that learned it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import torch

from ..data.questions import FEWEST, MultipleChoice
from ..decode.options import check_batch
from ..errors import BadInput
from ..models.base.shells import DecoderClassifier, Encoder
from .batches import finite
from .results import Chosen
from .texts import listed_texts

if TYPE_CHECKING:
    from ..tasks.choose import ChoiceReader
    from .model import Model


def can(model: Model) -> bool:
    """Whether it is a run that learned to choose."""
    head = model.kind is DecoderClassifier or (model.kind is Encoder and "classify" in model.output_heads)
    return head and model.task == "choose"


@overload
def choose(  # type: ignore[overload-overlap]
    model: Model, contexts: str, choices: Sequence[str], *, batch: int = 32
) -> Chosen: ...
@overload
def choose(
    model: Model, contexts: Sequence[str], choices: Sequence[Sequence[str]], *, batch: int = 32
) -> list[Chosen]: ...
def choose(
    model: Model, contexts: str | Sequence[str], choices: Sequence[Any], *, batch: int = 32
) -> Chosen | list[Chosen]:
    """Choose the continuation that fits each text best.

    Args:
        contexts: A text, or several.
        choices: A list of continuations, or one list for each text.
        batch: Texts computed at once.

    Returns:
        A `Chosen` for a string, a list for several.

    Raises:
        BadInput: The model learned no multiple choice, or a text has fewer than two choices.

    Example:
        >>> model = heedful.load("runs/choose")
        >>> chosen = model.choose("the cat sleeps .", ["it is a cat", "it is a dog"])
        >>> chosen, chosen.number
        ('it is a cat', 0)
    """
    model.check_can("choose")
    rows, one = listed_texts(contexts)
    lists = [list(choices)] if one else [list(some) for some in choices]
    if len(lists) != len(rows):
        raise BadInput(f"there are {len(rows)} texts and {len(lists)} lists of choices: give one for each")
    found = chosen(model, rows, lists, batch)
    return found[0] if one else found


def chosen(model: Model, contexts: list[str], choices: Sequence[Sequence[str]], batch: int) -> list[Chosen]:
    """The most likely choice for each text."""
    from ..tasks.choose import numbers

    check_batch(batch)
    for place, (context, some) in enumerate(zip(contexts, choices, strict=True), 1):
        if len(some) < FEWEST or not all(isinstance(one, str) and one.strip() for one in some):
            raise BadInput(
                f"text {place} has {len(some)} choices: give two or more, each of which says something"
            )
        if not context.strip():
            raise BadInput(f"text {place} is empty")
    vocab, kind, make = model.choice_reader
    rows = [MultipleChoice(context, tuple(some), 0) for context, some in zip(contexts, choices, strict=True)]
    found: list[Chosen] = []
    with torch.no_grad():
        for at in range(0, len(rows), batch):
            made = make(numbers(vocab, rows[at : at + batch])).to(model.device)
            scores_BK = kind.scores(model.model, made)
            for row, scores_K in zip(rows[at : at + batch], scores_BK, strict=True):
                shares = finite(scores_K[: len(row.choices)], model.folder).softmax(-1).tolist()
                number = max(range(len(shares)), key=shares.__getitem__)
                found.append(Chosen(row.choices[number], number, shares))
    return found


def reader_of(model: Model) -> ChoiceReader:
    """How a run reads texts and their choices."""
    from ..tasks.choose import reader

    assert model.recipe is not None
    return reader(Path(model.folder), model.recipe)
