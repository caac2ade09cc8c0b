"""The options of decoding. Each field carries its type, range and help, and the filter that it makes.

The command line, the methods of a model, their checks and their help all follow from `DecodingOptions`. A new
filter is a function in filters.py and a field here. No torch here.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from reprlib import repr as short
from typing import Annotated, Any, Literal, TypeVar

from ..errors import BadInput
from ..models import nearest
from ..models.base.settings import NAMES, Range, Setting, read_number, read_whole, settings_of

BEAM = 4  # hypotheses of a translation, a summary and a caption (Vaswani et al. 2017)
BAN = 100  # a bias that leaves no choice
COMMANDS = ("translate", "summarize", "caption", "generate")
TRANSLATING = ("translate", "summarize", "caption")  # those that do not continue their text
NOT_STREAMED = ("beam", "n_best", "beam_groups", "top", "align", "batch")  # they need the whole answer
NOT_IN_TREES = ("sample", "seed", "draft", "top", "align", "stop", "batch")  # a tree is one beam search
Method = TypeVar("Method", bound=Callable[..., Any])


@dataclass(frozen=True)
class Use:
    """What a field is used for."""

    filter: str = ""  # the function of filters.py that its value is given to
    needs: Literal["", "sample", "beam", "draft"] = ""  # the option without which it does nothing
    commands: tuple[str, ...] = COMMANDS  # those that have it; none: only a folder's settings say it
    value: str = ""  # what help calls its value
    default: str = ""  # what help says of a default that is None or empty
    read: Callable[[Any], Any] | None = None  # refuses a value, or says what it stands for


def read_bias(value: Any) -> dict[int, float]:
    """{token: bias} from such a mapping, as JSON has it too, or from texts such as "198=-100"."""
    rows = value.items() if isinstance(value, Mapping) else value
    if isinstance(rows, str) or not isinstance(rows, Iterable):
        raise BadInput(
            f"`logit_bias` takes tokens and their biases, such as {{198: -100}}, not {short(value)}"
        )
    found = {}
    for row in rows:
        try:
            token, bias = row.split("=") if isinstance(row, str) else row
            found[read_whole(token)] = read_number(bias)
        except (TypeError, ValueError, OverflowError):
            raise BadInput(
                f"`logit_bias` takes the number of a token and its bias, such as 198=-100, not {short(row)}"
            ) from None
    for token, bias in found.items():
        if token < 0 or not -BAN <= bias <= BAN:
            raise BadInput(
                f"the bias of token {token} is {bias:g}: tokens are numbered from 0, and biases lie "
                f"between -{BAN} (never written) and {BAN} (nothing else is)"
            )
    return found


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
    logit_bias: Annotated[
        Mapping[int, float] | tuple[str, ...],
        Use("biased", value="TOKEN=BIAS", default="none", read=read_bias),
        "Added to the logits of tokens, by their numbers. -100 means never, 100 means nothing else. "
        "On the command line, repeat the option for each token.",
    ] = ()
    repetition_penalty: Annotated[
        float,
        Range(0.001, 1000.0),
        Use("repetition_penalty"),
        "Penalty on tokens that occur in the text so far. 1 means none; above 1 discourages repetition.",
    ] = 1.0
    presence_penalty: Annotated[
        float,
        Range(-2.0, 2.0),
        Use("presence"),
        "Subtracted from the logits of tokens that the answer has already. Below 0 encourages them.",
    ] = 0.0
    frequency_penalty: Annotated[
        float,
        Range(-2.0, 2.0),
        Use("frequency"),
        "Subtracted from the logits of tokens as often as the answer has them already.",
    ] = 0.0
    no_repeat_ngram_size: Annotated[
        int,
        Range(0, 10**6),
        Use("no_repeat_ngram"),
        "No sequence of this many tokens occurs twice. 0 means no limit.",
    ] = 0
    encoder_no_repeat_ngram_size: Annotated[
        int,
        Range(0, 10**6),
        Use("no_repeat_source_ngram", commands=("translate", "summarize", "generate")),
        "No sequence of this many tokens of the source, or of the prompt, is written. 0 means no limit.",
    ] = 0
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
    stop: Annotated[
        tuple[str, ...] | list[str],
        Use(value="TEXT", default="none"),
        "Text before which an answer ends. On the command line, repeat the option for each text.",
    ] = ()
    prefix: Annotated[
        str,
        Use("forced_prefix", commands=TRANSLATING, value="TEXT", default="none"),
        "Text that every answer begins with.",
    ] = ""
    forced_last: Annotated[
        tuple[int, ...],
        Use("forced_end", commands=()),
        "Token that an answer of the greatest length ends with.",
    ] = ()
    suppress_tokens: Annotated[tuple[int, ...], Use("suppressed", commands=()), "Tokens never written."] = ()
    begin_suppress_tokens: Annotated[
        tuple[int, ...], Use("suppressed_first", commands=()), "Tokens that no answer begins with."
    ] = ()
    sample: Annotated[bool, "Draw each token at random by its probability instead of searching."] = False
    temperature: Annotated[
        float,
        Range(0.001, 1000.0),
        Use("temperature", needs="sample"),
        "With `sample`: divisor of the logits. Below 1 favors likely tokens.",
    ] = 1.0
    top_k: Annotated[
        int,
        Range(0, 10**9),
        Use("top_k", needs="sample"),
        "With `sample`: draw from the k most likely tokens. 0 means all.",
    ] = 0
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
    top: Annotated[
        int,
        Range(0, 1000),
        "Most likely tokens to report at each token of an answer, with their log-probabilities. "
        "The command line shows them with `json`.",
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
        int | None,
        Range(1, 10**5),
        Use(default="32; writing on a GPU, 256"),
        "Texts computed at once. Use fewer if memory is short; answers stay the same.",
    ] = None
    folder_settings: Annotated[
        Literal["use", "ignore"],
        "Whether the generation settings of a Hugging Face folder are the defaults of these options.",
    ] = "use"
    forced_first: Annotated[tuple[int, ...], Use(commands=()), "Token that every answer begins with."] = ()
    bad_tokens: Annotated[
        tuple[tuple[int, ...], ...], Use(commands=()), "Sequences of tokens never written."
    ] = ()
    min_length: Annotated[int, Use(commands=()), "Minimum number of tokens, with those of the prompt."] = 0
    max_length: Annotated[
        int | None, Use(commands=()), "Maximum number of tokens, with those of the prompt."
    ] = None

    def __post_init__(self) -> None:
        for option in decoding_options().values():
            option.check(getattr(self, option.name))
        self.refuse_idle("sample", bool(self.sample))
        self.refuse_idle("draft", self.draft is not None)
        if self.sample and (self.beam or 1) > 1:
            raise BadInput("`sample` draws one token at a time and `beam` searches: give one of them")

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
        for name in ("stop", "top"):
            if searches and getattr(self, name):
                raise BadInput(
                    f"`{name}` works with one hypothesis: give a `beam` of 1, or leave out `{name}`"
                )
        if searches and self.draft is not None:
            raise BadInput("`draft` works with one hypothesis: leave out `beam`, or leave out `draft`")
        return width

    def bounds(self, prompt: int, otherwise: int) -> tuple[int, int]:
        """The least and the greatest number of tokens to write after a prompt of so many."""
        longest = self.max_new_tokens or otherwise
        if self.max_new_tokens is None and self.max_length is not None:
            longest = self.max_length - prompt
            if longest < 1:
                raise BadInput(
                    f"the text has {prompt:,} tokens, and the folder's generation settings have a max_length "
                    f"of {self.max_length:,} with the text: give `max_new_tokens`"
                )
        return min(longest, max(self.min_new_tokens, self.min_length - prompt)), longest

    def in_use(self, otherwise: int) -> dict[str, Any]:
        """The options that differ from their defaults, by name, and the width of the beam."""
        known = {name: getattr(self, name) for name in decoding_options() if name not in ("beam", "draft")}
        defaults = {name: option.default for name, option in decoding_options().items()}
        used = {name: value for name, value in known.items() if value != defaults[name]}
        return {"beam": self.width(otherwise)} | used

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
        if not self.use.commands:
            return
        if self.use.read is not None:
            self.use.read(value)
        elif self.setting is not None:
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


def options_from(
    command: str, given: Mapping[str, Any], folder: Mapping[str, Any] | None = None
) -> DecodingOptions:
    """Options by name. folder: what a folder's settings say, for options that are not given."""
    check_given(command, given)
    if not folder or given.get("folder_settings") == "ignore":
        return DecodingOptions(**given)
    return DecodingOptions(**fitting(command, given, folder), **given)


