"""Requests through the whole HTTP process: answers, streams, errors, clients that go away."""

import json
import random
import threading
import time
from dataclasses import replace

import pytest
from helpers.service_cases import events, everything, parsed, running
from helpers.stub_worker import answer

from heedful.service.limits import Limits

LIMITS = Limits(ping_seconds=0.1, queue_seconds=0.4, request_seconds=1.0, drain_seconds=1.0, body_bytes=2048)


@pytest.fixture(scope="module")
def server():
    with running(LIMITS, places=2, waiting=3) as found:
        yield found


def calm(server):
    """Whether nothing is left of what went on before."""
    gate = server.service.gates["stub"]
    return (gate.used, len(gate.queue), server.service.workers["stub"].asked) == (0, 0, {})


def test_an_answer_comes_whole_or_in_pieces_and_is_the_same(server):
    status, headers, body = server.write(text="a", words=5)
    assert (status, json.loads(body)) == (200, {"text": answer("a", 5)})
    assert headers["x-request-id"].startswith("req-") and headers["cache-control"] == "no-store"
    status, headers, body = server.write(text="a", words=5, stream=True)
    *pieces, done = events(body)
    assert (status, headers["content-type"], done) == (200, "text/event-stream; charset=utf-8", "[DONE]")
    assert "".join(json.loads(one)["piece"] for one in pieces) == answer("a", 5)
    assert calm(server)


def test_a_request_that_dies_in_the_queue_is_refused_by_its_status_and_not_by_an_empty_stream(server):
    with server.connect() as first:
        first.sendall(server.head("POST /write", body(text="a", words=2, delay=0.7, places=2, stream=True)))
        server.until(lambda: server.service.gates["stub"].used == 2)
        status, headers, answer = server.write(text="b", stream=True)
        assert status == 503 and int(headers["retry-after"]) >= 1
        assert json.loads(answer)["error"]["message"] == "the request waited too long for its turn"
        waiting = [server.connect() for _ in range(3)]
        for client in waiting:
            client.thing.sendall(server.head("POST /write", body(text="b", stream=True)))
        server.until(lambda: server.service.gates["stub"].waiting == 3)
        status, headers, answer = server.write(text="b", stream=True)
        assert status == 429 and int(headers["retry-after"]) >= 1
        assert json.loads(answer)["error"]["type"] == "rate_limit_error"
        for client in waiting:
            with client as one:
                assert parsed(everything(one))[0] in (200, 503)
    server.until(lambda: calm(server))


def test_a_stream_says_that_it_lives_and_its_error_is_its_last_event(server):
    status, _, answer = server.write(text="a", words=3, delay=0.6, stream=True)
    said = events(answer)
    assert status == 200 and said.count(": ping") >= 3 and "[DONE]" not in said
    assert json.loads(said[-1])["error"]["message"] == "the answer took longer than 1 seconds"
    assert calm(server)


def test_a_plain_answer_that_takes_too_long_is_504(server):
    status, _, answer = server.write(text="a", mode="quiet")
    assert status == 504 and "longer than 1 seconds" in json.loads(answer)["error"]["message"]
    server.until(lambda: calm(server))


def test_a_refusal_of_the_worker_reaches_the_client(server):
    for stream in (False, True):
        status, headers, answer = server.write(text="a", mode="fault", stream=stream)
        assert (status, headers["content-type"]) == (400, "application/json")
        error = {"message": "too long", "type": "invalid_request_error", "param": "text", "code": None}
        assert json.loads(answer) == {"error": error}


def body(**fields):
    return json.dumps(fields).encode()


