"""Languages of a translator that knows many: which one its texts are in, and which one it writes."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..errors import BadInput

if TYPE_CHECKING:
    from .model import Model


def speaking(model: Model, source: str | None, target: str | None) -> Model:
    """The model as it translates from one language into another.

    source: without it, the language that the folder names. target: without it, that of the folder's
    generation settings.
    """
    languages = model.loaded.languages
    if source is None and target is None:
        return model
    if languages is None:
        option = "source_lang" if target is None else "target_lang"
        raise BadInput(f"{model.folder} has no tokens that name languages: leave out `{option}`")
    for code in filter(None, (source, target)):
        languages.number(code)
    special = dict(model.loaded.special)
    if target is not None and languages.is_start:
        special["decoder_start"] = languages.number(target)
    chosen = replace(languages, source=source or languages.source, target=target)
    made = copy.copy(model)
    made.__dict__.pop("wording", None)
    made.loaded = replace(model.loaded, special=special, languages=chosen)
    return made


def first_tokens(model: Model, forced: Sequence[int]) -> list[int]:
    """What every translation begins with: the language, or what the folder's settings force.

    A model of many languages that nobody gave one is refused.
    """
    languages = model.loaded.languages
    if languages is None:
        return list(forced)
    if languages.target is not None:
        return [] if languages.is_start else [languages.number(languages.target)]
    known = set(languages.codes.values())
    if not known & {*forced, model.wording.start}:
        some = ", ".join(list(languages.codes)[:3])
        raise BadInput(
            f"{model.folder} translates into {len(known)} languages: "
            f"give one as `target_lang`, such as {some}"
        )
    return list(forced)
