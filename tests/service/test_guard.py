"""The guard lets in who may call, and nobody else."""

import asyncio
import json
from dataclasses import replace

import pytest

from heedful.errors import BadInput
from heedful.service.fields import HttpError
from heedful.service.guard import Access, Guard, check_json


async def hello(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


def call(access: Access, headers: list[tuple[str, str]], method: str = "GET", path: str = "/v1/models"):
    """(status, headers, body) of a call."""
    sent = []

    async def main():
        async def send(message):
            sent.append(message)

        raw = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers]
        scope = {"type": "http", "method": method, "path": path, "headers": raw}
        await Guard(hello, access)(scope, None, send)

    asyncio.run(main())
    return sent[0]["status"], dict(sent[0]["headers"]), sent[1]["body"]


RULES = Access.of("127.0.0.1", 8080)
HERE = ("Host", "127.0.0.1:8080")
JSON = ("Content-Type", "application/json; charset=utf-8")


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "localhost:8080", "LOCALHOST:8080", "[::1]:8080"])
def test_its_own_names_are_let_in_with_headers_that_close_the_browser(host):
    status, headers, body = call(RULES, [("Host", host)])
    assert (status, body) == (200, b"hello")
    assert headers[b"x-content-type-options"] == b"nosniff" and headers[b"cache-control"] == b"no-store"
    assert b"access-control-allow-origin" not in headers


@pytest.mark.parametrize(
    "hosts",
    [
        [], ["evil.test"], ["evil.test:8080"], ["127.0.0.1"], ["127.0.0.1:80"], ["127.0.0.1.evil.test:8080"],
        ["localhost.:8080"], ["127.0.0.1:8080", "127.0.0.1:8080"], ["[::1]"], ["127.1:8080"],
        ["2130706433:8080"], ["user@127.0.0.1:8080"], ["127.0.0.1:8080/"], ["0.0.0.0:8080"],
        ["127.0.0.1:8080, evil.test"],
    ],
)  # fmt: skip
def test_other_hosts_are_refused_on_every_path(hosts):
    for path in ("/health", "/v1/models", "/nowhere"):
        assert call(RULES, [("Host", host) for host in hosts], path=path)[0] == 403


@pytest.mark.parametrize(
    "headers",
    [
        [("Origin", "http://evil.test")],
        [("Origin", "null")],
        [("Origin", "http://127.0.0.1:8081")],
        [("Origin", "https://127.0.0.1:8080")],
        [("Origin", "http://127.0.0.1:8080.evil.test")],
        [("Origin", "http://127.0.0.1:8080"), ("Origin", "http://evil.test")],
        [("Sec-Fetch-Site", "cross-site")],
        [("Sec-Fetch-Site", "same-site")],
    ],
)
def test_pages_of_other_origins_are_refused(headers):
    for method in ("GET", "POST"):
        assert call(RULES, [HERE, JSON, *headers], method)[0] == 403


def test_only_json_is_taken():
    def check(*headers):
        check_json({"headers": [(name.lower().encode(), value.encode()) for name, value in headers]})

    check(JSON)
    check(JSON, ("Content-Encoding", "identity"))
    refused = [
        "",
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
        "application/json2",
    ]
    cases = [[], [JSON, ("Content-Type", "a")], [JSON, ("Content-Encoding", "gzip")]]
    for headers in [*cases, *([("Content-Type", kind)] for kind in refused)]:
        with pytest.raises(HttpError) as found:
            check(*headers)
        assert found.value.status == 415


def test_a_key_is_asked_for_everywhere_but_at_the_signs_of_life():
    access = Access.of("0.0.0.0", 8080, ["models.example:443"], key="secret")
    host = ("Host", "models.example:443")
    wrong = [
        "Bearer wrong",
        "Bearer ",
        "secret",
        "Basic secret",
        "Bearer secretly",
        "Bearer s\xe9cret",
        "\xff",
    ]
    for given in ([], ["Bearer secret", "Bearer secret"], *([one] for one in wrong)):
        status, headers, body = call(access, [host, *(("Authorization", one) for one in given)])
        assert status == 401 and headers[b"www-authenticate"] == b"Bearer" and b"secret" not in body
    assert call(access, [host, ("Authorization", "Bearer secret")])[0] == 200
    assert call(access, [host, ("Authorization", "bearer  secret ")])[0] == 200
    assert call(access, [host], path="/health")[0] == 200


