"""Routes of training: curves as bytes, new points as they come, and what the model wrote on the way."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from typing import Annotated, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..errors import BadInput
from ..models.base.settings import Range
from ..service.app import Events
from ..service.fields import HttpError, Most
from .answers import JsonAnswer, stream, studio_route
from .curves import Curves
from .lab_records import lab_cards
from .requests import query_of
from .studio import Studio

PAUSE = 1.0  # seconds between two looks at a file that is followed
NEWEST = 16  # rows in an event: about two kilobytes a second
LONG = 20_000  # rows that one stream sends before it tells everything again, thinned
STEP = Range(-1e15, 1e15)


@dataclass(frozen=True, kw_only=True)
class CurvesQuery:
    """The rows after a cursor, of the steps in a range."""

    after: Annotated[str, Most("stop_characters"), "the cursor of the last answer"] = ""
    first: Annotated[float | None, STEP, "the first step"] = None
    last: Annotated[float | None, STEP, "the last step"] = None
    most: Annotated[int, Range(2, 100_000), "rows at most: of more, the least and the greatest"] = 2000


@dataclass(frozen=True, kw_only=True)
class LabQuery:
    """What changed after the cards of earlier answers."""

    after: Annotated[str, Most("characters"), "the marks of these cards, with commas"] = ""


async def loaded(studio: Studio, id: str) -> Curves:
    """The curves of a run with everything that its file has; other requests go on meanwhile."""
    folder = studio.folder(id)
    curves = studio.curves.of(folder.path)
    async with studio.reading:
        try:
            curves.whole = False
            while not curves.whole:
                await asyncio.to_thread(curves.load)
        except (BadInput, OSError) as error:
            raise HttpError(409, f"the metrics of {folder.path.name} cannot be read: {error}") from None
    return curves


async def show_curves(studio: Studio, request: Request) -> Response:
    """Metrics: the length of a head, the head as JSON, and its columns as float32."""
    query = query_of(CurvesQuery, studio.service, request)
    curves = await loaded(studio, request.path_params["id"])
    first, last = (end if query_end is None else query_end for end, query_end in ends(query))
    found = curves.since(query.after, query.most, first, last)
    return Response(found.bytes(), media_type="application/octet-stream")


def ends(query: CurvesQuery) -> list[tuple[float, float | None]]:
    return [(-math.inf, query.first), (math.inf, query.last)]


async def follow_curves(studio: Studio, request: Request) -> Response:
    """New rows of metrics as they are written, and the state of the run."""
    query = query_of(CurvesQuery, studio.service, request)
    id = request.path_params["id"]
    studio.folder(id)
    return stream(studio, new_rows(studio, id, query.after, query.most))


async def new_rows(studio: Studio, id: str, cursor: str, most: int) -> Events:
    """What is new, at most once a second. Only events that tell everything, the first for one, are long."""
    state: Any = None
    sent, at_first = 0, most
    while True:
        if sent > LONG:
            cursor, sent, most = "", 0, at_first
        found = (await loaded(studio, id)).since(cursor, most)
        card = studio.folder(id).detail()
        now = {name: card[name] for name in ("status", "step", "best", "checkpoints")}
        if found.rows or now != state:
            yield {**found.as_json(), **now}
        cursor, state, sent, most = found.cursor, now, sent + found.rows, min(most, NEWEST)
        await asyncio.sleep(PAUSE)


async def show_samples(studio: Studio, request: Request) -> Response:
    """What the model wrote for the same few examples at each evaluation."""
    folder = studio.folder(request.path_params["id"])
    try:
        return JsonAnswer(await asyncio.to_thread(folder.samples))
    except (BadInput, OSError) as error:
        raise HttpError(409, f"the samples of {folder.path.name} cannot be read: {error}") from None


async def show_lab(studio: Studio, request: Request) -> Response:
    """The claims of the lab, and what is new of their records and reports."""
    query = query_of(LabQuery, studio.service, request)
    return JsonAnswer(await asyncio.to_thread(lab_cards, studio.folders.root, query.after))


def curve_routes(studio: Studio) -> list[Route]:
    return [
        studio_route(studio, "/api/runs/{id}/metrics", show_curves),
        studio_route(studio, "/api/runs/{id}/follow", follow_curves),
        studio_route(studio, "/api/runs/{id}/samples", show_samples),
        studio_route(studio, "/api/lab", show_lab),
    ]
