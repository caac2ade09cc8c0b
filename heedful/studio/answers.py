"""Answers of the studio: JSON, bytes with their shape, and streams of events."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..service.answering import EventStream, event_stream, route
from ..service.app import Events, Service
from .studio import Studio

StudioAnswer = Callable[[Studio, Request], Awaitable[Response]]


def studio_route(
    studio: Studio, path: str, answer: StudioAnswer, method: str = "GET", takes: type | None = None
) -> Route:
    """A route whose function is given the studio."""

    async def call(service: Service, request: Request) -> Response:
        return await answer(studio, request)

    summary = (answer.__doc__ or "").partition("\n")[0]
    return route(path, call, studio.service, method, takes=takes, summary=summary)


class JsonAnswer(Response):
    """JSON that browsers parse."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return json_bytes(content)


def json_bytes(content: Any) -> bytes:
    """JSON in ASCII, so that half characters of damaged files do no harm, and without infinite numbers."""
    try:
        return json.dumps(content, separators=(",", ":"), allow_nan=False).encode()
    except ValueError:
        return json.dumps(finite(content), separators=(",", ":")).encode()


def finite(content: Any) -> Any:
    """The same with None in place of numbers that JSON does not have: NaN and the infinite ones."""
    if isinstance(content, dict):
        return {name: finite(one) for name, one in content.items()}
    if isinstance(content, (list, tuple)):
        return [finite(one) for one in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def as_bytes(event: dict[str, Any]) -> Response:
    """Numbers of a worker: little-endian bytes, with their shape and type in headers."""
    told = event["result"]
    headers = {"x-shape": ",".join(map(str, told["shape"])), "x-dtype": told["dtype"]}
    return Response(event["bytes"], headers=headers, media_type="application/octet-stream")


def stream(studio: Studio, events: Events) -> EventStream:
    """Events as they come. One with a "number" has it as its id, for Last-Event-ID."""

    async def pieces() -> AsyncIterator[bytes]:
        async for event in events:
            number = f"id: {event['number']}\n" if "number" in event else ""
            yield b"%bdata: %b\n\n" % (number.encode(), json_bytes(event))

    return event_stream(studio.service, pieces(), {})
