"""Serving until SIGTERM or SIGINT: new requests are then refused, and running ones may finish."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any

import uvicorn

from .app import Application
from .limits import Limits
from .records import log
from .strict import strict

LAST = 1  # seconds for the last words to clients, once the time for running requests is over


class DrainingServer(uvicorn.Server):
    """A server that, told to stop, refuses new requests with 503 until the running ones are done."""

    def __init__(self, app: Application, limits: Limits) -> None:
        self.service, self.drain_seconds = app.service, limits.drain_seconds
        options: dict[str, Any] = {
            "http": strict(limits, app.count_refusal),
            "ws": "none",
            "log_config": None,
        }
        options |= {"access_log": False, "server_header": False, "proxy_headers": False, "lifespan": "on"}
        super().__init__(uvicorn.Config(app, timeout_graceful_shutdown=LAST, **options))

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn's, but the signal that stopped it is not raised again: the exit code is 0."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {one: signal.signal(one, self.handle_exit) for one in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop; a second signal does not wait for running requests."""
        self.force_exit = self.should_exit
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.service.stop_accepting()
        if running := self.service.running:
            log(notice=f"stopping: requests that are running, {running}, have {self.drain_seconds:g} s")
        for connection in list(self.server_state.connections):
            if getattr(connection, "cycle", None) is not None:  # else its first request is on its way
                connection.shutdown()
        end = time.monotonic() + self.drain_seconds
        while self.service.running and time.monotonic() < end and not self.force_exit:
            await asyncio.sleep(0.02)
        await self.service.close()
        self.force_exit = False
        await super().shutdown(sockets)
        log(notice="stopped")
