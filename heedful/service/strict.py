"""HTTP with deadlines: a client that sends its request, or takes the answer, too slowly is cut off.

uvicorn waits for ever for the rest of a request; a few hundred half-sent ones would occupy every connection.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from .limits import Limits


class StrictProtocol(H11Protocol):
    """A connection with a deadline for each of its states. Made by `strict(limits)`."""

    limits = Limits()
    deadline: asyncio.TimerHandle | None = None
    stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self.state = ""
        self.set_deadline(None)
        self.resume_writing()
        super().connection_lost(exc)

    # Sending to us.

    state = ""  # what the deadline is for: a new state starts a new one

    def watch(self) -> None:
        """Set the deadline of the state that the connection is in."""
        state = self.state_now()
        if state == self.state:
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
        """Too slow: 408 where no answer has begun, and the end of the connection."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE) and not self.transport.is_closing():
            body = b'{"error":{"message":"the request was not sent in time","type":"timeout","code":null}}'
            lines = [b"HTTP/1.1 408 Request Timeout", b"content-type: application/json", b"connection: close"]
            lines.append(b"content-length: %d" % len(body))
            self.transport.write(b"\r\n".join(lines) + b"\r\n\r\n" + body)
        self.transport.close()

    # Taking from us.

    def pause_writing(self) -> None:
        super().pause_writing()
        self.stalled = self.loop.call_later(self.limits.stall_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        if self.stalled is not None:
            self.stalled.cancel()
            self.stalled = None
        if self.flow is not None:
            super().resume_writing()


def strict(limits: Limits) -> type[StrictProtocol]:
    """The protocol with these limits, as uvicorn's `http` setting takes it."""
    attributes: dict[str, Any] = {"limits": limits}
    return type("StrictProtocol", (StrictProtocol,), attributes)
