"""What a page says of its model: its name, its sizes, its training data and its certificate."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any

from ... import __version__
from ...corpora import phrasebook
from ...errors import BadInput
from ...files import read_text
from ..loaded import Loaded
from ..run_files import SAMPLES, recipe
from ..run_folder import is_run

MOST = 8 << 20  # bytes of a file of samples
DATA = ("corpus", "source", "table", "text", "folder", "file")  # settings that name what a run was trained on


def story_of(
    source: Path, loaded: Loaded, certificate: Mapping[str, Any], probe: list[dict[str, Any]]
) -> dict[str, Any]:
    """Lines for people, all of them plain text. probe: inputs by which the page can check itself."""
    return {
        "name": source.resolve().name,
        "architecture": certificate["architecture"],
        "weights": certificate["kind"],
        "trained": trained(source),
        "verdict": certificate["verdict"],
        "faults": list(certificate["faults"]),
        "checks": [f"{check['name']}: {check['summary']}" for check in certificate["checks"]],
        "compared_in": certificate["versions"].get("page", ""),
        "probe": probe,
        "conversations": conversations(loaded),
        "example": "" if loaded.chat is not None else example(source),
        "made": f"heedful {__version__}, {date.today().isoformat()}",
    }


def conversations(loaded: Loaded) -> dict[str, str]:
    """How a chat template writes a question, and a question with its response; {} where there is none."""
    if loaded.chat is None:
        return {}
    question = [{"role": "user", "content": "Hello!"}]
    response = {"role": "assistant", "content": "Hello, how can I help?"}
    try:
        said = [loaded.chat.one(question, answer=True), loaded.chat.one([*question, response], answer=False)]
    except BadInput:
        return {}
    texts = [one for one in said if isinstance(one, str)]
    return dict(zip(("question", "whole"), texts, strict=True)) if len(texts) == len(said) else {}


def example(source: Path) -> str:
    """A text that the model was tried with while it was trained; "" where none is known."""
    if not source.is_dir() or not is_run(source):
        return ""
    try:
        *_, last = read_lines(source / SAMPLES)
        return str(last["samples"][0]["source"])
    except (BadInput, OSError, ValueError, LookupError, TypeError):
        corpus = (settings_of(source).get("data") or {}).get("corpus")
        return next(iter(phrasebook.split("valid"))).source if corpus == "phrasebook" else ""


def read_lines(path: Path) -> Iterator[Any]:
    """The objects of a file of JSON lines."""
    return (json.loads(line) for line in read_text(path, MOST).splitlines() if line.strip())


def settings_of(source: Path) -> dict[str, Any]:
    """The recipe of a run; {} if it cannot be read."""
    try:
        return recipe(source)
    except (BadInput, OSError):
        return {}


def trained(source: Path) -> str:
    """What a run was trained on and for how long, as its recipe says; of any other model nothing is known."""
    if not source.is_dir() or not is_run(source):
        return ""
    settings = settings_of(source)
    if not settings:
        return ""
    data, train = settings.get("data") or {}, settings.get("train") or {}
    names = [str(data[name]) for name in DATA if data.get(name)]
    built_in = settings.get("task") == "translate" and data.get("corpus") == "phrasebook"
    what = f"task {settings.get('task', '')}{' from English to French' if built_in else ''}"
    on = f", data {', '.join(Path(name).name for name in names)}" if names else ""
    steps = f", at most {train['steps']} steps" if isinstance(train.get("steps"), int) else ""
    return f"{what}{on}{steps}"
