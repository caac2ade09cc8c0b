"""The options of decoding. Each field carries its type, range and help, and the filter that it makes.

The command line, the methods of a model, their checks and their help all follow from `DecodingOptions`. A new
filter is a function in filters.py and a field here. No torch here.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from reprlib import repr as short
from typing import Annotated, Any, Literal, TypeVar

from ..errors import BadInput
from ..models import nearest
from ..models.base.settings import NAMES, Range, Setting, settings_of

BEAM = 4  # hypotheses of a translation, a summary and a caption (Vaswani et al. 2017)
COMMANDS = ("translate", "summarize", "caption", "generate")
TRANSLATING = ("translate", "summarize", "caption")  # those that do not continue their text
Method = TypeVar("Method", bound=Callable[..., Any])


@dataclass(frozen=True)
class Use:
    """What a field is used for."""

    filter: str = ""  # the function of filters.py that its value is given to
    needs: Literal["", "sample", "beam", "draft"] = ""  # the option without which it does nothing
    commands: tuple[str, ...] = COMMANDS  # those that have it
    value: str = ""  # what help calls its value
    default: str = ""  # what help says of a default that is None or empty


@dataclass(frozen=True, kw_only=True)
class DecodingOptions:
    """How to write: the search, what it prefers, and what it may not write."""

    beam: Annotated[
        int | None,
        Range(1, 1000),
        Use(default="4; generate, `sample` and `draft`: 1"),
        "Hypotheses kept at each step. 1 is greedy search. More are slower and often better.",
    ] = None
    n_best: Annotated[
        int,
        Range(1, 1000),
        Use(needs="beam"),
        "Answers to return for each text, best first; at most the width of the beam.",
    ] = 1
    length_penalty: Annotated[
        Literal["gnmt", "power"],
        Use(needs="beam"),
        "Divisor of a hypothesis' log-probability: gnmt is ((5 + length) / 6)^alpha, power is length^alpha.",
    ] = "gnmt"
    length_alpha: Annotated[
        float,
        Range(-5.0, 5.0),
        Use(needs="beam"),
        "Exponent alpha of the length penalty. 0 means no penalty; larger values favor longer answers.",
    ] = 0.6
    stopping: Annotated[
        Literal["heuristic", "first_B", "exact"],
        Use(needs="beam"),
        "When beam search stops. heuristic: no live hypothesis currently beats the finished ones. "
        "first_B: as many have finished as the beam is wide. exact: none can still win.",
    ] = "heuristic"
    coverage_penalty: Annotated[
        float,
        Range(0.0, 1000.0),
        Use(needs="beam"),
        "Weight of the penalty on source words that receive little attention; encoder-decoders only.",
    ] = 0.0
    beam_groups: Annotated[
        int,
        Range(1, 100),
        Use(needs="beam"),
        "Groups of beams for diverse beam search. Each group has `beam` hypotheses.",
    ] = 1
    diversity_penalty: Annotated[
        float,
        Range(0.0, 1000.0),
        Use(needs="beam"),
        "Cost of a token that an earlier group has written at the same position.",
    ] = 0.0
    prefix: Annotated[
        str,
        Use("forced_prefix", commands=TRANSLATING, value="TEXT", default="none"),
        "Text that every answer begins with.",
    ] = ""
    bad_words: Annotated[
        tuple[str, ...] | list[str],
        Use("forbidden", value="WORD", default="none"),
        "Words that are never written. On the command line, repeat the option for each word.",
    ] = ()
    min_new_tokens: Annotated[
        int,
        Range(0, 10**6),
        Use("minimum_length"),
        "Minimum number of tokens to write before the end of the answer.",
    ] = 0
    max_new_tokens: Annotated[
        int | None,
        Range(1, 10**6),
        Use(default="translate: 2 x source + 20; generate: 100; others: as in training"),
        "Maximum number of tokens to write.",
    ] = None
    no_repeat_ngram_size: Annotated[
        int | None,
        Range(1, 10**6),
        Use("no_repeat_ngram", default="none"),
        "No sequence of this many tokens occurs twice.",
    ] = None
    repetition_penalty: Annotated[
        float,
        Range(0.001, 1000.0),
        Use("repetition_penalty"),
        "Penalty on tokens that occur in the text so far. 1 means none; above 1 discourages repetition.",
    ] = 1.0
    sample: Annotated[bool, "Draw each token at random by its probability instead of searching."] = False
    temperature: Annotated[
        float,
        Range(0.001, 1000.0),
        Use("temperature", needs="sample"),
        "With `sample`: divisor of the logits. Below 1 favors likely tokens.",
    ] = 1.0
    top_k: Annotated[
        int | None,
        Range(1, 10**9),
        Use("top_k", needs="sample", default="all"),
        "With `sample`: draw from the k most likely tokens.",
    ] = None
    top_p: Annotated[
        float,
        Range(0.0, 1.0),
        Use("top_p", needs="sample"),
        "With `sample`: draw from the most likely tokens that together have this probability.",
    ] = 1.0
    min_p: Annotated[
        float,
        Range(0.0, 1.0),
        Use("min_p", needs="sample"),
        "With `sample`: draw from tokens with at least this fraction of the highest probability.",
    ] = 0.0
    seed: Annotated[
        int,
        "With `sample`: seed of the random numbers. A line gets the same answer whatever lines surround it.",
    ] = 0
    align: Annotated[
        bool,
        Use(commands=("translate",)),
        "Link each word of an answer to a source word by attention. Plain output adds a tab and the links, "
        "as source-target pairs counted from 0.",
    ] = False
    draft: Annotated[
        Any,
        Use(commands=("generate",), value="FOLDER", default="none"),
        "Smaller model with the same vocabulary for speculative decoding. It changes the speed, "
        "not the text; with `sample`, not the distribution.",
    ] = None
    draft_tokens: Annotated[
        int,
        Range(1, 100),
        Use(needs="draft", commands=("generate",)),
        "With `draft`: tokens that the draft model proposes at a time.",
    ] = 4
    batch: Annotated[
        int, Range(1, 10**5), "Texts computed at once. Use fewer if memory is short; answers stay the same."
    ] = 32

    def __post_init__(self) -> None:
        for option in decoding_options().values():
            option.check(getattr(self, option.name))
        self.refuse_idle("sample", bool(self.sample))
        self.refuse_idle("draft", self.draft is not None)
        if self.sample and (self.beam or 1) > 1:
            raise BadInput("`sample` draws one token at a time and `beam` searches: give one of them")
        if self.max_new_tokens is not None and self.min_new_tokens > self.max_new_tokens:
            raise BadInput(
                f"`min_new_tokens` is {self.min_new_tokens} and `max_new_tokens` is {self.max_new_tokens}: "
                f"the minimum must not exceed the maximum"
            )

    def refuse_idle(self, needed: str, given: bool) -> None:
        """Refuse options that do nothing without another that was not given."""
        for name, option in decoding_options().items():
            if option.use.needs == needed and not given and getattr(self, name) != option.default:
                remedy = "give a `beam` of 2 or more" if needed == "beam" else f"give `{needed}` too"
                raise BadInput(f"`{name}` has no effect without `{needed}`: {remedy}")

    def width(self, otherwise: int) -> int:
        """The width of the beam, `otherwise` by default. What only a beam has is refused without one."""
        width = self.beam or (1 if self.sample or self.draft is not None else otherwise)
        searches = width > 1 or self.beam_groups > 1
        self.refuse_idle("beam", searches)
        if searches and self.draft is not None:
            raise BadInput("`draft` works with one hypothesis: leave out `beam`, or leave out `draft`")
        return width

    def signature(self, otherwise: int) -> str:
        """The search as evaluations report it: "beam:4|length_penalty:gnmt|length_alpha:0.6"."""
        width = self.width(otherwise)
        if width == 1:
            return "greedy"
        return f"beam:{width}|length_penalty:{self.length_penalty}|length_alpha:{self.length_alpha:g}"


@dataclass(frozen=True)
class DecodingOption:
    """One field of `DecodingOptions` with everything that is known of it."""

    name: str
    hint: Any  # its type
    default: Any
    use: Use
    help: str
    setting: Setting | None  # None where no text stands for a value: words, and a draft model

    def check(self, value: Any) -> None:
        """Refuse a value of the wrong type or out of range."""
        if self.setting is not None:
            if isinstance(value, str) and self.setting.kind is not str:  # text that looks like a number
                limits = "" if self.setting.limits is None else f" {self.setting.limits}"
                raise BadInput(
                    f"`{self.name}` must be {NAMES[self.setting.kind]}{limits}, not {short(value)}"
                )
            self.setting.convert(f"`{self.name}`", value)
        elif isinstance(self.default, tuple):
            if isinstance(value, str):
                raise BadInput(f'`{self.name}` takes a list of words: ["{value}"]')
            if not isinstance(value, Sequence) or not all(isinstance(word, str) for word in value):
                raise BadInput(f"`{self.name}` takes a list of words, not {short(value)}")


@cache
def decoding_options(command: str = "") -> dict[str, DecodingOption]:
    """{name: option} of every field that a command has; without a command, of every field."""
    hints, settings = (
        typing.get_type_hints(DecodingOptions, include_extras=True),
        settings_of(DecodingOptions),
    )
    found = {}
    for field in fields(DecodingOptions):
        kind, *notes = typing.get_args(hints[field.name])
        use = next((note for note in notes if isinstance(note, Use)), Use())
        told = next(note for note in notes if isinstance(note, str))
        option = DecodingOption(field.name, kind, field.default, use, told, settings.get(field.name))
        if not command or command in use.commands:
            found[field.name] = option
    return found


def options_from(command: str, given: Mapping[str, Any]) -> DecodingOptions:
    """Options by name; one that a command does not have is refused, with the nearest that it has."""
    known, every = decoding_options(command), decoding_options()
    for name in given:
        if name in every and name not in known:
            commands = ", ".join(every[name].use.commands)
            raise BadInput(f"`{name}` is an option of {commands} and not of {command}: leave it out")
        if name not in known:
            raise BadInput(f'there is no option "{name}"{nearest(name, known)}')
    return DecodingOptions(**given)


def takes_options(command: str = "") -> Callable[[Method], Method]:
    """Let help and completion show the decoding options of a command with their types and defaults."""

    def shown(method: Method) -> Method:
        signature = inspect.signature(method)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        named = [
            inspect.Parameter(
                one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=one.hint
            )
            for one in decoding_options(command).values()
        ]
        method.__signature__ = signature.replace(parameters=[*own, *named])  # type: ignore[attr-defined]
        return method

    return shown


def check_batch(batch: Any) -> None:
    """Refuse a number of texts that makes no sense."""
    decoding_options()["batch"].check(batch)
