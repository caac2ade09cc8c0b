"""Writing in the worker: tokens one by one with what else could have been written, from any beginning."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ..decode.streaming import Token
from ..errors import BadInput
from ..service.methods import Event, Given, Work
from ..service.writing import plan
from ..use.model import Model
from ..use.pieces import TextSoFar
from ..use.search import Request, Search

ABILITIES = ("translate", "summarize", "generate")


def ability_of(model: Model) -> str:
    """How a model writes."""
    found = next((name for name in ABILITIES if name in model.can), None)
    if found is None:
        raise BadInput(f"{model.folder} writes no texts: it can {', '.join(model.can) or 'nothing'}")
    return found


def write(model: Model, given: Given, blob: bytes) -> Work:
    """Write a text token by token, after tokens that are given."""
    options = {"beam": 1, **given["options"]}
    planned = plan(
        model, {"ability": ability_of(model), "texts": [given["text"]], "options": options, "top": given["top"]}
    )
    yield None
    (request,), search, prefix = planned.requests, planned.search, given["prefix_tokens"]
    if search.width > 1 or search.how.beam_groups > 1:
        raise BadInput("a beam decides at the end: leave out `beam`, or ask for the search")
    if request is None:
        raise BadInput("there is nothing to write after this text: give another one")
    names = model.wording.names
    yield {"start": {"tokens": tokens_json(names, prefix), "prompt": tokens_json(names, request.prompt)}}
    yield from written(model, search, after(request, prefix), prefix)


def after(request: Request, prefix: list[int]) -> Request:
    """A request that goes on after tokens of its answer."""
    left = request.longest - len(prefix)
    if left < 1:
        raise BadInput(
            f"{len(prefix)} tokens are given, and {request.longest} may be written: raise max_new_tokens"
        )
    return replace(request, prompt=[*request.prompt, *prefix], longest=left)


def written(model: Model, search: Search, request: Request, prefix: list[int]) -> Work:
    """An event for each token, and the whole text."""
    before = request.prompt if request.continues else prefix
    text, names, total, ids = TextSoFar(model.wording, before, search.stops.strings), model.wording.names, 0.0, []
    pieces: list[str] = []
    for token in only(search.streamed([request])):
        piece, _ = text.add(token.token, token.token in search.ends)
        pieces.append(piece)
        total += token.log_probability
        ids.append(token.token)
        yield {"token": token_event(names, token, piece)}
    pieces.append(text.rest())
    ended = bool(ids) and ids[-1] in search.ends
    whole = model.wording.text([*prefix, *(ids[:-1] if ended else ids)], [])
    result = {"text": whole, "log_probability": total, "tokens": [*prefix, *ids], "ended": ended}
    yield {"over": True, "result": result | {"rest": pieces[-1]}}


def only(streamed: Iterator[list[Token]]) -> Iterator[Token]:
    for new in streamed:
        yield from new


def token_event(names: Any, token: Token, piece: str) -> Event:
    """A token, and the likeliest ones in its place."""
    top = [[t, names([t])[0], log_p] for t, log_p in token.top]
    return {
        "id": token.token,
        "name": names([token.token])[0],
        "piece": piece,
        "log_probability": token.log_probability,
        "top": top,
        "ended": token.ended,
    }


def tokens_json(names: Any, ids: list[int]) -> list[dict[str, Any]]:
    return [{"id": number, "name": name} for number, name in zip(ids, names(ids), strict=True)]
