"""Verify an exported model: compare its files with the certificate, and the model with its source again.

ARTIFACT is what `heedful export`, `heedful import` or `heedful.save` has written: a folder, or a .gguf file.
The SHA-256 of every file is compared with parity.json. The other library opens the model, and all checks are
made again. They compare with the source that parity.json names, if its weights are still the same. Otherwise
they compare with heedful's own reading of ARTIFACT. If anything differs, the exit code is 3.

Examples: heedful verify demo-hf; heedful verify demo-ct2 --source runs/demo; heedful verify model.gguf --json
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from ..files import one_line
from .shared.exchange import StageProgress, headline
from .shared.exit_codes import DID_NOT_HOLD
from .shared.options import Positional, arg


@dataclass(frozen=True)
class VerifyOptions:
    """The options of `heedful verify`."""

    artifact: Annotated[str, Positional, arg("ARTIFACT")]
    """The exported model: a folder, or a .gguf file."""

    source: Annotated[str | None, arg("MODEL", "as parity.json says")] = None
    """The model that it was exported from: a run, or any model that heedful loads."""

    json: bool = False
    """Print one JSON object instead: the new certificate."""


def verify(given: VerifyOptions) -> int:
    """Take the certificate of an export again."""
    with StageProgress(f"verifying {given.artifact}") as tell:
        from ..certify.certificate import UNCHECKED
        from ..certify.verify import verified

        source = None if given.source is None else Path(given.source)
        found = verified(Path(given.artifact), source, tell)
        tell("")
    if given.json:
        print(json.dumps({"artifact": given.artifact} | found.as_json(), indent=2, allow_nan=False))
    else:
        print(one_line(f"{given.artifact}: {headline(found)}"))
        print("\n".join(f"  {line}" for line in [*found.summary(), f"compared with {found.more['against']}"]))
    if found.verdict == UNCHECKED:
        print(one_line(f"not checked: {'; '.join(found.faults)}"), file=sys.stderr)
    if found.differs:
        why = one_line(f"the models differ: {'; '.join(found.faults)}")
        print(f"error: {why}", file=sys.stderr)
    return DID_NOT_HOLD if found.differs else 0
