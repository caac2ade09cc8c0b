"""Options that several commands have, and how a field of a dataclass becomes an option."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, make_dataclass
from typing import Annotated, Any, Literal, TypeVar

import tyro

from ...decode.options import BATCH, DecodingOption, decoding_options

Positional = tyro.conf.Positional  # a word that belongs to no option
T = TypeVar("T")
Repeated = tyro.conf.UseAppendAction  # an option that may be given several times


def arg(
    metavar: str | None = None, default: str | None = None, name: str | None = None, help: str | None = None
) -> Any:
    """How help shows an option: what its value is called, and what holds if it is left out."""
    hint = None if default is None else f"(default: {default})"
    return tyro.conf.arg(name=name, metavar=metavar, help=help, help_behavior_hint=hint)


@dataclass(frozen=True)
class DataOptions:
    """What models learn from, and are judged by."""

    corpus: Annotated[str | None, arg("NAME", "none")] = None
    """A built-in corpus: phrasebook (translate, classify, lm, mlm, tag, parse), stories (lm, mlm), pylib (lm,
    mlm), facts (summarize, span, choose), instructions (instruct, reward, dpo, rl), shapes (image-classify,
    caption, text-to-image)."""

    source: Annotated[str | None, arg("FILE", "none")] = None
    """Sentences to read, one a line, plain or gzip."""

    target: Annotated[str | None, arg("FILE", "none")] = None
    """Their translations, line by line."""

    valid_source: Annotated[str | None, arg("FILE", "none")] = None
    """Held-out sentences to judge by."""

    valid_target: Annotated[str | None, arg("FILE", "none")] = None
    """Their translations."""

    text: Annotated[str | None, arg("PATH", "none")] = None
    """A text file, a folder of them, or JSON lines (.jsonl) with a "text"; the last tenth is held out."""

    data: Annotated[str | None, arg("FILE", "none")] = None
    """A table: tab-separated columns under a header, or JSON objects, one a line. classify: sentence or
    text, and label. translate: source and target. --set data.text_column=NAME and the like name other
    columns. tag, parse: a treebank, CoNLL-U. summarize: JSON objects with article and summary, and a title
    if there is one. span: question, context and answers, a list of {"text", "start"}; in a table, question,
    context, answer and start. choose: JSON objects with context, choices (a list) and answer (which is
    right, from 0). instruct: prompt and response, or JSON objects with messages.
    reward, dpo: prompt, chosen and rejected. rl: prompt, and response where a reward needs it."""

    valid_data: Annotated[str | None, arg("FILE", "none")] = None
    """Held-out rows to judge by."""

    images: Annotated[str | None, arg("FOLDER", "none")] = None
    """image-classify: a folder with a folder of images (PNG, JPEG, PPM) for each class, or with IDX files
    as MNIST's. caption: a folder of images with a file captions.tsv (name, tab, caption) or
    captions.jsonl."""

    valid_images: Annotated[str | None, arg("FOLDER", "one in ten of --images, at most 2000")] = None
    """Held-out images to judge by."""

    def data_settings(self) -> dict[str, Any]:
        """The settings of a recipe that these options stand for; None where one was not given."""
        return {
            "data.corpus": self.corpus,
            "data.source": self.source,
            "data.target": self.target,
            "data.valid_source": self.valid_source,
            "data.valid_target": self.valid_target,
            "data.text": self.text,
            "data.table": self.data,
            "data.valid_table": self.valid_data,
            "data.images": self.images,
            "data.valid_images": self.valid_images,
        }


@dataclass(frozen=True, kw_only=True)
class LineOptions:
    """What every command that answers texts line by line is given."""

    run: Annotated[str, Positional, arg("RUN")]
    """The folder of a run, or a Hugging Face folder."""

    text: Annotated[tuple[str, ...], Positional, arg("[TEXT ...]", "the lines of stdin")] = ()
    """One text to answer, in one word or several; what begins with a dash goes through stdin."""

    json: bool = False
    """Print one JSON object a line instead, with everything that is known of the answer."""

    batch: Annotated[
        int | None, arg("INT", "32; writing on a GPU, 256", help=decoding_options()["batch"].help)
    ] = None

    bad_lines: Literal["blank", "refuse"] = "blank"
    """A line that is not UTF-8, or too long: blank names it on stderr, answers it by an empty line ("error"
    in JSON) and goes on; refuse stops there."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute; auto takes the GPU if there is one."""

    @property
    def rows(self) -> int:
        """Texts computed at once where nothing is written."""
        return self.batch or BATCH