def check_given(command: str, given: Mapping[str, Any]) -> None:
    """Refuse an option that a command does not have, with the nearest that it has, and a wrong value."""
    every, known = decoding_options(), decoding_options(command)
    for name, value in given.items():
        commands = every[name].use.commands if name in every else ()
        if name not in known and commands:
            listed = ", ".join(commands)
            raise BadInput(f"`{name}` is an option of {listed} and not of {command}: leave it out")
        if name not in known:
            raise BadInput(f'there is no option "{name}"{nearest(name, known)}')
        every[name].check(value)
    least, most = given.get("min_new_tokens", 0), given.get("max_new_tokens")
    if most is not None and least > most:
        raise BadInput(
            f"`min_new_tokens` is {least} and `max_new_tokens` is {most}: "
            f"the minimum must not exceed the maximum"
        )


def fitting(command: str, given: Mapping[str, Any], folder: Mapping[str, Any]) -> dict[str, Any]:
    """What a folder's settings say beside options that go before them; what has no effect is left out."""
    every, kept = decoding_options(), {name: x for name, x in folder.items() if name not in given}
    if "max_new_tokens" in given:
        kept.pop("max_length", None)
    if "min_new_tokens" in given:
        kept.pop("min_length", None)
    if given.get("sample") or given.get("draft") is not None:
        kept.pop("beam", None)
    if given.get("beam") is not None or given.get("beam_groups", 1) > 1:
        kept.pop("sample", None)
    whole = kept | dict(given)
    beam = (whole.get("beam") or 1) > 1 or whole.get("beam_groups", 1) > 1
    if beam and kept.get("sample"):
        raise BadInput(
            "the folder's generation settings combine beam search with sampling, which heedful does not do: "
            "give `beam` or `sample`"
        )
    has = {"": True, "beam": beam, "sample": bool(whole.get("sample")), "draft": True}
    other = [name for name in kept if every[name].use.commands and command not in every[name].use.commands]
    return {name: x for name, x in kept.items() if has[every[name].use.needs] and name not in other}


def takes_options(command: str = "", without: Collection[str] = ()) -> Callable[[Method], Method]:
    """Let help and completion show the decoding options of a command with their types and defaults.

    without: those that the method refuses. tools/option_docs.py writes the others into its docstring.
    """

    def shown(method: Method) -> Method:
        signature = inspect.signature(method)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        named = [
            inspect.Parameter(
                one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=one.hint
            )
            for one in decoding_options(command).values()
            if one.use.commands and not {one.name, one.use.needs} & {*without}
        ]
        method.__signature__ = signature.replace(parameters=[*own, *named])  # type: ignore[attr-defined]
        return method

    return shown


BATCH, GPU_BATCH = 32, 256  # texts computed at once, unless somebody says otherwise


def check_batch(batch: Any) -> None:
    """Refuse a number of texts that makes no sense."""
    decoding_options()["batch"].check(batch)


def batch_for(batch: int | None, device: str) -> int:
    """Texts that are written at once on a kind of device, which may have been said."""
    return batch or (GPU_BATCH if device == "cuda" else BATCH)
