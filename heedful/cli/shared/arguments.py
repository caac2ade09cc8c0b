"""From words on the command line to the options of a command, by tyro; one sentence says what is wrong."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import inspect
import io
import itertools
import textwrap
import types
import typing
from reprlib import repr as short  # what was typed may be a megabyte long
from typing import Annotated, Any, Literal

import tyro

from ...errors import BadInput
from ...models import nearest
from ...tasks import find_task, task_files
from ...tasks.recipe import known_settings
from .commands import help_of, options_of


def parse(command: str, args: list[str]) -> Any:
    """The options of a command, by tyro; what it refuses is said again in one sentence."""
    kind, how = options_of(command), (tyro.conf.FlagCreatePairsOff, tyro.conf.DisallowNone)
    refuse_misread(command, args)
    if {"-h", "--help"} & set(args):
        kind = with_whole_paragraphs(kind)
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            told = described(help_of(command))
            return tyro.cli(kind, prog=f"heedful {command}", description=told, args=args, config=how)
    except SystemExit as stop:
        if not stop.code:
            raise
        otherwise = f"{command} does not know what these words are for: see `heedful {command} --help`"
        raise BadInput(fault(command, args) or otherwise) from None


def described(text: str) -> str:
    """A help text as tyro prints it best: a line for each paragraph, and an indented one for each example."""
    *paragraphs, examples = text.strip().split("\n\n")
    title, _, rest = examples.partition(":")
    lines = [f"  {' '.join(line.split())}" for line in rest.split(";")]
    return "\n\n".join(" ".join(words.split()) for words in paragraphs) + f"\n\n{title}:\n" + "\n".join(lines)


def with_whole_paragraphs(kind: type) -> type:
    """The same options, the help of each in one paragraph: tyro keeps line ends of indented docstrings."""
    hints = typing.get_type_hints(kind, include_extras=True)
    fields = {f.name: f for f in dataclasses.fields(kind)}
    texts = {name: text for part in kind.__mro__ for name, text in field_docstrings(part).items()}
    changed = [
        (name, Annotated[hints[name], tyro.conf.arg(help=" ".join(text.split()))], fields[name])
        for name, text in texts.items()
        if "\n" in text
    ]
    return dataclasses.make_dataclass(kind.__name__, changed, bases=(kind,), frozen=True, kw_only=True)


def field_docstrings(kind: type) -> dict[str, str]:
    """{field: the string under it} of a dataclass, without its bases."""
    if not dataclasses.is_dataclass(kind):
        return {}
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(tree, ast.ClassDef)
    return {
        above.target.id: str(ast.literal_eval(below.value))
        for above, below in itertools.pairwise(tree.body)
        if isinstance(above, ast.AnnAssign)
        and isinstance(above.target, ast.Name)
        and isinstance(below, ast.Expr)
    }


def refuse_misread(command: str, args: list[str]) -> None:
    """Refuse what tyro would misread: options of its own, and `--json=x`, whose x it takes for a text."""
    known = options(command)
    for token in args[: args.index("--")] if "--" in args else args:
        name, equals, _ = token.partition("=")
        name = name.replace("_", "-")
        if name.startswith("--tyro-") or (equals and bool in kinds_of(known.get(name))):
            raise BadInput(fault(command, [token]))


# What is wrong with the options given, in words. tyro decides that something is; this says what.


def options(command: str) -> dict[str, Any]:
    """{"--option": its type} of a command; positional ones are left out."""
    hints = typing.get_type_hints(options_of(command), include_extras=True)
    return {option(name): hint for name, hint in hints.items() if not is_positional(hint)}


def option(name: str) -> str:
    """A field as it is typed; `from_` has its underscore because `from` is Python's own word."""
    return f"--{name.rstrip('_').replace('_', '-')}"


def is_positional(hint: Any) -> bool:
    return tyro.conf.Positional in getattr(hint, "__metadata__", ())


def fault(command: str, args: list[str]) -> str | None:
    """The first thing wrong, as a sentence; None if nothing is found here."""
    known, waiting = options(command), list(args)
    positional: list[list[str]] = [[]]  # in pieces, between which options stand
    while waiting:
        token = waiting.pop(0)
        if token == "--":  # all that follows belongs to no option
            positional[-1] += waiting
            break
        if not token.startswith("-") or token == "-":
            positional[-1].append(token)
            continue
        positional.append([])
        name, equals, value = token.partition("=")
        name = name.replace("_", "-")
        if name not in known:
            meant = as_setting(command, name, args) or nearest(name, known)
            return f"{command} has no option {printable(name)}{meant}"
        kinds = kinds_of(known[name])
        if bool in kinds:
            if equals:
                return f"{name} stands alone, without a value"
            continue
        if not equals:
            if not waiting or waiting[0].startswith("--") or (is_text(kinds) and is_dashed(waiting[0])):
                what = metavar(known[name]) if is_text(kinds) else wanted(kinds)
                return f"{name} needs a value: {what}{remedy(name, waiting, known)}"
            value = waiting.pop(0)
        if not fits(value, kinds):
            return f"{name} takes {wanted(kinds)}, not {short(value)}{suggestion(value, kinds)}"
    words = [word for piece in positional for word in piece]
    return miscounted(command, words) or scattered(command, list(filter(None, positional)))


