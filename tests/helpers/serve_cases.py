"""`heedful serve` in a process of its own, for tests that speak HTTP with it.

    def test_it_lives(served):
        service = served("demo", "lm")
        assert service.get("/ready").status == 200

Names are those of stored_runs/ (classify, demo, lm, mlm, small); any other folder is named by its path. A
service is started once in a session for the same models and options, and ends with the session.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from helpers.page_runs import unpack

ROOT = Path(__file__).parents[2]
START = 120.0  # seconds that a service may take until it is ready on a busy machine


@dataclass
class Reply:
    """What a service answered."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[Any]:
        """The messages of a stream, up to [DONE]."""
        lines = [line[6:] for line in self.body.decode().splitlines() if line.startswith("data: ")]
        return [json.loads(line) for line in lines if line != "[DONE]"]


@dataclass
class HttpClient:
    """Speaks with the service on a port of this machine."""

    port: int
    headers: dict[str, str] = field(default_factory=dict, kw_only=True)  # sent with every request

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str, **headers: str) -> Reply:
        return self.send("GET", path, None, headers)

    def post(self, path: str, body: Any, **headers: str) -> Reply:
        """Send JSON, or bytes as they are."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.send("POST", path, data, {"content-type": "application/json"} | headers)

    def send(self, method: str, path: str, data: bytes | None, headers: dict[str, str]) -> Reply:
        """Headers may be written with _ for -."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=START)
        try:
            named = {name.replace("_", "-"): value for name, value in (self.headers | headers).items()}
            connection.request(method, path, data, named)
            answer = connection.getresponse()
            return Reply(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()


@dataclass
class RunningService(HttpClient):
    """A service in a process of its own."""

    process: subprocess.Popen[bytes]
    log: Path

    def last_lines(self, count: int = 20) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text().splitlines()[-count:])

    def broken(self) -> bool:
        """Whether it has ended, or one of its models cannot be loaded."""
        if self.process.poll() is not None:
            return True
        return any(model["state"] == "broken" for model in self.get("/health").json["models"].values())


@contextmanager
def serving(
    *folders: str, options: tuple[str, ...] = (), log: Path, ready: bool = True
) -> Iterator[RunningService]:
    """A service of these folders while the block runs. ready: wait until every model answers."""
    command = [sys.executable, "-m", "heedful", "serve", *folders, "--port", "0", *options]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with (
        log.open("wb") as file,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=file, env=environment) as process,
    ):
        try:
            assert process.stdout is not None
            line = process.stdout.readline().decode()  # http://127.0.0.1:43251 serves demo, lm
            assert line.startswith("http://"), log.read_text()
            service = RunningService(int(line.split()[0].rpartition(":")[2]), process, log)
            if ready:
                wait_until_ready(service)
            yield service
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()


def wait_until_ready(service: RunningService) -> None:
    """Return once every model answers."""
    end = time.monotonic() + START
    while time.monotonic() < end:
        try:
            if service.get("/ready").status == 200:
                return
            assert not service.broken(), service.last_lines()
        except OSError:
            assert service.process.poll() is None, service.last_lines()
        time.sleep(0.05)
    raise AssertionError(f"not ready after {START:g} seconds: {service.last_lines()}")


@pytest.fixture(scope="session")
def stored(tmp_path_factory) -> Path:
    """The folder of the stored runs, made ready."""
    return unpack(tmp_path_factory.mktemp("stored")) / "runs"


@pytest.fixture(scope="session")
def served(stored, tmp_path_factory):
    """A function that gives the service of some models, started when it is first needed."""
    with ExitStack() as stack:
        running: dict[tuple, RunningService] = {}

        def give(*models: str, options: tuple[str, ...] = ()) -> RunningService:
            key = (models, options)
            if key not in running:
                log = tmp_path_factory.mktemp("service") / "log"
                folders = [str(stored / name) if "/" not in name else name for name in models]
                running[key] = stack.enter_context(serving(*folders, options=options, log=log))
            return running[key]

        yield give
