"""The HTTP process: routes, errors, logs and shutdown. It imports no torch."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from .. import __version__
from .fields import HttpError, json_body
from .gate import Gate
from .guard import Access, Guard
from .limits import Limits
from .metrics import Labels, ServiceMetrics
from .workers import WorkerProcess

LINE = 4096  # characters of a log line
Events = AsyncIterator[dict[str, Any]]
Answer = Callable[["Service", Request], Awaitable[Response]]


@dataclass
class Service:
    """Everything that requests share."""

    workers: dict[str, WorkerProcess]
    gates: dict[str, Gate]
    limits: Limits
    languages: tuple[str, str] = ("", "")
    metrics: ServiceMetrics = field(default_factory=ServiceMetrics)
    at_once: bool = False  # models are loaded at the start, not at their first request
    closing: bool = False

    def worker(self, name: str | None) -> WorkerProcess:
        """The model that a request names; the only one, if it names none."""
        if name is None and len(self.workers) == 1:
            return next(iter(self.workers.values()))
        if name is None:
            raise HttpError(400, f'"model" is missing: there are {", ".join(self.workers)}', "model")
        if name not in self.workers:
            raise HttpError(
                404,
                f"there is no model {json.dumps(name[:80])}: there are {', '.join(self.workers)}",
                "model",
            )
        return self.workers[name]

    async def able(self, name: str | None, ability: str) -> WorkerProcess:
        """The model that a request names, loaded, if it has this ability."""
        worker = self.worker(name)
        await worker.ready()
        able = worker.facts.get("can", [])
        if ability not in able:
            told = f"{worker.model.name} cannot {ability}: it can {', '.join(able) or 'nothing'}"
            raise HttpError(404, told, "model")
        return worker

    async def ask(
        self, worker: WorkerProcess, do: str, given: dict[str, Any], places: int = 1, blob: bytes = b""
    ) -> Events:
        """The events of a request, once there is room for it."""
        gate = self.gates[worker.model.name]
        async with gate.enter(places) as waited:
            self.metrics.observe("queue_seconds", waited, model=worker.model.name)
            begun, first = time.monotonic(), True
            async with asyncio.timeout(self.limits.request_seconds):
                async for event in worker.ask(do, given, blob):
                    now = time.monotonic()
                    if "piece" in event or "result" in event:
                        kind = "first_token_seconds" if first else "token_seconds"
                        self.metrics.observe(kind, now - begun, model=worker.model.name)
                        begun, first = now, False
                    if "usage" in event:
                        self.count_tokens(worker.model.name, event["usage"])
                    yield event

    def count_tokens(self, model: str, usage: dict[str, int]) -> None:
        self.metrics.count("tokens_total", usage["prompt_tokens"], model=model, kind="read")
        self.metrics.count("tokens_total", usage["completion_tokens"], model=model, kind="written")

    async def result(
        self,
        request: Request,
        worker: WorkerProcess,
        do: str,
        given: dict[str, Any],
        places: int = 1,
        blob: bytes = b"",
    ) -> dict[str, Any]:
        """The last event of a request that is answered in one piece."""

        async def last() -> dict[str, Any]:
            found: dict[str, Any] = {}
            async for event in self.ask(worker, do, given, places, blob):
                found = event
            return found

        return await until_gone(request, last())

    def gauges(self) -> dict[str, dict[Labels, float]]:
        """Figures that are read off just now."""
        found: dict[str, dict[Labels, float]] = {
            "rows": {},
            "ready": {},
            "cache_bytes": {},
            "worker_rss_bytes": {},
        }
        for name, worker in self.workers.items():
            own, gate = (("model", name),), self.gates[name]
            found["rows"][(*own, ("state", "running"))] = gate.used
            found["rows"][(*own, ("state", "waiting"))] = gate.waiting
            found["ready"][own] = worker.state == "ready"
            found["cache_bytes"][own] = worker.load.get("cache_bytes", 0)
            found["worker_rss_bytes"][own] = worker.load.get("rss_bytes", 0)
        return found

    # Shutdown.

    @contextlib.asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        if self.at_once:
            for worker in self.workers.values():
                worker.wake()
        yield
        await self.close()

    def stop_accepting(self) -> None:
        self.closing = True
        for gate in self.gates.values():
            gate.closed = True

    async def close(self) -> None:
        """Let running requests finish for a while, then end the workers."""
        self.stop_accepting()
        end = time.monotonic() + self.limits.drain_seconds
        while any(gate.used for gate in self.gates.values()) and time.monotonic() < end:
            await asyncio.sleep(0.02)
        await asyncio.gather(*(worker.stop() for worker in self.workers.values()))


class ClientGone(Exception):
    """The client has hung up: nobody reads an answer."""


async def until_gone(request: Request, work: Any) -> Any:
    """What `work` returns; it is cancelled if the client goes away before."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(disconnected(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGone
        return task.result()
    finally:
        for one in (task, gone):
            one.cancel()
            with contextlib.suppress(BaseException):
                await one


