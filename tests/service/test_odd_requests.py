"""Requests that no client of ours would send: each is refused in one sentence, and leaves no trace."""

import json
import random

import pytest
from helpers.service_cases import everything, parsed, running

from heedful.service.guard import OPEN
from heedful.service.limits import with_limits
from heedful.service.server import routes_of as every_route

LIMITS = with_limits(["header_seconds=0.3", "body_seconds=0.3", "idle_seconds=0.2", "stall_seconds=1"])
KEY = "canary-key-0123456789"
PATHS = ("/health", "/ready", "/metrics", "/openapi.json", "/write", "/seen", "/nowhere")


@pytest.fixture(scope="module")
def server():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEEDFUL_API_KEY", "canary-environment")
        patch.setenv("SOME_SECRET", "canary-environment")
        with running(LIMITS, key=KEY) as found:
            yield found


@pytest.fixture(autouse=True)
def log(server, capfd):
    """The lines of the log of one test, each of which is a record of its own without anything secret."""
    capfd.readouterr()

    def lines():
        server.until(lambda: server.service.running == 0)
        found.extend(capfd.readouterr().err.splitlines())
        return [json.loads(line) for line in found]

    found: list[str] = []
    yield lines
    for record, line in zip(lines(), found, strict=True):
        assert len(line) <= 4096 and line.isprintable() and "canary" not in line, line
        assert "fault" not in record


