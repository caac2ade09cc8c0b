"""The command line: find the command, read its options, do it, and end with an exit code and at most one sentence.

The options themselves are in options.py. Nothing heavy is imported until a command runs, so that help answers at once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import dis
import errno
import inspect
import io
import os
import re
import sys
import traceback
import types
import typing
from collections.abc import Iterator, Sequence
from importlib import import_module
from reprlib import repr as short  # what was typed may be a megabyte long
from typing import Annotated, Any, Literal

import tyro

from .. import __version__
from ..errors import BadInput, DiskFull, NoCheckpoint, NotFinite, said_once
from ..files import one_line
from ..models import nearest
from ..tasks.recipe import known_settings
from .options import COMMANDS

# Exit codes: what a script can rely on.
DONE, FAILED, BAD_INPUT, NOT_FINITE, NO_CHECKPOINT, DISK_FULL, INTERRUPTED, CLOSED_PIPE = (
    0,
    1,
    2,
    3,
    4,
    5,
    130,
    141,
)
OWN_CODES = {NotFinite: NOT_FINITE, NoCheckpoint: NO_CHECKPOINT, DiskFull: DISK_FULL}


HELP = f"""\
usage: heedful COMMAND [OPTIONS]

heedful {__version__}: the Transformer as the lectures teach it.

commands:
{{commands}}

options:
  -h, --help  this text; `heedful COMMAND --help` explains a command and its options
  --version   the version, and nothing else
  --print-completion bash|zsh|fish
              what makes a shell complete commands, options and files: for bash,
              put `source <(heedful --print-completion bash)` into ~/.bashrc

Results go to stdout, everything else to stderr. Exit codes: 0 done, 1 failed, 2 wrong usage or input,
3 a check did not hold or a number was not finite, 4 no whole checkpoint, 5 disk full, 75 interrupted and saved,
130 interrupted, 141 nobody reads stdout any more. HEEDFUL_DEBUG=1 shows where an error came from."""


def main(args: Sequence[str] | None = None) -> int:
    """Run one command; every ending is an exit code and at most one sentence on stderr."""
    replace_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(
                errors="replace"
            )  # a terminal without accents shows question marks, not a traceback
    try:
        code = run(list(sys.argv[1:] if args is None else args))
        sys.stdout.flush()
        return code
    except SystemExit as stop:  # tyro's, after printing help
        return stop.code if isinstance(stop.code, int) else DONE
    except BrokenPipeError:
        give_up_stdout()
        return CLOSED_PIPE
    except KeyboardInterrupt:
        return complain("interrupted", INTERRUPTED)
    except Exception as error:  # noqa: BLE001 (the last line of defence: no traceback reaches the user)
        if os.environ.get("HEEDFUL_DEBUG") == "1":
            traceback.print_exc()
        return complain(*verdict(error))


def run(args: list[str]) -> int:
    """Find the command, read its options, do it."""
    if not args:
        print(overview() + "\n", file=sys.stderr)
        raise BadInput("no command was given: the commands are above")
    command, *rest = args
    if command in ("-h", "--help", "help"):
        print(overview())
    elif command == "--version":
        print(f"heedful {__version__}")
    elif command.partition("=")[0] == "--print-completion":
        shell = [command.partition("=")[2]] if "=" in command else rest
        print(import_module("heedful.cli.completion").script(*shell[:1]))
    elif command.startswith("-"):
        known = [
            "--help",
            "--version",
            "--print-completion",
            *(f"{name} {command}" for name in COMMANDS if command in options(name)),
        ]
        raise BadInput(f"there is no option {printable(command)} before a command{nearest(command, known)}")
    elif command not in COMMANDS:
        raise BadInput(f"there is no command {quoted(command)}{nearest(command, COMMANDS)}")
    else:
        with said_once():
            given = parse(command, rest)
        module, name = COMMANDS[command][1].split(":")
        with in_its_words(command):
            return getattr(import_module(module), name)(given) or DONE
    return DONE


@contextlib.contextmanager
def in_its_words(command: str) -> Iterator[None]:
    """Options that a sentence has between backticks, as Python spells them, are said as they are typed."""
    try:
        yield
    except BadInput as error:
        error.args = (
            re.sub(r'`(\w+)(?:="(\w+)")?`', lambda found: typed(found, options(command)), str(error)),
        )
        raise


def typed(found: re.Match[str], known: dict[str, Any]) -> str:
    name = option(found[1])
    return found[0] if name not in known else name if found[2] is None else f"{name} {found[2]}"


def overview() -> str:
    """The help of heedful itself: each command with the first line of its own help."""
    width = max(map(len, COMMANDS))
    lines = [
        f"  {name:<{width}}  {(kind.__doc__ or '').partition(chr(10))[0]}"
        for name, (kind, _) in COMMANDS.items()
    ]
    return HELP.format(commands="\n".join(lines))


def parse(command: str, args: list[str]) -> Any:
    """The options of a command, by tyro; what it refuses is said again in one sentence."""
    kind, how = COMMANDS[command][0], (tyro.conf.FlagCreatePairsOff, tyro.conf.DisallowNone)
    refuse_misread(command, args)
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            told = described(kind)
            return tyro.cli(kind, prog=f"heedful {command}", description=told, args=args, config=how)
    except SystemExit as stop:
        if not stop.code:
            raise
        otherwise = f"{command} does not know what these words are for: see `heedful {command} --help`"
        raise BadInput(fault(command, args) or otherwise) from None


def described(kind: type) -> str:
    """A command's docstring as its help: each example on a line of its own, which tyro keeps if it is indented."""
    text, word, examples = inspect.cleandoc(kind.__doc__ or "").partition("\nExample")
    title, _, rest = examples.partition(":")
    lines = [f"  {' '.join(line.split())}" for line in rest.split(";")]
    return f"{text}{word}{title}:\n" + "\n".join(lines) if word else text


