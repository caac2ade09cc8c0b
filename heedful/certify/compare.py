"""The comparison of a model with its export in another library: all checks, and the verdict."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..errors import NotInstalled
from ..files import one_line
from ..interop.formats import FORMATS
from ..interop.loaded import Loaded
from .certificate import (
    DIFFERENT,
    UNCHECKED,
    Certificate,
    Check,
    passing,
    unchecked,
    versions,
)
from .checks import (
    agreement,
    attention,
    chat,
    classify,
    embed,
    embedding,
    generation,
    outputs,
    pictures,
    searches,
    tokenizer,
    weights,
)
from .own import OwnModel
from .sides import Sides, Tell, as_stored, opened, with_weights

# In the order in which a certificate has them. Each returns None where it does not apply.
CHECKS: tuple[Callable[[Sides], Check | None], ...] = (
    weights.check,
    outputs.check,
    attention.check,
    embedding.check,
    searches.greedy,
    searches.beam,
    agreement.check,
    generation.check,
    tokenizer.check,
    classify.check,
    pictures.check,
    chat.check,
    embed.check,
)
NOTHING = "the other library returns nothing that can be compared"


def certify(sides: Sides, packages: Sequence[str] = ()) -> Certificate:
    """Compare the two sides by every check. packages: whose versions are noted."""
    found = [check for each in CHECKS if (check := each(sides)) is not None]
    faults = tuple(fault for check in found for fault in check.faults)
    nothing = all(check.name == weights.NAME for check in found)
    verdict = DIFFERENT if faults else UNCHECKED if nothing else passing(sides.kind)
    return Certificate(
        verdict,
        sides.format,
        sides.kind,
        sides.ours.loaded.architecture,
        versions(packages) | getattr(sides.used, "versions", {}),
        faults or ((NOTHING,) if nothing else ()),
        tuple(found),
        sides.tolerance,
    )


def compared(
    loaded: Loaded, folder: Path, to: str, kind: str | None, tell: Tell, source: str = "the model"
) -> Certificate:
    """A loaded model beside what another library makes of a folder. kind: how its weights are stored; None:
    `loaded` is what heedful has read from this folder."""
    form = FORMATS[to]
    try:
        return certify(opened(loaded, folder, to, kind, tell, source), form.packages)
    except NotInstalled as why:
        return by_weights(loaded, folder, to, kind, tell, str(why))
    except MemoryError:
        raise
    except Exception as error:
        if os.environ.get("HEEDFUL_DEBUG") == "1":
            raise
        fault = one_line(f"{form.packages[0]} cannot use it: {type(error).__name__}: {error}")
        noted = versions(form.packages)
        return Certificate(DIFFERENT, to, kind or "float32", loaded.architecture, noted, (fault,))


def by_weights(loaded: Loaded, folder: Path, to: str, kind: str | None, tell: Tell, why: str) -> Certificate:
    """What can be said without the other library: heedful reads the weights of the export again."""
    stored, packages = kind or "float32", FORMATS[to].packages
    if kind is None:
        return unchecked(loaded, to, stored, why, packages)
    rounded = OwnModel(with_weights(loaded, as_stored(loaded, folder, to, kind)))
    nobody: Any = None
    sides = Sides(OwnModel(loaded), rounded, nobody, nobody, stored, tell, folder=folder, format=to)
    found = weights.check(sides)
    if found is None:
        return unchecked(loaded, to, stored, why, packages)
    verdict, faults = (DIFFERENT, found.faults) if found.faults else (UNCHECKED, (why,))
    return Certificate(verdict, to, stored, loaded.architecture, versions(packages), faults, (found,))
