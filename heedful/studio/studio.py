"""What the requests of the studio share: folders, workers, traces that were asked for, and who listens."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..service.app import Events, Service
from ..service.fields import HttpError
from ..service.gate import Gate
from ..service.records import log
from ..service.workers import ServedModel, WorkerProcess
from .curves import CurveFiles
from .jobs import Jobs
from .pictures import PictureFiles
from .runs import ModelFolder, ModelFolders

WORKER = "heedful.studio.worker"
PLACES, WAITING = 16, 64  # requests at once for a model, and in its queue
REMEMBERED = 512  # traces that can be made again without being described again
LOADED = 3  # models in memory
UNHEARD = 1000  # events that a listener may be behind


@dataclass(frozen=True)
class TraceKey:
    """How a trace was asked for."""

    run: str
    given: dict[str, Any]


@dataclass
class Studio:
    """The state of the studio."""

    folders: ModelFolders
    service: Service
    data: Path | None = None  # texts of --data
    key: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    tickets: set[str] = field(default_factory=set)  # links that work once
    names: dict[str, str] = field(default_factory=dict)  # of workers, by the ids of their folders
    used: dict[str, float] = field(default_factory=dict)  # when a worker was last asked, by id
    traces: OrderedDict[str, TraceKey] = field(default_factory=OrderedDict)
    listeners: set[asyncio.Queue[dict[str, Any]]] = field(default_factory=set)
    pictures: PictureFiles = field(default_factory=PictureFiles)
    curves: CurveFiles = field(default_factory=CurveFiles)
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)  # one file of metrics is read at a time
    making: asyncio.Lock = field(default_factory=asyncio.Lock)  # one worker is made at a time

    def __post_init__(self) -> None:
        self.jobs = Jobs(self.tell)

    # Folders and workers.

    def folder(self, id: str) -> ModelFolder:
        """The folder with this id, or a refusal."""
        found = self.folders.get(id)
        if found is None:
            raise HttpError(404, f'there is no run "{id[:16]}": /api/runs lists them', "run")
        return found

    async def worker(self, id: str) -> WorkerProcess:
        """The worker of a folder. It is made here, and started by its first request."""
        folder = self.folder(id)
        async with self.making:  # requests that come together for a model get the same worker
            self.used[id] = time.monotonic()
            worker = self.service.workers.get(self.names.get(id, ""))
            if worker is None or worker.state == "stopped":
                await self.make_room()
                worker = self.make_worker(folder)
        return worker

    def make_worker(self, folder: ModelFolder) -> WorkerProcess:
        name = self.names.get(folder.id) or folder.path.name
        if self.names.get(folder.id) is None and name in self.service.workers:
            name = f"{name} {folder.id}"
        self.names[folder.id] = name
        model = ServedModel(name, str(folder.path), program=WORKER)
        worker = WorkerProcess(model, lambda worker: self.noticed(folder.id, worker))
        self.service.workers[name] = worker
        self.service.gates[name] = Gate(PLACES, WAITING, self.service.limits.queue_seconds)
        return worker

    async def make_room(self) -> None:
        """End the worker that was not used for longest, where there are too many."""
        living = {id: name for id, name in self.names.items() if name in self.service.workers}
        idle = [id for id, name in living.items() if not self.service.workers[name].wanted]
        if len(living) >= LOADED and idle:
            oldest = min(idle, key=lambda id: self.used.get(id, 0.0))
            await self.service.workers.pop(living[oldest]).stop()

    def noticed(self, id: str, worker: WorkerProcess) -> None:
        """Tell listeners, and the log, what happens to a model."""
        self.tell({"kind": "worker", **self.worker_state(id, worker)})
        fault = f": {worker.fault}" if worker.fault else ""
        log(notice=f"{worker.model.name} is {worker.state}{fault}")

    def worker_state(self, id: str, worker: WorkerProcess) -> dict[str, Any]:
        """How the worker of a run is."""
        return {
            "run": id,
            "state": worker.state,
            "fault": worker.public(worker.fault),
            "seconds": round(time.monotonic() - worker.began, 2) if worker.began else 0.0,
            "memory": worker.load.get("rss_bytes", 0),
            "can": worker.facts.get("can", []),
        }

    def states(self) -> dict[str, dict[str, Any]]:
        """How all workers are, by run."""
        return {
            id: self.worker_state(id, self.service.workers[name])
            for id, name in self.names.items()
            if name in self.service.workers
        }

    # Traces.

    def remember(self, id: str, key: TraceKey) -> None:
        """Keep how a trace was asked for, so that it can be made again."""
        self.traces[id] = key
        self.traces.move_to_end(id)
        while len(self.traces) > REMEMBERED:
            self.traces.popitem(last=False)

    def trace(self, id: str) -> TraceKey:
        """How a trace was asked for."""
        if id not in self.traces:
            raise HttpError(404, "there is no such trace here: ask for it with POST /api/trace", "id")
        self.traces.move_to_end(id)
        return self.traces[id]

    # Listeners.

    def tell(self, event: dict[str, Any]) -> None:
        """Send an event to whoever listens to /api/events."""
        for listener in self.listeners:
            if listener.qsize() < UNHEARD:
                listener.put_nowait(event)

    async def listen(self) -> Events:
        """Events, from now on."""
        mine: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.listeners.add(mine)
        try:
            yield {"kind": "workers", "workers": list(self.states().values())}
            while True:
                yield await mine.get()
        finally:
            self.listeners.discard(mine)
