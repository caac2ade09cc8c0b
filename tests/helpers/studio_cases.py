"""A studio whose workers are in this process, behind a real server, and a client that has the token."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import heedful
from heedful.service.draining import DrainingServer
from heedful.service.gate import Gate
from heedful.service.server import listen
from heedful.studio.runs import ModelFolder, ModelFolders
from heedful.studio.server import make_studio_app, new_service
from heedful.studio.studio import Studio
from heedful.studio.worker import methods
from helpers.local_service import LocalWorker
from helpers.serve_cases import HttpClient, Reply

TYPES = {"u8": "u1", "f16": "<f2", "f32": "<f4"}


class LocalStudio(Studio):
    """A studio that loads models here: a worker's start costs seconds."""

    def make_worker(self, folder: ModelFolder) -> LocalWorker:
        worker = LocalWorker(folder.path.name, load(str(folder.path)), methods())
        self.names[folder.id] = worker.model.name
        self.service.workers[worker.model.name] = worker
        self.service.gates[worker.model.name] = Gate(8, 32, 30.0)
        return worker


@cache
def load(folder: str) -> heedful.Model:
    return heedful.load(folder)


@dataclass
class StudioClient(HttpClient):
    """Speaks with the studio, with its token unless said otherwise."""

    studio: Studio

    def stream(self, path: str, body: Any, **headers: str) -> list[dict[str, Any]]:
        """All events of a stream that ends."""
        reply = self.get(path, **headers) if body is None else self.post(path, body, **headers)
        assert reply.status == 200, reply.body
        parts = [part for part in reply.body.decode().split("\n\n") if "data: " in part]
        return [json.loads(part.partition("data: ")[2]) for part in parts]

    def delete(self, path: str, **headers: str) -> Reply:
        return self.send("DELETE", path, b"", {"content-type": "application/json"} | headers)

    def numbers(self, path: str) -> np.ndarray:
        reply = self.get(path)
        assert reply.status == 200, reply.body
        shape = [int(size) for size in reply.headers["x-shape"].split(",")]
        return np.frombuffer(reply.body, TYPES[reply.headers["x-dtype"]]).reshape(shape)

    def id(self, name: str) -> str:
        """The id of a run."""
        (found,) = [run["id"] for run in self.get("/api/runs").json["runs"] if run["name"] == name]
        return found

    def trace(self, name: str, text: str, **more: Any) -> dict[str, Any]:
        reply = self.post("/api/trace", {"run": self.id(name), "text": text, **more})
        assert reply.status == 200, reply.body
        return reply.json


@contextmanager
def local_studio(root: Path, *named: Path) -> Iterator[StudioClient]:
    """A studio of the runs in a folder, in a thread."""
    listener = listen("127.0.0.1", 0)
    port = listener.getsockname()[1]
    studio = LocalStudio(ModelFolders(root, named), new_service())
    server = DrainingServer(make_studio_app(studio, port), studio.service.limits)
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        yield StudioClient(port, studio, headers={"authorization": f"Bearer {studio.key}"})
    finally:
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive()


def ran(code: str, name: str) -> Any:
    """A variable after some Python has run."""
    known: dict = {}
    exec(code, known)  # noqa: S102 (it is what a page shows to people)
    return known[name]