@dataclass(frozen=True, kw_only=True)
class WeightOptions:
    """How the weights of a model that writes are stored in memory."""

    weights: Literal["fp32", "fp16", "int8", "fp8"] = "fp32"
    """What a step multiplies with. CPU: fp16 and int8 read a half and a quarter of the bytes. GPU: int8 and
    fp8, for one text at a time of a large model; several texts take longer. 8 bits may change a word;
    `heedful evaluate --weights` measures the loss."""


@dataclass(frozen=True, kw_only=True)
class WriterOptions(WeightOptions, LineOptions):
    """What every command that writes texts is given beside the decoding options."""


@dataclass(frozen=True, kw_only=True)
class TreeOptions:
    """The tree of a beam search instead of its result."""

    tree: bool = False
    """Print the tree of the beam search: every branch, its score, and what became of it. --json has every
    candidate with its fate."""

    reference: Annotated[str | None, arg("TEXT", "none")] = None
    """With --tree: compare the result with this text, forced through the model. Says whether the model or
    the search prefers another."""


# Decoding options: those of heedful/decode/options.py, as they are typed.


def takes_decoding(command: str, without: Sequence[str] = ()) -> Callable[[type[T]], type[T]]:
    """Give the options of a command the decoding options that the command has."""

    def extended(kind: type[T]) -> type[T]:
        more = [
            (name, Annotated[typed_as(option), *notes_on(name)], field(default=typed_default(option)))
            for name, option in decoding_options(command).items()
            if name not in without
        ]
        named = {"__module__": kind.__module__, "__doc__": kind.__doc__}
        made: Any = make_dataclass
        return made(kind.__name__, more, bases=(kind,), namespace=named, frozen=True, kw_only=True)

    return extended


def notes_on(name: str) -> tuple[Any, ...]:
    """How the command line reads and shows a decoding option."""
    many = isinstance(decoding_options()[name].default, tuple)
    return (decoding_arg(name), Repeated) if many else (decoding_arg(name),)


def decoding_arg(name: str, default: str = "", commands: Sequence[str] = ()) -> Any:
    """How help shows a decoding option. commands: those that it is for, if not for all that read it."""
    option = decoding_options()[name]
    only = f"{', '.join(commands)}: " if commands else ""
    value, setting = option.use.value, option.setting
    if setting is not None and setting.kind is not bool:
        value = value or "|".join(setting.choices) or {int: "INT", float: "FLOAT"}[setting.kind]
    default = default or as_typed(option.use.default)
    if not default:
        default = f"{option.default:g}" if isinstance(option.default, float) else str(option.default)
    return arg(value or None, default or None, help=only + as_typed(option.help))


def typed_as(option: DecodingOption) -> Any:
    """A type as the command line reads it: a model is a folder, words are one or several."""
    if option.hint is Any:
        return str | None
    if isinstance(option.default, tuple):
        return tuple[str, ...]
    return option.hint if typed_default(option) is not None else option.hint | None


def typed_default(option: DecodingOption) -> Any:
    """What an option that was not typed is: None, so that a folder's settings can stand for it."""
    return option.default if isinstance(option.default, tuple) else None


def as_typed(text: str) -> str:
    """A help text with options spelled as they are typed."""
    return re.sub(r"`(\w+)`", lambda found: f"--{found[1].replace('_', '-')}", text)


def decoding_of(given: Any, command: str) -> dict[str, Any]:
    """The decoding options of a command that were given, by their names."""
    typed = {name: getattr(given, name, None) for name in decoding_options(command)}
    return {name: value for name, value in typed.items() if value not in (None, ())}
