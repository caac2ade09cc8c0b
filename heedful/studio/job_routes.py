"""Routes of long work: start it, follow it, end it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ..models.base.settings import Range
from ..service.app import Events
from ..service.fields import HttpError
from .answers import stream, studio_route
from .requests import RunId, asked_for
from .runs import id_of
from .studio import Studio

WORKED = {"doctor": "doctor"}  # kinds that a worker does, and its method


@dataclass(frozen=True, kw_only=True)
class JobRequest:
    """Start long work."""

    kind: Literal["demo", "doctor"]
    run: Annotated[RunId | None, "of every kind but demo"] = None
    steps: Annotated[int | None, Range(1, 10**6), "of demo: training steps"] = None


async def list_jobs(studio: Studio, request: Request) -> Response:
    """All jobs, the newest last."""
    return JSONResponse({"jobs": [job.card() for job in studio.jobs.found.values()]})


async def start_job(studio: Studio, request: Request) -> Response:
    """Start long work; its events are at /api/jobs/{id}/events."""
    asked = await asked_for(JobRequest, studio.service, request)
    if asked.kind == "demo":
        folder = free_folder(studio.folders.root)
        job = studio.jobs.start(
            "demo", id_of(folder), {"folder": folder.name}, studio.jobs.demo(folder, asked.steps)
        )
        return JSONResponse(job.card())
    if asked.run is None:
        raise HttpError(400, '"run" is missing', "run")
    worker = await studio.worker(asked.run)
    given = given_of(asked)
    events: Events = studio.jobs.ask(worker, WORKED[asked.kind], given)
    return JSONResponse(studio.jobs.start(asked.kind, asked.run, given, events).card())


def given_of(asked: JobRequest) -> dict[str, Any]:
    """What a worker is given."""
    return {
        name: value
        for name, value in vars(asked).items()
        if name not in ("kind", "run") and value is not None
    }


def free_folder(root: Path) -> Path:
    """A folder for the demo that does not exist yet."""
    names = ["demo", *(f"demo-{number}" for number in range(2, 1000))]
    return next(root.resolve() / name for name in names if not (root / name).exists())


async def follow_job(studio: Studio, request: Request) -> Response:
    """The events of a job, after the one that Last-Event-ID names."""
    job = studio.jobs.get(request.path_params["id"])
    last = request.headers.get("last-event-id", "0")
    if not (last.isascii() and last.isdigit() and len(last) < 10):
        raise HttpError(400, "Last-Event-ID is the number of an event")
    return stream(studio, job.follow(int(last)))


async def end_job(studio: Studio, request: Request) -> Response:
    """End a job before its end."""
    return JSONResponse((await studio.jobs.cancel(request.path_params["id"])).card())


def job_routes(studio: Studio) -> list[Route]:
    return [
        studio_route(studio, "/api/jobs", list_jobs),
        studio_route(studio, "/api/jobs", start_job, "POST", JobRequest),
        studio_route(studio, "/api/jobs/{id}/events", follow_job),
        studio_route(studio, "/api/jobs/{id}", end_job, "DELETE"),
    ]
