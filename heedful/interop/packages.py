"""Other people's packages, imported only where one is needed; one that is not there is said with how to get it."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ..errors import NotInstalled


def needed(module: str, extra: str) -> Any:
    """A module of a package that heedful does without otherwise, and that its extra brings."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        why = (
            "is not installed"
            if (error.name or package).partition(".")[0] == package
            else f"cannot be imported ({error})"
        )
        raise NotInstalled(f'{package} {why}: pip install "heedful[{extra}]"') from None
