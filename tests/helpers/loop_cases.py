"""A worker's loop without its process: requests go in as frames, and events are collected by request."""

from __future__ import annotations

from typing import Any

from heedful.service.frames import Frame
from heedful.service.loop import Loop


class Desk:
    """A loop, and what it has said of each request."""

    def __init__(self, model: Any, rows: int = 4, prefill: int = 8) -> None:
        self.loop = Loop(model, self.say, rows, prefill)
        self.events: dict[str, list[dict]] = {}
        self.frames: list[dict] = []

    def say(self, message: dict, blob: bytes = b"") -> None:
        self.frames.append(message)
        for number, event in message.get("news", ()):
            self.events.setdefault(number, []).append(event)

    def ask(self, number: str, do: str = "write", **given: Any) -> None:
        self.loop.hear(Frame({"ask": number, "do": do, "with": given}))

    def cancel(self, number: str) -> None:
        self.loop.hear(Frame({"cancel": number}))

    def turns(self, count: int) -> None:
        for _ in range(count):
            self.loop.turn()

    def finish(self) -> None:
        while self.loop.busy:
            self.loop.turn()

    def calm(self) -> bool:
        """Whether nothing is left of any request."""
        loop = self.loop
        rows = 0 if loop.together is None else loop.together.rows + len(loop.together.waiting)
        return not (loop.busy or loop.tasks or loop.searches or rows)

    def texts(self, number: str) -> list[str]:
        """The answers to a request, from its pieces."""
        found: dict[int, str] = {}
        for event in self.events[number]:
            if "index" in event:
                found[event["index"]] = found.get(event["index"], "") + event["piece"]
        return [found[index] for index in sorted(found)]

    def fault(self, number: str) -> dict[str, Any]:
        """What ended a request: it is the last that was said of it."""
        *others, last = self.events[number]
        assert "fault" in last and not any("fault" in event or "over" in event for event in others)
        return last["fault"]


def writing(text: str | list[str], **fields: Any) -> dict[str, Any]:
    """A request to continue texts, as the HTTP process sends it; options of decoding go to `options`."""
    own = {name: fields.pop(name) for name in ("n", "streams", "scored", "top", "echoes", "ability")
           if name in fields}  # fmt: skip
    texts = [text] if isinstance(text, str) else text
    return {
        "ability": "generate",
        "texts": texts,
        "options": {"max_new_tokens": 40} | fields,
        "beam": 1,
    } | own