def message_of(body: bytes) -> str:
    """The sentence of an error in OpenAI's form."""
    error = json.loads(body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert "\n" not in error["message"] and len(error["message"]) < 500 and "canary" not in error["message"]
    return error["message"]


DEEP = b'{"text": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
BODIES = {
    "not a number": (b'{"text": "a", "delay": NaN}', "NaN is no number of JSON"),
    "infinity": (b'{"text": "a", "delay": -Infinity}', "-Infinity is no number"),
    "too large": (b'{"text": "a", "delay": 1e999}', "the number 1e999 is too large"),
    "too large where nobody looks": (b'{"text": "a", "other": [1e999]}', "the number 1e999 is too large"),
    "nested": (DEEP, "nested too deeply"),
    "nested a little less": (b'{"a":' * 70 + b"1" + b"}" * 70, "nested too deeply"),
    "many digits": (b'{"text": "a", "words": %s}' % (b"9" * 5000), "not valid JSON"),
    "a key twice": (b'{"text": "a", "text": "b"}', "a key twice"),
    "half a character": (b'{"text": "a\\ud800"}', "half a character"),
    "a zero byte": (b'{"text": "a\x00"}', "not valid JSON"),
    "byte order mark": (b'\xef\xbb\xbf{"text": "a"}', "BOM"),
    "UTF-16": ('{"text": "a"}'.encode("utf-16"), "not UTF-8"),
    "UTF-16 without a mark": ('{"text": "a"}'.encode("utf-16-le"), "not valid JSON"),
    "invalid UTF-8": (b'{"text": "a\xff"}', "not UTF-8"),
    "overlong UTF-8": (b'{"text": "\xc0\xaf"}', "not UTF-8"),
    "nothing": (b"", "not valid JSON"),
    "a list": (b'[{"text": "a"}]', "the body is a list"),
    "two": (b'{"text": "a"}{"text": "a"}', "not valid JSON"),
    "a comment": (b'{"text": "a"} // b', "not valid JSON"),
    "a long name": (b'{"%s": 1}' % (b"words" * 100_000), "there is no field"),
    "a strange name": (b'{"\\u001b[31m\\n\\u2028": 1}', "there is no field"),
    "a long value": (b'{"text": "a", "words": "%s"}' % (b"9" * 500_000), "must be a whole number"),
}


@pytest.mark.parametrize("kind", BODIES)
def test_a_body_that_is_not_plain_json_is_refused_before_the_worker_sees_it(server, kind):
    sent, reason = BODIES[kind]
    asked = server.seen()["asked"]
    answers = {server.call("POST /write", sent)[::2] for _ in range(2)}
    ((status, body),) = answers  # the same answer each time
    assert status == 400 and reason in message_of(body)
    assert server.seen()["asked"] == asked


@pytest.mark.parametrize(
    "headers",
    [
        {"content_type": ""}, {"content_type": "text/plain"},
        {"content_type": "application/x-www-form-urlencoded"},
        {"content_type": "multipart/form-data; boundary=a"}, {"content_type": "application/jsonp"},
        {"content_encoding": "gzip"}, {"content_encoding": "br"},
    ],
)  # fmt: skip
def test_only_json_is_read(server, headers):
    status, _, body = server.call("POST /write", b'{"text": "a"}', **headers)
    assert status == 415 and message_of(body)


HOSTS = [
    "", "evil.test", "evil.test:{port}", "127.0.0.1", "127.0.0.1:80", "127.0.0.1.evil.test:{port}",
    "localhost.:{port}", "[::1]", "127.1:{port}", "2130706433:{port}", "user@127.0.0.1:{port}",
    "127.0.0.1:{port}/", "0.0.0.0:{port}", "127.0.0.1:{port}, evil.test", "[::ffff:127.0.0.1]:{port}",
]  # fmt: skip


def test_other_hosts_are_refused_at_every_path(server):
    for path in PATHS:
        for host in HOSTS:
            given = host.format(port=server.port)
            status, _, body = server.call(f"GET {path}", host=given or "\t")
            assert status in (400, 403) and message_of(body), (path, host)
    assert server.call("GET /health", host=f"LOCALHOST:{server.port}")[0] == 200


FOREIGN = [
    {"origin": "http://evil.test"}, {"origin": "null"}, {"origin": "http://127.0.0.1:1"},
    {"sec_fetch_site": "cross-site"}, {"sec_fetch_site": "same-site"},
]  # fmt: skip


def test_pages_of_other_sites_are_refused_at_every_path_and_change_nothing(server):
    asked = server.seen()["asked"]
    for path in PATHS:
        for headers in FOREIGN:
            for method in ("GET", "POST", "OPTIONS"):
                status, found, _ = server.call(f"{method} {path}", b'{"text": "a"}', **headers)
                assert status == 403 and "access-control-allow-origin" not in found
    preflight = {"origin": f"http://127.0.0.1:{server.port}", "access_control_request_method": "POST"}
    assert "access-control-allow-origin" not in server.call("OPTIONS /write", **preflight)[1]
    assert server.seen()["asked"] == asked


def test_without_the_key_only_signs_of_life_are_answered(server):
    for path in PATHS:
        for key in ("", "Bearer wrong", f"Basic {KEY}", KEY, "Bearer \xff\xfe", f"Bearer {KEY}x"):
            status, _, body = server.call(f"GET {path}?key={KEY}", authorization=key or "\t")
            assert status == (200 if path in ("/health", "/ready") else 401)
            assert b"canary" not in body
    environment = server.seen()["environment"]
    assert "canary" not in json.dumps(environment) and "PATH" in environment


def test_no_route_of_the_service_is_open_to_strangers():
    with running(LIMITS, key=KEY, routes=every_route) as server:
        described = json.loads(server.call("GET /openapi.json")[2])["paths"]
        assert len(described) > 15
        for path, methods in described.items():
            line = f"{next(iter(methods)).upper()} {path.replace('{name}', 'a')}"
            assert server.call(line, b"{}", host="evil.test")[0] == 403
            assert server.call(line, b"{}", origin="http://evil.test")[0] == 403
            assert server.call(line, b"{}", sec_fetch_site="cross-site")[0] == 403
            unlocked = server.call(line, b"{}", authorization="Bearer wrong")[0]
            assert unlocked == 401 or path in OPEN, path
            if line.startswith("POST"):
                assert server.call(line, b"{}", content_type="text/plain")[0] == 415
        server.until(lambda: server.service.running == 0)


TARGETS = [
    "/../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/..%2f..%2fetc/passwd", "/health/..", "//health",
    "/health/", "/health%00", "/%00", "/%ff%fe", "/health;a=b", "/Health", "/health%2f", "/\\..\\windows",
    "/.git/config", "http://127.0.0.1/health", "http://evil.test/health", "*", "/" + "a" * 8000,
    "/" + "%41" * 2000, "/v1//models", "/static/../../key.txt", "file:///etc/passwd", "/~root",
    "/metrics.json", "/?/write",
]  # fmt: skip


@pytest.mark.parametrize("method", ["GET", "POST", "HEAD", "PUT", "TRACE", "BREW"])
def test_odd_paths_are_not_found(server, method):
    for target in TARGETS:
        status, _, body = server.call(f"{method} {target}", b"{}" if method == "POST" else b"")
        assert status in (400, 404, 405), (target, status)
        assert method == "HEAD" or message_of(body)


def test_other_methods_are_refused_with_those_that_are_allowed(server):
    for path in PATHS[:-1]:
        for method in ("PUT", "PATCH", "DELETE", "TRACE", "BREW", "CONNECT", "OPTIONS", "get"):
            status, headers, body = server.call(f"{method} {path}")
            assert status == 405 and message_of(body)
            assert set(headers["allow"].split(", ")) == ({"POST"} if path == "/write" else {"GET", "HEAD"})


def test_a_log_line_has_the_facts_and_no_words_of_strangers(server, log):
    text = "canary\r\n\x1b[31m" + "z" * 2000
    status, headers, _ = server.call("POST /write", {"text": text, "words": 7})
    assert status == 200
    server.call("GET /canary%0d%0a%1b[31m?canary=1", user_agent="canary", referer="canary")
    server.call("CANARY /health")
    server.call("POST /write", {"canary": "canary"})
    first, *others = log()
    assert set(first) == {
        "time", "id", "route", "method", "status", "model", "prompt_tokens", "completion_tokens", "seconds"
    }  # fmt: skip
    assert first["id"] == headers["x-request-id"] and first["route"] == "/write"
    assert (first["prompt_tokens"], first["completion_tokens"]) == (len(text), 7)
    assert [(one["route"], one["method"], one["status"]) for one in others] == [
        ("other", "GET", 404), ("/health", "other", 405), ("/write", "POST", 400)
    ]  # fmt: skip


def test_secrets_are_nowhere(server):
    for line in ("GET /metrics", "GET /openapi.json", "GET /health", "GET /nowhere"):
        assert b"canary" not in server.call(line)[2]


# What HTTP itself allows.


def test_requests_in_one_packet_are_answered_in_order(server):
    many = server.head("GET /health", b"", connection="") * 5 + server.head("GET /nowhere", b"")
    with server.connect() as client:
        client.sendall(many)
        answer = everything(client)
    assert answer.count(b"HTTP/1.1 200 OK") == 5 and answer.count(b"HTTP/1.1 404 ") == 1


def test_a_client_that_waits_for_leave_gets_it_or_the_refusal(server):
    with server.connect() as client:
        client.sendall(server.head("POST /write", b"", expect="100-continue", content_length="13"))
        assert client.recv(4096).startswith(b"HTTP/1.1 100 ")
        client.sendall(b'{"text": "a"}')
        assert everything(client).startswith(b"HTTP/1.1 200 OK")
    with server.connect() as client:
        client.sendall(server.head("POST /write", b"", expect="100-continue", content_length="99999999"))
        assert everything(client).startswith(b"HTTP/1.1 413 ")


def test_chunks_and_trailers_are_read(server):
    head = server.head("POST /write", b"", content_length="", transfer_encoding="chunked")
    with server.connect() as client:
        client.sendall(head + b'4;a=b\r\n{"te\r\n9\r\nxt": "a"}\r\n0\r\nX-Trailer: 1\r\n\r\n')
        assert parsed(everything(client))[0] == 200


def test_a_body_in_very_many_pieces_is_refused(server):
    head = server.head("POST /write", b"", content_length="", transfer_encoding="chunked")
    with server.connect() as client:
        client.sendall(head + b"1\r\n \r\n" * 20_001 + b'd\r\n{"text": "a"}\r\n0\r\n\r\n')
        assert parsed(everything(client))[0] == 400


def test_headers_that_are_too_long_or_too_many_are_refused(server):
    for headers in (b"x: " + b"y" * 20_000 + b"\r\n", b"x: y\r\n" * 5000, b"x" * 300_000):
        with server.connect() as client:
            head = server.head("GET /health", b"")[:-2]
            client.sendall(head + headers + b"\r\n")
            status, _, body = parsed(everything(client))
            assert status == 431 and message_of(body)


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"\x00" * 100 + b"\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\r\n\r\n", b"GET  / HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", b"GET / HTTP/1.1\r\nHost : a\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n folded\r\nx\x00: y\r\n\r\n",
    ],
)  # fmt: skip
def test_what_is_no_http_is_refused_and_closed(server, sent):
    with server.connect() as client:
        client.sendall(sent)
        status, _, body = parsed(everything(client))
    assert status in (400, 403, 413) and message_of(body)


