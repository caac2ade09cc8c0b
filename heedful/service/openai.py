"""OpenAI's requests: completions, chat completions and embeddings, and what the worker is asked for them.

Every field of theirs is done (a field of a dataclass), neutral (it would change nothing here) or refused.
Fields that OpenAI does not know either are ignored, and named in the header x-heedful-ignored.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from ..models.base.settings import Range
from .fields import HttpError, Most, Pattern, read, shapes_of, shown
from .limits import Limits

Text = Annotated[str, Most("characters")]
TokenIds = Annotated[list[Annotated[int, Range(0, 10**7)]], Most("characters", 1)]
Stop = Annotated[str, Most("stop_characters", 1)]
Penalty = Annotated[float, Range(-2, 2)]
Bias = Annotated[float, Range(-100, 100)]
SEEDS = Range(-(2**63), 2**63 - 1)
COLDEST = 0.001  # the lowest temperature that is not 0


@dataclass(frozen=True)
class StreamOptions:
    """What a stream says beside the text."""

    include_usage: Annotated[bool | None, "a last chunk with the numbers of tokens"] = None


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """What completions of both kinds have in common."""

    model: Annotated[str | None, "one of /v1/models; may be left out where there is one"] = None
    max_tokens: Annotated[int | None, Range(0, 10**9), Most("tokens"), "tokens to write at most"] = None
    temperature: Annotated[
        float | None, Range(0, 2), "0 is greedy; left out: the folder's generation settings, or else 1"
    ] = None
    top_p: Annotated[float | None, Range(0, 1), "share of the most likely tokens to draw from"] = None
    n: Annotated[int | None, Range(1, 10**9), Most("answers"), "answers to each prompt"] = None
    stop: Annotated[
        Stop | Annotated[list[Stop], Most("stops")] | None, "texts before which an answer ends"
    ] = None
    seed: Annotated[int | None, SEEDS, "the same seed gives the same answer"] = None
    presence_penalty: Annotated[Penalty | None, "taken from the score of a token that was written"] = None
    frequency_penalty: Annotated[Penalty | None, "taken for each time that a token was written"] = None
    logit_bias: Annotated[
        dict[str, Bias] | None,
        Most("biased_tokens"),
        Pattern("[0-9]{1,9}", "the number of a token"),
        "added to scores, by the number of a token",
    ] = None
    stream: Annotated[bool | None, "send the answer piece by piece"] = None
    stream_options: Annotated[
        StreamOptions | None, "with `stream`: `include_usage` adds a last chunk with the numbers of tokens"
    ] = None
    # What other servers have beside OpenAI's fields, by the names of vLLM.
    top_k: Annotated[int | None, Range(-1, 10**9), "draw from so many tokens; 0 or -1: from all"] = None
    min_p: Annotated[
        float | None, Range(0, 1), "draw from tokens with this fraction of the highest probability"
    ] = None
    repetition_penalty: Annotated[
        float | None, Range(0.001, 1000), "divides the scores of tokens in the text so far; 1: none"
    ] = None
    min_tokens: Annotated[
        int | None, Range(0, 10**6), Most("tokens"), "tokens to write before the end of an answer"
    ] = None


@dataclass(frozen=True, kw_only=True)
class CompletionRequest(Sampling):
    """A request to continue texts."""

    prompt: Annotated[
        Text
        | Annotated[list[Text], Most("texts", 1)]
        | TokenIds
        | Annotated[list[TokenIds], Most("texts", 1)]
        | None,
        "a text, several, or their tokens; left out: the beginning of a text",
    ] = None
    echo: Annotated[bool | None, "begin the answer with the prompt"] = None
    logprobs: Annotated[int | None, Range(0, 20), "most likely tokens to report with each"] = None
    best_of: Annotated[
        int | None,
        Range(1, 10**9),
        Most("answers"),
        "answers to write, of which the n most likely are returned",
    ] = None


@dataclass(frozen=True)
class ContentPart:
    """A part of a message."""

    type: Literal["text"]
    text: Text


@dataclass(frozen=True)
class ChatMessage:
    """A message of a conversation."""

    role: Annotated[str, Most("stop_characters", 1), "system, developer, user, assistant or tool"]
    content: Annotated[
        Text | Annotated[list[ContentPart], Most("texts")] | None, "a text, or parts that are texts"
    ] = None
    name: Annotated[str | None, Most("stop_characters"), "for templates that show who speaks"] = None
    tool_call_id: Annotated[str | None, Most("stop_characters"), "for templates that show it"] = None

    def plain(self) -> dict[str, str]:
        """The message as a chat template reads it."""
        parts = self.content if isinstance(self.content, list) else []
        text = self.content if isinstance(self.content, str) else "\n".join(part.text for part in parts)
        beside = {"name": self.name, "tool_call_id": self.tool_call_id}
        return {"role": self.role, "content": text} | {key: x for key, x in beside.items() if x is not None}


@dataclass(frozen=True, kw_only=True)
class ChatRequest(Sampling):
    """A request to answer in a conversation."""

    messages: Annotated[
        list[ChatMessage],
        Most("messages", 1),
        "the conversation so far, each message with its `role` and `content`",
    ]
    max_completion_tokens: Annotated[
        int | None, Range(1, 10**9), Most("tokens"), "tokens to write at most"
    ] = None
    logprobs: Annotated[bool | None, "report the log-probability of each token"] = None
    top_logprobs: Annotated[int | None, Range(0, 20), "most likely tokens to report with each"] = None


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
    dimensions: Annotated[
        int | None, Range(1, 10**6), "fewer than the model has, where its vectors are made to be cut"
    ] = None


ANY: tuple[Any, ...] = ()
NEUTRAL: dict[str, tuple[Any, ...]] = {  # {field: the values that change nothing; ANY: each}
    "user": ANY, "metadata": ANY, "store": ANY, "service_tier": ANY, "safety_identifier": ANY,
    "prompt_cache_key": ANY, "prompt_cache_options": ANY, "prompt_cache_retention": ANY,
    "parallel_tool_calls": ANY, "moderation": (None,), "suffix": (None, ""),
    "tools": (None, []), "tool_choice": (None, "none", "auto"),
    "functions": (None, []), "function_call": (None, "none", "auto"),
    "response_format": (None, {"type": "text"}), "modalities": (None, ["text"]), "audio": (None,),
    "prediction": (None,), "reasoning_effort": (None, "none"), "verbosity": (None, "medium"),
    "web_search_options": (None,), "stream_options.include_obfuscation": ANY,
    "messages.tool_calls": (None, []), "messages.function_call": (None,), "messages.audio": (None,),
    "messages.refusal": (None, ""),
}  # fmt: skip


def read_request(kind: type, body: dict[str, Any], limits: Limits) -> tuple[Any, list[str]]:
    """A request of OpenAI's, and the fields that nobody knows."""
    ignored = without_others(kind, body, "")
    if isinstance(options := body.get("stream_options"), dict):
        ignored += without_others(StreamOptions, options, "stream_options.")
    for place, message in enumerate(objects(body.get("messages"))):
        ignored += without_others(ChatMessage, message, "messages.")
        check_message(message, f"messages[{place}].content")
    return read(kind, body, limits), list(dict.fromkeys(ignored))


