"""/openapi.json: the routes in OpenAPI 3.1, made from the dataclasses of their requests."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from starlette.routing import Route

from .. import __version__
from .answering import Endpoint
from .fields import object_schema
from .guard import FORM, JSON, OPEN
from .limits import Limits

REFUSALS = {  # of every route, and of those that take a body
    "GET": {"403": "the Host or the Origin is not allowed", "404": "there is no such model"},
    "POST": {
        "400": "a field, or the body, is wrong",
        "403": "the Host or the Origin is not allowed",
        "404": "there is no such model, or it lacks the ability",
        "408": "the request was sent too slowly",
        "413": "the body, a text or a list is too long",
        "415": "the body is not JSON",
        "429": "too many requests are waiting",
        "503": "the model is not ready, or the request waited too long",
        "504": "the answer took too long",
    },
}
ERROR: dict[str, Any] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}
PLAIN_ERROR = {  # LibreTranslate's; what the guard refuses has the other form
    "type": "object",
    "required": ["error"],
    "properties": {"error": {"anyOf": [{"type": "string"}, ERROR["properties"]["error"]]}},
}


def describe(routes: Iterable[Route], limits: Limits, locked: bool) -> dict[str, Any]:
    """The whole description. locked: whether a key is needed."""
    endpoints = [route.endpoint for route in routes if isinstance(route.endpoint, Endpoint)]
    paths: dict[str, Any] = {}
    for one in endpoints:
        paths.setdefault(re.sub(r"{(\w+):\w+}", r"{\1}", one.path), {})[one.method.lower()] = operation(
            one, locked
        )
    schemas = {one.takes.__name__: schema(one, limits) for one in endpoints if one.takes is not None}
    components: dict[str, Any] = {"schemas": {"Error": ERROR, "PlainError": PLAIN_ERROR, **schemas}}
    if locked:
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "heedful", "version": __version__},
        "paths": paths,
        "components": components,
    }


def schema(one: Endpoint, limits: Limits) -> dict[str, Any]:
    """The body of a request."""
    assert one.takes is not None
    found = object_schema(one.takes, limits) | {"description": (one.takes.__doc__ or "").partition("\n")[0]}
    return found | ({"additionalProperties": True} if one.lenient else {})


def operation(one: Endpoint, locked: bool) -> dict[str, Any]:
    """One method of a path."""
    found: dict[str, Any] = {
        "operationId": re.sub(r"\W+", "_", f"{one.method.lower()}{one.path}").strip("_"),
        "summary": one.summary,
        "responses": {"200": answers(one), **refusals(one, locked)},
    }
    if names := re.findall(r"{(\w+)", one.path):
        found["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names
        ]
    if one.takes is not None:
        body = {"schema": {"$ref": f"#/components/schemas/{one.takes.__name__}"}}
        content = {JSON: body, **({FORM: body} if one.forms else {})}
        found["requestBody"] = {"required": True, "content": content}
    if locked and one.path not in OPEN:
        found["security"] = [{"key": []}]
    return found


def answers(one: Endpoint) -> dict[str, Any]:
    """What a request is answered with."""
    kind = "text/plain" if one.path == "/metrics" else "application/json"
    content: dict[str, Any] = {kind: {} if one.example is None else {"example": one.example}}
    if one.takes is not None and any(field.name == "stream" for field in fields(one.takes)):
        content["text/event-stream"] = {}
    return {"description": "the answer", "content": content}


def refusals(one: Endpoint, locked: bool) -> dict[str, Any]:
    reasons = dict(REFUSALS["POST" if one.takes is not None else "GET"])
    if one.path == "/ready":
        reasons["503"] = "a model is not ready"
    if locked and one.path not in OPEN:
        reasons["401"] = "the key is missing or wrong"
    name = "PlainError" if one.forms else "Error"
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}
    return {
        code: {"description": why, **({"content": content} if one.path != "/ready" else {})}
        for code, why in sorted(reasons.items())
    }
