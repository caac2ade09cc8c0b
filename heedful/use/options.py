"""The options of decoding: their defaults, their ranges, and what they exclude. No torch here."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, TypedDict, TypeVar

from ..errors import BadInput
from ..models import nearest
from ..models.base.settings import Range

BEAM = 4  # hypotheses of a translation, a summary and a caption (Vaswani et al. 2017)
Method = TypeVar("Method", bound=Callable[..., Any])


class Options(TypedDict, total=False):
    """The same names as `SearchOptions` has, for those who check types."""

    beam: int
    n_best: int
    length_penalty: Literal["gnmt", "power"]
    alpha: float
    stopping: Literal["heuristic", "first_B", "exact"]
    coverage: float
    groups: int
    diversity: float
    sample: bool
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    seed: int
    repetition_penalty: float
    no_repeat_ngram: int
    forbid: Sequence[str]
    prefix: str
    draft: Any
    ahead: int
    longest: int
    batch: int


@dataclass(frozen=True)
class SearchOptions:
    """How to write. None leaves the choice to the search."""

    beam: int | None = None  # hypotheses kept side by side: 4 to translate, 1 (greedy) to generate
    n_best: int = 1  # answers to keep for each text, best first
    length_penalty: str | None = None  # "gnmt" or "power"
    alpha: float | None = None  # its exponent: 0.6; 0 for none
    stopping: str | None = None  # when a beam is done: "heuristic", "first_B" or "exact"
    coverage: float | None = None  # weight of the penalty on source words that nothing looked at
    groups: int | None = None  # of beams, each made to differ from those before it
    diversity: float | None = None  # what it costs to write what another group wrote
    sample: bool = False  # draw each token at random instead of searching
    temperature: float | None = None  # below 1: more of the likeliest
    top_k: int | None = None  # draw from the k likeliest
    top_p: float | None = None  # draw from the likeliest that hold this share of the probability
    min_p: float | None = None  # draw from those at least so likely, compared with the likeliest
    seed: int = 0  # another seed, other texts
    repetition_penalty: float | None = None  # above 1: less of what was written before
    no_repeat_ngram: int | None = None  # no so many tokens in a row twice
    forbid: Sequence[str] = ()  # words never to write
    prefix: str = ""  # what every translation begins with
    draft: Any = None  # a smaller model that guesses ahead; changes the speed and not the text
    ahead: int | None = None  # how many tokens it guesses: 4
    longest: int | None = None  # tokens: twice the source and 20 to translate, 100 to generate
    batch: int = 32  # texts at once: fewer if memory is short

    def __post_init__(self) -> None:
        for name in RANGES:
            if getattr(self, name, None) is not None:
                check_number(name, getattr(self, name))
        if type(self.seed) is not int:
            raise BadInput(f"`seed` must be a whole number, not {self.seed!r}")
        if isinstance(self.forbid, str):
            raise BadInput(f'`forbid` takes a list of words: ["{self.forbid}"]')
        for name in SAMPLING:
            if getattr(self, name) is not None and not self.sample:
                raise BadInput(f"`{name}` does nothing unless tokens are drawn: ask for `sample` too")
        if self.sample and (self.beam or 1) > 1:
            raise BadInput("`sample` draws one token at a time and `beam` searches: ask for one of them")
        if self.ahead is not None and self.draft is None:
            raise BadInput("`ahead` is how far a draft guesses: give `draft` too")

    def signature(self, otherwise: int) -> str:
        """The search, as evaluations name it; otherwise: the width of the beam by default."""
        width = self.width(otherwise)
        if width == 1:
            return "greedy"
        alpha = 0.6 if self.alpha is None else self.alpha
        return f"beam:{width}|length_penalty:{self.length_penalty or 'gnmt'}|length_alpha:{alpha:g}"

    def width(self, otherwise: int) -> int:
        """The width of the beam, `otherwise` by default. What only a beam has is refused without one."""
        width = self.beam or (1 if self.sample or self.draft is not None else otherwise)
        if width == 1 and not (self.groups or 1) > 1:
            for name in OF_BEAMS:
                if getattr(self, name) not in (None, type(self).__dataclass_fields__[name].default):
                    raise BadInput(f"`{name}` is for beam search: ask for a `beam` of 2 or more")
        elif self.draft is not None:
            raise BadInput("a draft guesses for one hypothesis: leave out `beam`, or leave out `draft`")
        return width


# What numbers may be. Whole ones have whole ends.
RANGES = {
    "beam": Range(1, 1000),
    "n_best": Range(1, 1000),
    "groups": Range(1, 100),
    "top_k": Range(1, 10**9),
    "no_repeat_ngram": Range(1, 10**6),
    "ahead": Range(1, 100),
    "longest": Range(1, 10**6),
    "batch": Range(1, 10**5),
    "top": Range(1, 10**6),
    "alpha": Range(-5.0, 5.0),
    "coverage": Range(0.0, 1000.0),
    "diversity": Range(0.0, 1000.0),
    "temperature": Range(0.001, 1000.0),
    "top_p": Range(0.0, 1.0),
    "min_p": Range(0.0, 1.0),
    "repetition_penalty": Range(0.001, 1000.0),
}


def check_number(name: str, value: Any) -> None:
    """Refuse a value that is no number, or one that makes no sense."""
    allowed = RANGES[name]
    kinds = (int,) if type(allowed.least) is int else (int, float)
    if type(value) not in kinds or value not in allowed:
        kind = "a whole number" if kinds == (int,) else "a number"
        raise BadInput(f"`{name}` must be {kind} {allowed}, not {value!r}")


SAMPLING = ("temperature", "top_k", "top_p", "min_p")
OF_BEAMS = ("n_best", "length_penalty", "alpha", "stopping", "coverage", "groups", "diversity")


def search_options(options: Options | dict[str, Any]) -> SearchOptions:
    """Options by name; one that is none is refused with the nearest."""
    known = [f.name for f in fields(SearchOptions)]
    for name in options:
        if name not in known:
            raise BadInput(f'there is no option "{name}"{nearest(name, known)}')
    return SearchOptions(**options)


def takes_options(*without: str) -> Callable[[Method], Method]:
    """Let help and completion show the options of `SearchOptions` with their defaults, except some."""

    def shown(method: Method) -> Method:
        signature = inspect.signature(method)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        named = [
            inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=f.type)
            for f in fields(SearchOptions)
            if f.name not in without
        ]
        method.__signature__ = signature.replace(parameters=[*own, *named])  # type: ignore[attr-defined]
        return method

    return shown


def refuse_draft(how: SearchOptions) -> None:
    if how.draft is not None:
        raise BadInput("a draft guesses ahead for a decoder: it is for generate")


def refuse_prefix(how: SearchOptions) -> None:
    if how.prefix:
        raise BadInput(
            "`prefix` is what a translation begins with; a decoder goes on from the text itself: put it there"
        )
