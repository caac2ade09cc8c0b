"""The list of commands, which is the list of files in heedful/cli.

A command NAME is a file NAME.py (NAME_.py where NAME is a keyword of Python). Its docstring is the help, its
dataclass NameOptions has the options, and its function NAME does what they ask for.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from keyword import iskeyword
from pathlib import Path
from types import ModuleType
from typing import Any

FOLDER = Path(__file__).parent.parent
OTHERS = ("__init__.py", "main.py", "completion.py")  # files there that are no commands


def first_line(path: Path) -> str:
    """The first line of a file's docstring; the file is not imported."""
    with path.open(encoding="utf-8") as file:
        return file.readline().strip().strip('"')


# Each command with the first line of its help.
COMMANDS = {
    path.stem.rstrip("_"): first_line(path) for path in sorted(FOLDER.glob("*.py")) if path.name not in OTHERS
}


def module_of(command: str) -> ModuleType:
    """The file of a command, imported."""
    return import_module(f"heedful.cli.{python_name(command)}")


def options_of(command: str) -> type:
    """The dataclass of a command's options."""
    return getattr(module_of(command), f"{command.title()}Options")


def function_of(command: str) -> Callable[[Any], int | None]:
    """What a command does; it returns an exit code, or None for 0."""
    return getattr(module_of(command), python_name(command))


def help_of(command: str) -> str:
    """The text that explains a command."""
    return module_of(command).__doc__ or ""


def python_name(command: str) -> str:
    return f"{command}_" if iskeyword(command) else command
