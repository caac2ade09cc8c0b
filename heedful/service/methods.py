"""What a worker does beside writing texts: each entry of METHODS is a generator for one kind of request."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from ..use import embed
from ..use.model import Model

Event = dict[str, Any]
Method = Callable[[Model, dict[str, Any], bytes], Generator[Event | None, None, None]]


def embed_texts(model: Model, given: dict[str, Any], blob: bytes) -> Generator[Event | None, None, None]:
    """The vectors of texts, one text a turn."""
    rows = embed.encode(model, given["texts"])
    yield None
    vectors = []
    for row in rows:
        vectors.append(embed.embedded(model, [row], None, None, 1)[0].tolist())
        yield None
    read = sum(len(row.ids) for row in rows)
    usage = {"prompt_tokens": read, "completion_tokens": 0, "total_tokens": read}
    yield {"over": True, "usage": usage, "result": {"vectors": vectors}}


METHODS: dict[str, Method] = {"embed": embed_texts}
