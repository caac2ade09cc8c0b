"""The small runs that the pages use, from stored_runs/; and a way to write what they print into the pages.

    PYTHONPATH=tests:. python -m helpers.page_runs

runs all commands of the pages and puts what they print where a page shows something else.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path

from heedful.models import family
from helpers import pages


def unpack(folder: Path) -> Path:
    """Put the stored runs into the runs/ of a folder; what their configs leave out has its default."""
    shutil.copytree(pages.STORED, folder / "runs")
    for path in folder.glob("runs/*/config.json"):
        found = json.loads(path.read_text())
        kind = type(next(iter(family(found["heedful"]).PRESETS.values())))
        path.write_text(json.dumps({**found, "config": asdict(kind(**found["config"]))}))
    return folder


def rewrite_pages() -> None:
    """Write what commands print into all pages."""
    os.environ["COLUMNS"] = "100"
    with tempfile.TemporaryDirectory() as name:
        folder = unpack(Path(name))
        os.chdir(folder)
        for block in pages.blocks(pages.SHOWN, "sh", "python"):
            if block.word != "python" or ">>>" in block.text:
                made = pages.rewritten(block, folder)  # what "sh" writes may be read later
                text = block.page.read_text(encoding="utf-8")
                if block.word != "sh":
                    block.page.write_text(text.replace(block.text, made, 1), encoding="utf-8")


if __name__ == "__main__":
    rewrite_pages()
