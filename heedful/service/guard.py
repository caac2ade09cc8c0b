"""The guard before every route: who may call, from where, and with what.

Another page in the same browser must not read or write here (Host, Origin, Sec-Fetch-Site), and other
machines must have the key. Routes that take a body take JSON only (`check_json`).
"""

from __future__ import annotations

import contextlib
import hmac
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..errors import BadInput
from .fields import HttpError, error_body

HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
OPEN = (  # answered without a key: load balancers ask, and LibreTranslate's clients send none here
    "/health", "/ready", "/languages", "/frontend/settings",
)  # fmt: skip
KEY_IN_BODY = ("/translate",)  # LibreTranslate's clients send the key as api_key: the route looks for it
JSON, FORM = "application/json", "application/x-www-form-urlencoded"


@dataclass(frozen=True)
class Access:
    """Who may call. hosts: values of the Host header. origins: pages of other origins, exact.

    port: where it listens on every address, so that each of them is a Host (a name never is: rebinding).
    """

    hosts: frozenset[str]
    origins: frozenset[str] = frozenset()
    key: str = ""
    port: int | None = None
    cookie: str = ""  # the name of a cookie that may hold the key
    open: tuple[str, ...] = OPEN  # paths that need no key; with a slash at its end, everything below it
    entry: str = ""  # a page that links of other sites may open
    lock: str = "give the key of this service: authorization: Bearer KEY"  # said where it is missing

    def __post_init__(self) -> None:
        if self.origins and not self.key:
            raise BadInput(
                "--allow-origin lets pages of other sites call this service: give it a key as well"
            )

    @classmethod
    def of(
        cls, host: str, port: int, more: Iterable[str] = (), origins: Iterable[str] = (), key: str = ""
    ) -> Access:
        """For a service that listens there. more: other names under which it is reached."""
        names = LOOPBACK if host in ("127.0.0.1", "::1", "localhost") else (*LOOPBACK, bracketed(host))
        own = {f"{name}:{port}" for name in names} | ({*names} if port == 80 else set())
        everywhere = port if host in ("0.0.0.0", "::", "") else None
        return cls(frozenset({*own, *(name.lower() for name in more)}), frozenset(origins), key, everywhere)

    def is_host(self, name: str) -> bool:
        """Whether this service goes by that name."""
        return name.lower() in self.hosts or (self.port is not None and is_address(name, self.port))


