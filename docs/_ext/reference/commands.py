"""Every command with its options, from the dataclasses that the command line reads."""

import dataclasses
import typing
from typing import Any

from heedful.cli.shared import arguments
from heedful.cli.shared.commands import COMMANDS, help_of, options_of
from heedful.tasks import STAGED, summaries

from .markdown import code, prose, table

TITLES = ("option", "default", "meaning")


def commands() -> str:
    return "\n".join(map(section, COMMANDS))


def section(command: str) -> str:
    """A command: what it does, examples, its words and its options."""
    *paragraphs, examples = help_of(command).strip().split("\n\n")
    lines = [" ".join(line.split()) for line in examples.partition(":")[2].split(";")]
    texts = "\n\n".join(map(prose, paragraphs))
    shown = "\n".join(lines)
    more = tasks_of_training() if command == "train" else ""
    return f"## {command}\n\n{texts}\n\n```\n{shown}\n```\n\n{more}{table(TITLES, rows(command))}\n"


def rows(command: str) -> list[tuple[str, str, str]]:
    """(option, default, meaning) of each option; words without an option come first."""
    kind = options_of(command)
    hints = typing.get_type_hints(kind, include_extras=True)
    texts = {
        name: text
        for part in reversed(kind.__mro__)
        for name, text in arguments.field_docstrings(part).items()
    }
    found = []
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        meaning = told(hint, "help") or texts.get(field.name, "")
        found.append((code(typed(field.name, hint)), prose(default(field, hint)), prose(meaning)))
    return sorted(found, key=lambda row: row[0].startswith("`--"))


def typed(name: str, hint: Any) -> str:
    """An option as it is typed, with what its value is called."""
    kinds = arguments.kinds_of(hint)
    value = told(hint, "metavar")
    if arguments.is_positional(hint):
        return value or name.upper()
    if bool in kinds:
        return arguments.option(name)
    choices = "|".join(str(kind) for kind in kinds if isinstance(kind, str))
    numbers = {int: "INT", float: "FLOAT"}
    return f"{arguments.option(name)} {value or choices or numbers.get(kinds[0], 'TEXT')}"


def default(field: dataclasses.Field[Any], hint: Any) -> str:
    """What holds if an option is left out."""
    if said := told(hint, "help_behavior_hint"):
        return said.removeprefix("(default: ").removesuffix(")")
    if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
        return "required"
    if isinstance(field.default, bool):
        return "off" if not field.default else "on"
    return "none" if field.default in (None, ()) else str(field.default)


def told(hint: Any, what: str) -> str:
    """What the definition of an option says of it beside its type."""
    notes = getattr(hint, "__metadata__", ())
    return next((found for note in notes if (found := getattr(note, what, None))), "")


def tasks_of_training() -> str:
    """The tasks that `heedful train` knows."""
    found = {name: line for name, line in summaries().items()} | {
        STAGED: "Text to image: all stages in one folder."
    }
    return (
        table(("task", "what it learns"), ((code(name), prose(line)) for name, line in sorted(found.items())))
        + "\n"
    )
