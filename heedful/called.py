"""What to type to call this program again, as it was called: for remedies and next steps that can be copied."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

NAME = "heedful"


def program() -> str:
    """`heedful` where the shell would find this very one; else its path, or `python -m heedful`."""
    called = Path(sys.argv[0] if sys.argv else "")
    if called.name == "__main__.py" and called.parent.name == NAME:
        return f"python -m {NAME}"
    found = shutil.which(NAME)
    if called.name != NAME or (
        found is not None and os.path.exists(called) and os.path.samefile(found, called)
    ):
        return NAME
    return shlex.quote(str(called))


def command(*words: str | Path) -> str:
    """A whole command line."""
    return f"{program()} {shlex.join(map(str, words))}"
