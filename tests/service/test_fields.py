"""Requests are checked field by field, and the schema says the same."""

import json
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.models.base.settings import Range
from heedful.service.fields import HttpError, Most, Pattern, json_body, object_schema, read
from heedful.service.limits import Limits

LIMITS = Limits(characters=10, texts=3)


@dataclass(frozen=True)
class Message:
    role: Literal["user", "system"]
    content: Annotated[str, Most("characters")]


DIGITS = Pattern("[0-9]{1,9}", "a number")
Short = Annotated[str, Most("characters", 1)]


@dataclass(frozen=True)
class Asked:
    texts: Annotated[list[Annotated[str, Most("characters")]], Most("texts", 1), "texts to answer"]
    temperature: Annotated[float, Range(0, 2), "how random"] = 1.0
    n: Annotated[int, Range(1, 4)] = 1
    stop: Annotated[Short | list[Short] | None, Most("texts")] = None
    bias: Annotated[dict[str, Annotated[float, Range(-100, 100)]], Most("texts"), DIGITS] | None = None
    messages: list[Message] | None = None
    stream: bool = False


def test_a_request_is_read_with_its_defaults():
    asked = {"texts": ["a"], "temperature": 1, "stop": ["x"], "messages": [{"role": "user", "content": "hi"}]}
    found = read(Asked, asked, LIMITS)
    assert read(Asked, {"texts": ["a"], "stop": "longer"}, LIMITS).stop == "longer"
    assert found == Asked(["a"], 1.0, stop=["x"], messages=[Message("user", "hi")])
    assert read(Asked, {"texts": ["a"], "bias": None}, LIMITS).bias is None
    assert type(found.temperature) is float
    assert type(read(Asked, {"texts": ["a"], "n": 3.0}, LIMITS).n) is int


@pytest.mark.parametrize(
    "given, status, message",
    [
        ({}, 400, '"texts" is missing'),
        ({"texts": "a"}, 400, "\"texts\" must be a list, not 'a'"),
        ({"texts": []}, 400, '"texts" needs at least 1 entries'),
        ({"texts": ["a"] * 4}, 413, '"texts" has 4 entries, and 3 are allowed'),
        ({"texts": ["a", "b" * 11]}, 413, '"texts[1]" has 11 characters, and 10 are allowed'),
        ({"texts": ["a\ud800"]}, 400, "half a character"),
        ({"texts": ["a"], "temperature": 7}, 400, '"temperature" must be a number from 0 to 2, not 7'),
        ({"texts": ["a"], "temperature": True}, 400, '"temperature" must be a number from 0 to 2, not True'),
        ({"texts": ["a"], "n": 1.5}, 400, '"n" must be a whole number from 1 to 4, not 1.5'),
        ({"texts": ["a"], "n": True}, 400, '"n" must be a whole number from 1 to 4, not True'),
        ({"texts": ["a"], "n": 5.0}, 400, '"n" must be a whole number from 1 to 4, not 5.0'),
        ({"texts": ["a"], "n": 10**400}, 400, '"n" must be a whole number'),
        ({"texts": ["a"], "temperature": 10**400}, 400, '"temperature" must be a number'),
        ({"texts": ["a"], "stop": "b" * 11}, 413, '"stop" has 11 characters, and 10 are allowed'),
        ({"texts": ["a"], "stop": ["b"] * 4}, 413, '"stop" has 4 entries, and 3 are allowed'),
        ({"texts": ["a"], "bias": {"५": 1}}, 400, '"bias" has "५", where a number is expected'),
        ({"texts": ["a"], "stop": ""}, 400, '"stop" needs at least 1 characters'),
        ({"texts": ["a"], "stop": 3}, 400, '"stop" must be a text or a list, not 3'),
        ({"texts": ["a"], "stop": [3]}, 400, '"stop[0]" must be a text, not 3'),
        ({"texts": ["a"], "bias": {"5": 101}}, 400, '"bias.5" must be a number from -100 to 100, not 101'),
        ({"texts": ["a"], "stream": 1}, 400, '"stream" must be true or false, not 1'),
        ({"texts": ["a"], "messages": [{"role": "user"}]}, 400, '"messages[0].content" is missing'),
        ({"texts": ["a"], "messages": [{"role": "x", "content": ""}]}, 400, '"user" or "system"'),
        (
            {"texts": ["a"], "temprature": 1},
            400,
            'there is no field "temprature"; did you mean "temperature"?',
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(given, status, message):
    with pytest.raises(HttpError) as error:
        read(Asked, given, LIMITS)
    assert error.value.status == status and message in error.value.message


@pytest.mark.parametrize(
    "body, message",
    [
        (b"\xff", "not UTF-8"),
        (b'{"a": NaN}', "NaN is no number"),
        (b'{"a": -Infinity}', "-Infinity is no number"),
        (b'{"a": 1, "a": 2}', "a key twice"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a":' + b"[" * 200 + b"]" * 200 + b"}", "nested too deeply"),
        (b"[1]", "the body is a list"),
        (b"null", "the body is null"),
        (b"", "not valid JSON"),
        (b"\xef\xbb\xbf{}", "not valid JSON"),
        ('{"a": 1}'.encode("utf-16"), "not UTF-8"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not valid JSON"),
    ],
)
def test_bodies_that_json_leaves_open_are_refused(body, message):
    with pytest.raises(HttpError, match=message):
        json_body(body)


@pytest.mark.parametrize("levels", [63, 64, 65, 70])
def test_64_levels_are_the_deepest(levels):
    body = b'{"a":' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"
    if levels <= 64:
        assert json_body(body)
    else:
        with pytest.raises(HttpError, match="nested too deeply"):
            json_body(body)


@dataclass(frozen=True)
class Tokens:
    tokens: list[Annotated[int, Range(0, 50)]]


def test_many_numbers_are_checked_as_few_are():
    assert read(Tokens, {"tokens": [0, 50] * 3}, LIMITS).tokens == [0, 50] * 3
    assert read(Tokens, {"tokens": [1, 2.0]}, LIMITS).tokens == [1, 2]
    for wrong in (-1, 51, True, 1.5, "1", None, 10**400):
        with pytest.raises(HttpError, match=r'"tokens\[2\]" must be a whole number'):
            read(Tokens, {"tokens": [3, 4, wrong, 5]}, LIMITS)


SCHEMA = object_schema(Asked, LIMITS)
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from([*SCHEMA["properties"], "other"]), ANY, max_size=4))
def test_anything_is_read_or_refused(asked: dict[str, Any]):
    try:
        read(Asked, json_body(json.dumps(asked).encode()), LIMITS)
    except HttpError as error:
        assert error.status in (400, 413) and error.message and "\n" not in error.message


def test_the_schema_has_every_field_with_its_limits():
    assert SCHEMA["required"] == ["texts"] and SCHEMA["additionalProperties"] is False
    texts = SCHEMA["properties"]["texts"]
    assert texts == {
        "type": "array",
        "items": {"type": "string", "minLength": 0, "maxLength": 10},
        "minItems": 1,
        "maxItems": 3,
        "description": "texts to answer",
    }
    assert SCHEMA["properties"]["bias"]["anyOf"][0]["propertyNames"] == {"pattern": "^[0-9]{1,9}$"}
    assert SCHEMA["properties"]["temperature"]["maximum"] == 2
    assert SCHEMA["properties"]["messages"]["anyOf"][0]["items"]["properties"]["role"] == {
        "enum": ["user", "system"]
    }