async def disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


# Around every route.


def route(path: str, answer: Answer, service: Service, method: str = "POST") -> Route:
    """A route with what all have: errors as JSON, one line in the log, a count."""

    async def endpoint(request: Request) -> Response:
        begun, status = time.monotonic(), 499
        try:
            response = await answer(service, request)
            status = response.status_code
        except HttpError as refused:
            response, status = error_response(refused), refused.status
        except TimeoutError:
            why = f"the answer took longer than {service.limits.request_seconds:g} seconds"
            response, status = error_response(HttpError(504, why)), 504
        except (ClientGone, ClientDisconnect):
            service.metrics.count("cancelled_total")
            response = Response(status_code=499)
        finally:
            service.metrics.count("requests_total", route=path, code=str(status))
            log(route=path, method=method, status=status, seconds=round(time.monotonic() - begun, 4))
        return response

    return Route(path, endpoint, methods=[method])


def error_response(refused: HttpError) -> Response:
    """An error in the form that OpenAI's clients read."""
    kind = "invalid_request_error" if refused.status < 500 else "server_error"
    error = {"message": refused.message, "type": kind, "param": refused.param, "code": None}
    return JSONResponse({"error": error}, refused.status, refused.headers)


def log(**facts: Any) -> None:
    """One line of JSON on stderr. It has no texts of requests or answers."""
    line = json.dumps({"time": round(time.time(), 3), **facts})
    print(line[:LINE], file=sys.stderr, flush=True)


async def body_of(request: Request, most: int) -> dict[str, Any]:
    """The JSON object of a request, whose size is looked at before it is read."""
    too_long = HttpError(413, f"the body is longer than {most:,} bytes")
    declared = request.headers.get("content-length", "0")
    if not declared.isdigit() or int(declared) > most:
        raise too_long
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > most:
            raise too_long
    return json_body(body)


def event_stream(
    service: Service, pieces: AsyncIterator[bytes], headers: dict[str, str]
) -> StreamingResponse:
    """An answer that is sent as it comes, with a sign of life where nothing comes for long."""
    return StreamingResponse(with_pings(pieces, service), media_type="text/event-stream", headers=headers)


async def with_pings(pieces: AsyncIterator[bytes], service: Service) -> AsyncIterator[bytes]:
    """The pieces; comments between them while they are waited for; an error as the last event."""
    waiting: asyncio.Future[bytes] | None = None
    try:
        while True:
            waiting = waiting or asyncio.ensure_future(anext(pieces))
            done, _ = await asyncio.wait({waiting}, timeout=service.limits.ping_seconds)
            if not done:
                yield b": ping\n\n"
                continue
            try:
                piece = waiting.result()
            except StopAsyncIteration:
                return
            except (HttpError, TimeoutError) as error:
                message = error.message if isinstance(error, HttpError) else "the answer took too long"
                yield (
                    b"data: "
                    + json.dumps({"error": {"message": message, "type": "server_error"}}).encode()
                    + b"\n\n"
                )
                return
            finally:
                waiting = None
            yield piece
    finally:
        if waiting is not None:  # the client went away
            service.metrics.count("cancelled_total")
            waiting.cancel()
        with contextlib.suppress(BaseException):
            await pieces.aclose()  # type: ignore[attr-defined]


# Signs of life.


async def health(service: Service, request: Request) -> Response:
    """Always 200 while this process lives; says how each model is."""
    models = {
        name: {"state": worker.state, "fault": worker.fault, "restarts": worker.restarts}
        for name, worker in service.workers.items()
    }
    return JSONResponse({"status": "ok", "version": __version__, "models": models})


async def ready(service: Service, request: Request) -> Response:
    """200 once every model answers."""
    states = {name: worker.state for name, worker in service.workers.items()}
    able = not service.closing and all(state == "ready" for state in states.values())
    return JSONResponse({"ready": able, "models": states}, 200 if able else 503)


async def figures(service: Service, request: Request) -> Response:
    """Figures for Prometheus."""
    return Response(service.metrics.text(service.gauges()), media_type="text/plain; version=0.0.4")


def make_app(service: Service, access: Access, routes: list[Route]) -> Guard:
    """The application: routes behind the guard."""
    alive = [
        route("/health", health, service, "GET"),
        route("/ready", ready, service, "GET"),
        route("/metrics", figures, service, "GET"),
    ]
    return Guard(Starlette(routes=[*alive, *routes], lifespan=service.lifespan), access)
