"""Clients that send or read too slowly are cut off; the others are answered."""

import contextlib
import socket
import threading

import pytest
import uvicorn

from heedful.service.limits import Limits
from heedful.service.strict import strict

LIMITS = Limits(header_seconds=0.3, body_seconds=0.3, stall_seconds=0.4, idle_seconds=0.3)
LARGE = 40 << 20  # bytes: more than the buffers of two sockets hold


async def app(scope, receive, send):
    """Read the whole body, and answer with its length, or at /large with many bytes."""
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body, more = body + message["body"], message["more_body"]
    await send({"type": "http.response.start", "status": 200, "headers": []})
    if scope["path"] == "/large":
        for _ in range(LARGE >> 20):
            await send({"type": "http.response.body", "body": b"x" * (1 << 20), "more_body": True})
    await send({"type": "http.response.body", "body": str(len(body)).encode()})


@pytest.fixture(scope="module")
def port():
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        app,
        http=strict(LIMITS),
        ws="none",
        lifespan="off",
        log_config=None,
        timeout_keep_alive=1,  # type: ignore[arg-type]
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    yield listener.getsockname()[1]
    server.should_exit = True
    thread.join()


def connect(port):
    return contextlib.closing(socket.create_connection(("127.0.0.1", port), timeout=20))


def everything(client) -> bytes:
    """What comes until the other side closes."""
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := client.recv(1 << 20):
            found += piece
    return found


WHOLE = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello"


def test_a_request_in_time_is_answered_and_the_connection_stays_for_the_next(port):
    with connect(port) as client:
        for _ in range(3):
            client.sendall(WHOLE)
            answer = client.recv(4096)
            while not answer.endswith((b"5", b"5\r\n0\r\n\r\n")):
                answer += client.recv(4096)
            assert answer.startswith(b"HTTP/1.1 200 OK")


@pytest.mark.parametrize("sent", [b"", b"POST / HT", b"POST / HTTP/1.1\r\nhost: a\r\nx", WHOLE[:-2]])
def test_a_request_that_is_never_finished_gets_408_and_its_connection_is_closed(port, sent):
    with connect(port) as client:
        client.sendall(sent)
        assert everything(client).startswith(b"HTTP/1.1 408 ")


def test_bytes_that_trickle_in_do_not_move_the_deadline(port):
    stop = threading.Event()
    with connect(port) as client:

        def trickle():
            with contextlib.suppress(OSError):
                for byte in b"GET / HTTP/1.1\r\nhost: a\r\n" + b"x: y\r\n" * 10_000:
                    client.sendall(bytes([byte]))
                    if stop.wait(0.05):
                        return

        sender = threading.Thread(target=trickle)
        sender.start()
        answer = everything(client)
        stop.set()
        sender.join()
    assert answer == b"" or answer.startswith(b"HTTP/1.1 408 ")


def test_half_open_connections_do_not_keep_others_from_being_answered(port):
    with contextlib.ExitStack() as stack:
        half = [stack.enter_context(connect(port)) for _ in range(60)]
        for client in half:
            client.sendall(WHOLE[:20])
        with connect(port) as client:
            client.sendall(WHOLE.replace(b"host: a", b"host: a\r\nconnection: close"))
            assert b"200 OK" in everything(client)
        assert all(everything(client).startswith(b"HTTP/1.1 408 ") for client in half)


def test_a_reader_that_takes_nothing_is_cut_off(port):
    stalled = threading.Event()
    with connect(port) as client:
        client.sendall(b"GET /large HTTP/1.1\r\nhost: a\r\n\r\n")
        stalled.wait(2 * LIMITS.stall_seconds)
        assert len(everything(client)) < LARGE
