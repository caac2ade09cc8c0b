"""The public names of heedful: those that the pages of docs/reference/api list.

A fence with the word {public} and a module has its names, a method or a property as "Class.name".
"""

from __future__ import annotations

import inspect
import re
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

PAGES = Path(__file__).parents[2] / "docs" / "reference" / "api"
FENCE = re.compile(r"^```\{public\} (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class PublicName(NamedTuple):
    """A function, a class, a method or a property, and where it is listed."""

    page: str
    module: str
    name: str

    @property
    def owner(self) -> Any:
        """The class of a method, or else the module."""
        found: Any = import_module(self.module)
        for part in self.name.split(".")[:-1]:
            found = getattr(found, part)
        return found

    @property
    def member(self) -> Any:
        """What is documented: a property itself, not its value."""
        return inspect.getattr_static(self.owner, self.short, None) or getattr(self.owner, self.short)

    @property
    def short(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def full(self) -> str:
        return f"{self.module}.{self.name}"

    @property
    def documentation(self) -> str:
        return inspect.getdoc(self.member) or ""

    @property
    def summary(self) -> str:
        """The first paragraph."""
        return " ".join(self.documentation.partition("\n\n")[0].split())


@cache
def public_names() -> tuple[PublicName, ...]:
    """All of them, in the order of the pages."""
    return tuple(
        PublicName(page.stem, module, name)
        for page in sorted(PAGES.glob("*.md"))
        for module, names in FENCE.findall(page.read_text(encoding="utf-8"))
        for name in names.split()
    )
