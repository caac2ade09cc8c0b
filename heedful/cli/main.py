"""The command line: find the command, read its options, do it, and end with an exit code.

Only the file of the command that is called is imported, so that help answers at once.
"""

from __future__ import annotations

import contextlib
import dis
import errno
import io
import os
import re
import sys
import textwrap
import traceback
from collections.abc import Iterator, Sequence
from typing import NoReturn

from .. import __version__
from ..errors import LOST, BadInput, DiskFull, Lost, NoCheckpoint, NotFinite, said_once
from ..files import one_line
from ..models import nearest
from .shared.commands import COMMANDS, function_of
from .shared.exit_codes import (
    BAD_INPUT,
    CLOSED_PIPE,
    DISK_FULL,
    DONE,
    FAILED,
    INTERRUPTED,
    MEANINGS,
    NO_CHECKPOINT,
    NOT_FINITE,
)

OWN_CODES = {NotFinite: NOT_FINITE, NoCheckpoint: NO_CHECKPOINT, DiskFull: DISK_FULL, Lost: LOST}


HELP = f"""\
usage: heedful COMMAND [OPTIONS]

heedful {__version__}: the Transformer as the lectures teach it.

commands:
{{commands}}

options:
  -h, --help  show this text; `heedful COMMAND --help` explains a command and its options
  --version   print the version
  --print-completion bash|zsh|fish
              print a script that completes commands, options and files: for bash,
              add `source <(heedful --print-completion bash)` to ~/.bashrc

{{endings}}"""
COLUMNS = 100  # of this text
ENDINGS = (
    "Results go to stdout, everything else to stderr. Exit codes: "
    + ", ".join(f"{code} {meaning}" for code, meaning in MEANINGS.items())
    + ". HEEDFUL_DEBUG=1 shows the traceback of an error."
)


def main(args: Sequence[str] | None = None) -> int:
    """Run one command; every ending is an exit code and at most one sentence on stderr."""
    replace_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # a terminal without accents shows question marks, not a traceback
            stream.reconfigure(errors="replace")
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
    except Exception as error:  # noqa: BLE001 (the last line of defense: no traceback reaches the user)
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
        return DONE
    if command == "--version":
        print(f"heedful {__version__}")
        return DONE
    from .shared import arguments

    if command.partition("=")[0] == "--print-completion":
        from .completion import script

        shell = [command.partition("=")[2]] if "=" in command else rest
        print(script(*shell[:1]))
        return DONE
    if command.startswith("-"):
        known = ["--help", "--version", "--print-completion"]
        known += [f"{name} {command}" for name in COMMANDS if command in arguments.options(name)]
        told = arguments.printable(command)
        raise BadInput(f"there is no option {told} before a command{nearest(command, known)}")
    if command not in COMMANDS:
        raise BadInput(f"there is no command {arguments.quoted(command)}{nearest(command, COMMANDS)}")
    if command == "train" and {"-h", "--help"} & set(rest):
        from .shared.train_help import show_help

        show_help(rest)
        return DONE
    with said_once():
        given = arguments.parse(command, rest)
    with in_its_words(command):
        return function_of(command)(given) or DONE


@contextlib.contextmanager
def in_its_words(command: str) -> Iterator[None]:
    """Options that a sentence has between backticks, as Python spells them, are said as they are typed."""
    from .shared.arguments import option, options

    def typed(found: re.Match[str]) -> str:
        name = option(found[1])
        return found[0] if name not in known else name if found[2] is None else f"{name} {found[2]}"

    try:
        yield
    except BadInput as error:
        known = options(command)
        error.args = (re.sub(r'`(\w+)(?:="(\w+)")?`', typed, str(error)),)
        raise


def overview() -> str:
    """The help of heedful itself: each command with the first line of its own help."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {summary}" for name, summary in COMMANDS.items()]
    return HELP.format(commands="\n".join(lines), endings=textwrap.fill(ENDINGS, COLUMNS))


# Endings.


def entry() -> NoReturn:
    """The command as a process of its own."""
    end(main())


def end(code: int) -> NoReturn:
    """End this process. One of several ends at once: torch's threads of the network may outlive the group of
    processes, and then abort the interpreter as it is torn down (seen once in thirty runs on a busy machine).
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        sys.exit(code)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def verdict(error: Exception) -> tuple[str, int]:
    """What to say of an error, and the exit code; a ValueError that heedful raised was written to be read."""
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
    """Open what was closed (`>&-`), so that a file which is opened later does not get its number."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 (as long as the process lives)


def give_up_stdout() -> None:
    """Nobody reads stdout any more: keep Python from writing the rest once more as it ends."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
