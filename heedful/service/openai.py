"""OpenAI's endpoints: /v1/models, completions, chat/completions and embeddings, as its clients speak them.

Every field of theirs is done, neutral or refused. Neutral fields would change nothing here (`user`). Fields
that nobody knows are named in the header x-heedful-ignored.
"""

from __future__ import annotations

import base64
import json
import secrets
import struct
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

from ..models.base.settings import Range
from .fields import HttpError, Most, read, shown
from .limits import Limits

Text = Annotated[str, Most("characters")]
TokenIds = Annotated[list[Annotated[int, Range(0, 10**7)]], Most("characters", 1)]
Stop = Annotated[str, Most("stop_characters", 1)]
Penalty = Annotated[float, Range(-2, 2)]
SEEDS = Range(0, 2**63 - 1)


@dataclass(frozen=True)
class StreamOptions:
    """What a stream says beside the text."""

    include_usage: Annotated[bool, "a last chunk with the numbers of tokens"] = False


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """What completions of both kinds have in common."""

    model: Annotated[str | None, "one of /v1/models; may be left out where there is one"] = None
    max_tokens: Annotated[int | None, Range(0, 10**9), "tokens to write at most"] = None
    temperature: Annotated[float | None, Range(0, 2), "0 is greedy"] = None
    top_p: Annotated[float | None, Range(0, 1, "(]"), "share of the likeliest tokens to draw from"] = None
    n: Annotated[int | None, Range(1, 10**9), "answers to each prompt"] = None
    stop: Annotated[Stop | list[Stop] | None, Most("stops"), "texts before which an answer ends"] = None
    seed: Annotated[int | None, SEEDS, "the same seed gives the same answer"] = None
    presence_penalty: Annotated[Penalty | None, "taken from the score of a token that was written"] = None
    frequency_penalty: Annotated[Penalty | None, "taken for each time that a token was written"] = None
    logit_bias: Annotated[
        dict[str, Annotated[float, Range(-100, 100)]] | None,
        Most("biased_tokens"),
        "added to scores, by token",
    ] = None
    stream: Annotated[bool | None, "send the answer piece by piece"] = None
    stream_options: StreamOptions | None = None


@dataclass(frozen=True, kw_only=True)
class CompletionRequest(Sampling):
    """A request to continue texts."""

    prompt: Annotated[
        Text
        | Annotated[list[Text], Most("texts", 1)]
        | TokenIds
        | Annotated[list[TokenIds], Most("texts", 1)],
        "a text, several, or their tokens",
    ]
    echo: Annotated[bool | None, "begin the answer with the prompt"] = None
    logprobs: Annotated[int | None, Range(0, 20), "likeliest tokens to report with each"] = None


@dataclass(frozen=True)
class ChatMessage:
    """A message of a conversation."""

    role: Annotated[str, "system, user or assistant"]
    content: Text
    name: str | None = None


@dataclass(frozen=True, kw_only=True)
class ChatRequest(Sampling):
    """A request to answer in a conversation."""

    messages: Annotated[list[ChatMessage], Most("texts", 1)]
    max_completion_tokens: Annotated[int | None, Range(1, 10**9), "tokens to write at most"] = None
    logprobs: Annotated[bool | None, "report the log-probability of each token"] = None
    top_logprobs: Annotated[int | None, Range(0, 20), "likeliest tokens to report with each"] = None


@dataclass(frozen=True, kw_only=True)
class EmbeddingRequest:
    """A request for vectors."""

    input: Annotated[
        Text
        | Annotated[list[Text], Most("embedded_texts", 1)]
        | TokenIds
        | Annotated[list[TokenIds], Most("embedded_texts", 1)],
        "a text, several, or their tokens",
    ]
    model: Annotated[str | None, "one of /v1/models"] = None
    encoding_format: Annotated[Literal["float", "base64"] | None, "how the numbers are sent"] = None
    dimensions: Annotated[int | None, Range(1, 10**6), "only the model's own"] = None