def without_others(kind: type, body: dict[str, Any], prefix: str) -> list[str]:
    """Take out the fields that a dataclass does not have, and return those that nobody knows."""
    known = shapes_of(kind)
    ignored = []
    for name in [name for name in body if name not in known]:
        value, whole = body.pop(name), prefix + name
        if whole not in NEUTRAL:
            ignored.append(shown(whole))
        elif NEUTRAL[whole] != ANY and value not in NEUTRAL[whole]:
            others = [json.dumps(one) for one in NEUTRAL[whole] if one]
            but = f", other than as {' or '.join(others)}" if others else ""
            raise HttpError(400, f'"{whole}" is not supported here{but}: leave it out', whole)
    return ignored


def objects(given: Any) -> Iterator[dict[str, Any]]:
    """The objects in a list."""
    if isinstance(given, list):
        yield from (one for one in given if isinstance(one, dict))


def check_message(message: dict[str, Any], where: str) -> None:
    """Refuse parts that are no texts, and a message without a text, unless the assistant had none."""
    if message.get("content") is None and message.get("role") != "assistant":
        raise HttpError(400, f'"{where}" is missing', where)
    for place, part in enumerate(objects(message.get("content"))):
        kind, here = part.get("type"), f"{where}[{place}]"
        if kind != "text" and isinstance(kind, str):
            raise HttpError(
                400, f'"{here}" is of type "{shown(kind)}", and only text is read here: leave it out', here
            )
        without_others(ContentPart, part, "")  # prompt_cache_breakpoint


# What the worker is asked.


def writing(asked: CompletionRequest | ChatRequest, limits: Limits, most: int | None) -> dict[str, Any]:
    """How to write, as the worker reads it. most: tokens of an answer, if the request says so."""
    if asked.stream_options is not None and not asked.stream:
        raise HttpError(400, '"stream_options" needs "stream": true', "stream_options")
    options = options_of(asked, most)
    scores = asked.logprobs if isinstance(asked, CompletionRequest) else asked.top_logprobs
    return {
        "ability": "generate",
        "options": options,
        "beam": 1,
        "n": asked.n or 1,
        "seeded": asked.seed is not None,
        "streams": bool(asked.stream),
        "scored": asked.logprobs is not None and asked.logprobs is not False,
        "top": scores or 0,
        "unwritten": most == 0,
        "bare": True,
        "room": limits.tokens,
    }


def options_of(asked: CompletionRequest | ChatRequest, most: int | None) -> dict[str, Any]:
    """The options of decoding, by their names in `DecodingOptions`; what has no effect is left out."""
    options: dict[str, Any] = {"sample": asked.temperature is None or asked.temperature > 0}
    if options["sample"]:
        options["seed"] = secrets.randbits(32) if asked.seed is None else asked.seed
        cold = None if asked.temperature is None else max(asked.temperature, COLDEST)
        top_k = None if asked.top_k is None else max(asked.top_k, 0)
        drawn = {"temperature": cold, "top_p": asked.top_p, "top_k": top_k, "min_p": asked.min_p}
        options |= {name: value for name, value in drawn.items() if value is not None}
    if most:
        options["max_new_tokens"] = most
    if asked.min_tokens is not None:
        if most and asked.min_tokens > most:
            raise HttpError(
                400, f'"min_tokens" is {asked.min_tokens} and "max_tokens" is {most}', "min_tokens"
            )
        options["min_new_tokens"] = asked.min_tokens
    if asked.stop:
        options["stop"] = [asked.stop] if isinstance(asked.stop, str) else asked.stop
    for name in ("presence_penalty", "frequency_penalty", "repetition_penalty"):
        if (value := getattr(asked, name)) is not None:
            options[name] = value
    if asked.logit_bias:
        options["logit_bias"] = asked.logit_bias
    return options


def prompts_of(given: Any) -> tuple[str, list[Any]]:
    """("texts", several texts) or ("tokens", the tokens of several)."""
    if given is None or isinstance(given, str):
        return "texts", [given or ""]
    if isinstance(given[0], int):
        return "tokens", [given]
    return "texts" if isinstance(given[0], str) else "tokens", given
