"""Requests as dataclasses: JSON is checked against the types of their fields, and so is the schema made.

    @dataclass(frozen=True)
    class FillRequest:
        texts: Annotated[list[Annotated[str, Most("characters")]], Most("texts"), "texts with [MASK] in them"]
        top: Annotated[int, Range(1, 1000), "words for each blank"] = 5

`read(FillRequest, data, limits)` returns one, or refuses in a sentence that names the field.
"""

from __future__ import annotations

import json
import math
import re
import types
import typing
from collections.abc import Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cache
from reprlib import repr as short
from typing import Annotated, Any, Literal, TypeVar

from ..models import nearest
from ..models.base.settings import Range
from .limits import Limits

T = TypeVar("T")
DEEPEST = 64  # levels of lists and objects in a body
SCALARS = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}


@dataclass(frozen=True)
class Most:
    """How long a text or a list may be, or how large a number: a field of `Limits`. `least`: how short."""

    limit: str
    least: int = 0


@dataclass(frozen=True)
class Pattern:
    """The form of a text, or of the keys of an object: a regular expression, and what it means in words."""

    pattern: str
    words: str


class HttpError(Exception):
    """A request that is not answered. `param`: the field that is to blame. `code`: why, for programs."""

    def __init__(
        self, status: int, message: str, param: str | None = None, code: str | None = None, **headers: str
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.headers = status, message, param, headers
        self.code = code or CODES.get(status)


CODES = {401: "invalid_api_key", 429: "rate_limit_exceeded"}  # as OpenAI's
KINDS = {401: "authentication_error", 403: "permission_error", 408: "timeout_error", 429: "rate_limit_error"}


def error_body(refused: HttpError) -> bytes:
    """An error in the form that OpenAI's clients read."""
    kind = KINDS.get(refused.status, "invalid_request_error" if refused.status < 500 else "server_error")
    error = {"message": refused.message, "type": kind, "param": refused.param, "code": refused.code}
    return json.dumps({"error": error}).encode()


# Bodies.


def json_body(body: bytes) -> dict[str, Any]:
    """The object that a body holds. What JSON leaves open (NaN, a key twice, endless nesting) is refused."""
    try:
        text = body.decode("utf-8")
        found = json.loads(text, parse_constant=no_constant, parse_float=finite, object_pairs_hook=once_each)
        check_depth(found)
    except UnicodeDecodeError:
        raise HttpError(400, "the body is not UTF-8") from None
    except RecursionError:
        raise HttpError(400, "the body is nested too deeply") from None
    except ValueError as error:
        raise HttpError(400, f"the body is not valid JSON: {str(error)[:200]}") from None
    if not isinstance(found, dict):
        raise HttpError(400, f"the body is {kind_of(found)}, where an object {{...}} is expected")
    return found


def no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"the number {digits[:20]} is too large")
    return number


def once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object has a key twice")
    return found


def check_depth(found: Any) -> None:
    level, deep = [found], 0
    while level := [node for node in level if type(node) in (dict, list)]:
        level = [inner for node in level for inner in (node.values() if type(node) is dict else node)]
        deep += 1
        if deep > DEEPEST:
            raise RecursionError


# Fields.


@dataclass(frozen=True, eq=False)
class Shape:
    """A type as values are checked against it. Hints are taken apart once, and not for every request."""

    hint: Any  # without notes
    notes: tuple[Any, ...]  # what a value is checked for beside its type
    origin: Any  # list, dict, Literal or Union, where it is one of those
    parts: tuple[Shape, ...]  # the members of a union, or what a list or an object holds


def shape_of(hint: Any) -> Shape:
    hint, notes = bare(hint)
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        origin, parts = typing.Union, tuple(with_notes(member, notes) for member in parts)
    inner = parts[-1:] if origin in (list, dict) else parts if origin is typing.Union else ()
    checks = tuple(note for note in notes if not isinstance(note, str))
    return Shape(hint, checks, origin, tuple(shape_of(part) for part in inner))


@cache
def shapes_of(kind: type) -> dict[str, tuple[Shape, bool]]:
    """The fields of a dataclass: their types, and whether a request needs them."""
    hints = hints_of(kind)
    return {field.name: (shape_of(hints[field.name]), is_required(field)) for field in fields(kind)}


