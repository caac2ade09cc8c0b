"""The HTTP process: what requests share, signs of life, and the application. It imports no torch."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, cast

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .. import __version__
from .answering import Endpoint, route
from .fields import HttpError, error_body
from .gate import Gate
from .guard import Access, Guard
from .limits import Limits
from .metrics import Labels, ServiceMetrics
from .openapi import describe
from .records import RECORD, RequestRecord, log, log_fault, record
from .workers import WorkerProcess

Events = AsyncGenerator[dict[str, Any], None]


@dataclass
class Service:
    """Everything that requests share."""

    workers: dict[str, WorkerProcess]
    gates: dict[str, Gate]
    limits: Limits
    languages: tuple[str, str] = ("", "")
    metrics: ServiceMetrics = field(default_factory=ServiceMetrics)
    at_once: bool = False  # models are loaded at the start, not at their first request
    locked: bool = False  # a key is needed
    running: int = 0  # requests that are being answered
    described: dict[str, Any] = field(default_factory=dict)  # in OpenAPI 3.1
    closing: bool = False
    closed: bool = False

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
                "model_not_found",
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

    def ask(
        self, worker: WorkerProcess, do: str, given: dict[str, Any], places: int = 1, blob: bytes = b""
    ) -> Events:
        """The events of a request, once there is room for it. They end with the request at the latest."""
        events = self.events(worker, do, given, places, blob)
        record().opened.append(events)
        return events

    async def events(
        self, worker: WorkerProcess, do: str, given: dict[str, Any], places: int, blob: bytes
    ) -> Events:
        model = record().model = worker.model.name
        async with self.gates[model].enter(places) as waited:
            self.metrics.observe("queue_seconds", waited, model=model)
            begun, kind = time.monotonic(), "first_token_seconds"
            asked = cast(Events, worker.ask(do, given, blob))
            async with contextlib.aclosing(asked) as events:
                async for event in events:
                    if "piece" in event or (event.get("over") and kind == "first_token_seconds"):
                        now = time.monotonic()
                        self.metrics.observe(kind, now - begun, model=model)
                        begun, kind = now, "token_seconds"
                    if "usage" in event:
                        self.count_tokens(model, event["usage"])
                    yield event

    def count_tokens(self, model: str, usage: dict[str, int]) -> None:
        for name, kind in (("prompt_tokens", "read"), ("completion_tokens", "written")):
            self.metrics.count("tokens_total", usage.get(name, 0), model=model, kind=kind)
        record().usage = usage

    async def result(
        self, worker: WorkerProcess, do: str, given: dict[str, Any], places: int = 1, blob: bytes = b""
    ) -> dict[str, Any]:
        """The last event of a request that is answered in one piece."""
        found: dict[str, Any] = {}
        async for event in self.ask(worker, do, given, places, blob):
            found = event
        return found

    def gauges(self) -> dict[str, dict[Labels, float]]:
        """Figures that are read off just now."""
        found: dict[str, dict[Labels, float]] = {
            "rows": {},
            "ready": {},
            "cache_bytes": {},
            "worker_rss_bytes": {},
            "worker_restarts_total": {},
        }
        for name, worker in self.workers.items():
            own, gate = (("model", name),), self.gates[name]
            found["rows"][(*own, ("state", "running"))] = gate.used
            found["rows"][(*own, ("state", "waiting"))] = gate.waiting
            found["ready"][own] = worker.state == "ready"
            found["cache_bytes"][own] = worker.load.get("cache_bytes", 0)
            found["worker_rss_bytes"][own] = worker.load.get("rss_bytes", 0)
            found["worker_restarts_total"][own] = worker.restarts
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
        """Refuse what comes from now on, and what waits; what runs may go on."""
        self.closing = True
        for gate in self.gates.values():
            gate.close()

    async def close(self) -> None:
        """End the workers. Requests that still run are answered with an error."""
        self.stop_accepting()
        if not self.closed:
            self.closed = True
            await asyncio.gather(*(worker.stop() for worker in self.workers.values()))


# Signs of life.


async def health(service: Service, request: Request) -> Response:
    """Always 200 while this process lives; says how each model is."""
    models: dict[str, dict[str, Any]] = {
        name: {"state": worker.state, "restarts": worker.restarts} for name, worker in service.workers.items()
    }
    if not service.locked:  # a fault may name files: strangers need not know
        for name, worker in service.workers.items():
            models[name]["fault"] = worker.fault
    return JSONResponse({"status": "ok", "version": __version__, "models": models})


async def ready(service: Service, request: Request) -> Response:
    """200 once every model answers."""
    states = {name: worker.state for name, worker in service.workers.items()}
    able = not service.closing and all(state == "ready" for state in states.values())
    return JSONResponse({"ready": able, "models": states}, 200 if able else 503)


async def figures(service: Service, request: Request) -> Response:
    """Figures for Prometheus."""
    return Response(service.metrics.text(service.gauges()), media_type="text/plain; version=0.0.4")


# The application.


class Application:
    """Everything behind one door: each request has an id, is logged once and counted once."""

    def __init__(self, service: Service, app: ASGIApp, note: Callable[..., None] = log) -> None:
        """note: is given the line of each request."""
        self.service, self.app, self.note = service, app, note

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        mine = RequestRecord()
        RECORD.set(mine)
        sent = 0

        async def with_id(message: Message) -> None:
            nonlocal sent
            if message["type"] == "http.response.start":
                sent = message["status"]
                headers = [*message["headers"], (b"x-request-id", mine.id.encode())]
                message = {**message, "headers": headers}
            await send(message)

        try:
            await self.app(scope, receive, with_id)
        except Exception as error:  # noqa: BLE001 (whatever failed, the client is answered)
            log_fault(error, mine.id)
            mine.status = 500
            if not sent:
                await failed(mine)(scope, receive, with_id)
        finally:
            mine.status = mine.status or sent
            self.count(mine, path_of(scope), scope["method"])

    def count(self, mine: RequestRecord, route: str, method: str) -> None:
        self.service.metrics.count("requests_total", route=route, code=str(mine.status))
        self.note(**mine.line(route, method))

    def count_refusal(self, status: int) -> None:
        """Count a request that was refused before it was one: too slow, too long, or no HTTP."""
        self.count(RequestRecord(status=status), "other", "other")


def path_of(scope: Scope) -> str:
    """The route of a request, as it was declared: paths themselves are strangers' words."""
    endpoint = scope.get("endpoint")
    return endpoint.path if isinstance(endpoint, Endpoint) else "other"


