"""HTTP with deadlines: a client that sends its request, or takes the answer, too slowly is cut off.

uvicorn waits for ever for the rest of a request; a few hundred half-sent ones would occupy every connection.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from .fields import HttpError, error_body
from .limits import Limits

HEAD = 16 << 10  # bytes of a request before its body
PIECES = 20_000  # chunks of a body
LINGER = 1.0  # seconds in which a refused client can read why


class CountingConnection(h11.Connection):
    """Refuses a body in very many pieces: each costs 10 microseconds, and other clients wait for it."""

    pieces = 0

    def next_event(self) -> Any:
        event = super().next_event()
        self.pieces = 0 if isinstance(event, h11.Request) else self.pieces + isinstance(event, h11.Data)
        if self.pieces > PIECES:
            raise h11.RemoteProtocolError("the body has too many pieces")
        return event


class StrictProtocol(H11Protocol):
    """A connection with a deadline for each of its states. Made by `strict(limits)`."""

    limits = Limits()
    noted: Callable[[int], None] = staticmethod(lambda status: None)  # told of refusals before any route
    deadline: asyncio.TimerHandle | None = None
    stalled: asyncio.TimerHandle | None = None
    state = ""  # what the deadline is for: a new state starts a new one
    refused = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.conn = CountingConnection(h11.SERVER, HEAD)
        self.timeout_keep_alive = self.limits.idle_seconds  # type: ignore[assignment]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # asyncio does so only for sockets made with proto=IPPROTO_TCP; without it, tokens wait 40 ms.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        others: Any = self.connections
        if len(others) > 2 * self.limits.connections:
            transport.abort()
        elif sum(not one.refused for one in others) > self.limits.connections:
            why = "there are too many connections: try again later"
            self.refuse(HttpError(503, why, **{"retry-after": "1"}))
        else:
            self.watch()

    def data_received(self, data: bytes) -> None:
        if self.refused:
            return
        if self.conn.their_state is h11.IDLE and is_long(self.conn.trailing_data[0] + data):
            self.refuse(HttpError(431, f"the headers are longer than {HEAD:,} bytes"))
            return
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before and not self.flow.write_paused:
            self.let_reader()  # the next request: the answer before has been taken
        self.watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.mind_reader()
        self.watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self.state = ""
        self.set_deadline(None)
        self.let_reader()
        super().connection_lost(exc)

    def _should_upgrade(self) -> bool:
        return False  # nothing here speaks WebSocket: such a request is one of HTTP

    # Sending to us.

    def watch(self) -> None:
        """Set the deadline of the state that the connection is in."""
        state = self.state_now()
        if state == self.state or self.refused:
            return
        self.state = state
        seconds = {"headers": self.limits.header_seconds, "body": self.limits.body_seconds}
        self.set_deadline(seconds.get(state))

    def state_now(self) -> str:
        if self.transport.is_closing():
            return ""
        if self.conn.their_state is h11.IDLE:
            return "headers" if self.conn.trailing_data[0] or self.cycle is None else "idle"
        return "body" if self.conn.their_state is h11.SEND_BODY else "answer"

    def set_deadline(self, seconds: float | None) -> None:
        if self.deadline is not None:
            self.deadline.cancel()
        self.deadline = None if seconds is None else self.loop.call_later(seconds, self.expire)

    def expire(self) -> None:
        """Too slow, or refused a while ago."""
        if self.refused:
            self.transport.abort()
        else:
            self.refuse(HttpError(408, "the request was not sent in time"))

    def send_400_response(self, msg: str) -> None:
        self.refuse(HttpError(400, "the request is not valid HTTP"))

    def refuse(self, refused: HttpError) -> None:
        """Say why, where no answer has begun, and end the connection. What else comes is not looked at."""
        self.refused = True
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.scope["state"]["refused"] = refused.status
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        else:
            self.noted(refused.status)
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE) and not self.transport.is_closing():
            self.transport.write(whole_response(refused))
            self.transport.write_eof()
            self.set_deadline(LINGER)
        else:
            self.transport.close()
            self.mind_reader()

    # Taking from us.

    def pause_writing(self) -> None:
        super().pause_writing()
        self.mind_reader()

    def resume_writing(self) -> None:
        self.let_reader()
        if self.flow is not None:
            super().resume_writing()
        if self.cycle is not None and self.cycle.response_complete:
            self.mind_reader()

    def mind_reader(self) -> None:
        """Cut the connection off later, if what is to be sent is not taken."""
        if self.stalled is None and self.transport.get_write_buffer_size():
            self.stalled = self.loop.call_later(self.limits.stall_seconds, self.cut_reader)

    def let_reader(self) -> None:
        if self.stalled is not None:
            self.stalled.cancel()
            self.stalled = None

    def cut_reader(self) -> None:
        self.stalled = None
        if self.transport.get_write_buffer_size():
            self.transport.abort()


def is_long(head: bytes) -> bool:
    """Whether a request has more before its body than it may."""
    return len(head) > HEAD and b"\r\n\r\n" not in head[:HEAD] and b"\n\n" not in head[:HEAD]


def whole_response(refused: HttpError) -> bytes:
    """An error as it travels, where there is no application to send it."""
    body = error_body(refused)
    head = f"HTTP/1.1 {refused.status} {HTTPStatus(refused.status).phrase}\r\n"
    headers = {"content-type": "application/json", "content-length": len(body), "connection": "close"}
    lines = "".join(f"{name}: {value}\r\n" for name, value in {**headers, **refused.headers}.items())
    return f"{head}{lines}\r\n".encode() + body


def strict(limits: Limits, noted: Callable[[int], None] = lambda status: None) -> type[StrictProtocol]:
    """The protocol with these limits, as uvicorn's `http` setting takes it. noted: is given each refusal."""
    attributes: dict[str, Any] = {"limits": limits, "noted": staticmethod(noted)}
    return type("StrictProtocol", (StrictProtocol,), attributes)