def read(kind: type[T], given: dict[str, Any], limits: Limits, where: str = "") -> T:
    """A request of this kind, every field checked; fields that it does not have are refused."""
    known = shapes_of(kind)  # type: ignore[arg-type]
    for name in given:
        if name not in known:
            raise HttpError(400, f'there is no field "{shown(name)}"{nearest(name[:60], known)}', shown(name))
    found = {}
    for name, (shape, required) in known.items():
        if name in given:
            found[name] = value_of(shape, given[name], where + name, limits)
        elif required:
            raise HttpError(400, f'"{where}{name}" is missing', where + name)
    return kind(**found)


def value_of(shape: Shape, given: Any, name: str, limits: Limits) -> Any:
    """A value of this type, checked."""
    if shape.origin is typing.Union:
        return one_of(shape, given, name, limits)
    hint, notes = shape.hint, shape.notes
    if not fits(shape, given):
        raise HttpError(400, f'"{name}" must be {described(hint, notes, limits)}, not {short(given)}', name)
    for note in notes:
        check_note(note, hint, notes, given, name, limits)
    return inside(shape, given, name, limits)


def one_of(shape: Shape, given: Any, name: str, limits: Limits) -> Any:
    """The first member of a union that fits."""
    refused: HttpError | None = None
    members = [member for member in shape.parts if fits(member, given)]
    if len(members) > 1 and isinstance(given, list):  # of texts or of numbers: the first one shows
        members.sort(key=lambda member: not all(fits(member.parts[0], one) for one in given[:1]))
    for member in members:
        try:
            return value_of(member, given, name, limits)
        except HttpError as error:
            refused = error
    if refused is not None:
        raise refused
    hints = [member.hint for member in shape.parts if member.hint is not type(None)]
    kinds = " or ".join(described(hint, shape.notes, limits) for hint in hints)
    raise HttpError(400, f'"{name}" must be {kinds}, not {short(given)}', name)


def fits(shape: Shape, given: Any) -> bool:
    """Whether a value is of this type, from the outside."""
    hint, origin = shape.hint, shape.origin
    if origin is Literal:
        return any(type(given) is type(choice) and given == choice for choice in typing.get_args(hint))
    if hint is type(None):
        return given is None
    if hint is int:
        return type(given) is int or (
            type(given) is float and given.is_integer()
        )  # 1.0, as JSON Schema has it
    if hint is float:
        return type(given) in (int, float) and abs(given) < 1e300 and math.isfinite(given)
    if hint in SCALARS:
        return type(given) is hint
    if is_dataclass(hint) or origin is dict:
        return isinstance(given, dict)
    return isinstance(given, list) if origin is list else hint is Any


def inside(shape: Shape, given: Any, name: str, limits: Limits) -> Any:
    """A value with what is in it checked as well."""
    hint, origin = shape.hint, shape.origin
    if origin is list:
        (item,) = shape.parts
        if are_plain(item, given, limits):
            return given
        return [value_of(item, one, f"{name}[{number}]", limits) for number, one in enumerate(given)]
    if origin is dict:
        (item,) = shape.parts
        return {key: value_of(item, one, f"{name}.{shown(key)}", limits) for key, one in given.items()}
    if hint is str:
        try:
            given.encode()
        except UnicodeEncodeError:
            raise HttpError(400, f'"{name}" holds half a character (a lone surrogate)', name) from None
    if is_dataclass(hint):
        return read(typing.cast(Any, hint), given, limits, f"{name}.")
    return hint(given) if hint in (int, float) else given


def are_plain(item: Shape, given: list[Any], limits: Limits) -> bool:
    """Whether these are whole numbers in their range: tokens are many, and checked at once."""
    if item.hint is not int or not given or set(map(type, given)) != {int}:
        return False
    try:
        for extreme in (min(given), max(given)):
            value_of(item, extreme, "", limits)
    except HttpError:
        return False
    return True


def check_note(note: Any, hint: Any, notes: Sequence[Any], given: Any, name: str, limits: Limits) -> None:
    """Check a number's range, and the size of a text or a list."""
    if isinstance(note, Range) and hint in (int, float) and given not in note:
        raise HttpError(400, f'"{name}" must be {described(hint, notes, limits)}, not {short(given)}', name)
    if isinstance(note, Pattern) and isinstance(given, str | dict):
        for text in [given] if isinstance(given, str) else given:
            if not re.fullmatch(note.pattern, text, re.ASCII):
                raise HttpError(400, f'"{name}" has "{shown(text)}", where {note.words} is expected', name)
    if isinstance(note, Most) and hint is int and given > (most := getattr(limits, note.limit)):
        raise HttpError(400, f'"{name}" is {short(given)}, and {most:,} are allowed', name)
    if isinstance(note, Most) and isinstance(given, str | list | dict):
        most, what = getattr(limits, note.limit), "characters" if isinstance(given, str) else "entries"
        if len(given) > most:
            raise HttpError(413, f'"{name}" has {len(given):,} {what}, and {most:,} are allowed', name)
        if len(given) < note.least:
            raise HttpError(400, f'"{name}" needs at least {note.least} {what}', name)


