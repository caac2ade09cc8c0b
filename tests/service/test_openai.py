"""Every field of OpenAI's requests is done, neutral or refused: the installed client says which there are."""

import typing
from dataclasses import fields

import pytest
from openai.types import chat as chats
from openai.types import completion_create_params, embedding_create_params
from openai.types.chat import completion_create_params as chat_create_params

from heedful.service.fields import HttpError
from heedful.service.limits import Limits
from heedful.service.openai import (
    NEUTRAL,
    ChatMessage,
    ChatRequest,
    CompletionRequest,
    EmbeddingRequest,
    StreamOptions,
    options_of,
    read_request,
)

LIMITS = Limits()
USER = {"role": "user", "content": "hello"}
THEIRS = {
    CompletionRequest: completion_create_params.CompletionCreateParamsStreaming,
    ChatRequest: chat_create_params.CompletionCreateParamsStreaming,
    EmbeddingRequest: embedding_create_params.EmbeddingCreateParams,
    StreamOptions: chats.ChatCompletionStreamOptionsParam,
}
LEAST = {
    CompletionRequest: {"prompt": "a"},
    ChatRequest: {"messages": [USER]},
    EmbeddingRequest: {"input": "a"},
}


def names_of(kind):
    return set(typing.get_type_hints(kind))


@pytest.mark.parametrize("kind", THEIRS, ids=lambda kind: kind.__name__)
def test_every_field_of_openai_s_is_done_neutral_or_refused(kind):
    prefix = "stream_options." if kind is StreamOptions else ""
    done, neutral = {field.name for field in fields(kind)}, {name for name in NEUTRAL}
    assert {
        name for name in names_of(THEIRS[kind]) if name not in done and prefix + name not in neutral
    } == set()


def test_every_field_of_openai_s_messages_is_done_neutral_or_refused():
    theirs = set().union(*map(names_of, typing.get_args(chats.ChatCompletionMessageParam)))
    done = {field.name for field in fields(ChatMessage)}
    assert {name for name in theirs if name not in done and f"messages.{name}" not in NEUTRAL} == set()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tools", [{"type": "function", "function": {"name": "f"}}]),
        ("tool_choice", "required"),
        ("response_format", {"type": "json_object"}),
        ("modalities", ["text", "audio"]),
        ("audio", {"voice": "ash"}),
        ("suffix", "end"),
        ("prediction", {"type": "content", "content": "x"}),
        ("reasoning_effort", "high"),
        ("web_search_options", {}),
        ("verbosity", "low"),
        ("functions", [{"name": "f"}]),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(name, value):
    with pytest.raises(HttpError, match=f'"{name}" is not supported here') as error:
        read_request(ChatRequest, LEAST[ChatRequest] | {name: value}, LIMITS)
    assert (error.value.status, error.value.param) == (400, name)


@pytest.mark.parametrize("kind", LEAST, ids=lambda kind: kind.__name__)
def test_values_that_change_nothing_are_accepted(kind):
    neutral = {name: (values or ("anything",))[-1] for name, values in NEUTRAL.items() if "." not in name}
    asked, ignored = read_request(kind, LEAST[kind] | neutral, LIMITS)
    assert isinstance(asked, kind) and ignored == []


@pytest.mark.parametrize("kind", LEAST, ids=lambda kind: kind.__name__)
def test_a_field_may_be_null_wherever_openai_s_may_be_left_out(kind):
    nulls = {field.name: None for field in fields(kind) if field.name not in LEAST[kind]}
    asked, ignored = read_request(kind, nulls | LEAST[kind], LIMITS)
    assert asked == read_request(kind, dict(LEAST[kind]), LIMITS)[0] and ignored == []


def test_fields_that_nobody_knows_are_named_once():
    messages = [USER | {"id": 1}, USER | {"id": 2, "refusal": None}]
    body = {"messages": messages, "chat_id": 1, "stream_options": {"include_usage": True, "why": 1}}
    asked, ignored = read_request(ChatRequest, body, LIMITS)
    assert ignored == ["chat_id", "stream_options.why", "messages.id"]
    assert [message.plain() for message in asked.messages] == [USER, USER]


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ({"role": "user", "content": None}, r'"messages\[0\].content" is missing'),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}, '"image_url"'),
        ({"role": "user", "content": [{"type": "text"}]}, r'"messages\[0\].content\[0\].text" is missing'),
        ({"role": "user", "content": 7}, r"messages\[0\].content"),
        ({"role": "user", "content": ["hello"]}, r"messages\[0\].content"),
        ({"content": "hello"}, r'"messages\[0\].role" is missing'),
        ({"role": "assistant", "content": "", "tool_calls": [{"id": "1"}]}, '"messages.tool_calls" is not'),
        ("hello", r"messages\[0\]"),
    ],
)
def test_a_message_that_is_not_read_is_refused_by_its_place(message, why):
    with pytest.raises(HttpError, match=why) as error:
        read_request(ChatRequest, {"messages": [message]}, LIMITS)
    assert error.value.status == 400


def test_options_that_have_no_effect_are_left_out():
    asked, _ = read_request(CompletionRequest, {"temperature": 0, "top_p": 0.5, "seed": 3}, LIMITS)
    assert options_of(asked, 9) == {"sample": False, "max_new_tokens": 9}
    asked, _ = read_request(
        CompletionRequest, {"temperature": 1e-9, "top_k": -1, "seed": -3, "min_tokens": 2}, LIMITS
    )
    drawn = {"sample": True, "seed": -3, "temperature": 0.001, "top_k": 0, "min_new_tokens": 2}
    assert options_of(asked, None) == drawn
    with pytest.raises(HttpError, match="min_tokens"):
        options_of(asked, 1)


def test_a_stop_string_may_be_longer_than_there_may_be_stop_strings():
    assert read_request(CompletionRequest, {"stop": "the end of it"}, LIMITS)[0].stop == "the end of it"
    with pytest.raises(HttpError, match="5 entries, and 4 are allowed"):
        read_request(CompletionRequest, {"stop": ["a"] * 5}, LIMITS)
