"""Shutdown: new requests are refused, running ones finish, and the process ends with 0."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.service_cases import Running, events, everything, parsed
from helpers.stub_worker import answer

from heedful.errors import BadInput
from heedful.service.server import listen

TESTS = Path(__file__).parents[1]


@contextlib.contextmanager
def process(*limits: str, port: int = 0):
    """A service in a process of its own: (the process, how to speak to it)."""
    environment = os.environ | {"PYTHONPATH": f"{TESTS}:{TESTS.parent}"}
    command = [sys.executable, "-m", "helpers.service_cases", str(port), *limits]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as child:
        try:
            yield child, Running(None, None, int(child.stdout.readline()))
        finally:
            child.kill()


def stream(server, client, **fields):
    """Begin a stream, up to its first token."""
    client.sendall(server.head("POST /write", json.dumps({"text": "a", "stream": True, **fields}).encode()))
    return client.recv(4096)


def end_of(child) -> list[dict]:
    """Wait until it has ended with 0; its log."""
    _, log = child.communicate(timeout=30)
    assert child.returncode == 0, log.decode()[-2000:]
    return [json.loads(line) for line in log.splitlines()]


def test_at_sigterm_new_requests_get_503_and_running_ones_finish():
    with process("drain_seconds=20") as (child, server):
        with server.connect() as client, server.connect() as idle:
            idle.sendall(server.head("GET /health", b"", connection=""))
            assert idle.recv(4096)
            begun = stream(server, client, words=40, delay=0.03)
            child.send_signal(signal.SIGTERM)
            server.until(lambda: server.call("GET /ready")[0] == 503)
            status, headers, body = server.write(text="a")
            assert (status, headers["connection"]) == (503, "close") and b"shutting down" in body
            assert "retry-after" in headers and server.call("GET /health")[0] == 200
            assert b"HTTP/1.1" not in everything(idle)  # an idle connection is closed
            _, _, whole = parsed(begun + everything(client))
        *pieces, last = events(whole)
        assert last == "[DONE]" and "".join(json.loads(one)["piece"] for one in pieces) == answer("a", 40)
        assert [one for one in end_of(child) if "fault" in one] == []


@pytest.mark.parametrize("signals", [1, 2])
def test_what_takes_too_long_ends_with_an_error_and_a_second_signal_does_not_wait(signals):
    with process("drain_seconds=0.2" if signals == 1 else "drain_seconds=600") as (child, server):
        with server.connect() as client, server.connect() as plain:
            begun = stream(server, client, words=4000, delay=0.05)
            plain.sendall(server.head("POST /write", b'{"text": "a", "mode": "quiet"}'))
            child.send_signal(signal.SIGTERM)
            server.until(lambda: server.call("GET /ready")[0] == 503)
            if signals == 2:
                child.send_signal(signal.SIGINT)
            last = events(parsed(begun + everything(client))[2])[-1]
            assert "shutting down" in json.loads(last)["error"]["message"]
            assert parsed(everything(plain))[0] == 503
        assert [one for one in end_of(child) if "fault" in one] == []


def test_a_killed_server_leaves_no_worker_and_its_port_is_free_at_once():
    with process() as (child, server), server.connect() as client:
        stream(server, client, words=4000, delay=0.05)
        worker = server.seen()["pid"]
        child.kill()
        child.wait()
        server.until(lambda: not is_alive(worker))
        with process(port=server.port) as (_, again):
            assert again.port == server.port and again.write(text="a")[0] == 200


def is_alive(pid: int) -> bool:
    try:
        return "zombie" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_a_port_in_use_is_refused_in_one_sentence():
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(BadInput, match=f"port {port} of 127.0.0.1 is in use"):
            listen("127.0.0.1", port)
    for host, port in (("nowhere.invalid", 0), ("127.0.0.1", 70_000), ("é" * 80, 0)):
        with pytest.raises(BadInput, match="cannot listen on"):
            listen(host, port)


def test_the_http_process_imports_nothing_heavy():
    code = (
        "import sys, time, heedful.service.server\n"
        "print([one for one in ('torch', 'numpy', 'transformers', 'tokenizers') if one in sys.modules])\n"
        "print(time.process_time())"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy, seconds = found.stdout.splitlines()
    assert heavy == "[]" and float(seconds) < 2.0  # 0.2 on an idle machine
