"""The routes of OpenAI's endpoints: from a request to the worker, and from its events to the answer."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from .answering import body_of, event_stream, route
from .app import Service
from .fields import HttpError
from .openai import (
    ChatRequest,
    CompletionRequest,
    EmbeddingRequest,
    Reply,
    Sampling,
    chat_choice,
    completion_choice,
    embedding_reply,
    prompts_of,
    read_request,
    streamed,
    writing,
)
from .workers import WorkerProcess

COMPLETION = 16  # tokens of a completion that says nothing else, as OpenAI's


def openai_routes(service: Service) -> list[Route]:
    """All of them."""
    return [
        route("/v1/models", models, service, "GET"),
        route("/v1/models/{name}", one_model, service, "GET"),
        route("/v1/completions", completions, service),
        route("/v1/chat/completions", chat, service),
        route("/v1/embeddings", embeddings, service),
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
    worker = await service.able(asked.model, "generate")
    kind, prompts = prompts_of(asked.prompt)
    most = COMPLETION if asked.max_tokens is None else asked.max_tokens
    given = writing(asked, service.limits, most) | {kind: prompts, "echoes": bool(asked.echo)}
    given |= {"scored": asked.logprobs is not None, "top": asked.logprobs or 0}
    reply = Reply("text_completion", worker.model.name, given["options"].get("seed", 0))
    return await answered(service, worker, asked, given, reply, ignored)


async def chat(service: Service, request: Request) -> Response:
    """Answer in a conversation."""
    asked, ignored = await read_body(service, request, ChatRequest)
    worker = await service.able(asked.model, "generate")
    if not worker.facts.get("chat"):
        raise HttpError(404, f"{worker.model.name} has no chat template: use /v1/completions", "model")
    most = asked.max_tokens if asked.max_completion_tokens is None else asked.max_completion_tokens
    if asked.top_logprobs and not asked.logprobs:
        raise HttpError(400, '"top_logprobs" needs "logprobs": true', "top_logprobs")
    messages = [{"role": one.role, "content": one.content} for one in asked.messages]
    given = writing(asked, service.limits, most) | {"messages": messages}
    given |= {"scored": bool(asked.logprobs), "top": asked.top_logprobs or 0}
    reply = Reply("chat.completion", worker.model.name, given["options"].get("seed", 0))
    return await answered(service, worker, asked, given, reply, ignored)


async def read_body(service: Service, request: Request, kind: type) -> tuple[Any, dict[str, str]]:
    """A request, and a header that names the fields that nobody knows."""
    asked, ignored = read_request(kind, await body_of(request, service.limits.body_bytes), service.limits)
    names = ", ".join(name for name in ignored if name.isascii())[:1000]
    return asked, {"x-heedful-ignored": names} if names else {}


async def answered(
    service: Service,
    worker: WorkerProcess,
    asked: Sampling,
    given: dict[str, Any],
    reply: Reply,
    headers: dict[str, str],
) -> Response:
    """The answer to a request for texts, as it comes or whole."""
    assert isinstance(asked, CompletionRequest | ChatRequest)
    places = given["n"] * len(given.get("texts") or given.get("tokens") or [0])
    events = service.ask(worker, "write", given, places)
    if asked.stream:
        return event_stream(service, streamed(events, reply, asked), headers)
    found = [event async for event in events]
    usage = found.pop()["usage"]
    wanted = given["scored"]
    if isinstance(asked, ChatRequest):
        choices = [chat_choice(event, wanted, "message") for event in found]
    else:
        choices = [completion_choice(event, 0, wanted) for event in found]
    choices.sort(key=lambda choice: choice["index"])
    return JSONResponse(reply.whole(choices, usage), headers=headers)


async def embeddings(service: Service, request: Request) -> Response:
    """Vectors of texts."""
    asked, ignored = await read_body(service, request, EmbeddingRequest)
    worker = await service.able(asked.model, "embed")
    kind, inputs = prompts_of(asked.input)
    over = await service.result(worker, "embed", {kind: inputs})
    vectors = over["result"]["vectors"]
    if asked.dimensions not in (None, len(vectors[0])):
        raise HttpError(400, f'"dimensions" of {worker.model.name} are {len(vectors[0])}', "dimensions")
    encoded = asked.encoding_format == "base64"
    found = embedding_reply(worker.model.name, vectors, encoded, over["usage"]["prompt_tokens"])
    return JSONResponse(found, headers=ignored)
