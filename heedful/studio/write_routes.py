"""Routes that write: a text token by token, with what else could have been written."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, make_dataclass
from typing import Annotated, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..models.base.settings import Range
from ..service.answering import body_of
from ..service.app import Events
from ..service.fields import HttpError, Most, hints_of, is_required, read
from ..service.task_routes import OTHERS, TaskRoute, given_to_worker
from ..service.tasks import field_of, options_of
from .answers import JsonAnswer, StudioAnswer, stream, studio_route
from .recorded import RUN, example
from .requests import (
    AlignmentQuery,
    CostRequest,
    Edits,
    PositionsRequest,
    RunId,
    SpellRequest,
    Text,
    TokenStatisticsRequest,
    asked_for,
)
from .studio import Studio

COMMANDS = ("translate", "summarize", "generate")
OPTIONS = {
    option.name: option
    for command in COMMANDS
    for option in options_of(command)
    if option.name not in ("align", "top", "prefix")
}
Tokens = Annotated[list[Annotated[int, Range(0, 10**7)]], Most("tokens")]
Top = Annotated[int, Range(0, 100), "alternatives to show for each token"]


def writing_request(name: str, said: str, *more: tuple[str, Any, Any]) -> Any:
    """A request with every option of decoding."""
    own: list[Any] = [("run", RunId), ("text", Text), *map(field_of, OPTIONS.values())]
    own += [*more, ("edits", Edits, field(default_factory=list))]
    return make_dataclass(name, own, frozen=True, kw_only=True, namespace={"__doc__": said})


AFTER: Any = (
    "prefix_tokens",
    Annotated[Tokens, "tokens that the text begins with"],
    field(default_factory=list),
)
TARGET: Any = ("target", Annotated[Text | None, "a text to write, to its end"], None)
WriteRequest = writing_request("WriteRequest", "Write token by token.", ("top", Top, 10), AFTER, TARGET)


async def write(studio: Studio, request: Request) -> Response:
    """Write a text, and send each token with its alternatives as it comes."""
    body = await body_of(request, studio.service.limits.body_bytes)
    asked = read(WriteRequest, body, studio.service.limits)
    given = {name: getattr(asked, name) for name in ("text", "top", "prefix_tokens", "target", "edits")}
    given["options"] = {name: getattr(asked, name) for name in OPTIONS if body.get(name) is not None}
    if asked.run == RUN:
        return stream(studio, recorded_events("write", given))
    worker = await studio.worker(asked.run)
    return stream(studio, worker_events(studio, worker, "studio_write", given))


SearchRequest = writing_request(
    "SearchRequest",
    "Search with a beam, and say what became of every candidate.",
    ("reference", Annotated[Text | None, "a text to score beside the one that is found"], None),
)


async def search(studio: Studio, request: Request) -> Response:
    """A beam search: the candidates of each step with their fates, then the best texts."""
    body = await body_of(request, studio.service.limits.body_bytes)
    asked = read(SearchRequest, body, studio.service.limits)
    given = {name: getattr(asked, name) for name in ("text", "reference", "edits")}
    given["options"] = {name: getattr(asked, name) for name in OPTIONS if body.get(name) is not None}
    if asked.run == RUN:
        return stream(studio, recorded_events("search", given))
    worker = await studio.worker(asked.run)
    return stream(studio, worker_events(studio, worker, "search", given))


async def align(studio: Studio, request: Request) -> Response:
    """Where the words of a target come from, without a trace that has an id."""
    asked = vars(await asked_for(AlignRequest, studio.service, request))
    run, told = asked["run"], {name: asked[name] for name in ("text", "target", "edits")}
    given = {name: value for name, value in asked.items() if name not in told and name != "run"}
    if run == RUN:
        example().made(**told)
        return JsonAnswer(example().answer("alignment", given)["result"])
    event = await studio.service.result(await studio.worker(run), "alignment", {"trace": told, **given})
    return JsonAnswer(event["result"])


# What a model is.


def model_answer(do: str, takes: Any) -> StudioAnswer:
    """An answer that a worker gives to the fields of a request at once."""

    async def answer(studio: Studio, request: Request) -> Response:
        given = dict(vars(await asked_for(takes, studio.service, request)))
        worker, blob = await studio.worker(given.pop("run")), studio.pictures.of(given.get("text", ""))
        return JsonAnswer((await studio.service.result(worker, do, given, 1, blob))["result"])

    answer.__doc__ = takes.__doc__
    return answer


def recorded_events(do: str, given: dict[str, Any]) -> Events:
    """What the demo wrote when it was recorded."""
    found = example().events(do, given)

    async def events() -> Events:
        for event in found:
            yield {"done": event["result"]} if event.get("over") else event

    return events()


async def worker_events(studio: Studio, worker: Any, do: str, given: dict[str, Any]) -> Events:
    """The events of a worker, the result as {"done": ...} last."""
    async for event in studio.service.ask(worker, do, given):
        yield {"done": event["result"]} if event.get("over") else event


@dataclass(frozen=True, kw_only=True)
class AlignRequest(AlignmentQuery):
    """Align a target with its text."""

    run: RunId
    text: Text
    target: Text
    edits: Edits = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class GuessRequest:
    """Fill the blanks of a text, or label a text or picture."""

    run: RunId
    text: Text


MODEL_ROUTES: dict[str, tuple[str, Any]] = {  # the name of a route: what the worker does, and the request
    "guess": ("guess", GuessRequest),
    "positions": ("positions", PositionsRequest),
    "cost": ("describe", CostRequest),
    "tokenize": ("spell", SpellRequest),
    "token_statistics": ("token_statistics", TokenStatisticsRequest),
}

# What else a model can do with a text.

TASKS = {task.do: task for task in OTHERS if task.do not in ("caption", "detokenize")}


def task_request(task: TaskRoute) -> Any:
    """The request of a task, which names a run."""
    hints = hints_of(task.takes)
    own: list[Any] = [("run", RunId)]
    for one in fields(task.takes):
        if one.name != "model":
            own.append(
                (one.name, hints[one.name]) if is_required(one) else (one.name, hints[one.name], one.default)
            )
    name = f"Studio{task.takes.__name__}"
    return make_dataclass(name, own, frozen=True, kw_only=True, namespace={"__doc__": task.takes.__doc__})


def task_answer(task: TaskRoute, takes: Any) -> Any:
    async def answer(studio: Studio, request: Request) -> Response:
        body = await body_of(request, studio.service.limits.body_bytes)
        asked = read(takes, body, studio.service.limits)
        worker = await studio.worker(asked.run)
        await worker.ready()
        if task.ability and task.ability not in worker.facts.get("can", []):
            raise HttpError(404, f"{worker.model.name} cannot {task.ability}", "run")
        rest = {name: value for name, value in body.items() if name != "run"}
        given, blob = given_to_worker(
            task, read(task.takes, rest, studio.service.limits), rest, studio.service.limits
        )
        over = await studio.service.result(worker, task.do, given, 1, blob)
        return JsonAnswer({task.results: over["result"]["rows"]})

    answer.__doc__ = task.takes.__doc__
    return answer


def write_routes(studio: Studio) -> list[Route]:
    found = [
        studio_route(studio, "/api/write", write, "POST", WriteRequest),
        studio_route(studio, "/api/search", search, "POST", SearchRequest),
        studio_route(studio, "/api/align", align, "POST", AlignRequest),
    ]
    for name, (do, takes) in MODEL_ROUTES.items():
        found.append(studio_route(studio, f"/api/{name}", model_answer(do, takes), "POST", takes))
    for do, task in TASKS.items():
        takes = task_request(task)
        found.append(studio_route(studio, f"/api/task/{do}", task_answer(task, takes), "POST", takes))
    return found
