"""Long work: started by one request, followed by others, and ended by its own end or by DELETE."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import sys
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from ..service.app import Events
from ..service.fields import HttpError
from ..service.records import log_fault
from ..service.workers import WorkerProcess, environment

KEPT = 64  # jobs that are remembered
EVENTS = 20_000  # events of a job that are kept for those who come late
LINE = 2000  # characters of what a child process prints that an event repeats
SAVED = 75  # the exit code of a run that was stopped and has saved itself
LINES = 6  # of these in a list
AT_ONCE = 8  # jobs that run


class Stopped(Exception):
    """A process was told to stop, and did."""


@dataclass(eq=False)
class StudioJob:
    """One piece of long work. state: running, done, failed or cancelled."""

    id: str
    kind: str
    run: str | None
    given: dict[str, Any]
    state: str = "running"
    began: float = field(default_factory=time.time)
    events: list[dict[str, Any]] = field(default_factory=list)
    task: asyncio.Task[None] | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, event: dict[str, Any]) -> None:
        """Tell followers; events are numbered from 1."""
        if len(self.events) < EVENTS or event.get("over"):
            self.events.append({"number": len(self.events) + 1, **event})
        self.changed.set()
        self.changed = asyncio.Event()

    def end(self, state: str, **more: Any) -> None:
        self.state = state
        self.add({"over": True, "state": state, **more})

    def card(self) -> dict[str, Any]:
        """What a list says of it."""
        latest = self.events[-1] if self.events else {}
        return {
            "id": self.id,
            "kind": self.kind,
            "run": self.run,
            "given": self.given,
            "state": self.state,
            "began": self.began,
            "events": len(self.events),
            "progress": latest.get("progress"),
            "lines": [event["line"] for event in self.events[-LINES:] if "line" in event],
        }

    async def follow(self, after: int) -> Events:
        """Its events after a number, up to its end."""
        at = max(0, after)
        while True:
            while at < len(self.events):
                at += 1
                yield self.events[at - 1]
            if self.state != "running":
                return
            await self.changed.wait()


@dataclass
class Jobs:
    """All jobs, the newest last."""

    tell: Any  # is given a card at every start and end
    found: OrderedDict[str, StudioJob] = field(default_factory=OrderedDict)
    children: set[int] = field(default_factory=set)  # processes that run

    def get(self, id: str) -> StudioJob:
        """A job, or a refusal."""
        if id not in self.found:
            raise HttpError(404, "there is no such job: /api/jobs lists them", "id")
        return self.found[id]

    def start(self, kind: str, run: str | None, given: dict[str, Any], work: Events) -> StudioJob:
        """Begin to work. work: yields events."""
        if sum(job.state == "running" for job in self.found.values()) >= AT_ONCE:
            raise HttpError(429, f"{AT_ONCE} jobs are running: end one, or wait")
        job = StudioJob(secrets.token_hex(6), kind, run, given)
        self.found[job.id] = job
        for old in [one for one in self.found.values() if one.state != "running"][
            : max(0, len(self.found) - KEPT)
        ]:
            del self.found[old.id]
        job.task = asyncio.ensure_future(self.work(job, work))
        self.tell({"kind": "job", "job": job.card()})
        return job

    async def work(self, job: StudioJob, work: Events) -> None:
        try:
            async with contextlib.aclosing(work) as events:
                async for event in events:
                    job.add(event)
            job.end("done")
        except (asyncio.CancelledError, Stopped):
            job.end("cancelled")
        except HttpError as error:
            job.end("failed", message=error.message)
        except Exception as error:  # noqa: BLE001 (whatever failed, followers are told)
            log_fault(error, job.id)
            job.end("failed", message=f"the studio failed at this job: see {job.id} in its log")
        finally:
            self.tell({"kind": "job", "job": job.card()})

    async def cancel(self, id: str) -> StudioJob:
        """End a job; its worker is told, or its process."""
        job = self.get(id)
        if job.task is not None and not job.task.done():
            job.task.cancel()
            await asyncio.gather(job.task, return_exceptions=True)
        return job

    def end_children(self) -> None:
        """Let processes that still run save, and end."""
        for pid in self.children:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGTERM)

    # Kinds of work.

    async def ask(self, worker: WorkerProcess, do: str, given: dict[str, Any]) -> Events:
        """The events of a worker, the result last."""
        async with contextlib.aclosing(cast(Events, worker.ask(do, given))) as events:
            async for event in events:
                if event.get("over"):
                    yield {"result": event["result"]}
                elif "usage" not in event:
                    yield event

    async def demo(self, folder: Path, steps: int | None) -> Events:
        """Train the demo in a process of its own. SIGTERM lets it save."""
        command = [sys.executable, "-m", "heedful", "demo", "--run", str(folder)]
        command += [] if steps is None else ["--steps", str(steps)]
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
            env=environment(),
        )
        self.children.add(process.pid)
        try:
            assert process.stdout is not None
            while line := await process.stdout.readline():
                yield {"line": line.decode("utf-8", "replace").rstrip()[:LINE]}
            code = await process.wait()
            if code == SAVED:
                raise Stopped
            if code:
                raise HttpError(500, f"the demo ended with exit code {code}")
            yield {"result": {"folder": folder.name}}
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGTERM)
                await process.wait()
            self.children.discard(process.pid)