def refuse_misread(command: str, args: list[str]) -> None:
    """What tyro would take for something else: options of its own, and `--json=x`, whose x it makes a text."""
    known = options(command)
    for token in args[: args.index("--")] if "--" in args else args:
        name, equals, _ = token.partition("=")
        name = name.replace("_", "-")
        if name.startswith("--tyro-") or (equals and bool in kinds_of(known.get(name))):
            raise BadInput(fault(command, [token]))


# What is wrong with the options given, in words. tyro decides that something is; this says what.


def options(command: str) -> dict[str, Any]:
    """{"--option": its type} of a command; positional ones are left out."""
    hints = typing.get_type_hints(COMMANDS[command][0], include_extras=True)
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
            return f"{command} has no option {printable(name)}{as_setting(command, name) or nearest(name, known)}"
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


def as_setting(command: str, name: str) -> str:
    """The end of a sentence about an option that is none: perhaps it is a setting of training."""
    words = name.removeprefix("--").replace("-", "_")
    found = [key for key in known_settings() if key.partition(".")[2] == words]
    told = " or ".join(f"--set {key}=VALUE" for key in found)
    return f"; it is a setting: {told}" if found and command == "train" else ""


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
    fields = dataclasses.fields(COMMANDS[command][0])
    hints = typing.get_type_hints(COMMANDS[command][0], include_extras=True)
    places = [f for f in fields if option(f.name) not in options(command)]
    if len(found) > len(places) and not is_endless(command):
        return f"{command} does not know what {quoted(found[len(places)])} is for: see `heedful {command} --help`"
    for place, value in zip(places, found, strict=False):
        kinds = kinds_of(hints[place.name])
        if not fits(value, kinds):
            return f"{place.name.upper()} is {wanted(kinds)}, not {short(value)}{suggestion(value, kinds)}"
    missing = [f.name for f in places[len(found) :] if f.default is dataclasses.MISSING]
    return (
        f"{command} needs {'an' if missing[0][0] in 'aeiou' else 'a'} {missing[0].upper()}: see `heedful {command} --help`"
        if missing
        else None
    )


def is_endless(command: str) -> bool:
    """Whether any number of words may follow: those of a text."""
    hints = typing.get_type_hints(COMMANDS[command][0], include_extras=True)
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


# Endings.


def verdict(error: Exception) -> tuple[str, int]:
    """What to say of an error, and the exit code. Whoever raised a ValueError in heedful wrote it to be read."""
    for kind, code in OWN_CODES.items():
        if isinstance(error, kind):
            return str(error), code
    if isinstance(error, OSError):
        code = DISK_FULL if error.errno == errno.ENOSPC else BAD_INPUT if error.filename else FAILED
        if code == DISK_FULL:
            give_up_stdout()
        where = f"{error.filename}: " if error.filename else ""
        remedy = ": make room, or write elsewhere" if code == DISK_FULL else ""
        return f"{where}{error.strerror or error}{remedy}", code
    if isinstance(error, BadInput) or (isinstance(error, ValueError) and ours(error)):
        return str(error), BAD_INPUT
    if isinstance(error, MemoryError) or "allocate" in str(error) or "out of memory" in str(error):
        return "there is not enough memory: a smaller model, fewer tokens or rows at a time take less", FAILED
    return f"{type(error).__name__}: {error} (HEEDFUL_DEBUG=1 shows where)", FAILED


def ours(error: Exception) -> bool:
    """Raised by a `raise` in heedful's own code, not by something it called, be that written in C."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    assert last is not None
    frame = last.tb_frame
    package = frame.f_globals.get("__name__", "").partition(".")[0]
    return package == "heedful" and frame.f_code.co_code[last.tb_lasti] == dis.opmap["RAISE_VARARGS"]


def complain(sentence: str, code: int) -> int:
    print(f"error: {one_line(sentence)}" if code != INTERRUPTED else sentence, file=sys.stderr)
    return code


def replace_closed_streams() -> None:
    """Whoever closed stdout or stderr (`>&-`) wants nothing of it; a file opened later must not get its number."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 (as long as the process lives)


def give_up_stdout() -> None:
    """Nobody reads stdout any more: without this, Python would try to write the rest once more as it ends."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