NEUTRAL: dict[str, Any] = {  # {field: the values that change nothing; None: any}
    "user": None, "metadata": None, "store": None, "service_tier": None, "safety_identifier": None,
    "prompt_cache_key": None, "best_of": (1, None), "suffix": (None, ""), "tools": (None, []),
    "tool_choice": (None, "none", "auto"), "functions": (None, []), "function_call": (None, "none", "auto"),
    "parallel_tool_calls": None, "response_format": (None, {"type": "text"}), "modalities": (None, ["text"]),
    "audio": (None,), "prediction": (None,), "reasoning_effort": (None, "none"),
    "web_search_options": (None,), "verbosity": (None, "medium"),
}  # fmt: skip


def read_request(kind: type, body: dict[str, Any], limits: Limits) -> tuple[Any, list[str]]:
    """A request of OpenAI's, and the fields that nobody knows."""
    known = {field.name for field in fields(kind)}
    ignored = []
    for name in [name for name in body if name not in known]:
        value = body.pop(name)
        if name not in NEUTRAL:
            ignored.append(shown(name))
        elif NEUTRAL[name] is not None and value not in NEUTRAL[name]:
            raise HttpError(400, f'"{name}" is not supported: leave it out', name)
    return read(kind, body, limits), ignored


# What the worker is asked.


def writing(asked: Sampling, limits: Limits, most: int | None) -> dict[str, Any]:
    """How to write, as the worker reads it. most: tokens of an answer, if the request says so."""
    if most is not None and most > limits.tokens:
        raise HttpError(400, f'"max_tokens" is {most:,}, and {limits.tokens:,} are allowed', "max_tokens")
    if (n := asked.n or 1) > limits.answers:
        raise HttpError(400, f'"n" is {n:,}, and {limits.answers} are allowed', "n")
    sample = asked.temperature is None or asked.temperature > 0
    options: dict[str, Any] = {"sample": sample}
    if sample:
        options["seed"] = secrets.randbits(32) if asked.seed is None else asked.seed
        options |= {} if asked.temperature is None else {"temperature": max(asked.temperature, 0.001)}
        options |= {} if asked.top_p is None else {"top_p": asked.top_p}
    if most:
        options["max_new_tokens"] = most
    if asked.stop:
        options["stop"] = [asked.stop] if isinstance(asked.stop, str) else asked.stop
    if asked.presence_penalty:
        options["presence_penalty"] = asked.presence_penalty
    if asked.frequency_penalty:
        options["frequency_penalty"] = asked.frequency_penalty
    if asked.logit_bias:
        options["logit_bias"] = biases(asked.logit_bias)
    return {
        "ability": "generate",
        "options": options,
        "beam": 1,
        "n": n,
        "streams": bool(asked.stream),
        "unwritten": most == 0,
        "room": limits.tokens,
    }


def biases(given: dict[str, float]) -> dict[str, float]:
    for name in given:
        if not (name.isascii() and name.isdigit() and len(name) < 10):
            raise HttpError(
                400, f'"logit_bias" names the token "{shown(name)}", which is no number', "logit_bias"
            )
    return given


def prompts_of(given: Any) -> tuple[str, list[Any]]:
    """("texts", several texts) or ("tokens", the tokens of several)."""
    if isinstance(given, str):
        return "texts", [given]
    if isinstance(given[0], int):
        return "tokens", [given]
    return "texts" if isinstance(given[0], str) else "tokens", given


# What the client is answered.


@dataclass
class Reply:
    """The shape of an answer: one id and one time for all its chunks."""

    kind: Literal["text_completion", "chat.completion"]
    model: str
    seed: int
    id: str = ""
    created: int = 0

    def __post_init__(self) -> None:
        prefix = "cmpl-" if self.kind == "text_completion" else "chatcmpl-"
        self.id, self.created = prefix + secrets.token_hex(12), int(time.time())

    def whole(self, choices: list[dict[str, Any]], usage: dict[str, int]) -> dict[str, Any]:
        """The answer in one piece."""
        return self.chunk(choices, streamed=False) | {"usage": usage}

    def chunk(self, choices: list[dict[str, Any]], streamed: bool = True) -> dict[str, Any]:
        """A piece of the answer."""
        kind = f"{self.kind}.chunk" if streamed and self.kind == "chat.completion" else self.kind
        fingerprint = f"seed-{self.seed}"
        return {
            "id": self.id, "object": kind, "created": self.created, "model": self.model,
            "system_fingerprint": fingerprint, "choices": choices,
        }  # fmt: skip


