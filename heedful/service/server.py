"""The server: a socket, the application behind it, and an orderly end."""

from __future__ import annotations

import errno
import socket as sockets
import time
from dataclasses import dataclass
from functools import partial
from typing import Any

from starlette.routing import Route

from ..errors import BadInput
from .app import Service, make_app
from .draining import DrainingServer
from .gate import Gate
from .guard import Access
from .libretranslate import libretranslate_routes
from .limits import Limits, with_limits
from .openai_routes import openai_routes
from .records import log, log_as_lines
from .task_routes import task_routes
from .workers import ServedModel, WorkerProcess

BACKLOG = 512
FEWEST = 32  # rows of a model, until it says how many it has


@dataclass(frozen=True)
class Serving:
    """What to serve, and to whom."""

    models: list[ServedModel]
    rows: int | None = None  # None: as the worker says
    waiting: int | None = None  # None: four times the rows
    languages: tuple[str, str] = ("", "")
    at_once: bool = True  # load the models now
    key: str = ""
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()


def listen(host: str, port: int) -> sockets.socket:
    """A socket that listens there."""
    family = sockets.AF_INET6 if ":" in host else sockets.AF_INET
    found = sockets.socket(family, sockets.SOCK_STREAM)
    found.setsockopt(sockets.SOL_SOCKET, sockets.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
    except (OSError, OverflowError, UnicodeError, TypeError) as error:
        found.close()
        raise BadInput(refusal(host, port, error)) from None
    found.listen(BACKLOG)
    return found


def refusal(host: str, port: int, error: Exception) -> str:
    """Why a socket cannot be had, and what to do."""
    number = getattr(error, "errno", None)
    if number == errno.EADDRINUSE:
        return f"port {port} of {host} is in use: give another --port, or 0 for a free one"
    if number == errno.EACCES:
        return f"port {port} is reserved for the system: give a --port of 1024 or more"
    return f"cannot listen on {host}, port {port}: {error}"


class Start:
    """The models of a service as they are loaded. One that cannot be loaded at the start ends the service."""

    def __init__(self, serving: Serving, limits: Limits) -> None:
        rows, self.serving = serving.rows or FEWEST, serving
        self.gates = {
            one.name: Gate(rows, self.waiting(rows), limits.queue_seconds) for one in serving.models
        }
        self.workers = {
            one.name: WorkerProcess(one, self.noticed, partial(self.learned, one.name))
            for one in serving.models
        }
        self.server: DrainingServer | None = None
        self.fault = ""  # why the service cannot start

    def waiting(self, rows: int) -> int:
        return 4 * rows if self.serving.waiting is None else self.serving.waiting

    def learned(self, name: str, facts: dict[str, Any]) -> None:
        """A model that is ready says how many rows it has; its gate has as many places."""
        self.gates[name].resize(facts["rows"], self.waiting(facts["rows"]))

    def noticed(self, worker: WorkerProcess) -> None:
        """Log what happens to a model."""
        name, sentence = worker.model.name, ""
        if worker.state == "starting":
            again = f" again: {worker.fault}" if worker.fault else ""
            sentence = f"loading {name} from {worker.model.folder}{again}"
        elif worker.state == "ready":
            sentence = f"{ready_sentence(worker)}; {self.gates[name].most_waiting} may wait"
        elif worker.state == "broken":
            sentence = f"{name} cannot be loaded: {worker.fault}"
            if self.server is not None and self.serving.at_once and not worker.facts:
                self.fault, self.server.should_exit = self.fault or sentence, True
        if sentence and not self.fault:
            log(notice=sentence)


def ready_sentence(worker: WorkerProcess) -> str:
    """What a model is, once it answers."""
    facts, seconds = worker.facts, time.monotonic() - worker.began
    size = f"{facts['architecture']} with {facts['parameters']:,} parameters on {facts['device']}"
    return f"{worker.model.name} is ready after {seconds:.1f} s: {size}, {facts['rows']} texts at once"


def routes_of(service: Service) -> list[Route]:
    """Every route but the signs of life."""
    return [*openai_routes(service), *task_routes(service), *libretranslate_routes(service)]


def run(serving: Serving, host: str, socket: sockets.socket) -> int:
    """Serve until a signal ends it."""
    limits = with_limits(serving.limits)
    start = Start(serving, limits)
    service = Service(start.workers, start.gates, limits, serving.languages, at_once=serving.at_once)
    access = Access.of(host, socket.getsockname()[1], serving.hosts, serving.origins, serving.key)
    app = make_app(service, access, routes_of(service))
    log_as_lines()
    start.server = DrainingServer(app, limits)
    start.server.run([socket])
    if start.fault:
        raise BadInput(start.fault)
    return 0
