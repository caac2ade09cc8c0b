"""Frames: what travels between the HTTP process and a worker: JSON, perhaps bytes, their lengths before."""

from __future__ import annotations

import asyncio
import json
import struct
from typing import Any, NamedTuple

HEAD = struct.Struct("<II")  # bytes of the JSON, and of what follows it
ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
MOST = 64 << 20  # bytes of either: what is longer is no frame of ours


class Frame(NamedTuple):
    """A message, and bytes that belong to it."""

    message: dict[str, Any]
    blob: bytes = b""


def packed(message: dict[str, Any], blob: bytes = b"") -> bytes:
    """A frame as it travels."""
    text = ENCODER.encode(message).encode("utf-8", "surrogatepass")
    return HEAD.pack(len(text), len(blob)) + text + blob


def with_bytes(news: list[tuple[str, dict[str, Any]]]) -> tuple[list[tuple[str, dict[str, Any]]], bytes]:
    """Events as JSON, and the bytes that some of them hold: "bytes" says how many."""
    blobs = [event["bytes"] for _, event in news if "bytes" in event]
    if not blobs:
        return news, b""
    told = [
        (number, {**event, "bytes": len(event["bytes"])} if "bytes" in event else event)
        for number, event in news
    ]
    return told, b"".join(blobs)


def put_bytes(news: list[tuple[str, dict[str, Any]]], blob: bytes) -> None:
    """Give every event its bytes back."""
    start = 0
    for _, event in news:
        if "bytes" in event:
            end = start + event["bytes"]
            event["bytes"], start = blob[start:end], end


class Unpacker:
    """Frames out of bytes that come in pieces of any size."""

    def __init__(self) -> None:
        self.waiting = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that are complete with these bytes."""
        self.waiting += data
        found = []
        while len(self.waiting) >= HEAD.size:
            text, blob = sizes(bytes(self.waiting[: HEAD.size]))
            end = HEAD.size + text + blob
            if len(self.waiting) < end:
                break
            found.append(unpacked(bytes(self.waiting[HEAD.size : end]), text))
            del self.waiting[:end]
        return found


async def read_frame(reader: asyncio.StreamReader) -> Frame | None:
    """The next frame; None where the stream ends."""
    try:
        text, blob = sizes(await reader.readexactly(HEAD.size))
        return unpacked(await reader.readexactly(text + blob), text)
    except asyncio.IncompleteReadError:
        return None


def sizes(head: bytes) -> tuple[int, int]:
    text, blob = HEAD.unpack(head)
    if text > MOST or blob > MOST:
        raise ValueError(f"a frame of {text:,} and {blob:,} bytes is none of ours")
    return text, blob


def unpacked(data: bytes, text: int) -> Frame:
    try:
        message = json.loads(data[:text].decode("utf-8", "surrogatepass"))
    except RecursionError:
        raise ValueError("a frame is nested too deeply") from None
    if type(message) is not dict:
        raise ValueError("a frame is no object of JSON")
    return Frame(message, data[text:])
