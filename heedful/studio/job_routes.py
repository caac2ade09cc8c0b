"""Routes of long work: start it, follow it, end it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..models.base.settings import Range
from ..service.fields import HttpError, Most
from .answers import JsonAnswer, stream, studio_route
from .requests import RATE, Edits, RunId, Sizes, Text, asked_for
from .runs import id_of
from .studio import Studio

Spelling = Annotated[str, Most("stop_characters", 1)]
TextList = Annotated[list[Text], Most("embedded_texts", 1)]


@dataclass(frozen=True, kw_only=True)
class JobRequest:
    """Start long work. Which fields it takes depends on its kind."""

    kind: Literal["demo", "doctor", "ablate", "scan", "patch", "compare", "calibrate", "verify"]
    run: Annotated[RunId | None, "of every kind but demo"] = None
    steps: Annotated[int | None, Range(1, 10**6), "demo: training steps"] = None
    texts: Annotated[TextList | None, "ablate, scan, compare: texts, instead of the data of the run"] = None
    targets: Annotated[TextList | None, "the same: what an encoder-decoder is to write"] = None
    use_data: Annotated[bool, "ablate, scan, compare: the texts of --data"] = False
    count: Annotated[int | None, Range(2, 4096), "ablate, scan, compare: texts at most"] = None
    by: Annotated[Literal["zero", "mean"] | None, "ablate: what replaces the output of a head"] = None
    patterns: Annotated[list[Spelling] | None, Most("stops", 1), "scan: such as offset:-1 or same"] = None
    text: Annotated[Text | None, "patch, compare: the text"] = None
    target: Annotated[Text | None, "patch, compare: its target"] = None
    corrupted: Annotated[
        Text | None,
        "patch: the text into which vectors are put; if left out, the text with one word replaced",
    ] = None
    shell: Annotated[Literal["encoder", "decoder"] | None, "patch: whose vectors"] = None
    other: Annotated[RunId | None, "compare: the second run"] = None
    which: Annotated[Literal["self", "cross", "encoder"] | None, "compare: which attention"] = None
    edits: Annotated[Edits | None, "compare: edits of the first model"] = None
    batch: Annotated[int | None, Range(1, 10**6), "verify: texts of the step"] = None
    length: Annotated[int | None, Range(1, 10**6), "verify: tokens of a text"] = None
    source_length: Annotated[int | None, Range(1, 10**6), "verify: tokens that an encoder reads"] = None
    precision: Annotated[Literal["fp32", "bf16"] | None, "calibrate, verify"] = None
    config: Annotated[Sizes | None, "verify: sizes instead of the model's own"] = None
    flops_rate: Annotated[float | None, RATE, "verify: what calibrate found"] = None
    bandwidth: Annotated[float | None, RATE, "verify: the same"] = None


SAMPLES = ("texts", "targets", "use_data", "count")
COSTED = ("batch", "length", "source_length", "precision", "config", "flops_rate", "bandwidth")
FIELDS = {  # of each kind, and of these those that it needs
    "demo": (("steps",), ()),
    "doctor": ((), ()),
    "ablate": ((*SAMPLES, "by"), ()),
    "scan": ((*SAMPLES, "patterns"), ("patterns",)),
    "patch": (("text", "target", "corrupted", "shell"), ("text",)),
    "compare": ((*SAMPLES, "text", "target", "other", "which", "edits"), ("text", "other")),
    "calibrate": (("precision",), ()),
    "verify": (COSTED, ()),
}


async def list_jobs(studio: Studio, request: Request) -> Response:
    """All jobs, the newest last."""
    return JsonAnswer({"jobs": [job.card() for job in studio.jobs.found.values()]})


async def start_job(studio: Studio, request: Request) -> Response:
    """Start long work; its events are at /api/jobs/{id}/events."""
    asked = await asked_for(JobRequest, studio.service, request)
    given = given_of(asked)
    if asked.kind == "demo":
        folder = free_folder(studio.folders.root)
        job = studio.jobs.start(
            "demo", id_of(folder), {"folder": folder.name}, studio.jobs.demo(folder, asked.steps)
        )
        return JsonAnswer(job.card())
    if asked.run is None:
        raise HttpError(400, '"run" is missing', "run")
    worker = await studio.worker(asked.run)
    events = studio.jobs.ask(worker, asked.kind, for_worker(studio, given))
    return JsonAnswer(studio.jobs.start(asked.kind, asked.run, given, events).card())


def given_of(asked: JobRequest) -> dict[str, Any]:
    """The fields of a kind of job; others are refused."""
    given = {name: value for name, value in vars(asked).items() if value not in (None, False)}
    takes, needs = FIELDS[asked.kind]
    for name in given:
        if name not in ("kind", "run", *takes):
            raise HttpError(
                400, f'"{name}" is not for {asked.kind}, which takes {", ".join(takes) or "nothing"}', name
            )
    for name in needs:
        if name not in given:
            raise HttpError(400, f'"{name}" is missing: {asked.kind} needs it', name)
    return {name: value for name, value in given.items() if name not in ("kind", "run")}


def for_worker(studio: Studio, given: dict[str, Any]) -> dict[str, Any]:
    """The same with folders and files in place of what names them."""
    found = {name: value for name, value in given.items() if name != "use_data"}
    if given.get("use_data"):
        if studio.data is None:
            raise HttpError(409, "the studio was started without --data FILE", "use_data")
        found["data"] = str(studio.data.resolve())
    if "other" in given:
        found["other"] = str(studio.folder(given["other"]).path)
    return found


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
    return JsonAnswer((await studio.jobs.cancel(request.path_params["id"])).card())


def job_routes(studio: Studio) -> list[Route]:
    return [
        studio_route(studio, "/api/jobs", list_jobs),
        studio_route(studio, "/api/jobs", start_job, "POST", JobRequest),
        studio_route(studio, "/api/jobs/{id}/events", follow_job),
        studio_route(studio, "/api/jobs/{id}", end_job, "DELETE"),
    ]
