"""The limits of the service, in one table. Each can be set: `heedful serve --limit queue_seconds=5`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

from ..errors import BadInput
from ..models import nearest
from ..models.base.settings import Range, settings_of

SECONDS = Range(0.1, 86400.0)


@dataclass(frozen=True)
class Limits:
    """What a request may ask for, and how long anything may take."""

    body_bytes: Annotated[int, Range(1024, 1 << 30), "bytes of a request"] = 1 << 20
    image_bytes: Annotated[int, Range(1024, 1 << 30), "bytes of a request that holds pictures"] = 8 << 20
    characters: Annotated[int, Range(1, 10**7), "characters of a text"] = 30_000
    texts: Annotated[int, Range(1, 10**5), "texts of a request"] = 64
    embedded_texts: Annotated[int, Range(1, 10**5), "texts of a request for embeddings"] = 256
    messages: Annotated[int, Range(1, 10**5), "messages of a conversation"] = 1024
    tokens: Annotated[int, Range(1, 10**6), "tokens to write for a text"] = 4096
    beams: Annotated[int, Range(1, 1000), "hypotheses of a search (beam x beam_groups)"] = 16
    answers: Annotated[int, Range(1, 1000), "answers to a prompt (n)"] = 8
    stops: Annotated[int, Range(0, 1000), "stop strings of a request"] = 4
    stop_characters: Annotated[int, Range(1, 10**4), "characters of a stop string"] = 100
    biased_tokens: Annotated[int, Range(0, 10**5), "tokens in logit_bias"] = 300
    header_seconds: Annotated[float, SECONDS, "time to send the headers of a request"] = 10.0
    body_seconds: Annotated[float, SECONDS, "time to send the body of a request"] = 10.0
    stall_seconds: Annotated[float, SECONDS, "time that a reader may take nothing"] = 30.0
    idle_seconds: Annotated[float, SECONDS, "time that an idle connection stays open"] = 5.0
    connections: Annotated[int, Range(1, 10**5), "open connections"] = 512
    queue_seconds: Annotated[float, SECONDS, "time that a request may wait for its turn"] = 30.0
    request_seconds: Annotated[float, SECONDS, "time that a request may take in all"] = 300.0
    drain_seconds: Annotated[float, SECONDS, "time that running requests have left at shutdown"] = 10.0
    ping_seconds: Annotated[float, SECONDS, "time between two signs of life in a stream"] = 10.0


def with_limits(pairs: Iterable[str]) -> Limits:
    """The limits with some of them set, each as "NAME=VALUE"."""
    known, found = settings_of(Limits), {}
    for pair in pairs:
        name, given, value = pair.partition("=")
        if not given:
            raise BadInput(f'--limit takes NAME=VALUE, such as queue_seconds=5, and not "{pair[:80]}"')
        if name not in known:
            raise BadInput(f'there is no limit "{name[:80]}"{nearest(name[:80], known)}')
        found[name] = known[name].convert(f"the limit {name}", value)
    return Limits(**found)
