"""Searches by the options that ask for them: what options mean is found out once, not for every request."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from ..decode.options import decoding_options
from ..errors import BadInput
from ..use import generate, summarize, translate
from ..use.languages import speaking
from ..use.model import Model
from ..use.search import Search

Value = TypeVar("Value")
MOST = 256  # searches that are kept, and pairs of languages
LONGEST = 4096  # characters of options that are kept
ABILITIES: dict[str, Any] = {"generate": generate, "translate": translate, "summarize": summarize}


class KnownSearches:
    """The searches of a model, the latest few of which are kept."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.models: OrderedDict[tuple[str | None, str | None], Model] = OrderedDict()  # by languages
        self.searches: OrderedDict[str, Search] = OrderedDict()

    def speaking(self, source: str | None, target: str | None) -> Model:
        """The model as it translates from one language into another."""
        if source is None and target is None:
            return self.model
        return kept(self.models, (source, target), lambda: speaking(self.model, source, target))

    def search(
        self,
        ability: str,
        options: Mapping[str, Any],
        beam: int | None = None,
        source: str | None = None,
        target: str | None = None,
    ) -> Search:
        """The search that options ask for. beam: its width where neither they nor the folder say."""
        own = {name: options[name] for name in changing(options) if name in options}
        others = {name: value for name, value in options.items() if name not in own}
        key = json.dumps([ability, others, [*own], beam, source, target], sort_keys=True)

        def make() -> Search:
            model = self.speaking(source, target)
            how = model.decoding(ability, options, beam=beam)
            check_biases(model, how.logit_bias)
            return ABILITIES[ability].search_for(model, how)

        if "logit_bias" in options or len(key) > LONGEST:  # it has a table as long as the vocabulary
            return make()
        found = kept(self.searches, key, make)
        for name, value in own.items():
            decoding_options()[name].check(value)
        return found.but(**own)


def changing(options: Mapping[str, Any]) -> list[str]:
    """Options that differ from request to request and have nothing to do with the others."""
    names = [] if "min_new_tokens" in options else ["max_new_tokens"]
    return [*names, "seed"] if options.get("sample") is True else names


def kept(known: OrderedDict[Any, Value], key: Any, make: Callable[[], Value]) -> Value:
    """The value of a key, made if it is not known. Of too many, the one used longest ago is dropped."""
    if key in known:
        known.move_to_end(key)
        return known[key]
    made = known[key] = make()
    if len(known) > MOST:
        known.popitem(last=False)
    return made


def check_biases(model: Model, biases: Iterable[Any]) -> None:
    """Refuse a bias for a token that the model does not have."""
    known = getattr(model.config, "target_vocab", getattr(model.config, "vocab", 0))
    for token in map(int, biases):
        if token >= known:
            raise BadInput(f"`logit_bias` names the token {token}, and there are {known:,}, counted from 0")
