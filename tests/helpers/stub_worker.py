"""A worker without a model: it speaks the frames, writes words that follow from a text, and fails on demand.

`{"text": "a", "words": 3, "delay": 0.1}` writes three words, one every 0.1 s; `MODES` lists how it can fail.
"""

import base64
import os
import select
import struct
import sys
import time
import zlib

from heedful.service.frames import Unpacker, packed

CAN = [
    "write", "generate", "embed", "translate", "summarize", "fill", "classify", "score", "answer", "choose",
    "tag", "parse", "caption",
]  # fmt: skip
LOAD = {"rows": 0, "cache_bytes": 4096, "rss_bytes": 8192}
VECTOR = base64.b64encode(struct.pack("<2f", 0.5, -2.0)).decode()  # as workers send an embedding


def word(text: str, number: int) -> str:
    """The word that follows from a text."""
    return f" w{zlib.crc32(f'{text}/{number}'.encode()) % 1000}"


def answer(text: str, words: int) -> str:
    return "".join(word(text, number) for number in range(words))


class Stub:
    def __init__(self) -> None:
        self.jobs: dict[str, dict] = {}  # {request: {"with", "next", "written"}}
        self.asked = self.cancelled = 0

    def say(self, message: dict, blob: bytes = b"") -> None:
        os.write(1, packed(message, blob))

    def hear(self, message: dict) -> None:
        if "ask" in message:
            self.asked += message["do"] == "write"
            self.start(message["ask"], message["do"], message["with"])
        elif "cancel" in message:
            self.cancelled += self.jobs.pop(message["cancel"], None) is not None
        elif "alive" in message:
            self.say({"load": {**LOAD, "rows": len(self.jobs)}})

    def start(self, number: str, do: str, given: dict) -> None:
        if do == "seen":
            facts = {"asked": self.asked, "cancelled": self.cancelled, "running": len(self.jobs)}
            facts |= {"environment": dict(os.environ), "pid": os.getpid()}
            self.say({"news": [[number, {"over": True, "result": facts}]]})
            return
        if do == "embed" or (do == "write" and "options" in given):
            self.answer_openai(number, do, given)
            return
        if do != "write":
            MODES["fault"](self, number)
            return
        MODES.get(given.get("mode", ""), lambda stub, number: None)(self, number)
        if given.get("mode") not in ("fault", "quiet", "flood"):
            self.jobs[number] = {"with": given, "next": time.monotonic(), "written": 0}

    def answer_openai(self, number: str, do: str, given: dict) -> None:
        """What a worker says to requests of OpenAI's shape."""
        inputs = given.get("texts") or given.get("tokens") or [given.get("messages")]
        usage = {"prompt_tokens": len(inputs), "completion_tokens": given.get("n", 0)}
        if do == "embed":
            over = {"over": True, "usage": usage, "result": {"vectors": [VECTOR] * len(inputs)}}
            self.say({"news": [[number, over]]})
            return
        top = [[" a", -0.5, None], ["\\xe2", -1.5, [226]]]
        tokens = [{"text": " a", "bytes": None, "log_probability": -0.5, "offset": 7, "top": top}]
        rows = [
            [number, {"index": index, "piece": " a", "tokens": tokens, "finish": "stop"}]
            for index in range(given.get("n", 1) * len(inputs))
        ]
        result = {"answers": [{"log_probabilities": [-0.5]}] * len(rows)}
        self.say({"news": [*rows, [number, {"over": True, "usage": usage, "result": result}]]})

    def step(self) -> float:
        """Write what is due; the seconds until something is."""
        news, now = [], time.monotonic()
        for number, job in list(self.jobs.items()):
            given, words = job["with"], job["with"].get("words", 3)
            while job["next"] <= now and job["written"] < words:
                piece = word(given["text"], job["written"])
                job["written"] += 1
                job["next"] += given.get("delay", 0.0)
                news.append([number, {"index": 0, "piece": piece}])
            if job["written"] == words:
                usage = {"prompt_tokens": len(given["text"]), "completion_tokens": words}
                whole = {"text": answer(given["text"], words)}
                news.append([number, {"over": True, "usage": usage, "result": whole}])
                del self.jobs[number]
        if news:
            self.say({"news": news})
        return max(0.0, min((job["next"] for job in self.jobs.values()), default=now + 60) - now)

    def run(self) -> None:
        self.say({"ready": {"can": CAN, "context": 64, "chat": True}})
        unpacker = Unpacker()
        while True:
            if select.select([0], [], [], self.step())[0]:
                data = os.read(0, 1 << 16)
                if not data:
                    return
                for frame in unpacker.feed(data):
                    self.hear(frame.message)


def flood(stub: Stub, number: str) -> None:
    """More bytes than the buffers of two sockets hold."""
    for _ in range(40):
        stub.say({"news": [[number, {"index": 0, "piece": "x" * 500_000}]]})
    stub.say({"news": [[number, {"over": True, "result": {"text": ""}}]]})


MODES = {
    "die": lambda stub, number: os._exit(3),
    "hang": lambda stub, number: time.sleep(3600),
    "nonsense": lambda stub, number: os.write(1, b"Segmentation fault (core dumped)\n"),
    "fault": lambda stub, number: stub.say(
        {"news": [[number, {"fault": {"status": 400, "message": "too long", "param": "text"}}]]}
    ),
    "quiet": lambda stub, number: None,  # it lives, and this request is never answered
    "flood": flood,
}

if __name__ == "__main__":
    if sys.argv[1] == "broken":
        os.write(1, packed({"broken": "there is no model"}))
    else:
        Stub().run()
