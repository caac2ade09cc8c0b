"""The routes of heedful's own endpoints: /v1/translate, /v1/classify and others.

Answers have the form of --json on the command line: a list of results in the order of the texts, even where
one text was sent.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from . import tasks
from .answering import body_of, event_stream, route
from .app import Service
from .fields import HttpError, read
from .limits import Limits
from .tasks import LANGUAGES, options_of


@dataclass(frozen=True)
class TaskRoute:
    """An endpoint: what a worker is asked, what the list of results is called, and what requests hold."""

    do: str
    results: str
    takes: type
    row: dict[str, Any]  # what a result looks like

    @property
    def ability(self) -> str:
        """What a model must be able to do; "": nothing but read texts."""
        return "" if self.do in ("tokenize", "detokenize") else self.do


TEXT: dict[str, Any] = {
    "text": "le chat dort", "score": -0.51, "ended": True,
    "tokens": [" le", " chat", " dort", "[EOS]"], "log_probabilities": [-0.1, -0.2, -0.2, -0.01],
}  # fmt: skip
WRITING = (
    TaskRoute("translate", "translations", tasks.TranslateRequest, TEXT),
    TaskRoute("summarize", "summaries", tasks.SummarizeRequest, TEXT),
    TaskRoute("generate", "continuations", tasks.GenerateRequest, TEXT),
)
WORDS = {"words": ["the", "cat"], "tags": ["DET", "NOUN"]}
TOKEN = {"id": 143, "text": "cat", "start": 4, "end": 7}
GUESS = {"word": "cat", "probability": 0.6}
SCORE = {
    "log_probability": -2.0,
    "perplexity": 2.7,
    "tokens": ["cat"],
    "log_probabilities": [-2.0],
    "given": [],
}
OTHERS = (
    TaskRoute("fill", "texts", tasks.FillRequest, {"text": "the cat sat", "blanks": [[GUESS]]}),
    TaskRoute("classify", "labels", tasks.ClassifyRequest, {"label": "good", "probabilities": {"good": 0.9}}),
    TaskRoute("score", "scores", tasks.ScoreRequest, SCORE),
    TaskRoute(
        "answer", "answers", tasks.AnswerRequest, {"answer": "cat", "start": 4, "end": 7, "probability": 0.8}
    ),
    TaskRoute(
        "choose",
        "choices",
        tasks.ChooseRequest,
        {"choice": "a cat", "number": 0, "probabilities": [0.7, 0.3]},
    ),
    TaskRoute("tag", "sentences", tasks.TagRequest, WORDS | {"probabilities": [0.9, 0.8]}),
    TaskRoute(
        "parse", "sentences", tasks.ParseRequest, WORDS | {"heads": [2, 0], "relations": ["det", "root"]}
    ),
    TaskRoute("caption", "captions", tasks.CaptionRequest, TEXT),
    TaskRoute("tokenize", "texts", tasks.TokenizeRequest, {"tokens": [TOKEN]}),
    TaskRoute("detokenize", "texts", tasks.DetokenizeRequest, {"text": "cat"}),
)
USAGE = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}


def task_routes(service: Service) -> list[Route]:
    """All of them."""
    both = [(one, write_texts) for one in WRITING] + [(one, answer_task) for one in OTHERS]
    return [
        route(
            f"/v1/{one.do}",
            partial(answer, one),
            service,
            takes=one.takes,
            summary=one.takes.__doc__ or "",
            example=answered("demo", one.results, [one.row], USAGE),
        )
        for one, answer in both
    ]


async def write_texts(task: TaskRoute, service: Service, request: Request) -> Response:
    """Answer a request for texts that a model writes."""
    body = await body_of(request, service.limits.body_bytes)
    asked: Any = read(task.takes, body, service.limits)
    options = options_in(task.ability, asked, body, service.limits)
    worker = await service.able(asked.model, task.ability)
    texts = listed(asked.texts)
    given = {"ability": task.ability, "texts": texts, "options": options, "streams": asked.stream}
    given |= {name: body[name] for name, *_ in LANGUAGES if body.get(name) is not None}
    if asked.stream:
        check_stream(options)
        given["options"] = {"beam": 1} | options if not options.get("sample") else options
    events = service.ask(worker, "write", given, len(texts))
    if asked.stream:
        return event_stream(service, streamed(events, task.results, worker.model.name), {})
    over: dict[str, Any] = {}
    async for event in events:
        over = event
    return JSONResponse(answered(worker.model.name, task.results, over["result"]["answers"], over["usage"]))


def options_in(command: str, asked: Any, body: dict[str, Any], limits: Limits) -> dict[str, Any]:
    """The decoding options that a request has."""
    names = {option.name for option in options_of(command)}
    found = {name: getattr(asked, name) for name in body if name in names and body[name] is not None}
    width = (found.get("beam") or 1) * found.get("beam_groups", 1)
    if width > limits.beams:
        raise HttpError(
            400, f'"beam" and "beam_groups" make {width:,} hypotheses, and {limits.beams} are allowed', "beam"
        )
    return found


def check_stream(options: dict[str, Any]) -> None:
    """Refuse to stream what is only known at the end."""
    if (options.get("beam") or 1) > 1 or options.get("beam_groups", 1) > 1:
        raise HttpError(
            400, 'beam search decides at the end, so it cannot stream: leave out "beam" or "stream"', "stream"
        )
    if options.get("align"):
        raise HttpError(
            400, 'words are aligned once all are written: leave out "align" or "stream"', "stream"
        )


async def streamed(events: AsyncIterator[dict[str, Any]], results: str, model: str) -> AsyncIterator[bytes]:
    """Pieces of texts as they come, each with the number of its text; and everything at the end."""
    async for event in events:
        if event.get("over"):
            yield server_sent(answered(model, results, event["result"]["answers"], event["usage"]))
        elif event.get("piece"):
            yield server_sent({"index": event["index"], "text": event["piece"]})
    yield b"data: [DONE]\n\n"


def server_sent(message: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(message, ensure_ascii=False).encode("utf-8", "replace") + b"\n\n"


def answered(model: str, results: str, rows: list[Any], usage: dict[str, int]) -> dict[str, Any]:
    return {"model": model, results: rows, "usage": usage}


def listed(given: Any) -> list[Any]:
    """One text as a list of one."""
    return [given] if isinstance(given, str) else given


async def answer_task(task: TaskRoute, service: Service, request: Request) -> Response:
    """Answer any other request."""
    reads_pictures = any(field.name == "pictures" for field in fields(task.takes))
    body = await body_of(request, service.limits.image_bytes if reads_pictures else service.limits.body_bytes)
    asked: Any = read(task.takes, body, service.limits)
    worker = service.worker(asked.model)
    if task.ability:
        worker = await service.able(asked.model, task.ability)
    given, blob = given_to_worker(task, asked, body, service.limits)
    over = await service.result(worker, task.do, given, 1, blob)
    return JSONResponse(answered(worker.model.name, task.results, over["result"]["rows"], over["usage"]))


LISTS = ("texts", "seconds", "targets", "questions", "contexts")


def given_to_worker(
    task: TaskRoute, asked: Any, body: dict[str, Any], limits: Limits
) -> tuple[dict[str, Any], bytes]:
    """What a request asks of the worker, and the bytes of its pictures."""
    if task.ability == "caption":
        pictures = pictures_of(asked.pictures)
        return {
            "options": options_in("caption", asked, body, limits),
            "sizes": [*map(len, pictures)],
        }, b"".join(pictures)
    known = {field.name: getattr(asked, field.name) for field in fields(task.takes) if field.name != "model"}
    given = {
        name: listed(value) if name in LISTS else value for name, value in known.items() if value is not None
    }
    if task.ability == "classify":
        if (asked.texts is None) == (asked.pictures is None):
            raise HttpError(400, 'give either "texts" or "pictures"', "texts")
        if asked.pictures is not None:
            pictures = pictures_of(asked.pictures)
            return {"sizes": [*map(len, pictures)]}, b"".join(pictures)
    for name in ("choices", "tokens"):
        if name in given and not isinstance(given[name][0], list):
            given[name] = [given[name]]
    return given, b""


def pictures_of(given: str | list[str]) -> list[bytes]:
    """The files that pictures were sent as."""
    found = []
    for number, text in enumerate(listed(given)):
        name = "pictures" if isinstance(given, str) else f"pictures[{number}]"
        if text.startswith("data:"):
            head, comma, text = text.partition(",")
            if not comma or not head.endswith(";base64"):
                raise HttpError(400, f'"{name}" is a data: URL that is not in base64', name)
        try:
            found.append(base64.b64decode(text, validate=True))
        except (binascii.Error, ValueError):
            raise HttpError(
                400, f'"{name}" is not valid base64: send the bytes of a PNG or JPEG file so', name
            ) from None
        if not found[-1]:
            raise HttpError(400, f'"{name}" is empty', name)
    return found