def as_setting(command: str, name: str, args: list[str]) -> str:
    """The end of a sentence about an option that is none: perhaps it is a setting of the task."""
    if command != "train":
        return ""
    words = name.removeprefix("--").replace("-", "_")
    task = find_task(next((word for word in args if word in task_files()), "translate"))
    known = known_settings(task, next(iter(task.architectures)))
    found = [key for key in known if key.partition(".")[2] == words]
    settings = " or ".join(f"--set {key}=VALUE" for key in found)
    return f"; it is a setting: {settings}" if found else ""


def is_text(kinds: list[Any]) -> bool:
    """Words of any kind, or several of them."""
    return any(kind is str or typing.get_origin(kind) is tuple for kind in kinds)


def is_dashed(value: str) -> bool:
    """A text that looks like an option."""
    return value[:1] == "-" and value != "-" and not converts(value, float)


def remedy(name: str, waiting: list[str], known: dict[str, Any]) -> str:
    """How to give a value that looks like an option, if that may have been meant."""
    if not waiting or waiting[0].partition("=")[0].replace("_", "-") in known:
        return ""
    return f"; one that begins with a dash is written {name}={printable(waiting[0])}"


def miscounted(command: str, found: list[str]) -> str | None:
    """Too many or too few words that belong to no option, or one that is none of those to choose from."""
    fields = dataclasses.fields(options_of(command))
    hints = typing.get_type_hints(options_of(command), include_extras=True)
    places = [f for f in fields if option(f.name) not in options(command)]
    if len(found) > len(places) and not is_endless(command):
        extra = quoted(found[len(places)])
        return f"{command} does not know what {extra} is for: see `heedful {command} --help`"
    for place, value in zip(places, found, strict=False):
        kinds = kinds_of(hints[place.name])
        if not fits(value, kinds):
            return f"{place.name.upper()} is {wanted(kinds)}, not {short(value)}{suggestion(value, kinds)}"
    missing = [f.name for f in places[len(found) :] if f.default is dataclasses.MISSING]
    if not missing:
        return None
    article = "an" if missing[0][0] in "aeiou" else "a"
    return f"{command} needs {article} {missing[0].upper()}: see `heedful {command} --help`"


def is_endless(command: str) -> bool:
    """Whether any number of words may follow: those of a text."""
    hints = typing.get_type_hints(options_of(command), include_extras=True)
    return any(typing.get_origin(kinds_of(h)[0]) is tuple for h in hints.values() if is_positional(h))


def scattered(command: str, pieces: list[list[str]]) -> str | None:
    """The words of a text in several places, of which tyro takes the first."""
    if len(pieces) < 2 or not is_endless(command):
        return None
    apart = quoted(pieces[-1][0])
    return f"{command} takes the words of a text together, and {apart} stands apart: put options after them"


def quoted(word: str) -> str:
    """A word as it was typed; if it is endless or no plain text, as Python would write it."""
    return f'"{word}"' if word.isprintable() and len(word) < 100 else short(word)


def printable(word: str) -> str:
    """The same without quotes, for what is no text."""
    return quoted(word).strip("\"'")


def metavar(hint: Any) -> str:
    """What help calls the value of an option."""
    told = [getattr(extra, "metavar", None) for extra in getattr(hint, "__metadata__", ())]
    return next(filter(None, told), "a text")


def kinds_of(hint: Any) -> list[Any]:
    """What values may be: types, or the choices of a Literal."""
    if typing.get_origin(hint) is Annotated:
        return kinds_of(typing.get_args(hint)[0])
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return [kind for each in typing.get_args(hint) for kind in kinds_of(each) if kind is not type(None)]
    return list(typing.get_args(hint)) if typing.get_origin(hint) is Literal else [hint]


def fits(value: str, kinds: list[Any]) -> bool:
    return any(value == kind if isinstance(kind, str) else converts(value, kind) for kind in kinds)


def converts(value: str, kind: Any) -> bool:
    """Numbers are tried; of anything else tyro knows better."""
    try:
        return kind not in (int, float) or kind(value) is not None
    except ValueError:
        return False


def wanted(kinds: list[Any]) -> str:
    names = {int: "a whole number", float: "a number"}
    return " or ".join(kind if isinstance(kind, str) else names.get(kind, "a value") for kind in kinds)


def suggestion(value: str, kinds: list[Any]) -> str:
    """The nearest choice, where there are choices and one is near."""
    ending = nearest(value, [kind for kind in kinds if isinstance(kind, str)])
    return ending if "did you mean" in ending else ""
