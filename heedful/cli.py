"""The command line: one dataclass of options for each command, and nothing heavy until a command runs.

To add a command, write its dataclass (docstrings are its help, defaults its defaults) and a line in `COMMANDS`
that says which function it is for. Nothing here imports torch, so that help answers at once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import io
import os
import sys
import traceback
import types
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any, Literal

import tyro

from . import __version__
from .errors import BadInput, DiskFull, NoCheckpoint, NotFinite
from .models import nearest

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


@dataclass(frozen=True)
class Info:
    """What a model is made of, and what it costs to train and to run.

    Shows the architecture as a tree with the parameters of every part, then FLOPs a token and memory, for one
    batch and length. Nothing is downloaded and no weights are read, so the largest model is no slower. Without
    a name: the list of presets.

    Examples: heedful info gpt2; heedful info bert-base --batch 32 --length 128; heedful info gpt3-175b --json
    """

    name: Annotated[
        str | None,
        tyro.conf.Positional,
        tyro.conf.arg(metavar="NAME|FOLDER", help_behavior_hint="(default: list the presets)"),
    ] = None
    """A preset (gpt2, bert-base, t5-small, vit-b16, ...) or a Hugging Face folder with a config.json."""

    batch: int = 1
    """Rows in a batch: activations and the cache grow with it."""

    length: Annotated[
        int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="(default: the context, or 512)")
    ] = None
    """Tokens in a row; of an encoder-decoder, tokens of the target."""

    source_length: Annotated[
        int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="(default: as --length)")
    ] = None
    """Tokens an encoder-decoder reads."""

    precision: Literal["fp32", "bf16"] = "fp32"
    """How numbers are multiplied: fp32, or bf16 (autocast: weights, norms and the optimiser stay in fp32)."""

    json: bool = False
    """Print one JSON object instead, sizes in bytes."""


@dataclass(frozen=True)
class Demo:
    """Train a small translator on the built-in phrasebook, and show what it learned.

    About two minutes on a laptop. Prints how many held-out sentences it translates right, beside what a dictionary
    gets, and draws which source word each translated word came from.

    Example: heedful demo
    """

    seed: int = 0
    """Another seed, other weights and another order of the examples."""

    steps: Annotated[
        int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="(default: the phrasebook's)")
    ] = None
    """Fewer steps for a quicker, worse translator."""

    run: Annotated[str | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="(default: runs/demo)")] = None
    """Where the run goes: a folder that is not there yet."""


@dataclass(frozen=True)
class Train:
    """Train a model on your own files, or on a corpus that is built in.

    Writes a run folder: the recipe, the model, its tokenizer, what was measured, and checkpoints from which the run
    goes on exactly where it was, whatever stopped it. Ctrl-C saves and stops; --resume goes on.

    Examples: heedful train translate --corpus phrasebook --minutes 3;
    heedful train translate --source a.en --target a.de --valid-source b.en --valid-target b.de;
    heedful train lm --text books/ --size small --steps 5000; heedful train --resume runs/translate;
    heedful train mlm --text books/; heedful train classify --data a.tsv --valid-data b.tsv --from runs/mlm
    """

    task: Annotated[
        Literal["translate", "lm", "mlm", "classify"], tyro.conf.Positional, tyro.conf.arg(metavar="TASK")
    ] = "translate"
    """translate: sentence pairs. lm: predict the next token of a text. mlm: fill in the blanks of a text.
    classify: give a text, or two, one of several labels."""

    corpus: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """A built-in corpus: phrasebook (translate), pylib (lm, mlm)."""

    source: Annotated[str | None, tyro.conf.arg(metavar="FILE")] = None
    """Sentences to read, one a line, plain or gzip."""

    target: Annotated[str | None, tyro.conf.arg(metavar="FILE")] = None
    """Their translations, line by line."""

    valid_source: Annotated[str | None, tyro.conf.arg(metavar="FILE")] = None
    """Held-out sentences to judge the model by."""

    valid_target: Annotated[str | None, tyro.conf.arg(metavar="FILE")] = None
    """Their translations."""

    text: Annotated[str | None, tyro.conf.arg(metavar="PATH")] = None
    """A text file or a folder of them; the last tenth is held out."""

    data: Annotated[str | None, tyro.conf.arg(metavar="FILE")] = None
    """Texts and labels: tab-separated columns under a header (sentence or text, label), or JSON objects, one a line."""

    valid_data: Annotated[str | None, tyro.conf.arg(metavar="FILE")] = None
    """Held-out rows to judge the model by."""

    from_: Annotated[str | None, tyro.conf.arg(name="from", metavar="FOLDER")] = None
    """The model to start from: a run, or a Hugging Face folder of BERT or GPT-2; its tokenizer comes along."""

    run: Annotated[str | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="(default: runs/TASK)")] = None
    """Where the run goes: a folder that is not there yet."""

    resume: Annotated[str | None, tyro.conf.arg(metavar="RUN")] = None
    """Go on with an interrupted run; its recipe says everything else."""

    size: Literal["tiny", "small", "base", "large"] = "small"
    """How large the model is: 2 layers of 128, 4 of 256, 6 of 512, 6 of 1024."""

    steps: Annotated[
        int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="(default: 10000; classify: 1000)")
    ] = None
    """How many steps to make."""

    minutes: Annotated[float | None, tyro.conf.arg(metavar="FLOAT")] = None
    """Instead of steps: as many as fit, measured before the first."""

    seed: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="(default: 0)")] = None
    """Another seed, other weights and another order of the examples."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute; auto takes the GPU if there is one."""

    precision: Annotated[
        Literal["fp32", "bf16", "fp16"] | None,
        tyro.conf.arg(help_behavior_hint="(default: fp32 on a CPU, bf16 on a GPU)"),
    ] = None
    """How numbers are multiplied; the loss is always computed in fp32."""

    set: Annotated[
        tuple[str, ...],
        tyro.conf.arg(metavar="PART.NAME=VALUE", help_behavior_hint="(default: none)"),
        tyro.conf.UseAppendAction,
    ] = ()
    """Any other setting, such as model.heads=8 or checkpoint.every=100; may be given several times."""