def completion_choice(event: dict[str, Any], offset: int, logprobs: bool) -> dict[str, Any]:
    """A choice of /v1/completions, whole or in part. offset: characters of it that came before."""
    found = None
    if logprobs and event.get("tokens"):
        tokens = event["tokens"]
        found = {
            "tokens": [one["text"] for one in tokens],
            "token_logprobs": [one["log_probability"] for one in tokens],
            "top_logprobs": [dict(one["top"]) or None for one in tokens],
            "text_offset": offsets([one["text"] for one in tokens], offset),
        }
    finish = event.get("finish")
    return {
        "index": event["index"],
        "text": event.get("piece", ""),
        "logprobs": found,
        "finish_reason": finish,
    }


def offsets(texts: list[str], start: int) -> list[int]:
    """Where each text begins."""
    found = []
    for text in texts:
        found.append(start)
        start += len(text)
    return found


def chat_choice(event: dict[str, Any], logprobs: bool, part: Literal["message", "delta"]) -> dict[str, Any]:
    """A choice of /v1/chat/completions, whole or in part."""
    found = None
    if logprobs and event.get("tokens"):
        found = {"content": [token_entry(one) for one in event["tokens"]], "refusal": None}
    message: dict[str, Any] = {"content": event.get("piece", "")}
    if part == "message" or event.get("first"):
        message = {"role": "assistant", **message}
    if part == "delta" and event.get("finish") and not event.get("piece"):
        message = {}
    if part == "message":
        message["refusal"] = None
    return {"index": event["index"], part: message, "logprobs": found, "finish_reason": event.get("finish")}


def token_entry(one: dict[str, Any]) -> dict[str, Any]:
    """A token with its log-probability and the likeliest others."""

    def entry(text: str, log_probability: float) -> dict[str, Any]:
        whole = "\ufffd" not in text  # a token may be a part of a character
        encoded = list(text.encode("utf-8", "replace")) if whole else None
        return {"token": text, "logprob": log_probability, "bytes": encoded}

    return entry(one["text"], one["log_probability"]) | {
        "top_logprobs": [entry(*pair) for pair in one["top"]]
    }


def embedding_reply(name: str, vectors: list[list[float]], encoded: bool, tokens: int) -> dict[str, Any]:
    """The answer of /v1/embeddings. encoded: as float32, little-endian, in base64."""

    def numbers(row: list[float]) -> Any:
        return base64.b64encode(struct.pack(f"<{len(row)}f", *row)).decode() if encoded else row

    data = [{"object": "embedding", "index": i, "embedding": numbers(row)} for i, row in enumerate(vectors)]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": name, "usage": usage}


def server_sent(message: dict[str, Any] | str) -> bytes:
    """A message of a stream."""
    text = message if isinstance(message, str) else json.dumps(message, ensure_ascii=False)
    return f"data: {text}\n\n".encode("utf-8", "replace")


async def streamed(
    events: AsyncIterator[dict[str, Any]], reply: Reply, asked: CompletionRequest | ChatRequest
) -> AsyncIterator[bytes]:
    """The answer as a stream of server-sent events, chunk by chunk."""
    usage: dict[str, int] = {}
    written: dict[int, int] = {}
    chat = isinstance(asked, ChatRequest)
    logprobs = asked.logprobs is not None and asked.logprobs is not False
    async for event in events:
        if event.get("over"):
            usage = event["usage"]
            break
        index, offset = event["index"], written.get(event["index"], 0)
        event["first"] = index not in written
        written[index] = offset + len(event.get("piece", ""))
        choice = chat_choice(event, logprobs, "delta") if chat else completion_choice(event, offset, logprobs)
        yield server_sent(reply.chunk([choice]))
    if asked.stream_options is not None and asked.stream_options.include_usage:
        yield server_sent(reply.chunk([]) | {"usage": usage})
    yield server_sent("[DONE]")
