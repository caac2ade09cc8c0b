"""A service with the stub worker behind real sockets: two routes, and a client that sends bytes."""

import contextlib
import functools
import json
import logging
import socket
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from starlette.responses import JSONResponse

from heedful.models.base.settings import Range
from heedful.service import workers
from heedful.service.answering import body_of, event_stream, route
from heedful.service.app import Service, make_app
from heedful.service.draining import DrainingServer
from heedful.service.fields import Most, read
from heedful.service.gate import Gate
from heedful.service.guard import Access
from heedful.service.limits import Limits, with_limits
from heedful.service.records import log_as_lines
from heedful.service.server import listen
from heedful.service.workers import ServedModel, WorkerProcess

STUB = str(Path(__file__).with_name("stub_worker.py"))
workers.command = lambda model: (sys.executable, STUB, model.folder)


@dataclass(frozen=True)
class StubRequest:
    """A request to the stub worker."""

    text: Annotated[str, Most("characters"), "what the words follow from"]
    words: Annotated[int, Range(0, 5000), Most("tokens"), "words to write"] = 3
    delay: Annotated[float, Range(0, 10), "seconds between two words"] = 0.0
    mode: Annotated[str, Most("stop_characters"), "how to fail"] = ""
    places: Annotated[int, Range(1, 100)] = 1
    stream: bool = False
    model: str | None = None


async def write(service, request, slowly=True):
    """Write words that follow from a text."""
    asked = read(StubRequest, await body_of(request, service.limits.body_bytes), service.limits)
    worker = await service.able(asked.model, "write")
    given = {"text": asked.text, "words": asked.words, "delay": asked.delay * slowly, "mode": asked.mode}
    if not asked.stream:
        event = await service.result(worker, "write", given, asked.places)
        return JSONResponse(event["result"])

    async def pieces():
        async for event in service.ask(worker, "write", given, asked.places):
            yield b"data: [DONE]\n\n" if event.get("over") else f"data: {json.dumps(event)}\n\n".encode()

    return event_stream(service, pieces(), {"x-heedful-ignored": "nothing"})


async def seen(service, request):
    """What the worker was asked."""
    worker = service.worker(None)
    await worker.ready()
    found = [event async for event in worker.ask("seen", {})]
    return JSONResponse(found[-1]["result"])


async def fail(service, request):
    """Fail, as a mistake in the program would."""
    raise LookupError("canary-in-the-text")


@dataclass
class Running:
    """A service that runs in a thread of this process, and how to speak to it."""

    service: Any
    server: Any
    port: int
    headers: dict[str, str] = field(default_factory=dict)

    def connect(self, seconds: float = 20.0) -> contextlib.closing:
        return contextlib.closing(socket.create_connection(("127.0.0.1", self.port), timeout=seconds))

    def head(self, line: str, body: bytes, **headers: str) -> bytes:
        given = {"host": f"127.0.0.1:{self.port}", "connection": "close", **self.headers}
        if body or line.startswith("POST"):
            given |= {"content-type": "application/json", "content-length": str(len(body))}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        lines = [f"{line} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items() if value)]
        return "\r\n".join(lines).encode("utf-8") + b"\r\n\r\n" + body

    def call(self, line: str, body: Any = b"", **headers: str) -> tuple[int, dict[str, str], bytes]:
        """(status, headers, body) of a request."""
        sent = body if isinstance(body, bytes) else json.dumps(body).encode()
        with self.connect() as client:
            client.sendall(self.head(line, sent, **headers))
            return parsed(everything(client))

    def write(self, **fields: Any) -> tuple[int, dict[str, str], bytes]:
        return self.call("POST /write", fields)

    def seen(self) -> dict[str, Any]:
        return json.loads(self.call("GET /seen")[2])

    def until(self, condition: Any) -> None:
        """Wait for something that comes soon."""
        end = time.monotonic() + 20
        while not condition():
            assert time.monotonic() < end, "it did not come"
            time.sleep(0.005)


def everything(client: socket.socket) -> bytes:
    """What comes until the other side closes."""
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := client.recv(1 << 20):
            found += piece
    return found


def parsed(answer: bytes) -> tuple[int, dict[str, str], bytes]:
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    if headers.get("transfer-encoding") == "chunked":
        body = unchunked(body)
    return int(first.split()[1]), headers, body


def unchunked(data: bytes) -> bytes:
    found = b""
    while data:
        size, _, data = data.partition(b"\r\n")
        if not int(size, 16):
            return found
        found, data = found + data[: int(size, 16)], data[int(size, 16) + 2 :]
    return found + b"(cut off)"


def events(body: bytes) -> list[str]:
    """The messages of a stream."""
    return [part.removeprefix("data: ") for part in body.decode().split("\n\n") if part]


def make_service(limits: Limits, places: int = 4, waiting: int = 8, folder: str = "stub") -> Service:
    worker = WorkerProcess(ServedModel("stub", folder))
    return Service({"stub": worker}, {"stub": Gate(places, waiting, limits.queue_seconds)}, limits)


def routes_of(service: Service) -> list:
    return [
        route("/write", write, service, takes=StubRequest, example={"text": " w1 w2"}),
        route("/seen", seen, service, "GET"),
        route("/fail", fail, service, "GET"),
    ]


def quick_routes(service: Service) -> list:
    """The same, where nothing is waited for."""
    quick = functools.partial(write, slowly=False)
    return [route("/write", quick, service, takes=StubRequest), route("/seen", seen, service, "GET")]


@contextlib.contextmanager
def running(limits: Limits, key: str = "", routes: Any = routes_of, **options: Any) -> Iterator[Running]:
    """A service in a thread, on a port of its own."""
    listener = listen("127.0.0.1", 0)
    port = listener.getsockname()[1]
    service = make_service(limits, **options)
    app = make_app(service, Access.of("127.0.0.1", port, key=key), routes(service))
    server = DrainingServer(app, limits)
    log_as_lines()
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        yield Running(service, server, port, {"authorization": f"Bearer {key}"} if key else {})
    finally:
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive()
        for name in ("uvicorn", "asyncio"):
            logging.getLogger(name).handlers, logging.getLogger(name).propagate = [], True


def main(port: str, *pairs: str) -> None:
    """A service in a process of its own; prints its port."""
    limits, listener = with_limits(pairs), listen("127.0.0.1", int(port))
    service, found = make_service(limits), listener.getsockname()[1]
    print(found, flush=True)
    log_as_lines()
    app = make_app(service, Access.of("127.0.0.1", found), routes_of(service))
    DrainingServer(app, limits).run([listener])


if __name__ == "__main__":
    main(*sys.argv[1:])
