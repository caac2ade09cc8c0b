"""A service whose workers are in this process: everything but the processes is real.

A worker's start costs seconds, and its loop is the same here. Requests travel through a real server and in
frames.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import heedful
from heedful.service.app import Service, make_app
from heedful.service.draining import DrainingServer
from heedful.service.frames import Unpacker, packed, put_bytes
from heedful.service.gate import Gate
from heedful.service.guard import Access
from heedful.service.limits import Limits
from heedful.service.loop import Loop
from heedful.service.server import listen, routes_of
from heedful.service.workers import ServedModel, WorkerProcess
from helpers.serve_cases import HttpClient


class LocalWorker(WorkerProcess):
    """A worker without a process: a request is answered as soon as it comes."""

    def __init__(self, name: str, model: heedful.Model, more: Any = MappingProxyType({})) -> None:
        """more: methods beside those of the service."""
        super().__init__(ServedModel(name, model.folder))
        self.loop = Loop(model, self.heard, more=more)
        self.state, self.facts = "ready", self.loop.facts()

    def say(self, message: dict[str, Any], blob: bytes = b"") -> None:
        for frame in Unpacker().feed(packed(message, blob)):
            self.loop.hear(frame)
        while self.loop.busy:
            self.loop.turn()

    def heard(self, message: dict[str, Any], blob: bytes = b"") -> None:
        (frame,) = Unpacker().feed(packed(message, blob))
        put_bytes(frame.message.get("news", []), frame.blob)
        for number, event in frame.message.get("news", ()):
            if number in self.asked:
                self.asked[number].put(event)

    async def stop(self) -> None:
        self.state = "stopped"


@contextmanager
def local_service(
    models: dict[str, heedful.Model], limits: Limits | None = None, key: str = "", **more: Any
) -> Iterator[HttpClient]:
    """A service of loaded models, in a thread."""
    limits = limits or Limits()
    listener = listen("127.0.0.1", 0)
    port = listener.getsockname()[1]
    workers: dict[str, WorkerProcess] = {name: LocalWorker(name, model) for name, model in models.items()}
    gates = {name: Gate(8, 32, limits.queue_seconds) for name in models}
    service = Service(workers, gates, limits, **more)
    app = make_app(service, Access.of("127.0.0.1", port, key=key), routes_of(service))
    server = DrainingServer(app, limits)
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        yield HttpClient(port)
    finally:
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive()
