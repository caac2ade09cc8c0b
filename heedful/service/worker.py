"""Worker: the process that holds one model. Requests come on stdin and answers leave on stdout, in frames.

    python -m heedful.service.worker runs/demo --rows 8

It ends when its stdin does, so that none is left behind when the HTTP process dies.
"""

from __future__ import annotations

import argparse
import os
import queue
import sys
import threading
from collections.abc import Sequence
from typing import Any

from ..errors import BadInput
from .frames import Frame, Unpacker, packed

READ = 1 << 16  # bytes at once


class Pipe:
    """The two ends of a worker: frames that came in, and a way to send some."""

    def __init__(self) -> None:
        self.incoming: queue.SimpleQueue[Frame] = queue.SimpleQueue()
        self.source = os.dup(0)
        self.sink = os.dup(1)
        os.dup2(2, 1)  # what anything prints goes to stderr, and never between two frames
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self) -> None:
        """Put frames into the queue as they come; the end of them is the end of the process."""
        unpacker = Unpacker()
        while data := os.read(self.source, READ):
            for frame in unpacker.feed(data):
                self.incoming.put(frame)
        os._exit(0)

    def take(self, wait: bool) -> list[Frame]:
        """The frames that have come; wait: for at least one."""
        found = [self.incoming.get()] if wait else []
        while not self.incoming.empty():
            found.append(self.incoming.get())
        return found

    def say(self, message: dict[str, Any], blob: bytes = b"") -> None:
        """Send a frame."""
        rest = memoryview(packed(message, blob))
        while rest:
            rest = rest[os.write(self.sink, rest) :]


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line of a worker, as `workers.command` writes it."""
    parser = argparse.ArgumentParser(prog="heedful.service.worker")
    parser.add_argument("folder")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "float16"])
    parser.add_argument("--weights", default="fp32")
    parser.add_argument("--rows", type=int, default=0)
    parser.add_argument("--prefill", type=int, default=0)
    return parser.parse_args(given)


def main() -> int:
    """Load the model, say that it is ready, and answer until there is nobody to answer."""
    given, pipe = arguments(), Pipe()
    import torch

    from ..use.model import load
    from .loop import Loop

    try:
        model = load(given.folder, given.device, getattr(torch, given.dtype), given.weights)
        loop = Loop(model, pipe.say, given.rows, given.prefill)
    except BadInput as error:
        pipe.say({"broken": str(error)})
        return 2
    pipe.say({"ready": loop.facts()})
    loop.run(pipe.take)
    return 0


if __name__ == "__main__":
    sys.exit(main())
