"""The text of a page: one file of markup, style, code, kernels, the model and what it says of it.

Whatever comes from a model (names, vocabulary, texts) stands in blocks of JSON, in which no `<` is written as
such, so that nothing of it can be markup or code.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ...errors import BadInput

STATIC = Path(__file__).parent / "static"
PAGE = "model.html"  # the page's name while it is written
# In the order in which they are put together: each uses those before it.
SCRIPTS = (
    "kernels", "weights", "activations", "parts", "positions", "attention", "model",
    "regexes", "normalizers", "splits", "vocabularies", "decoders", "tokens",
    "search", "answers", "views", "attention_map", "page", "main",
)  # fmt: skip
IMPORT = re.compile(r"^import \{ [\w, ]+ \} from '\./(\w+)\.js';\n", re.MULTILINE)
EXPORT = re.compile(r"^export (?=async function|function|class|const)", re.MULTILINE)
BLOCK = re.compile(r'<script type="[\w/-]+" id="(\w+)">(.*?)</script>', re.DOTALL)
BLOCKS = ("story", "spec", "kernels", "weights", "code")


def assembled(spec: Mapping[str, Any], weights: bytes) -> str:
    """A page of a model. It does not say what the model is yet: `with_story` adds that."""
    filled = {
        "title": "A model",
        "style": (STATIC / "page.css").read_text(encoding="utf-8"),
        "story": as_block({}),
        "spec": as_block(spec),
        "kernels": base64.b64encode((STATIC / "kernels.wasm").read_bytes()).decode(),
        "weights": base64.b64encode(weights).decode(),
        "code": code(),
    }
    text = (STATIC / "page.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda found: filled[found[1]], text)


@cache
def code() -> str:
    """All scripts as one: without imports, since all names are in one place then."""
    parts = ((STATIC / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS)
    return "\n".join(EXPORT.sub("", IMPORT.sub("", part)) for part in parts)


def as_block(content: Any) -> str:
    """JSON that ends no script and begins no comment."""
    return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace(
        "<", "\\u003c"
    )


def with_story(page: str, story: Mapping[str, Any]) -> str:
    """The page with what it says of its model."""
    start, end = span_of(page, "story")
    return f"{page[:start]}{as_block(story)}{page[end:]}"


def block_of(page: str, name: str) -> str:
    """The content of a block of a page."""
    start, end = span_of(page, name)
    return page[start:end]


def span_of(page: str, name: str) -> tuple[int, int]:
    for found in BLOCK.finditer(page):
        if found[1] == name:
            return found.span(2)
    raise BadInput(f"this file has no {name} of a model: it is no page that heedful has exported")