# Each command: its options, and the function that does it, imported when it is called.
COMMANDS: dict[str, tuple[type, str]] = {
    "demo": (Demo, "heedful.train_command:demo"),
    "info": (Info, "heedful.commands:info"),
    "train": (Train, "heedful.train_command:train"),
}

HELP = f"""\
usage: heedful COMMAND [OPTIONS]

heedful {__version__}: the Transformer as the lectures teach it.

commands:
{{commands}}

options:
  -h, --help  this text; `heedful COMMAND --help` explains a command and its options
  --version   the version, and nothing else

Results go to stdout, everything else to stderr. Exit codes: 0 done, 1 failed, 2 wrong usage or input,
3 a number was not finite, 4 no whole checkpoint, 5 disk full, 75 interrupted and saved.
HEEDFUL_DEBUG=1 shows where an error came from."""


def main(args: Sequence[str] | None = None) -> int:
    """Run one command; every ending is an exit code and at most one sentence on stderr."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(
                errors="replace"
            )  # a terminal without accents shows question marks, not a traceback
    try:
        code = run(list(sys.argv[1:] if args is None else args))
        if sys.stdout is not None:
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
        print(overview(), file=sys.stderr)
        return BAD_INPUT
    command, *rest = args
    if command in ("-h", "--help", "help"):
        print(overview())
    elif command == "--version":
        print(f"heedful {__version__}")
    elif command.startswith("-"):
        known = [
            "--help",
            "--version",
            *(f"{name} {command}" for name in COMMANDS if command in options(name)),
        ]
        raise BadInput(f"there is no option {command} before a command{nearest(command, known)}")
    elif command not in COMMANDS:
        raise BadInput(f'there is no command "{command}"{nearest(command, COMMANDS)}')
    else:
        given = parse(command, rest)
        module, name = COMMANDS[command][1].split(":")
        return getattr(import_module(module), name)(given) or DONE
    return DONE


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
    kind, complaint = COMMANDS[command][0], io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(
                kind, prog=f"heedful {command}", args=args, config=(tyro.conf.FlagCreatePairsOff,)
            )
    except SystemExit as stop:
        if not stop.code:
            raise
        sentence = fault(command, args)
        raise BadInput(sentence or complaint.getvalue().strip()) from None


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
    known, waiting, positional = options(command), list(args), []
    while waiting:
        token = waiting.pop(0)
        if not token.startswith("-") or token == "-":
            positional.append(token)
            continue
        name, equals, value = token.partition("=")
        name = name.replace("_", "-")
        if name not in known:
            return f"{command} has no option {name}{nearest(name, known)}"
        kinds = kinds_of(known[name])
        if bool in kinds:
            if equals:
                return f"{name} stands alone, without a value"
            continue
        if not equals:
            if not waiting or waiting[0].startswith("--"):
                return f"{name} needs a value: {wanted(kinds)}"
            value = waiting.pop(0)
        if not fits(value, kinds):
            return f"{name} takes {wanted(kinds)}, not {value!r}{suggestion(value, kinds)}"
    return miscounted(command, positional)


def miscounted(command: str, found: list[str]) -> str | None:
    """Too many or too few words that belong to no option."""
    fields = dataclasses.fields(COMMANDS[command][0])
    places = [f for f in fields if option(f.name) not in options(command)]
    if len(found) > len(places):
        return f'{command} does not know what "{found[len(places)]}" is for: see `heedful {command} --help`'
    missing = [f.name for f in places[len(found) :] if f.default is dataclasses.MISSING]
    return f"{command} needs a {missing[0].upper()}: see `heedful {command} --help`" if missing else None


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
        return f"{where}{error.strerror or error}", code
    if isinstance(error, BadInput) or (isinstance(error, ValueError) and ours(error)):
        return str(error), BAD_INPUT
    return f"{type(error).__name__}: {error} (HEEDFUL_DEBUG=1 shows where)", FAILED


def ours(error: Exception) -> bool:
    """Raised by heedful's own code, not by something it called."""
    last = list(traceback.walk_tb(error.__traceback__))[-1][0]
    return last.f_globals.get("__name__", "").partition(".")[0] == __package__


def complain(sentence: str, code: int) -> int:
    print(f"error: {sentence}" if code != INTERRUPTED else sentence, file=sys.stderr)
    return code


def give_up_stdout() -> None:
    """Nobody reads stdout any more: without this, Python would try to write the rest once more as it ends."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