@pytest.mark.parametrize("moment", ["in the queue", "before a token", "at a token", "half-sent"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_away_is_cancelled_counted_and_forgotten(server, moment, stream):
    figures, gate = server.service.metrics.counters["cancelled_total"], server.service.gates["stub"]
    before, asked = figures[()], server.seen()["asked"]
    sent = server.head("POST /write", body(text="a", words=40, delay=0.03, stream=stream, places=2))
    if moment == "before a token":
        sent = server.head("POST /write", body(text="a", mode="quiet", stream=stream, places=2))
    with server.connect() as other, server.connect() as client:
        if moment == "in the queue":
            other.sendall(server.head("POST /write", body(text="b", mode="quiet", places=2)))
            server.until(lambda: gate.used == 2)
        client.sendall(sent[:-7] if moment == "half-sent" else sent)
        if moment == "in the queue":
            server.until(lambda: gate.waiting == 2)
        elif moment == "at a token" and stream:
            assert client.recv(4096).startswith(b"HTTP/1.1 200 OK")
        elif moment != "half-sent":
            server.until(lambda: gate.used == 2)
        else:
            server.until(lambda: server.service.running == 1)
        client.close()
        server.until(lambda: figures[()] == before + 1)
    server.until(lambda: calm(server) and server.service.running == 0)
    assert server.seen()["running"] == 0 and server.seen()["asked"] <= asked + 1


def test_one_client_that_goes_away_leaves_the_others_as_they_were(server):
    found = {}

    def other():
        found["answer"] = server.write(text="other", words=12, delay=0.02)

    thread = threading.Thread(target=other)
    thread.start()
    with server.connect() as client:
        client.sendall(server.head("POST /write", body(text="a", words=500, delay=0.01, stream=True)))
        assert client.recv(4096)
    thread.join()
    assert json.loads(found["answer"][2]) == {"text": answer("other", 12)}
    server.until(lambda: calm(server))


def cut_clients(server, count):
    """Clients that hang up at random moments, beside one that stays: (its answers, requests by status)."""
    dice, found = random.Random(7), {}

    def stay():
        found["answers"] = [server.write(text="other", words=9, delay=0.004) for _ in range(count // 20)]

    thread = threading.Thread(target=stay)
    thread.start()
    for _ in range(count // 8):
        clients = [server.connect() for _ in range(8)]
        for client in clients:
            stream = dice.random() < 0.7
            sent = server.head("POST /write", body(text="a", words=300, delay=0.002, stream=stream))
            client.thing.sendall(sent[: dice.choice([None, None, None, -5, 60])])
        for client in clients:
            time.sleep(dice.random() / 100)
            client.thing.close()
    thread.join()
    server.until(lambda: calm(server) and server.service.running == 0)
    after = server.service.metrics.counters["requests_total"]
    return found["answers"], {dict(labels)["code"]: count for labels, count in after.items()}


def test_clients_that_hang_up_at_random_moments_free_their_rows_and_change_nobodys_answer(server):
    limits = server.service.limits
    with running(replace(limits, request_seconds=20.0, queue_seconds=9.0), places=4, waiting=99) as other:
        answers, counted = cut_clients(other, 96)
        assert {json.loads(one[2])["text"] for one in answers} == {answer("other", 9)}
        assert counted.get("200", 0) == len(answers) and set(counted) <= {"200", "499"}
        assert other.seen()["running"] == 0 and other.service.workers["stub"].restarts == 0


@pytest.mark.slow
def test_a_thousand_clients_that_hang_up_free_their_rows(server):
    limits = server.service.limits
    with running(replace(limits, request_seconds=60.0, queue_seconds=60.0), places=8, waiting=99) as other:
        answers, counted = cut_clients(other, 1000)
        assert {json.loads(one[2])["text"] for one in answers} == {answer("other", 9)}
        assert counted["200"] == len(answers) and counted["499"] > 500
        assert other.seen()["running"] == 0


def test_a_worker_that_dies_ends_its_streams_with_an_error_and_is_started_again(server):
    for mode in ("die", "nonsense"):
        with server.connect() as client:
            client.sendall(server.head("POST /write", body(text="a", words=500, delay=0.01, stream=True)))
            assert client.recv(4096)
            assert server.write(text="b", mode=mode)[0] == 503
            last = events(everything(client).rpartition(b"data: ")[2])[0]
            assert "the model stopped" in last and "[DONE]" not in last
        assert json.loads(server.write(text="a", words=4)[2]) == {"text": answer("a", 4)}
    assert server.service.workers["stub"].restarts == 2
    assert calm(server)


def test_a_mistake_in_the_program_is_500_without_its_message_and_is_found_in_the_log(server, capfd):
    status, headers, answer = server.call("GET /fail")
    assert status == 500 and headers["x-request-id"] in json.loads(answer)["error"]["message"]
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert [line["fault"] for line in lines if "fault" in line] == ["LookupError"]
    assert b"canary" not in answer and "canary" not in json.dumps(lines)


def test_signs_of_life(server):
    status, _, answer = server.call("GET /health")
    found = json.loads(answer)["models"]["stub"]
    assert (status, found["state"]) == (200, "ready")
    assert server.call("GET /ready")[0] == 200
    assert server.call("HEAD /health")[0] == 200 and server.call("HEAD /health")[2] == b""
