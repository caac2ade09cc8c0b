"""The guard before every route: who may call, from where, and with what.

Another page in the same browser must not read or write here (Host, Origin, Sec-Fetch-Site, content type), and
other machines must have the key.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Iterable
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
OPEN = ("/health", "/ready")  # answered without a key: load balancers ask


@dataclass(frozen=True)
class Access:
    """Who may call. hosts: values of the Host header. origins: pages of other origins, exact."""

    hosts: frozenset[str]
    origins: frozenset[str] = frozenset()
    key: str = ""

    @classmethod
    def of(
        cls, host: str, port: int, more: Iterable[str] = (), origins: Iterable[str] = (), key: str = ""
    ) -> Access:
        """For a service that listens there. more: other names under which it is reached."""
        names = LOOPBACK if host in ("127.0.0.1", "::1", "localhost") else (*LOOPBACK, bracketed(host))
        own = {f"{name}:{port}" for name in names} | ({*names} if port == 80 else set())
        return cls(frozenset({*own, *(name.lower() for name in more)}), frozenset(origins), key)


def bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host.lower()


class Guard:
    """Refuses what `access` does not allow, before anything is read; adds headers to every answer."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self.app, self.access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # nothing here speaks WebSocket
        origin = self.allowed_origin(scope)

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name.lower() for name, _ in message["headers"]}
                more = [pair for pair in (*HEADERS, *cors(origin)) if pair[0] not in given]
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        if (refusal := self.refuse(scope)) is not None:
            await answer(with_headers, *refusal)
        elif scope["method"] == "OPTIONS" and origin:
            await answer(with_headers, 204, "", b"")
        else:
            await self.app(scope, receive, with_headers)

    def allowed_origin(self, scope: Scope) -> bytes:
        """The foreign origin that the call comes from, if it is one of those allowed."""
        found = values(scope, b"origin")
        return found[0].encode() if len(found) == 1 and found[0] in self.access.origins else b""

    def refuse(self, scope: Scope) -> tuple[int, str, bytes] | None:
        """(status, why, a header) or None."""
        hosts, origins = values(scope, b"host"), values(scope, b"origin")
        if len(hosts) != 1 or hosts[0].lower() not in self.access.hosts:
            why = f"the Host header names {shown(hosts)}, and this service is {min(self.access.hosts)}"
            return 403, f"{why}; for another name or a tunnel, start it with --allow-host NAME:PORT", b""
        if origins and not all(self.is_known(origin, hosts[0]) for origin in origins):
            return 403, f"pages of {shown(origins)} may not call this service: see --allow-origin", b""
        site = values(scope, b"sec-fetch-site")
        if site and not origins and not set(site) <= {"same-origin", "none"}:
            return 403, "pages of other sites may not call this service", b""
        if scope["method"] not in ("GET", "HEAD", "OPTIONS") and not is_json(values(scope, b"content-type")):
            return 415, "send JSON, with the header content-type: application/json", b""
        if values(scope, b"content-encoding") not in ([], ["identity"]):
            return 415, "the body may not be compressed", b""
        if self.access.key and scope["path"] not in OPEN and scope["method"] != "OPTIONS":
            given = values(scope, b"authorization")
            sent = given[0].partition(" ")[2].strip() if len(given) == 1 else ""
            if not hmac.compare_digest(sent.encode(), self.access.key.encode()):
                return 401, "give the key of this service: authorization: Bearer KEY", b"Bearer"
        return None

    def is_known(self, origin: str, host: str) -> bool:
        return origin in self.access.origins or origin.lower() == f"http://{host.lower()}"


def values(scope: Scope, name: bytes) -> list[str]:
    """All values of a header."""
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]


def is_json(types: list[str]) -> bool:
    return len(types) == 1 and types[0].partition(";")[0].strip().lower() == "application/json"


def shown(found: list[str]) -> str:
    """What a stranger sent, fit for a sentence."""
    return ascii(" and ".join(found)[:80]) if found else "nothing"


def cors(origin: bytes) -> list[tuple[bytes, bytes]]:
    if not origin:
        return []
    return [
        (b"access-control-allow-origin", origin),
        (b"access-control-allow-headers", b"authorization, content-type"),
        (b"access-control-allow-methods", b"GET, POST"),
        (b"vary", b"origin"),
    ]


async def answer(send: Send, status: int, why: str, challenge: bytes) -> None:
    """Answer at once."""
    error = {"message": why, "type": "invalid_request_error", "param": None, "code": None}
    body = json.dumps({"error": error}).encode() if why else b""
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    headers += [(b"www-authenticate", challenge)] if challenge else []
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
