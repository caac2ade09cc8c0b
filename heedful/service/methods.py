"""What a worker does beside writing texts: each entry of METHODS is a generator for one kind of request."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from ..errors import BadInput
from ..models.base.shells import shells_of
from ..use import embed
from ..use.model import Model
from ..use.texts import Tokenized
from ..use.wording import judged

Event = dict[str, Any]
Method = Callable[[Model, dict[str, Any], bytes], Generator[Event | None, None, None]]


def embed_texts(model: Model, given: dict[str, Any], blob: bytes) -> Generator[Event | None, None, None]:
    """The vectors of texts, one text a turn."""
    rows = embed.encode(model, given["texts"]) if "texts" in given else numbered(model, given["tokens"])
    yield None
    vectors = []
    for row in rows:
        vectors.append(embed.embedded(model, [row], None, None, 1)[0].tolist())
        yield None
    read = sum(len(row.ids) for row in rows)
    usage = {"prompt_tokens": read, "completion_tokens": 0, "total_tokens": read}
    yield {"over": True, "usage": usage, "result": {"vectors": vectors}}


def numbered(model: Model, rows: list[list[int]]) -> list[Tokenized]:
    """Tokens that a client sent as numbers."""
    if model.spelled is not None:
        raise BadInput(f"{model.folder} reads words letter by letter: send texts, and not tokens")
    known = next(iter(shells_of(model.model).values())).inputs.tokens.weight.shape[0]
    most = max(max(ids) for ids in rows)
    if most >= known:
        raise BadInput(f"there is no token {most}: {model.folder} has {known:,}, counted from 0")
    return judged([Tokenized("", ids) for ids in rows], model.model)


METHODS: dict[str, Method] = {"embed": embed_texts}
