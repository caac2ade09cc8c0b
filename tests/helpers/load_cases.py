"""Many clients of a real service at once: what they ask, what a model answers alone, and how they leave."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from helpers.serve_cases import RunningService

SECONDS = 60.0  # that an answer may take on a busy machine


@dataclass(frozen=True)
class Asked:
    """A request, and the text that answers it."""

    path: str
    body: dict[str, Any]
    answer: str

    @property
    def streams(self) -> bool:
        return bool(self.body.get("stream"))


def mixed(lm: Any, demo: Any, count: int = 3, stop: str = "is") -> list[Asked]:
    """Requests of many kinds, with what the models say by themselves."""
    found = []
    for number in range(count):
        text, new = ["the cat", "once upon a time", "a dog and a bird"][number % 3], 20 + 9 * number
        drawn = {"temperature": 0.8, "seed": 5 + number}
        body = {"model": "lm", "prompt": text, "max_tokens": new}
        for own, given in (
            ({"temperature": 0}, {}),
            (drawn, {"sample": True, **drawn}),
            ({"temperature": 0, "stop": stop}, {"stop": [stop]}),
        ):
            answer = str(lm.generate(text, max_new_tokens=new, **given))
            found += [Asked("/v1/completions", body | own | {"stream": s}, answer) for s in (True, False)]
        source = ["The small girl eats a red apple.", "Their cat was a fast animal.", "I am a student."][
            number % 3
        ]
        body = {"model": "demo", "texts": source, "max_new_tokens": 12}
        for beam, streams in ((1, True), (1, False), (3, False)):
            answer = str(demo.translate(source, beam=beam, max_new_tokens=12))
            found.append(Asked("/v1/translate", body | {"beam": beam, "stream": streams}, answer))
    return found


@dataclass
class Answer:
    """What a client got. status 0: it was cut off."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    text: str = ""
    error: str = ""
    seconds: float = 0.0


async def ask(service: RunningService, asked: Asked, cut: float | None = None) -> Answer:
    """Send a request and take its answer. cut: hang up after so many seconds; -1: with half of it sent."""
    start = time.monotonic()
    reader, writer = await asyncio.open_connection("127.0.0.1", service.port, limit=1 << 24)
    try:
        data = json.dumps(asked.body).encode()
        head = f"POST {asked.path} HTTP/1.1\r\nhost: 127.0.0.1:{service.port}\r\nconnection: close\r\n"
        head += f"content-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
        sent = head.encode() + data
        writer.write(sent if cut is None or cut >= 0 else sent[: len(sent) - 7])
        try:
            whole = await asyncio.wait_for(reader.read(), SECONDS if cut is None else max(cut, 0.0))
        except TimeoutError:
            assert cut is not None, f"{asked.path} was not answered within {SECONDS:g} seconds"
            return Answer()
        return read_answer(whole, asked, time.monotonic() - start)
    finally:
        writer.transport.abort()


def read_answer(whole: bytes, asked: Asked, seconds: float) -> Answer:
    head, _, body = whole.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    found = Answer(int(first.split()[1]), headers, "", "", seconds)
    if headers.get("transfer-encoding") == "chunked":
        body = re.sub(rb"(?:\r\n)?[0-9a-f]+\r\n(?=data: |: ping|\r\n)", b"", body)
    if "text/event-stream" not in headers.get("content-type", ""):
        said = json.loads(body)
        found.error = said.get("error", {}).get("message", "")
        texts = said.get("choices") or said.get("translations") or [{}]
        found.text = texts[0].get("text", "") if isinstance(texts[0], dict) else texts[0]
        return found
    for line in body.decode().splitlines():
        if line.startswith("data: {"):
            event = json.loads(line[6:])
            found.error = found.error or event.get("error", {}).get("message", "")
            found.text += event["choices"][0]["text"] if event.get("choices") else event.get("text", "")
    return found


async def crowd(
    service: RunningService, requests: Sequence[Asked], clients: int, seconds: float, seed: int = 0
) -> dict[str, int]:
    """So many clients for so long, a fifth of whose requests are cut off; every other answer is compared."""
    counts = {"answered": 0, "cut": 0}
    end = time.monotonic() + seconds

    async def one(number: int) -> None:
        dice = random.Random(seed + number)
        while time.monotonic() < end:
            asked = dice.choice(requests)
            if dice.random() < 0.2:
                await ask(service, asked, cut=dice.choice([-1, dice.random() * 0.2]))
                counts["cut"] += 1
                continue
            found = await ask(service, asked)
            assert (found.status, found.error, found.text) == (200, "", asked.answer), (asked, found)
            counts["answered"] += 1

    async with asyncio.TaskGroup() as group:
        for number in range(clients):
            group.create_task(one(number))
    return counts


# Looking at a service from outside.


def gauges(service: RunningService) -> dict[str, float]:
    """The figures that say how much is going on: rows that run or wait, and requests."""
    lines = service.get("/metrics").body.decode().splitlines()
    return {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
        for line in lines
        if line.startswith("heedful_rows")
    }


def until_calm(service: RunningService) -> None:
    """Return once no request runs or waits."""
    end = time.monotonic() + SECONDS
    while any(gauges(service).values()):
        assert time.monotonic() < end, gauges(service)
        time.sleep(0.01)


def workers_of(service: RunningService) -> dict[str, int]:
    """{name of a model: the process of its worker}."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                words = (folder / "cmdline").read_text().split("\0")
            except OSError:
                continue
            if parent == service.process.pid and "heedful.service.worker" in words:
                name = Path(words[words.index("heedful.service.worker") + 1]).name
                found[name] = int(folder.name)
    return found


def kill(service: RunningService, name: str) -> None:
    os.kill(workers_of(service)[name], signal.SIGKILL)


def memory(pid: int) -> int:
    """Bytes of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))
