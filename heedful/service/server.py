"""The server: a socket, the application behind it, and an orderly end."""

from __future__ import annotations

import socket as sockets
from dataclasses import dataclass
from typing import Any

from ..errors import BadInput
from .app import Service, make_app
from .draining import serve
from .gate import Gate
from .guard import Access
from .limits import with_limits
from .openai_routes import openai_routes
from .records import log
from .workers import ServedModel, WorkerProcess

BACKLOG = 512
FEWEST = 8  # rows of a model, until it says how many it has


@dataclass(frozen=True)
class Serving:
    """What to serve, and to whom."""

    models: list[ServedModel]
    rows: int = 0  # 0: as the worker says
    waiting: int = 0  # 0: four times the rows
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
    except (OSError, OverflowError, UnicodeError) as error:
        found.close()
        raise BadInput(f"cannot listen on {host}, port {port}: {error}") from None
    found.listen(BACKLOG)
    return found


def worker_of(model: ServedModel, serving: Serving, gate: Gate) -> WorkerProcess:
    """The process of a model; once it is ready, its gate has as many places as it has rows."""

    def learned(facts: dict[str, Any]) -> None:
        gate.resize(facts["rows"], serving.waiting or 4 * facts["rows"])

    return WorkerProcess(model, lambda line: log(notice=line), learned)


def run(serving: Serving, host: str, socket: sockets.socket) -> int:
    """Serve until a signal ends it."""
    limits = with_limits(serving.limits)
    rows = serving.rows or FEWEST
    gates = {
        one.name: Gate(rows, serving.waiting or 4 * rows, limits.queue_seconds) for one in serving.models
    }
    workers = {one.name: worker_of(one, serving, gates[one.name]) for one in serving.models}
    service = Service(workers, gates, limits, serving.languages, at_once=serving.at_once)
    access = Access.of(host, socket.getsockname()[1], serving.hosts, serving.origins, serving.key)
    app = make_app(service, access, openai_routes(service))
    serve(app, socket, limits)
    return 0