def test_on_every_address_each_address_is_a_host_and_no_name_is():
    access = Access.of("0.0.0.0", 8080, key="secret")
    assert call(access, [("Host", "192.168.1.7:8080")], path="/health")[0] == 200
    assert call(access, [("Host", "[fe80::1]:8080")], path="/health")[0] == 200
    for host in (
        "evil.test:8080", "192.168.1.7", "192.168.1.7:80", "192.168.1:8080", "[192.168.1.7]:8080", ":8080",
        "fe80::1:8080", "192.168.1.7.evil.test:8080", "192.168.001.007:8080", "",
    ):  # fmt: skip
        assert call(access, [("Host", host)], path="/health")[0] == 403, host


def test_pages_of_other_sites_need_a_key():
    with pytest.raises(BadInput, match="give it a key as well"):
        Access.of("127.0.0.1", 8080, origins=["https://app.example"])


def test_a_websocket_is_refused():
    sent = []

    async def main():
        async def send(message):
            sent.append(message)

        await Guard(hello, RULES)({"type": "websocket", "path": "/", "headers": []}, None, send)

    asyncio.run(main())
    assert sent == [{"type": "websocket.close", "code": 1008}]


def test_an_allowed_origin_is_named_in_the_answer_and_no_other():
    access = Access.of("127.0.0.1", 8080, origins=["https://app.example"], key="k")
    page = ("Origin", "https://app.example")
    status, headers, _ = call(access, [HERE, page], "OPTIONS")
    assert status == 204 and headers[b"access-control-allow-origin"] == b"https://app.example"
    assert call(access, [HERE, page, ("Authorization", "Bearer k"), JSON], "POST")[0] == 200
    assert call(access, [HERE, ("Origin", "https://app.example.evil.test")], "OPTIONS")[0] == 403


def test_a_refusal_is_json_in_one_sentence_that_cannot_be_injected():
    status, _, body = call(RULES, [("Host", 'evil"\x1b[31m<script>' + "a" * 1000)])
    message = json.loads(body)["error"]["message"]
    assert status == 403 and "--allow-host" in message and "\x1b" not in message and len(message) < 400


STUDIO = Access.of("127.0.0.1", 8080, key="k" * 32)
STUDIO = replace(STUDIO, cookie="heedful_8080", open=("/", "/static/"), entry="/")


@pytest.mark.parametrize(
    "cookie, status",
    [
        ("heedful_8080=" + "k" * 32, 200),
        ("a=b; heedful_8080=" + "k" * 32, 200),
        ("heedful_8080=" + "x" * 32, 401),
        ("heedful_8081=" + "k" * 32, 401),
        ("heedful_8080=" + "k" * 32 + "; heedful_8080=" + "k" * 32, 401),
        ("heedful_8080=", 401),
        ("", 401),
    ],
)
def test_a_key_may_come_as_a_cookie_where_one_is_named(cookie, status):
    assert call(STUDIO, [HERE, ("Cookie", cookie)], path="/api/runs")[0] == status
    assert call(replace(STUDIO, cookie=""), [HERE, ("Cookie", cookie)], path="/api/runs")[0] == 401


def test_open_paths_need_no_key_and_only_a_navigation_may_come_from_elsewhere():
    for path in ("/", "/static/main.js"):
        assert call(STUDIO, [HERE], path=path)[0] == 200
    for path in ("/static", "/api/runs", "//", "/health"):
        assert call(STUDIO, [HERE], path=path)[0] == 401
    person = [
        ("Sec-Fetch-Mode", "navigate"),
        ("Sec-Fetch-Dest", "document"),
        ("Sec-Fetch-Site", "cross-site"),
    ]
    assert call(STUDIO, [HERE, *person], path="/")[0] == 200
    assert call(STUDIO, [HERE, *person], path="/", method="POST")[0] == 403
    assert call(STUDIO, [HERE, *person], path="/static/main.js")[0] == 403
    assert call(STUDIO, [HERE, person[0], ("Sec-Fetch-Dest", "iframe"), person[2]], path="/")[0] == 403
    assert call(STUDIO, [HERE, *person, ("Origin", "http://evil.test")], path="/")[0] == 403


def test_our_own_origin_does_not_excuse_another_site():
    headers = [HERE, ("Origin", "http://127.0.0.1:8080"), ("Sec-Fetch-Site", "cross-site")]
    assert call(RULES, headers)[0] == 403