def test_smuggled_requests_are_not_taken_for_requests(server, log):
    inner = b"GET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n"
    both = server.head("POST /write", b"", transfer_encoding="chunked", content_length=str(len(inner) + 5))
    with server.connect() as client:
        client.sendall(both + b"0\r\n\r\n" + inner)
        answer = everything(client)
    assert answer.count(b"HTTP/1.1") == 1 and len(log()) <= 2


# Mutations.

PIECES = [
    b"\r\n",
    b"\n",
    b"\x00",
    b"\xff",
    b" ",
    b":",
    b"%",
    b"HTTP/1.1",
    b"chunked",
    b"0\r\n\r\n",
    b"-1",
    b"{",
    b'"',
    b"9" * 30,
]


def mutated(whole: bytes, dice: random.Random) -> bytes:
    """A request with a few bytes changed, cut, doubled or put elsewhere."""
    found = bytearray(whole)
    for _ in range(dice.choice([1, 1, 2, 5])):
        start = dice.randrange(len(found) + 1)
        end = min(len(found), start + dice.choice([0, 1, 1, 2, 8, 60]))
        change = dice.randrange(5)
        if change == 0:
            del found[start:end]
        elif change == 1:
            found[start:start] = dice.choice(PIECES)
        elif change == 2:
            found[start:end] = bytes(dice.randrange(256) for _ in range(end - start))
        elif change == 3:
            found[start:start] = found[start:end] * dice.choice([1, 2, 50])
        else:
            lines = bytes(found).split(b"\r\n")
            dice.shuffle(lines)
            found = bytearray(b"\r\n".join(lines))
    return bytes(found)


