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
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import BadInput
from .frames import Frame, Unpacker, packed

if TYPE_CHECKING:
    from ..use.model import Model
    from .methods import Method

READ = 1 << 16  # bytes at once
SWITCH = 0.0005  # seconds that a request which has come waits at most for the thread that writes
NEW_LINE = "\n"
SMALL = 10_000_000  # parameters


class Pipe:
    """The two ends of a worker: frames that came in, and a way to send some.

    A thread listens, so that the question whether this process lives is answered during long work too.
    """

    def __init__(self) -> None:
        self.incoming: queue.SimpleQueue[Frame] = queue.SimpleQueue()
        self.source = os.dup(0)
        self.sink = os.dup(1)
        os.dup2(2, 1)  # what anything prints goes to stderr, and never between two frames
        self.sending = threading.Lock()
        self.working: float | None = time.monotonic()  # since when; None while there is nothing to do
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self) -> None:
        """Put frames into the queue as they come; the end of them is the end of the process."""
        unpacker = Unpacker()
        try:
            while data := os.read(self.source, READ):
                for frame in unpacker.feed(data):
                    if "alive" in frame.message:
                        self.say({"alive": self.seconds_at_work()})
                    else:
                        self.incoming.put(frame)
        finally:
            os._exit(0)

    def seconds_at_work(self) -> float:
        """How long the work that is going on has not looked for news."""
        since = self.working
        return 0.0 if since is None else time.monotonic() - since

    def take(self, wait: bool) -> list[Frame]:
        """The frames that have come; wait: for at least one."""
        self.working = None
        found = [self.incoming.get()] if wait else []
        while not self.incoming.empty():
            found.append(self.incoming.get())
        self.working = time.monotonic()
        return found

    def say(self, message: dict[str, Any], blob: bytes = b"") -> None:
        """Send a frame."""
        rest = memoryview(packed(message, blob))
        with self.sending:
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


def set_threads(model: Model) -> None:
    """One thread for a small model on a CPU: its steps are shorter than the time to wake another thread.

    With two threads, the translator of the demo writes 8 texts at half the speed.
    """
    import torch

    small = model.device.type == "cpu" and model.parameter_count < SMALL
    if small and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)


def main(more: Callable[[], Mapping[str, Method]] = dict) -> int:
    """Load the model, say that it is ready, and answer until there is nobody to answer.

    more: makes the methods that this worker has beside METHODS.
    """
    given, pipe = arguments(), Pipe()
    import torch

    from ..use.load import load
    from .loop import Loop

    try:
        model = load(given.folder, given.device, getattr(torch, given.dtype), given.weights)
        set_threads(model)
        loop = Loop(model, pipe.say, given.rows, given.prefill, more())
    except BadInput as error:
        pipe.say({"broken": str(error)})
        return 2
    except Exception as error:  # noqa: BLE001 (whatever it is, the client is to be told)
        traceback.print_exc()
        pipe.say({"broken": f"it failed with {type(error).__name__}: {str(error).partition(NEW_LINE)[0]}"})
        return 1
    sys.setswitchinterval(SWITCH)
    pipe.say({"ready": loop.facts()})
    loop.run(pipe.take)
    return 0


if __name__ == "__main__":
    sys.exit(main())
