"""Edits in the worker. The means that replace heads are taken once, over held-out texts of the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from weakref import WeakKeyDictionary

from ..errors import BadInput
from ..inside.corpus import samples_of
from ..inside.edit_spellings import MeanHead, parse
from ..inside.edits import HeadMeans, edit, head_means
from ..inside.samples import Sample
from ..inside.trace import Trace
from ..use.model import Model

MEAN_OVER = 32  # texts
MEANS: WeakKeyDictionary[Model, HeadMeans] = WeakKeyDictionary()


def means_for(model: Model, edits: Sequence[str]) -> HeadMeans | None:
    """The mean outputs of all heads, where an edit needs them."""
    if not any(isinstance(parse(spelling), MeanHead) for spelling in edits):
        return None
    if model not in MEANS:
        texts = held_out(model)
        targets = [one.target for one in texts] if all(one.target for one in texts) else None
        MEANS[model] = head_means(model.loaded, [one.text for one in texts], targets)
    return MEANS[model]


def held_out(model: Model) -> list[Sample]:
    """Texts of the run; built-in sentences where there is no run, or its data are gone."""
    if model.own:
        with suppress(BadInput):
            return samples_of(model.loaded, Path(model.folder), model.recipe, count=MEAN_OVER).samples
    return samples_of(model.loaded, None, None, count=MEAN_OVER).samples


def editing(
    model: Model, edits: Sequence[str], traces: Mapping[str, Trace] | None = None
) -> AbstractContextManager[None]:
    """The model with edits, within a `with` block."""
    return edit(model, edits, traces=traces, means=means_for(model, edits)) if edits else nullcontext()
