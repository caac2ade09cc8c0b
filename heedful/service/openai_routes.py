"""The routes of OpenAI's endpoints: from a request to the worker, and from its events to the answer."""

from __future__ import annotations

import re
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from .answering import body_of, event_stream, route
from .app import Service
from .fields import HttpError
from .openai import ChatRequest, CompletionRequest, EmbeddingRequest, prompts_of, read_request, writing
from .replies import Reply, chat_choice, completion_choice, embedding_reply, likeliest, streamed
from .workers import WorkerProcess

COMPLETION = 16  # tokens of a completion that says nothing else, as OpenAI's


def openai_routes(service: Service) -> list[Route]:
    """All of them."""
    return [
        route("/v1/models", models, service, "GET"),
        route("/v1/models/{name:path}", one_model, service, "GET"),
        route("/v1/completions", completions, service, takes=CompletionRequest, lenient=True),
        route("/v1/chat/completions", chat, service, takes=ChatRequest, lenient=True),
        route("/v1/embeddings", embeddings, service, takes=EmbeddingRequest, lenient=True),
    ]


async def models(service: Service, request: Request) -> Response:
    """The models that are served."""
    return JSONResponse({"object": "list", "data": [model_entry(one) for one in service.workers.values()]})


async def one_model(service: Service, request: Request) -> Response:
    """One of them."""
    return JSONResponse(model_entry(service.worker(request.path_params["name"])))


def model_entry(worker: WorkerProcess) -> dict[str, Any]:
    """A model as clients list it; `can` and `context` are known once it is loaded."""
    return {
        "id": worker.model.name,
        "object": "model",
        "created": worker.model.created,
        "owned_by": "heedful",
        "can": worker.facts.get("can"),
        "context": worker.facts.get("context"),
    }


async def completions(service: Service, request: Request) -> Response:
    """Continue texts."""
    asked, ignored = await read_body(service, request, CompletionRequest)
    n, tried = asked.n or 1, asked.best_of or asked.n or 1
    if tried < n:
        raise HttpError(400, f'"best_of" is {tried} and "n" is {n}: it must not be smaller', "best_of")
    if tried > n and asked.stream:
        raise HttpError(400, '"best_of" above "n" cannot be streamed: leave one of them out', "best_of")
    worker = await service.able(asked.model, "generate")
    kind, prompts = prompts_of(asked.prompt)
    most = COMPLETION if asked.max_tokens is None else asked.max_tokens
    given = writing(asked, service.limits, most) | {kind: prompts, "echoes": bool(asked.echo)}
    given |= {"n": tried, "bare": tried == n}
    if asked.stream:
        return stream_of(service, worker, asked, given, ignored)
    events, over = await all_events(service, worker, given)
    if tried > n:
        groups = [events[first : first + tried] for first in range(0, len(events), tried)]
        events = [event for group in groups for event in likeliest(group, over["result"]["answers"], n)]
    choices = (completion_choice(event | {"index": i}, given["scored"]) for i, event in enumerate(events))
    whole = await reply_to(asked, worker, given).whole(choices, over["usage"])
    return Response(whole, headers=ignored, media_type="application/json")


async def chat(service: Service, request: Request) -> Response:
    """Answer in a conversation."""
    asked, ignored = await read_body(service, request, ChatRequest)
    if asked.top_logprobs and not asked.logprobs:
        raise HttpError(400, '"top_logprobs" needs "logprobs": true', "top_logprobs")
    worker = await service.able(asked.model, "generate")
    if not worker.facts.get("chat"):
        raise HttpError(404, f"{worker.model.name} has no chat template: use /v1/completions", "model")
    most = asked.max_tokens if asked.max_completion_tokens is None else asked.max_completion_tokens
    given = writing(asked, service.limits, most) | {"messages": [one.plain() for one in asked.messages]}
    if asked.stream:
        return stream_of(service, worker, asked, given, ignored)
    events, over = await all_events(service, worker, given)
    choices = (chat_choice(event, given["scored"], "message") for event in events)
    whole = await reply_to(asked, worker, given).whole(choices, over["usage"])
    return Response(whole, headers=ignored, media_type="application/json")


async def read_body(service: Service, request: Request, kind: type) -> tuple[Any, dict[str, str]]:
    """A request, and a header that names the fields that nobody knows."""
    asked, ignored = read_request(kind, await body_of(request, service.limits.body_bytes), service.limits)
    names = ", ".join(re.sub("[^!-~]", "?", name) or "?" for name in ignored)[:1000].rstrip()
    return asked, {"x-heedful-ignored": names} if names else {}


def places_of(given: dict[str, Any]) -> int:
    """Rows that a request takes."""
    return given["n"] * len(given.get("texts") or given.get("tokens") or [0])


def reply_to(asked: CompletionRequest | ChatRequest, worker: WorkerProcess, given: dict[str, Any]) -> Reply:
    kind: Any = "chat.completion" if isinstance(asked, ChatRequest) else "text_completion"
    counts = asked.stream_options is not None and bool(asked.stream_options.include_usage)
    return Reply(kind, worker.model.name, given["options"].get("seed"), counts)


def stream_of(
    service: Service,
    worker: WorkerProcess,
    asked: CompletionRequest | ChatRequest,
    given: dict[str, Any],
    headers: dict[str, str],
) -> Response:
    """The answer as it comes."""
    events = service.ask(worker, "write", given, places_of(given))
    return event_stream(service, streamed(events, reply_to(asked, worker, given), asked), headers)


async def all_events(
    service: Service, worker: WorkerProcess, given: dict[str, Any]
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The events of an answer that is sent whole, one for each text in their order, and the last."""
    *found, over = [event async for event in service.ask(worker, "write", given, places_of(given))]
    return sorted(found, key=lambda event: event["index"]), over


async def embeddings(service: Service, request: Request) -> Response:
    """Vectors of texts."""
    asked, ignored = await read_body(service, request, EmbeddingRequest)
    worker = await service.able(asked.model, "embed")
    kind, inputs = prompts_of(asked.input)
    over = await service.result(worker, "embed", {kind: inputs, "dimensions": asked.dimensions})
    vectors = over["result"]["vectors"]
    encoded = asked.encoding_format == "base64"
    found = embedding_reply(worker.model.name, vectors, encoded, over["usage"]["prompt_tokens"])
    return JSONResponse(found, headers=ignored)
