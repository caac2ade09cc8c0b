"""Pages for tests: tiny models as pages, run in Node, and what tests ask of them.

Node runs the scripts of a page sooner than a browser starts. Where it is missing, tests are skipped, except
where everything is tested.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from heedful.interop.html import stored, write
from heedful.interop.html.engines import Node
from heedful.interop.html.page import PAGE
from heedful.interop.html.reopen import PageModel
from heedful.interop.loaded import Loaded
from heedful.interop.rounding import with_weights
from helpers import tiny
from helpers.tokenizer_cases import byte_level


def need(program: str) -> str:
    """A program of the system. Without it, tests are skipped; where everything is tested, they fail."""
    found = shutil.which(program)
    if found is None and os.environ.get("CI"):
        pytest.fail(f"there is no {program}, which .ci/run installs")
    if found is None:
        pytest.skip(f"there is no {program}")
    return found


def tiny_loaded(name: str, entry: Any) -> Loaded:
    """A tiny model in float32 with a tokenizer of its own."""
    special = {"bos": 1, "eos": 2} if name in tiny.ENCODER_DECODERS else {"bos": 1}
    architecture = entry[0].__name__.rpartition(".")[2]
    return Loaded(architecture, entry[1], tiny.build(entry, dtype=tiny.torch.float32), byte_level(), special)


def written(loaded: Loaded, folder: Path, kind: str = "float16") -> Path:
    """The page of a model in a folder, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    write.write(loaded, folder, kind)
    return folder / PAGE


def in_node(page: Path, plain: bool = False) -> PageModel:
    """A page, opened in Node. plain: without WebAssembly."""
    return PageModel(page, Node(need("node"), page, plain))


def rounded(loaded: Loaded, folder: Path, kind: str) -> Loaded:
    """The model with its weights rounded as the page has them."""
    return with_weights(loaded, stored.rounded(loaded, folder, kind))
