"""The versions that heedful needs and is tested with, and its entry of BibTeX."""

import re
import tomllib
from datetime import date
from pathlib import Path

import yaml

from .markdown import code, table

ROOT = Path(__file__).parents[3]
SHOWN = ("torch", "numpy", "safetensors", "tokenizers", "transformers", "ctranslate2", "onnxruntime")


def versions_table() -> str:
    """Python and packages: what is needed, and what the tests run with."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pinned = dict(re.findall(r"^([\w-]+)==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    needed = dict(re.match(r"([\w-]+)(.*)", one).groups() for one in project["dependencies"])
    rows = [("Python", project["requires-python"], "3.11")]
    for name in SHOWN:
        if name in pinned:
            rows.append((name, needed.get(name, "an extra") or "any", pinned[name]))
    cells = [(code(name), least.replace(">=", "≥ "), tested) for name, least, tested in rows]
    return table(("package", "needed", "tested with"), cells)


def bibtex() -> str:
    """CITATION.cff as an entry of BibTeX."""
    said = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    authors = " and ".join(f"{{{author['name']}}}" for author in said["authors"])
    year = str(said.get("date-released", date.today()))[:4]
    fields = {"author": authors, "title": said["title"], "version": said["version"], "year": year}
    lines = "".join(f"  {name:<8} = {{{value}}},\n" for name, value in fields.items())
    return f"```bibtex\n@software{{heedful,\n{lines}  license  = {{{said['license']}}}\n}}\n```\n"
