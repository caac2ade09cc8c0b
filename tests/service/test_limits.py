"""Every limit can be set, and each of them holds."""

import json
from dataclasses import fields
from pathlib import Path

import pytest
from helpers.service_cases import events, everything, parsed, running

from heedful.errors import BadInput
from heedful.service.limits import Limits, with_limits

SMALL = with_limits(
    [
        "header_seconds=0.2", "body_seconds=0.3", "stall_seconds=0.4", "idle_seconds=0.2", "connections=12",
        "queue_seconds=0.2", "request_seconds=0.8", "ping_seconds=0.1", "body_bytes=3000", "characters=20",
        "tokens=4000", "stop_characters=5",
    ]
)  # fmt: skip


@pytest.fixture(scope="module")
def server():
    with running(SMALL, places=1, waiting=1) as found:
        yield found


def test_a_limit_is_set_by_name():
    assert with_limits([]) == Limits()
    assert with_limits(["queue_seconds=5", "texts=3"]) == Limits(queue_seconds=5.0, texts=3)


@pytest.mark.parametrize(
    "pair, message",
    [
        ("queue_second=5", 'no limit "queue_second"; did you mean "queue_seconds"?'),
        ("queue_seconds", "takes NAME=VALUE"),
        ("texts=2.5", "the limit texts must be a whole number from 1 to 100,000, not '2.5'"),
        ("texts=0", "from 1 to 100,000"),
        ("queue_seconds=nan", "from 0.1 to 86,400.0"),
        ("body_bytes=" + "9" * 5000, "the limit body_bytes must be"),
    ],
)
def test_a_limit_that_is_none_is_refused(pair, message):
    with pytest.raises(BadInput) as refused:
        with_limits([pair])
    assert message in str(refused.value) and len(str(refused.value)) < 300


def test_every_limit_is_described_and_within_its_own_range():
    assert with_limits([f"{one.name}={one.default}" for one in fields(Limits)]) == Limits()


def test_the_page_lists_every_limit_with_its_default():
    page = (Path(__file__).parents[2] / "docs" / "howto" / "serve.md").read_text(encoding="utf-8")
    for one in fields(Limits):
        (row,) = [line for line in page.splitlines() if line.startswith(f"| `{one.name}` |")]
        assert f"| {one.default:,} |" in row


def test_a_body_that_is_too_long_is_413_declared_or_not(server):
    status, _, body = server.write(text="a" * 4000)
    assert status == 413 and json.loads(body)["error"]["message"] == "the body is longer than 3,000 bytes"
    with server.connect() as client:
        head = server.head("POST /write", b"", content_length="", transfer_encoding="chunked")
        client.sendall(head + (b"200\r\n" + b" " * 512 + b"\r\n") * 8)
        assert parsed(everything(client))[0] == 413


@pytest.mark.parametrize("fields", [{"text": "a" * 21}, {"text": "a", "mode": "a" * 6}])
def test_a_text_that_is_too_long_is_413(server, fields):
    assert server.write(**fields)[0] == 413


def test_a_number_that_is_too_large_is_400(server):
    status, _, body = server.write(text="a", words=4001)
    assert (status, json.loads(body)["error"]["message"]) == (400, '"words" is 4001, and 4,000 are allowed')


@pytest.mark.parametrize("part", ["nothing", "headers", "body", "chunks"])
def test_a_slow_sender_gets_408_and_is_counted_as_such(server, part):
    slow = (("code", "408"), ("route", "/write" if part in ("body", "chunks") else "other"))
    figures = server.service.metrics.counters
    before = dict(figures["requests_total"]), figures["cancelled_total"][()]
    whole = server.head("POST /write", b'{"text": "a"}')
    chunks = server.head("POST /write", b"", content_length="", transfer_encoding="chunked") + b"3\r\n{"
    sent = {"nothing": b"", "headers": whole[:30], "body": whole[:-3], "chunks": chunks}[part]
    with server.connect() as client:
        client.sendall(sent)
        status, _, body = parsed(everything(client))
    assert (status, json.loads(body)["error"]["type"]) == (408, "timeout_error")
    server.until(lambda: figures["requests_total"][slow] == before[0].get(slow, 0) + 1)
    assert figures["cancelled_total"][()] == before[1]


def test_an_idle_connection_is_closed(server):
    with server.connect() as client:
        client.sendall(server.head("GET /health", b"", connection=""))
        answer = everything(client)
    assert parsed(answer)[0] == 200 and answer.count(b"HTTP/1.1") == 1


def test_a_reader_that_takes_nothing_is_cut_off_and_its_row_is_free(server):
    with server.connect() as client:
        sent = {"text": "a", "mode": "flood", "stream": True}
        client.sendall(server.head("POST /write", json.dumps(sent).encode()))
        server.until(lambda: server.service.running == 1)
        server.until(lambda: server.service.running == 0)
        assert b"[DONE]" not in everything(client)
    assert server.service.gates["stub"].used == 0


def test_connections_beyond_the_limit_get_503_at_once_and_later_ones_are_answered(server):
    server.until(lambda: server.call("GET /health")[0] == 200)
    clients = [server.connect() for _ in range(20)]
    server.until(lambda: len(server.server.server_state.connections) >= 20)
    with server.connect() as client:
        client.sendall(server.head("GET /health", b""))
        status, headers, body = parsed(everything(client))
        assert (status, headers["connection"]) == (503, "close") and b"too many connections" in body
    answers = []
    for client in clients:
        with client as one:
            answers.append(everything(one))
    assert {parsed(one)[0] for one in answers} == {408, 503}
    assert sum(one.startswith(b"HTTP/1.1 408") for one in answers) >= 12
    server.until(lambda: server.call("GET /health")[0] == 200)


def test_waiting_in_the_queue_ends_with_503_and_a_full_queue_with_429(server):
    with server.connect() as first, server.connect() as second:
        first.sendall(server.head("POST /write", b'{"text": "a", "mode": "quiet"}'))
        server.until(lambda: server.service.gates["stub"].used == 1)
        second.sendall(server.head("POST /write", b'{"text": "a"}'))
        server.until(lambda: server.service.gates["stub"].waiting == 1)
        status, headers, _ = server.write(text="a")
        assert status == 429 and headers["retry-after"].isdigit()
        status, headers, _ = parsed(everything(second))
        assert status == 503 and headers["retry-after"].isdigit()
        assert parsed(everything(first))[0] == 504


def test_a_stream_pings_and_ends_in_time(server):
    status, _, body = server.write(text="a", words=2, delay=5.0, stream=True)
    assert status == 200 and ": ping" in events(body) and "0.8 seconds" in events(body)[-1]