def try_mutations(server, log, count: int) -> None:
    dice, sent, answers = random.Random(11), b'{"text": "a", "words": 2, "stream": true}', []
    chunked = server.head("POST /write", b"", content_length="", transfer_encoding="chunked")
    wholes = [
        server.head("GET /health", b""), server.head("POST /write", sent),
        server.head("GET /metrics", b"", connection="") * 2,
        chunked + b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (sent[:9], sent[9:], b"")),
    ]  # fmt: skip
    for _ in range(0, count, 50):
        batch = [mutated(dice.choice(wholes), dice) for _ in range(50)]
        clients = [server.connect() for _ in batch]
        for client, data in zip(clients, batch, strict=True):
            client.thing.sendall(data)
        for client, data in zip(clients, batch, strict=True):
            with client as one:
                answers.append(everything(one))
                assert answers[-1].startswith(b"HTTP/1.1 ") and b"HTTP/1.1 500" not in answers[-1], data
    assert {b"200", b"400", b"404", b"408"} <= {answer[9:12] for answer in answers}
    assert server.call("GET /health")[0] == 200 and server.service.workers["stub"].restarts == 0
    assert server.seen()["running"] == 0 and all("fault" not in record for record in log())


def test_mutated_requests_are_answered_and_break_nothing(server, log):
    try_mutations(server, log, 200)


@pytest.mark.slow
def test_ten_thousand_mutated_requests_are_answered_and_break_nothing(server, log):
    try_mutations(server, log, 10_000)
