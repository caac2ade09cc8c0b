"""Frames arrive whole, in whatever pieces the bytes come."""

import asyncio
import random

import pytest

from heedful.service.frames import Frame, Unpacker, packed, put_bytes, read_frame, with_bytes

FRAMES = [
    Frame({"a": 1}),
    Frame({}, b"\x00\xff"),
    Frame({"text": "ü\ud800\n"}, b"x" * 70_000),
    Frame({"b": [None, 1.5]}),
]


def test_frames_come_out_of_pieces_of_any_size():
    dice, data = random.Random(3), b"".join(packed(*frame) for frame in FRAMES)
    unpacker, found = Unpacker(), []
    while data:
        size = dice.choice([1, 2, 7, 30_000])
        found += unpacker.feed(data[:size])
        data = data[size:]
    assert found == FRAMES


def test_a_stream_is_read_frame_by_frame_to_its_end():
    async def read():
        reader = asyncio.StreamReader()
        reader.feed_data(b"".join(packed(*frame) for frame in FRAMES) + b"\x05\x00")
        reader.feed_eof()
        return [await read_frame(reader) for _ in range(len(FRAMES) + 1)]

    assert asyncio.run(read()) == [*FRAMES, None]


def test_what_is_no_frame_is_refused():
    with pytest.raises(ValueError, match="none of ours"):
        Unpacker().feed(b"print(hello)")


def test_bytes_of_events_travel_beside_their_json():
    news = [
        ("r1", {"piece": "a"}),
        ("r2", {"bytes": b"\x00\xffab"}),
        ("r3", {"bytes": b""}),
        ("r1", {"bytes": b"c"}),
    ]
    told, blob = with_bytes(news)
    (frame,) = Unpacker().feed(packed({"news": told}, blob))
    put_bytes(frame.message["news"], frame.blob)
    assert [(number, event) for number, event in frame.message["news"]] == news
    assert with_bytes(news[:1]) == (news[:1], b"")
