"""Routes of traces: one text through a model, and every number of it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..service.task_routes import pictures_of
from .answers import JsonAnswer, as_bytes, studio_route
from .recorded import RUN, example
from .requests import (
    AlignmentQuery,
    FlowQuery,
    PictureRequest,
    StepsQuery,
    SublayerQuery,
    TensorQuery,
    ThumbsQuery,
    TraceRequest,
    asked_for,
    query_of,
)
from .studio import Studio, TraceKey


async def make_trace(studio: Studio, request: Request) -> Response:
    """Send a text through a model, and keep everything."""
    asked = await asked_for(TraceRequest, studio.service, request)
    if asked.run == RUN:
        return JsonAnswer(example().made(asked.text, asked.target, asked.edits))
    given = {"text": asked.text, "target": asked.target, "edits": asked.edits}
    worker = await studio.worker(asked.run)
    event = await studio.service.result(worker, "trace", given, 1, studio.pictures.of(asked.text))
    studio.remember(event["result"]["id"], TraceKey(asked.run, given))
    return JsonAnswer({"run": asked.run, **event["result"]})


async def show_output(studio: Studio, request: Request) -> Response:
    """The tokens that a model writes with edits, or its most likely labels."""
    asked = await asked_for(TraceRequest, studio.service, request)
    given = {"text": asked.text, "edits": asked.edits}
    worker = await studio.worker(asked.run)
    event = await studio.service.result(worker, "output", given, 1, studio.pictures.of(asked.text))
    return JsonAnswer(event["result"])


async def of_trace(studio: Studio, request: Request, do: str, query: Any) -> dict[str, Any]:
    """What a worker finds in a trace; one that it has forgotten is made again."""
    id = request.path_params["id"]
    if id == RUN:
        return example().answer(do, asdict(query))
    key = studio.trace(id)
    worker = await studio.worker(key.run)
    asked = {"id": id, "trace": key.given, **asdict(query)}
    return await studio.service.result(worker, do, asked, 1, studio.pictures.of(key.given["text"]))


async def keep_picture(studio: Studio, request: Request) -> Response:
    """Keep a picture in memory, so that traces can name it."""
    asked = await asked_for(PictureRequest, studio.service, request, studio.service.limits.image_bytes)
    (data,) = pictures_of(asked.picture)
    return JsonAnswer({"text": f"picture:{studio.pictures.add(data)}"})


async def thumbs(studio: Studio, request: Request) -> Response:
    """All heads of a kind as small pictures: bytes [L, H, t, s]."""
    query = query_of(ThumbsQuery, studio.service, request)
    return as_bytes(await of_trace(studio, request, "thumbs", query))


async def tensor(studio: Studio, request: Request) -> Response:
    """Numbers of one head or one layer, as float16 or float32."""
    query = query_of(TensorQuery, studio.service, request)
    return as_bytes(await of_trace(studio, request, "tensor", query))


async def steps(studio: Studio, request: Request) -> Response:
    """One query of one head: scores, mask, weights, values, and what the block makes of them."""
    query = query_of(StepsQuery, studio.service, request)
    return JsonAnswer((await of_trace(studio, request, "steps", query))["result"])


async def sublayer(studio: Studio, request: Request) -> Response:
    """One query from before a sublayer to after it: x, norm, heads, output, sum."""
    query = query_of(SublayerQuery, studio.service, request)
    return JsonAnswer((await of_trace(studio, request, "sublayer", query))["result"])


async def alignment(studio: Studio, request: Request) -> Response:
    """Where each output comes from: by weights, value norms, value zeroing or gradients."""
    query = query_of(AlignmentQuery, studio.service, request)
    return JsonAnswer((await of_trace(studio, request, "alignment", query))["result"])


async def flow(studio: Studio, request: Request) -> Response:
    """What each layer would predict, what sublayers add, and the rollout of attention."""
    query = query_of(FlowQuery, studio.service, request)
    return JsonAnswer((await of_trace(studio, request, "flow", query))["result"])


def trace_routes(studio: Studio) -> list[Route]:
    return [
        studio_route(studio, "/api/trace", make_trace, "POST", TraceRequest),
        studio_route(studio, "/api/output", show_output, "POST", TraceRequest),
        studio_route(studio, "/api/picture", keep_picture, "POST", PictureRequest),
        studio_route(studio, "/api/trace/{id}/thumbs", thumbs),
        studio_route(studio, "/api/trace/{id}/tensor", tensor),
        studio_route(studio, "/api/trace/{id}/steps", steps),
        studio_route(studio, "/api/trace/{id}/sublayer", sublayer),
        studio_route(studio, "/api/trace/{id}/alignment", alignment),
        studio_route(studio, "/api/trace/{id}/flow", flow),
    ]
