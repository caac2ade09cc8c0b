"""Requests that were right before something in them was changed at random, sent over open connections."""

import asyncio
import copy
import json
import random
from collections import Counter
from typing import Any

from helpers.odd_texts import odd_texts

VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 2, 3.5, -0.0, 1e-300, 1e300, 2**31, 2**63, -(2**63), 10**400, "", " ", "a",
    "[MASK]", "\0", "a" * 400, "é" * 50, [], {}, [[]], [None], [""], ["a", "b"], [1, 2, 3], [[1, 2], [3]],
    [-1], [10**7], {"a": 1}, {"type": "text"}, [{"role": "user", "content": "a"}],
    "data:image/png;base64,AAAA",
]  # fmt: skip
NAMES = [
    "model",
    "text",
    "texts",
    "prompt",
    "stream",
    "n",
    "stop",
    "top",
    "logprobs",
    "echo",
    "seed",
    "beam",
    "x",
]


class Mutator:
    """Changes requests at random, always in the same way."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.texts = odd_texts(400, seed)

    def changed(self, body: dict[str, Any]) -> bytes:
        """A body with one to three changes; now and then, bytes that are no JSON any more."""
        found: Any = copy.deepcopy(body)
        for _ in range(self.draw.randint(1, 3)):
            found = self.change(found)
        data = json.dumps(found, allow_nan=True).encode("utf-8", "surrogatepass")
        if self.draw.random() < 0.05:
            place = self.draw.randrange(len(data) + 1)
            data = data[:place] + self.draw.randbytes(self.draw.randint(0, 4)) + data[place + 1 :]
        return data

    def change(self, value: Any) -> Any:
        """A value in which one thing is another."""
        if isinstance(value, dict) and value and self.draw.random() < 0.9:
            name = self.draw.choice([*value])
            what = self.draw.random()
            if what < 0.1:
                return {key: one for key, one in value.items() if key != name}
            if what < 0.25:
                return value | {self.draw.choice(NAMES): self.odd()}
            return value | {name: self.change(value[name])}
        if isinstance(value, list) and value and self.draw.random() < 0.7:
            place = self.draw.randrange(len(value))
            what = self.draw.random()
            if what < 0.2:
                return value[:place] + value[place + 1 :]
            if what < 0.4:
                return value * self.draw.randint(2, 5)
            return [*value[:place], self.change(value[place]), *value[place + 1 :]]
        return self.odd()

    def odd(self) -> Any:
        return self.draw.choice(self.texts) if self.draw.random() < 0.4 else self.draw.choice(VALUES)


async def send_all(port: int, path: str, bodies: list[bytes], at_once: int = 4) -> Counter[int]:
    """Send bodies over so many connections; how often each status came. 0: no answer came."""
    found: Counter[int] = Counter()
    rest = iter(bodies)

    async def client() -> None:
        streams = None
        for body in rest:
            streams = streams or await asyncio.open_connection("127.0.0.1", port)
            head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n"
            streams[1].write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
            status, stays = await asyncio.wait_for(answer(streams[0]), 120)
            found[status] += 1
            if not stays:
                streams[1].close()
                streams = None
        if streams is not None:
            streams[1].close()

    await asyncio.gather(*(client() for _ in range(at_once)))
    return found


async def answer(reader: asyncio.StreamReader) -> tuple[int, bool]:
    """The status of an answer that is read to its end, and whether the connection stays open."""
    try:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines[1:] if line)
        if headers.get("transfer-encoding") == "chunked":
            while size := int(await reader.readline(), 16):
                await reader.readexactly(size + 2)
            await reader.readline()
        else:
            await reader.readexactly(int(headers.get("content-length", 0)))
        return int(lines[0].split()[1]), headers.get("connection") != "close"
    except (asyncio.IncompleteReadError, ConnectionError):
        return 0, False
