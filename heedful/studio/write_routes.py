"""Routes that write: a text token by token, with what else could have been written."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import field, make_dataclass
from typing import Annotated, Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ..models.base.settings import Range
from ..service.answering import body_of
from ..service.fields import Most, read
from ..service.task_routes import OWN, given_of
from ..service.tasks import field_of, options_of
from .answers import stream, studio_route
from .requests import Edits, RunId, Text
from .studio import Studio

COMMANDS = ("translate", "summarize", "generate")
OPTIONS = {
    option.name: option
    for command in COMMANDS
    for option in options_of(command)
    if option.name not in ("align", "top", "prefix")
}
Tokens = Annotated[list[Annotated[int, Range(0, 10**7)]], Most("tokens")]
Top = Annotated[int, Range(0, 100), "alternatives to show for each token"]


def writing_request(name: str, said: str, *more: tuple[str, Any, Any]) -> Any:
    """A request with every option of decoding."""
    own: list[Any] = [("run", RunId), ("text", Text), *map(field_of, OPTIONS.values())]
    own += [*more, ("edits", Edits, field(default_factory=list))]
    return make_dataclass(name, own, frozen=True, kw_only=True, namespace={"__doc__": said})


AFTER = ("prefix_tokens", Annotated[Tokens, "tokens that the text begins with"], field(default_factory=list))
WriteRequest = writing_request("WriteRequest", "Write token by token.", ("top", Top, 10), AFTER)


async def write(studio: Studio, request: Request) -> Response:
    """Write a text, and send each token with its alternatives as it comes."""
    body = await body_of(request, studio.service.limits.body_bytes)
    asked = read(WriteRequest, body, studio.service.limits)
    given = {name: getattr(asked, name) for name in ("text", "top", "prefix_tokens", "edits")}
    given["options"] = {name: getattr(asked, name) for name in OPTIONS if body.get(name) is not None}
    worker = await studio.worker(asked.run)
    return stream(studio, worker_events(studio, worker, "studio_write", given))


async def worker_events(studio: Studio, worker: Any, do: str, given: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    """The events of a worker, the result as {"done": ...} last."""
    async for event in studio.service.ask(worker, do, given):
        yield {"done": event["result"]} if event.get("over") else event


def write_routes(studio: Studio) -> list[Route]:
    return [studio_route(studio, "/api/write", write, "POST", WriteRequest)]