def failed(mine: RequestRecord) -> Response:
    error = HttpError(500, f"the service failed at this request: see {mine.id} in its log")
    return Response(error_body(error), 500, media_type="application/json")


async def no_route(request: Request, error: Exception) -> Response:
    """No such path, or another method: as JSON."""
    assert isinstance(error, HTTPException)
    messages = {
        404: "there is nothing at this path: see /openapi.json",
        405: "this path takes another method",
    }
    message = messages.get(error.status_code, "the request cannot be answered")
    refused = HttpError(error.status_code, message)
    return Response(error_body(refused), error.status_code, error.headers, media_type="application/json")


def make_app(
    service: Service, access: Access, routes: list[Route], note: Callable[..., None] = log
) -> Application:
    """The application: routes behind the guard. note: is given the line of each request."""

    async def description(service: Service, request: Request) -> Response:
        """This description, in OpenAPI 3.1."""
        return JSONResponse(service.described)

    signs = [
        route("/health", health, service, "GET"),
        route("/ready", ready, service, "GET"),
        route("/metrics", figures, service, "GET"),
        route("/openapi.json", description, service, "GET"),
    ]
    service.locked = bool(access.key)
    service.described = describe([*signs, *routes], service.limits, service.locked)
    handlers = {HTTPException: no_route}
    every = [*routes, *signs]  # those that are called most come first: they are looked at in turn
    inner = Starlette(routes=every, lifespan=service.lifespan, exception_handlers=handlers)
    inner.router.redirect_slashes = False
    return Application(service, Guard(inner, access), note)
