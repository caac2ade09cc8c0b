"""Clients for `benchmarks.serve`: many connections that ask again as soon as they have their answer."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self


@dataclass
class Measured:
    """What the clients saw."""

    tokens: int = 0
    requests: int = 0
    seconds: float = 0.0
    firsts: list[float] = field(default_factory=list)  # seconds to the first token


class Client:
    """A keep-alive connection on which streams are asked for."""

    def __init__(self, port: int) -> None:
        self.port, self.begun = port, False  # whether an answer has begun
        self.reader: asyncio.StreamReader
        self.writer: asyncio.StreamWriter

    async def __aenter__(self) -> Self:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 22)
        return self

    async def __aexit__(self, *exception: object) -> None:
        self.writer.close()

    async def ask(self, path: str, body: dict[str, Any], found: Measured) -> None:
        """One request, up to the end of its stream."""
        data = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1:{self.port}\r\ncontent-type: application/json\r\n"
        start, self.begun = time.perf_counter(), False
        self.writer.write(f"{head}content-length: {len(data)}\r\n\r\n".encode() + data)
        status, headers = await self.read_head()
        if status != 200:
            said = await self.reader.readexactly(int(headers["content-length"]))
            raise RuntimeError(f"{path} answered {status}: {said[:300]!r}")
        self.begun, tokens, last = False, 0, b""
        async for chunk in self.chunks():
            if not self.begun and chunk.startswith(b"data: "):
                self.begun = True
                found.firsts.append(time.perf_counter() - start)
            at = chunk.rfind(b'"completion_tokens"')
            if at >= 0:
                tokens = int(chunk[at + 20 :].split(b",")[0].split(b"}")[0])
            last = chunk
        if not tokens:
            raise RuntimeError(f"{path} did not say how many tokens it wrote: {last[-300:]!r}")
        found.tokens += tokens
        found.requests += 1

    async def read_head(self) -> tuple[int, dict[str, str]]:
        lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        pairs = (line.split(": ", 1) for line in lines[1:] if line)
        return int(lines[0].split()[1]), {name.lower(): value for name, value in pairs}

    async def chunks(self) -> Any:
        """The parts of a chunked body."""
        while size := int((await self.reader.readline()).strip(), 16):
            yield (await self.reader.readexactly(size + 2))[:-2]
        await self.reader.readline()


async def load(port: int, path: str, clients: int, seconds: float, body: Callable[[int], Any]) -> Measured:
    """So many clients for so long. Then answers that have begun are waited for, and others given up.

    Those that are given up count as if their first token came at that moment. body: of the nth request.
    """
    found, number, start = Measured(), iter(range(10**9)), time.perf_counter()

    async def one() -> None:
        async with Client(port) as client:
            while (asked := time.perf_counter()) - start < seconds:
                client.begun = False
                task = asyncio.create_task(client.ask(path, body(next(number)), found))
                await asyncio.wait({task}, timeout=start + seconds - asked)
                if not client.begun and not task.done() and found.firsts:
                    task.cancel()
                    found.firsts.append(time.perf_counter() - asked)
                    return
                await task

    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(one())
    found.seconds = time.perf_counter() - start
    return found