def is_address(name: str, port: int) -> bool:
    """Whether a Host header is the number of a machine and this port."""
    address, colon, number = name.rpartition(":")
    if not colon and port == 80:
        address, number = name, "80"
    with contextlib.suppress(ValueError):
        bare = address[1:-1] if address.startswith("[") and address.endswith("]") else address
        return number == str(port) and bracketed(str(ipaddress.ip_address(bare))) == address
    return False


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
            await send({"type": "websocket.close", "code": 1008})  # nothing here speaks WebSocket
            return
        origin = self.allowed_origin(scope)

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name.lower() for name, _ in message["headers"]}
                more = [pair for pair in (*HEADERS, *cors(origin)) if pair[0] not in given]
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        if (refused := self.refuse(scope)) is not None:
            await answer(with_headers, refused.status, error_body(refused), refused.headers)
        elif scope["method"] == "OPTIONS" and origin:
            await answer(with_headers, 204, b"", {})
        else:
            scope["heedful.access"] = self.access
            await self.app(scope, receive, with_headers)

    def allowed_origin(self, scope: Scope) -> bytes:
        """The foreign origin that the call comes from, if it is one of those allowed."""
        found = values(scope, b"origin")
        return found[0].encode() if len(found) == 1 and found[0] in self.access.origins else b""

    def refuse(self, scope: Scope) -> HttpError | None:
        """Why a request is not let in."""
        hosts, origins = values(scope, b"host"), values(scope, b"origin")
        if len(hosts) != 1 or not self.access.is_host(hosts[0]):
            why = f"the Host header names {shown(hosts)}, and this service is {min(self.access.hosts)}"
            return HttpError(
                403, f"{why}; for another name or a tunnel, start it with --allow-host NAME:PORT"
            )
        if len(origins) > 1 or not all(self.is_known(origin, hosts[0]) for origin in origins):
            why = f"pages of {shown(origins)} may not call this service"
            return HttpError(403, why if self.access.cookie else f"{why}: see --allow-origin")
        site = values(scope, b"sec-fetch-site")
        if self.is_entry(scope):
            return None
        if site and not self.allowed_origin(scope) and not set(site) <= {"same-origin", "none"}:
            return HttpError(403, "pages of other sites may not call this service")
        if not self.is_open(scope["path"]) and scope["method"] != "OPTIONS" and not self.has_key(scope):
            return HttpError(401, self.access.lock, **{"www-authenticate": "Bearer"})
        return None

    def has_key(self, scope: Scope) -> bool:
        """Whether a call carries the key, if there is one; compared in constant time."""
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        if not given and self.access.cookie:
            given = [b"Bearer " + value for value in cookies(scope, self.access.cookie)]
        if not given and scope["path"] in KEY_IN_BODY:
            return True
        kind, _, sent = given[0].partition(b" ") if len(given) == 1 else (b"", b"", b"")
        same = hmac.compare_digest(sent.strip(), self.access.key.encode())
        return not self.access.key or (same and kind.lower() == b"bearer")

    def is_open(self, path: str) -> bool:
        return any(
            path == one or (one[-1:] == "/" != one and path.startswith(one)) for one in self.access.open
        )

    def is_entry(self, scope: Scope) -> bool:
        """Whether a person follows a link to the page that links may lead to; a frame is no person."""
        return (
            scope["method"] == "GET"
            and scope["path"] == self.access.entry
            and values(scope, b"sec-fetch-mode") == ["navigate"]
            and values(scope, b"sec-fetch-dest") == ["document"]
        )

    def is_known(self, origin: str, host: str) -> bool:
        return origin in self.access.origins or origin.lower() == f"http://{host.lower()}"


def values(scope: Scope, name: bytes) -> list[str]:
    """All values of a header."""
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]


def cookies(scope: Scope, name: str) -> list[bytes]:
    """All values of a cookie."""
    pairs = [pair.strip() for line in values(scope, b"cookie") for pair in line.split(";")]
    found = [pair.partition("=") for pair in pairs]
    return [value.encode("latin-1") for key, _, value in found if key == name]


def check_json(scope: Scope, forms: bool = False) -> None:
    """Refuse a body that is not declared as JSON: pages of other sites may send other kinds.

    forms: take a form as well, from whoever is no page. Every browser says where a page's form comes from.
    """
    if content_type(scope) != JSON and not (forms and is_form(scope)):
        raise HttpError(415, "send JSON, with the header content-type: application/json")
    if values(scope, b"content-encoding") not in ([], ["identity"]):
        raise HttpError(415, "the body may not be compressed")


def content_type(scope: Scope) -> str:
    """What a body is declared as; "" where that is not clear."""
    types = values(scope, b"content-type")
    return types[0].partition(";")[0].strip().lower() if len(types) == 1 else ""


def is_form(scope: Scope) -> bool:
    """Whether a body is a form, and not that of a page in a browser."""
    page = any(name in (b"origin", b"referer") or name.startswith(b"sec-") for name, _ in scope["headers"])
    return content_type(scope) == FORM and not page


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
        (b"access-control-expose-headers", b"retry-after, x-request-id, x-heedful-ignored"),
        (b"vary", b"origin"),
    ]


async def answer(send: Send, status: int, body: bytes, more: dict[str, str]) -> None:
    """Answer at once."""
    headers = [(name.encode(), value.encode()) for name, value in more.items()]
    if body:
        headers += [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
