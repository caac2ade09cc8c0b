"""Other people's packages: imported where one is needed, refused with how to install it, and kept quiet."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
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


@contextmanager
def quiet() -> Iterator[None]:
    """Other libraries talk as they load: notes about what else could be installed, bars, warnings."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()), redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
