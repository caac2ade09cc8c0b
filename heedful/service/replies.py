"""What OpenAI's clients are answered: completions and chats, whole or in chunks, and embeddings."""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
import struct
import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from .openai import ChatRequest, CompletionRequest


@dataclass
class Reply:
    """The shape of an answer: one id and one time for all its chunks. seed: what it was drawn with."""

    kind: Literal["text_completion", "chat.completion"]
    model: str
    seed: int | None
    counts: bool = False  # a stream ends with the numbers of tokens
    id: str = ""
    created: int = 0

    def __post_init__(self) -> None:
        prefix = "cmpl-" if self.kind == "text_completion" else "chatcmpl-"
        self.id, self.created = prefix + secrets.token_hex(12), int(time.time())

    async def whole(self, choices: Iterable[dict[str, Any]], usage: dict[str, int]) -> bytes:
        """The answer in one piece, as JSON. After each choice, other requests have their turn."""
        texts = []
        for choice in choices:
            texts.append(compact_json(choice))
            await asyncio.sleep(0)
        start = compact_json(self.part(self.kind, [])).removesuffix("]}")
        whole = f'{start}{",".join(texts)}],"usage":{compact_json(usage)}}}'
        return whole.encode("utf-8", "replace")

    def start_of_chunks(self) -> str:
        """What all pieces of the answer begin with, up to their choices."""
        kind = "chat.completion.chunk" if self.kind == "chat.completion" else self.kind
        return to_json(self.part(kind, [])).removesuffix("]}")

    def part(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        fingerprint = None if self.seed is None else f"seed-{self.seed}"
        return {
            "id": self.id, "object": kind, "created": self.created, "model": self.model,
            "system_fingerprint": fingerprint, "choices": choices,
        }  # fmt: skip


def completion_choice(event: dict[str, Any], logprobs: bool) -> dict[str, Any]:
    """A choice of /v1/completions, whole or in part."""
    found = completion_logprobs(event["tokens"]) if logprobs and event.get("tokens") else None
    finish = event.get("finish")
    return {
        "index": event["index"],
        "text": event.get("piece", ""),
        "logprobs": found,
        "finish_reason": finish,
    }


def completion_logprobs(tokens: list[dict[str, Any]]) -> dict[str, Any]:
    """The tokens of a completion with their log-probabilities; the first of a prompt has none."""

    def spelled(text: str, raw: list[int] | None) -> str:
        return text if raw is None else f"bytes:{text}"

    names = [spelled(one["text"], one["bytes"]) for one in tokens]
    tops: list[dict[str, float] | None] = []
    for name, one in zip(names, tokens, strict=True):
        log_p = one["log_probability"]
        top = {spelled(text, raw): value for text, value, raw in reversed(one["top"])}  # the likelier stays
        tops.append(None if log_p is None else dict(reversed(top.items())) | {name: log_p})
    return {
        "tokens": names,
        "token_logprobs": [one["log_probability"] for one in tokens],
        "top_logprobs": tops,
        "text_offset": [one["offset"] for one in tokens],
    }


def chat_choice(event: dict[str, Any], logprobs: bool, part: Literal["message", "delta"]) -> dict[str, Any]:
    """A choice of /v1/chat/completions, whole or in part."""
    found = None
    if logprobs and event.get("tokens"):
        found = {"content": [token_entry(one) for one in event["tokens"]], "refusal": None}
    message: dict[str, Any] = {"content": event.get("piece", "")}
    if part == "message" or event.get("first"):
        message = {"role": "assistant", **message}
    elif event.get("finish") and not event.get("piece"):
        message = {}
    if part == "message":
        message["refusal"] = None
    return {"index": event["index"], part: message, "logprobs": found, "finish_reason": event.get("finish")}


def token_entry(one: dict[str, Any]) -> dict[str, Any]:
    """A token with its log-probability and the most likely others."""

    def entry(text: str, log_probability: float, raw: list[int] | None) -> dict[str, Any]:
        return {"token": text, "logprob": log_probability, "bytes": raw or list(text.encode())}

    return entry(one["text"], one["log_probability"], one["bytes"]) | {
        "top_logprobs": [entry(*other) for other in one["top"]]
    }


def likeliest(events: list[dict[str, Any]], answers: list[dict[str, Any]], n: int) -> list[dict[str, Any]]:
    """Of several answers to one prompt, the n with the highest log-probability per token, best first."""

    def mean(event: dict[str, Any]) -> float:
        found = answers[event["index"]]["log_probabilities"]
        return sum(found) / max(len(found), 1)

    return events if len(events) == n else sorted(events, key=mean, reverse=True)[:n]


def embedding_reply(name: str, vectors: list[str], encoded: bool, tokens: int) -> dict[str, Any]:
    """The answer of /v1/embeddings. vectors: float32, little-endian, in base64; encoded: sent as they are."""

    def numbers(row: str) -> Any:
        return row if encoded else [number for (number,) in struct.iter_unpack("<f", base64.b64decode(row))]

    data = [{"object": "embedding", "index": i, "embedding": numbers(row)} for i, row in enumerate(vectors)]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": name, "usage": usage}


to_json = json.JSONEncoder(ensure_ascii=False).encode
compact_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def server_sent(text: str) -> bytes:
    """A message of a stream."""
    return f"data: {text}\n\n".encode("utf-8", "replace")


async def streamed(
    events: AsyncIterator[dict[str, Any]], reply: Reply, asked: CompletionRequest | ChatRequest
) -> AsyncIterator[bytes]:
    """The answer as a stream of server-sent events, chunk by chunk. What ends it is sent at once."""
    usage: dict[str, int] = {}
    start, end = reply.start_of_chunks(), '], "usage": null}' if reply.counts else "]}"
    begun: set[int] = set()
    held = b""  # the last chunk of an answer, which waits for what follows
    chat = isinstance(asked, ChatRequest)
    logprobs = asked.logprobs is not None and asked.logprobs is not False
    async for event in events:
        if event.get("over"):
            usage = event["usage"]
            break
        event["first"] = event["index"] not in begun
        begun.add(event["index"])
        choice = chat_choice(event, logprobs, "delta") if chat else completion_choice(event, logprobs)
        held += server_sent(f"{start}{to_json(choice)}{end}")
        if not event.get("finish"):
            yield held
            held = b""
    counts = server_sent(f'{start}], "usage": {to_json(usage)}}}') if reply.counts else b""
    yield held + counts + server_sent("[DONE]")
