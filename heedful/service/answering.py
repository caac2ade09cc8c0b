"""Answering: what every route has in common. Errors are JSON, and work ends with its client or its time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from .fields import HttpError, error_body, json_body
from .guard import check_json
from .records import RequestRecord, log_fault, record

if TYPE_CHECKING:
    from .app import Service

Answer = Callable[["Service", Request], Awaitable[Response]]
GONE = 499  # in the log and the figures: the client went away before the end


@dataclass
class Call:
    """One request: its messages, and how far its answer is."""

    receive_next: Receive
    send_next: Send
    whole: asyncio.Event = field(default_factory=asyncio.Event)  # the request has been read
    started: bool = False
    streams: bool = False

    async def receive(self) -> Message:
        if self.whole.is_set():
            await asyncio.Event().wait()  # `gone` listens from here on
        message = await self.receive_next()
        if not message.get("more_body", False):
            self.whole.set()
        return message

    async def gone(self) -> None:
        """Return when the client has gone away."""
        await self.whole.wait()
        while (await self.receive_next())["type"] != "http.disconnect":
            pass

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            self.streams = any(value.startswith(b"text/event-stream") for _, value in message["headers"])
        await self.send_next(message)

    async def refuse(self, refused: HttpError) -> None:
        """Answer with an error; where a stream has begun, end it with one."""
        body = error_body(refused)
        if not self.started:
            headers = {
                "content-type": "application/json",
                "content-length": str(len(body)),
                **refused.headers,
            }
            pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
            await self.send({"type": "http.response.start", "status": refused.status, "headers": pairs})
            await self.send({"type": "http.response.body", "body": body})
        elif self.streams:
            await self.send({"type": "http.response.body", "body": b"data: " + body + b"\n\n"})


@dataclass
class Endpoint:
    """The requests to one route. takes, summary, example: what /openapi.json says of it."""

    path: str
    answer: Answer
    service: Service
    method: str = "POST"
    takes: type | None = None
    summary: str = ""
    example: Any = None
    lenient: bool = False  # whether fields that it does not know are let pass
    forms: bool = False  # whether it takes forms beside JSON

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        call, mine, service = Call(receive, send), record(), self.service
        if self.method != "GET" and service.closing:
            await call.refuse(shutting_down())
            return
        if self.method != "POST":
            call.whole.set()  # nobody reads the body
        service.running += 1
        work = asyncio.create_task(self.work(scope, call, mine))
        gone = asyncio.create_task(call.gone())
        try:
            seconds = service.limits.request_seconds
            await asyncio.wait({work, gone}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
            elif not gone.done():
                await ended(work)
                mine.status = 504
                await call.refuse(HttpError(504, f"the answer took longer than {seconds:g} seconds"))
            else:
                mine.status = gone_status(scope)
        finally:
            await ended(work, gone)
            service.running -= 1
            if mine.status == GONE:
                service.metrics.count("cancelled_total")

    async def work(self, scope: Scope, call: Call, mine: RequestRecord) -> None:
        """Answer, or say why not."""
        try:
            if self.method != "GET":
                check_json(scope, self.forms)
            response = await self.answer(self.service, Request(scope, call.receive))
            await response(scope, call.receive, call.send)
        except HttpError as refused:
            mine.status = refused.status
            await call.refuse(refused)
        except ClientDisconnect:
            mine.status = gone_status(scope)
        except Exception as error:  # noqa: BLE001 (whatever failed, the client is answered)
            mine.status = 500
            log_fault(error, mine.id)
            await call.refuse(HttpError(500, f"the service failed at this request: see {mine.id} in its log"))
        finally:
            for events in reversed(mine.opened):
                await events.aclose()


def gone_status(scope: Scope) -> int:
    """Why nobody is there: the client was refused for its slowness, or went away."""
    return scope.get("state", {}).get("refused", GONE)


async def ended(*tasks: asyncio.Task[None]) -> None:
    """End tasks, and wait until they have."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def shutting_down() -> HttpError:
    return HttpError(503, "the service is shutting down", **{"retry-after": "5", "connection": "close"})


def route(
    path: str,
    answer: Answer,
    service: Service,
    method: str = "POST",
    *,
    takes: type | None = None,
    summary: str = "",
    example: Any = None,
    lenient: bool = False,
    forms: bool = False,
) -> Route:
    """A route. takes: the dataclass of its requests; example: an answer; lenient: other fields are ignored.

    forms: it takes forms beside JSON.
    """
    said = summary or (answer.__doc__ or "").partition("\n")[0]
    endpoint = Endpoint(path, answer, service, method, takes, said, example, lenient, forms)
    return Route(path, cast(Any, endpoint), methods=[method], name=path)


async def body_of(request: Request, most: int) -> dict[str, Any]:
    """The JSON object of a request."""
    return json_body(await body_bytes(request, most))


async def body_bytes(request: Request, most: int) -> bytes:
    """The body of a request, whose size is looked at before it is read."""
    too_long = HttpError(413, f"the body is longer than {most:,} bytes")
    declared = request.headers.get("content-length", "0")
    if len(declared) > 15 or int(declared) > most:
        raise too_long
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > most:
            raise too_long
    return bytes(body)


class EventStream(Response):
    """An answer that is sent as it comes. Its status goes with the first piece: it may be an error before."""

    media_type = "text/event-stream"

    def __init__(self, pieces: AsyncGenerator[bytes, None], headers: dict[str, str], ping: float) -> None:
        self.status_code, self.background = 200, None
        self.pieces, self.ping = pieces, ping
        self.last = 0.0  # when something was sent
        self.init_headers(headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self.pieces):
            piece = await anext(self.pieces, None)
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            pings = asyncio.create_task(self.send_pings(send))
            try:
                while piece is not None:
                    await self.send_piece(send, piece)
                    piece = await anext(self.pieces, None)
            finally:
                await ended(pings)
        await send({"type": "http.response.body", "body": b""})

    async def send_piece(self, send: Send, piece: bytes) -> None:
        self.last = asyncio.get_running_loop().time()
        await send({"type": "http.response.body", "body": piece, "more_body": True})

    async def send_pings(self, send: Send) -> None:
        """Send a comment as a sign of life whenever nothing else was sent for long."""
        loop = asyncio.get_running_loop()
        self.last = loop.time()
        while True:
            quiet = loop.time() - self.last
            if quiet >= self.ping:
                await self.send_piece(send, b": ping\n\n")
            else:
                await asyncio.sleep(self.ping - quiet)


def event_stream(service: Service, pieces: AsyncIterator[bytes], headers: dict[str, str]) -> EventStream:
    """A stream of server-sent events. pieces: what an async generator yields."""
    return EventStream(cast(AsyncGenerator[bytes, None], pieces), headers, service.limits.ping_seconds)