def described(hint: Any, notes: Sequence[Any], limits: Limits) -> str:
    """What a field takes, in words."""
    if typing.get_origin(hint) is Literal:
        return " or ".join(json.dumps(choice) for choice in typing.get_args(hint))
    between = next((f" {note}" for note in notes if isinstance(note, Range) and hint in (int, float)), "")
    return SCALARS.get(hint, "a list" if typing.get_origin(hint) is list else "an object") + between


def kind_of(found: Any) -> str:
    return "a list" if isinstance(found, list) else SCALARS.get(type(found), "null")


def shown(name: str) -> str:
    """A name that a stranger gave, fit for a sentence."""
    return name if name.isprintable() and len(name) < 60 else short(name)


def bare(hint: Any) -> tuple[Any, list[Any]]:
    """A type without its notes, and the notes."""
    notes: list[Any] = []
    while typing.get_origin(hint) is Annotated:
        hint, *more = typing.get_args(hint)
        notes += more
    return hint, notes


def with_notes(member: Any, notes: list[Any]) -> Any:
    """A member of a union with the notes of the union, but for kinds of notes that it has itself."""
    own = {type(note) for note in bare(member)[1]}
    more = [note for note in notes if type(note) not in own]
    return Annotated[member, *more] if more else member


@cache
def hints_of(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind, include_extras=True)


def is_required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


# The schema.


def schema_of(hint: Any, limits: Limits) -> dict[str, Any]:
    """The JSON Schema of a type, by the same rules."""
    hint, notes = bare(hint)
    origin = typing.get_origin(hint)
    found: dict[str, Any] = {}
    if origin in (typing.Union, types.UnionType):
        sizes = [note for note in notes if not isinstance(note, str)]
        members = [with_notes(member, sizes) for member in typing.get_args(hint)]
        found = {"anyOf": [schema_of(m, limits) for m in members]}
    elif origin is Literal:
        found = {"enum": list(typing.get_args(hint))}
    elif origin is list:
        found = {"type": "array", "items": schema_of(typing.get_args(hint)[0], limits)}
    elif origin is dict:
        found = {"type": "object", "additionalProperties": schema_of(typing.get_args(hint)[1], limits)}
    elif is_dataclass(hint):
        found = object_schema(typing.cast(Any, hint), limits)
    elif hint in TYPES:
        found = {"type": TYPES[hint]}
    for note in notes:
        found |= note_schema(note, found.get("type"), limits)
    return found


TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
SIZES = {
    "string": ("minLength", "maxLength"),
    "array": ("minItems", "maxItems"),
    "object": ("minProperties", "maxProperties"),
}


def note_schema(note: Any, kind: str | None, limits: Limits) -> dict[str, Any]:
    if isinstance(note, Range) and kind in ("integer", "number"):
        low = "minimum" if note.ends[0] == "[" else "exclusiveMinimum"
        high = "maximum" if note.ends[1] == "]" else "exclusiveMaximum"
        return {low: note.least, high: note.most}
    if isinstance(note, Pattern):
        pattern = {"pattern": f"^{note.pattern}$"}
        return {"propertyNames": pattern} if kind == "object" else pattern if kind == "string" else {}
    if isinstance(note, Most) and kind == "integer":
        return {"maximum": getattr(limits, note.limit)}
    if isinstance(note, Most) and kind in SIZES:
        least, most = SIZES[kind]
        return {least: note.least, most: getattr(limits, note.limit)}
    return {"description": note} if isinstance(note, str) else {}


def object_schema(kind: type, limits: Limits) -> dict[str, Any]:
    """The schema of a dataclass."""
    hints, known = hints_of(kind), fields(kind)
    return {
        "type": "object",
        "properties": {field.name: schema_of(hints[field.name], limits) for field in known},
        "required": [field.name for field in known if is_required(field)],
        "additionalProperties": False,
    }
