"""The studio's server: one person on this machine, a link with a token, and an orderly end."""

from __future__ import annotations

import os
import secrets
import socket as sockets
import sys
import threading
import webbrowser
from dataclasses import replace
from typing import Any

from ..service.answering import GONE
from ..service.app import Application, Service, make_app
from ..service.draining import DrainingServer
from ..service.guard import Access
from ..service.limits import Limits
from ..service.records import log, log_as_lines
from .curve_routes import curve_routes
from .job_routes import job_routes
from .run_routes import run_routes
from .studio import Studio
from .trace_routes import trace_routes
from .write_routes import write_routes

LIMITS = Limits(body_bytes=8 << 20, image_bytes=12 << 20, request_seconds=86_400.0, drain_seconds=0.5)
LOCK = "open the link that `heedful studio` printed: its token is missing here, or it is of another start"
ROUTES = (run_routes, trace_routes, write_routes, curve_routes, job_routes)


def make_studio_app(studio: Studio, port: int, hosts: tuple[str, ...] = ()) -> Application:
    """The application, for a server on this port."""
    access = replace(
        Access.of("127.0.0.1", port, hosts, key=studio.key),
        cookie=f"heedful_{port}",
        open=("/", "/static/"),
        entry="/",
        lock=LOCK,
    )
    routes = [one for some in ROUTES for one in some(studio)]
    return make_app(studio.service, access, routes, note_refusals)


def note_refusals(**facts: Any) -> None:
    """Log requests that failed: a page sends too many to read about each."""
    if facts["status"] >= 400 and facts["status"] != GONE:
        log(**facts)


def new_service(limits: Limits = LIMITS) -> Service:
    """A service without models: they come as they are asked for."""
    return Service({}, {}, limits)


def run(studio: Studio, socket: sockets.socket, hosts: tuple[str, ...], opens: bool) -> int:
    """Serve until a signal ends it. opens: show the page in a browser."""
    port = socket.getsockname()[1]
    server = DrainingServer(make_studio_app(studio, port, hosts), studio.service.limits)
    log_as_lines()
    if opens and has_browser():
        ticket = secrets.token_urlsafe(24)  # works once: others can read the command lines of browsers
        studio.tickets.add(ticket)
        link = f"http://127.0.0.1:{port}/?ticket={ticket}"
        threading.Thread(target=webbrowser.open, args=(link,), daemon=True).start()
    try:
        server.run([socket])
    finally:
        studio.jobs.end_children()
    return 0


def has_browser() -> bool:
    """Whether this session can show a window: a browser in the terminal would take it over."""
    if sys.platform in ("darwin", "win32"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
