"""Every endpoint of `heedful serve`, from the description that the service itself gives at /openapi.json."""

from typing import Any

from heedful.service.app import Service, make_app
from heedful.service.guard import Access
from heedful.service.limits import Limits
from heedful.service.server import routes_of

from .markdown import code, prose, table

KINDS = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "null": "null",
}
REFERENCE = "#/components/schemas/"


def endpoints() -> str:
    service = Service({}, {}, Limits())
    make_app(service, Access.of("127.0.0.1", 8080), routes_of(service))
    paths, schemas = service.described["paths"], service.described["components"]["schemas"]
    return "\n".join(
        section(path, method, operation, schemas)
        for path, methods in paths.items()
        for method, operation in methods.items()
    )


def section(path: str, method: str, operation: dict[str, Any], schemas: dict[str, Any]) -> str:
    """One method of a path: its fields, and the codes of refusals."""
    content = operation.get("requestBody", {}).get("content", {})
    body = content.get("application/json", {}).get("schema", {}).get("$ref", "").removeprefix(REFERENCE)
    fields = table(("field", "type", "meaning"), field_rows(schemas[body])) if body else ""
    streams = "text/event-stream" in operation["responses"]["200"]["content"]
    stream = "With `stream`, the answer is a stream of server-sent events.\n\n" if streams else ""
    codes = ", ".join(code(number) for number in operation["responses"])
    summary = prose(operation["summary"])
    return f"## {method.upper()} {prose(path)}\n\n{summary}\n\n{fields}\n{stream}Status codes: {codes}.\n"


def field_rows(schema: dict[str, Any]) -> list[tuple[str, str, str]]:
    needed = schema.get("required", [])
    return [
        (
            code(name) + (" (required)" if name in needed else ""),
            prose(kind(one)),
            prose(one.get("description", "")),
        )
        for name, one in schema["properties"].items()
    ]


def kind(schema: dict[str, Any]) -> str:
    """The type of a field in words, with its bounds."""
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(kind(one) for one in schema["anyOf"] if one.get("type") != "null"))
    if "enum" in schema:
        return " or ".join(str(one) for one in schema["enum"] if one is not None)
    if "$ref" in schema:
        return "object"
    if schema.get("type") == "array":
        return f"list of {kind(schema.get('items', {}))}"
    word = KINDS.get(str(schema.get("type")), "object" if schema.get("type") == "object" else "any")
    bounds = [schema.get("minimum"), schema.get("maximum")]
    return word + (f", {bounds[0]:,} to {bounds[1]:,}" if None not in bounds else "")
