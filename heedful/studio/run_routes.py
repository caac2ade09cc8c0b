"""Routes of the page itself, of runs, and of what happens to their workers."""

from __future__ import annotations

import hmac

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from .. import __version__
from ..errors import BadInput
from ..service.fields import HttpError
from .answers import JsonAnswer, stream, studio_route
from .recorded import RUN, example, recorded
from .requests import NothingRequest, asked_for
from .static_files import POLICY, listing, packed, type_of
from .studio import Studio

INDEX = "index.html"


async def index(studio: Studio, request: Request) -> Response:
    """The page. With the token of the printed link, it leaves a cookie and the address without the token."""
    given = request.query_params.get("token", "")
    ticket = request.query_params.get("ticket", "")
    if given or ticket:
        if not (same(given, studio.key) or ticket in studio.tickets):
            raise HttpError(
                401, "this link is of another start: open the one that `heedful studio` printed last"
            )
        studio.tickets.discard(ticket)
        name = f"heedful_{request.url.port}"
        answer = Response(status_code=303, headers={"location": "/"})
        answer.set_cookie(name, studio.key, httponly=True, samesite="strict", path="/")
        return answer
    return static_file(INDEX, request)


def same(given: str, key: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), key.encode())


async def static(studio: Studio, request: Request) -> Response:
    """A file of the page."""
    return static_file(request.path_params["path"], request)


def static_file(name: str, request: Request) -> Response:
    """A file that is in the list; whatever else is named is not there."""
    path = listing().get(name)
    if path is None:
        raise HttpError(404, "there is no such file")
    headers = {"content-security-policy": POLICY, "vary": "accept-encoding"}
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(path.read_bytes(), headers=headers, media_type=type_of(name))
    content = packed(path, path.stat().st_mtime_ns)
    return Response(content, headers=headers | {"content-encoding": "gzip"}, media_type=type_of(name))


async def list_runs(studio: Studio, request: Request) -> Response:
    """All runs and model folders, with the states of their workers."""
    states = studio.states()
    runs = [{**one.card(), "worker": states.get(one.id)} for one in studio.folders.scan()]
    found = recorded()
    example = {"recorded": None if found is None else found.card()}
    return JsonAnswer({"runs": runs, "version": __version__, "root": str(studio.folders.root)} | example)


async def show_run(studio: Studio, request: Request) -> Response:
    """One run: its settings and, once its model is loaded, what the model is made of."""
    folder = studio.folder(request.path_params["id"])
    state = studio.states().get(folder.id)
    found = {**folder.detail(), "worker": state}
    if state is not None and state["state"] == "ready":
        worker = await studio.worker(folder.id)
        found |= (await studio.service.result(worker, "describe", {}))["result"]
    return JsonAnswer(found)


async def about_run(studio: Studio, request: Request) -> Response:
    """What a model is and can do; it is loaded for this."""
    id = request.path_params["id"]
    if id == RUN:
        return JsonAnswer(example().told["about"])
    event = await studio.service.result(await studio.worker(id), "about", {})
    return JsonAnswer(event["result"])


async def load_run(studio: Studio, request: Request) -> Response:
    """Start to load a model; /api/events tells how far it is."""
    await asked_for(NothingRequest, studio.service, request)
    id = request.path_params["id"]
    worker = await studio.worker(id)
    worker.wake()
    return JsonAnswer(studio.worker_state(id, worker))


async def order_run(studio: Studio, request: Request) -> Response:
    """Tell the process that trains in a folder to stop, or to save."""
    await asked_for(NothingRequest, studio.service, request)
    folder, order = studio.folder(request.path_params["id"]), request.url.path.rpartition("/")[2]
    try:
        return JsonAnswer({"pid": folder.send(order)})
    except (BadInput, OSError) as error:
        raise HttpError(409, str(error)) from None


async def events(studio: Studio, request: Request) -> Response:
    """What happens to workers and jobs, as it happens."""
    return stream(studio, studio.listen())


def run_routes(studio: Studio) -> list[Route]:
    return [
        studio_route(studio, "/", index),
        studio_route(studio, "/static/{path:path}", static),
        studio_route(studio, "/api/runs", list_runs),
        studio_route(studio, "/api/runs/{id}", show_run),
        studio_route(studio, "/api/runs/{id}/about", about_run),
        studio_route(studio, "/api/runs/{id}/load", load_run, "POST", NothingRequest),
        studio_route(studio, "/api/runs/{id}/stop", order_run, "POST", NothingRequest),
        studio_route(studio, "/api/runs/{id}/save", order_run, "POST", NothingRequest),
        studio_route(studio, "/api/events", events),
    ]
