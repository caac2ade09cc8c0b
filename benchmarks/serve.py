"""Speed of `heedful serve`: tokens a second and the time to the first token, for 1 to 64 clients at once.

    python -m benchmarks.serve                     # on this machine's GPU, or on its CPU: about five minutes
    python -m benchmarks.serve --device cpu --clients 1 8 --models gpt2 --json serve.json

Two models: `demo`, the translator of `heedful demo` after a few steps, and `gpt2`, GPT-2 124M's shape with
random weights (prompts of 32 tokens, 64 new ones, or from LOW to HIGH with --new). All contenders write
greedily. A client asks again as soon as it has its answer, for --seconds, and the last answers are waited
for. Where Starlette and uvicorn are not installed, copy them, h11, anyio, click, idna and typing_extensions
into a folder that PYTHONPATH names.

- alone: `generate` or `translate` in Python, one text after the other
- decoder: the rows of heedful's decoder without HTTP, as many as there are clients
- service: `heedful serve`, streams over keep-alive connections
- plain server: Starlette around Hugging Face's `generate`, one request at a time (gpt2 only)
- batching of transformers: the same with its continuous batching (gpt2, with --batching)
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from .serve_client import load

WORDS = ["the", "small", "girl", "eats", "a", "red", "apple", "their", "cat", "was", "fast", "animal"]
START = 180.0  # seconds that a server may take to be ready
DEMO_STEPS = 40
PROMPT = 32  # tokens of gpt2's prompts


@dataclass
class Figures:
    """What one contender did."""

    model: str
    contender: str
    clients: int
    tokens_per_second: float
    requests: int
    cpu: float | None = None  # seconds of processor time of the process that decodes, for 1,000 tokens
    http_cpu: float | None = None  # and of the HTTP process
    first_token_ms_p50: float | None = None
    first_token_ms_p99: float | None = None


def figures(
    model: str,
    contender: str,
    clients: int,
    tokens: int,
    seconds: float,
    firsts: list[float],
    requests: int,
    cpu: tuple[float, ...] = (),
) -> Figures:
    found = Figures(model, contender, clients, tokens / seconds, requests, *(1000 * x / tokens for x in cpu))
    if firsts:
        firsts = sorted(firsts)
        found.first_token_ms_p50 = 1000 * statistics.median(firsts)
        found.first_token_ms_p99 = 1000 * firsts[min(len(firsts) - 1, int(0.99 * len(firsts)))]
    return found


# Models.


def make_demo(folder: Path) -> None:
    """The translator of `heedful demo`. How well it translates does not matter."""
    import torch

    from heedful.cli.demo import DEMO
    from heedful.runs import trainer
    from heedful.tasks import recipe

    class Quiet:
        def say(self, line: str) -> None: ...

        def step(self, progress: Any, steps: int) -> None: ...

    settings = DEMO | {"train.steps": DEMO_STEPS, "evaluate.every": DEMO_STEPS, "evaluate.examples": 1}
    made = recipe.make("translate", "tiny", "phrasebook", settings)
    trainer.start(made, folder, Quiet(), torch.device("cpu"))


def make_gpt2(folder: Path) -> None:
    """GPT-2 124M's shape with random weights and no end, and a tokenizer with as many tokens."""
    import torch

    import heedful
    from heedful.interop.loaded import Loaded
    from heedful.models import gpt2

    torch.manual_seed(0)
    config = gpt2.GPT2Config()
    network = gpt2.build(config).eval()
    heedful.save(Loaded("gpt2", config, network, made_tokenizer(config.vocab), {}), folder)


def made_tokenizer(size: int) -> Any:
    """Byte-level BPE whose tokens are short words of the letters a to z."""
    from string import ascii_lowercase as letters

    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    space = "\u0120"
    vocab = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    twos = [(a, b) for a in letters for b in letters]
    threes = [(a + b, c) for a, b in twos for c in letters]
    spaced = [(space, word) for word in (*letters, *(a + b for a, b in (*twos, *threes)))]
    fours = [(a + b, c) for a, b in threes for c in letters]
    merges = [*twos, *threes, *spaced, *fours][: size - len(vocab)]
    for a, b in merges:
        vocab[a + b] = len(vocab)
    found = Tokenizer(models.BPE(vocab, merges))
    found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    found.decoder = decoders.ByteLevel()
    return found


@dataclass(frozen=True)
class Task:
    """What is asked of a model."""

    make: Callable[[Path], None]
    path: str
    ability: str
    new: tuple[int, int]  # tokens to write at most: the least of all requests, and the most

    def text(self, number: int) -> str:
        return " ".join(random.Random(number).choices(WORDS, k=7)) + "."

    def prompt(self, number: int) -> list[int]:
        return random.Random(number).choices(range(300, 50_000), k=PROMPT)

    def most(self, number: int) -> int:
        """Tokens that the nth request lets be written."""
        low, high = self.new
        return random.Random(f"length {number}").randint(low, high)

    def body(self, number: int) -> dict[str, Any]:
        """The nth request."""
        most = self.most(number)
        if self.ability == "translate":
            return {"texts": self.text(number), "beam": 1, "max_new_tokens": most, "stream": True}
        asked = {"prompt": self.prompt(number), "max_tokens": most, "temperature": 0, "stream": True}
        return asked | {"stream_options": {"include_usage": True}}


TASKS = {
    "demo": Task(make_demo, "/v1/translate", "translate", (16, 16)),
    "gpt2": Task(make_gpt2, "/v1/completions", "generate", (64, 64)),
}


# Without HTTP, in a process of its own.


def load_model(given: argparse.Namespace) -> Any:
    import heedful  # isort: skip (it sets how threads wait, which must come before torch)
    import torch

    return heedful.load(given.folder, given.device, getattr(torch, given.dtype), given.weights)


def alone(given: argparse.Namespace) -> Figures:
    """One text after the other."""
    model, task = load_model(given), TASKS[given.model]
    tokens, number, start, cpu = 0, 0, time.perf_counter(), 0.0
    while number < 2 or time.perf_counter() - start < given.seconds:
        if number == 1:
            tokens, start, cpu = 0, time.perf_counter(), time.process_time()  # the first one warms up
        if task.ability == "translate":
            found = model.translate(task.text(number), beam=1, max_new_tokens=task.most(number))
        else:
            text = model.wording.decoded(task.prompt(number))
            found = model.generate(text, max_new_tokens=task.most(number))
        tokens += len(found.tokens)
        number += 1
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    return figures(given.model, "alone", 1, tokens, seconds, [], number - 1, (cpu,))


def decoder(given: argparse.Namespace) -> Figures:
    """Rows that are always in use, without HTTP, with the threads that a worker takes."""
    from heedful.service.loop import PREFILL
    from heedful.service.searches import KnownSearches
    from heedful.service.worker import set_threads
    from heedful.service.writing import WriteTask, plan
    from heedful.use.together import Together

    model, task = load_model(given), TASKS[given.model]
    set_threads(model)
    searches = KnownSearches(model)
    together = Together(model.writing, given.rows, PREFILL.get(model.device.type, 2048))

    def add(number: int) -> None:
        translates = task.ability == "translate"
        asked = {"texts": [task.text(number)]} if translates else {"tokens": [task.prompt(number)]}
        options = {"max_new_tokens": task.most(number)} | ({"beam": 1} if translates else {})
        planned = plan(searches, {"ability": task.ability, "options": options, "beam": 1, **asked})
        for writing in WriteTask(str(number), planned).writings():
            together.add(writing)

    def run(clients: int, seconds: float) -> tuple[int, int, float]:
        number, tokens, start = clients, 0, time.perf_counter()
        for i in range(number):
            add(i)
        while together.busy:
            for piece in together.turn(now=0.0):  # of answers that are over
                if piece.error is not None:
                    raise piece.error
                tokens += len(piece.writing.tokens)
                piece.writing.take(whole=True)
                if time.perf_counter() - start < seconds:
                    add(number)
                    number += 1
        return tokens, number, time.perf_counter() - start

    together.warm_up()
    run(warm_up_clients(given.device, given.clients), warm_up_seconds(given.device))
    cpu = time.process_time()
    tokens, number, seconds = run(given.clients, given.seconds)
    cpu = time.process_time() - cpu
    return figures(given.model, "decoder", given.clients, tokens, seconds, [], number, (cpu,))


def warm_up_clients(device: str, clients: int) -> int:
    """On a GPU, every number of rows may need a graph of its own."""
    return min(clients, 2) if device == "cpu" else clients


def warm_up_seconds(device: str) -> float:
    """How long a server or a decoder is used before it is measured."""
    return 0.2 if device == "cpu" else 2.0


CHILDREN = {"alone": alone, "decoder": decoder}


def child(what: str, given: argparse.Namespace, model: str, folder: Path, clients: int = 1) -> Figures:
    """One of these in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.serve", "--child", what, "--model", model]
    command += ["--folder", str(folder), "--clients", str(clients), "--device", given.device]
    command += ["--dtype", given.dtype, "--weights", given.weights, "--rows", str(given.rows)]
    command += ["--seconds", str(given.seconds), "--new", *map(str, given.new)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return Figures(**json.loads(done.stdout.splitlines()[-1]))


# Over HTTP.


@contextlib.contextmanager
def started(command: list[str], log: Path, port: int = 0) -> Iterator[tuple[int, int]]:
    """A server while the block runs: its port and process. port: 0 if it says so itself in its first line."""
    with (
        log.open("wb") as file,
        subprocess.Popen(command, stdout=subprocess.PIPE if not port else file, stderr=file) as process,
    ):
        try:
            if not port:
                assert process.stdout is not None
                port = int(process.stdout.readline().decode().split()[0].rpartition(":")[2])
            asyncio.run(until_ready(port, process, log))
            yield port, process.pid
        finally:
            process.terminate()


async def until_ready(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + START
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(
                f"GET /ready HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nconnection: close\r\n\r\n".encode()
            )
            line = await reader.readline()
            writer.close()
            if b" 200 " in line:
                return
        await asyncio.sleep(0.1)
    raise RuntimeError(f"the server was not ready: {log.read_text()[-2000:]}")


def over_http(
    given: argparse.Namespace, model: str, contender: str, port: int, pid: int
) -> Iterator[Figures]:
    """The figures of a server for each number of clients."""
    task = TASKS[model]
    for clients in given.clients:
        some, seconds = warm_up_clients(given.device, clients), warm_up_seconds(given.device)
        asyncio.run(load(port, task.path, some, seconds, task.body))
        before = processor_times(pid)
        found = asyncio.run(load(port, task.path, clients, given.seconds, task.body))
        cpu = tuple(now - then for now, then in zip(processor_times(pid), before, strict=True))
        seen = found.tokens, found.seconds, found.firsts, found.requests
        yield figures(model, contender, clients, *seen, cpu if contender == "service" else ())


def processor_times(pid: int) -> tuple[float, float]:
    """Seconds of processor time of the children of a process, and of itself."""
    own = children = 0.0
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            words = file.read_text().rpartition(")")[2].split()
            seconds = (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
            own += seconds * (file.parent.name == str(pid))
            children += seconds * (words[1] == str(pid))
    return children, own


def service(given: argparse.Namespace, model: str, folder: Path, log: Path) -> Iterator[Figures]:
    command = [sys.executable, "-m", "heedful", "serve", str(folder), "--port", "0", "--device", given.device]
    command += ["--dtype", given.dtype, "--weights", given.weights, "--rows", str(given.rows)]
    with started(command, log) as (port, pid):
        yield from over_http(given, model, "service", port, pid)


def peer(given: argparse.Namespace, folder: Path, log: Path, batching: bool) -> Iterator[Figures]:
    port, name = free_port(), "transformers batching" if batching else "plain server"
    command = [sys.executable, "-m", "benchmarks.serve_peer", str(folder), "--port", str(port)]
    command += ["--device", given.device, "--dtype", given.dtype, *(["--batching"] if batching else [])]
    command += ["--warm-up", str(PROMPT), str(given.new[1])]
    try:
        with started(command, log, port) as (port, pid):
            yield from over_http(given, "gpt2", name, port, pid)
    except (RuntimeError, ExceptionGroup, OSError, asyncio.IncompleteReadError) as error:
        reasons = [line for line in log.read_text().splitlines() if line.strip()] or [str(error)]
        print(f"{name}: left out, it failed: {reasons[-1][:300]}", flush=True)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


# All together.


def measure(given: argparse.Namespace, model: str, folder: Path, logs: Path) -> Iterator[Figures]:
    """Every contender of a model."""
    yield child("alone", given, model, folder)
    for clients in given.clients:
        yield child("decoder", given, model, folder, clients)
    yield from service(given, model, folder, logs / "service")
    if model == "gpt2" and not given.no_peers:
        for batching in (False, True) if given.batching else (False,):
            yield from peer(given, folder, logs / f"peer{batching}", batching)


def line(one: Figures, alone: float, decoders: dict[int, float]) -> str:
    """Figures as a line of a table."""
    first = ""
    if one.first_token_ms_p50 is not None:
        first = f"first token {one.first_token_ms_p50:7.1f} ms p50 {one.first_token_ms_p99:7.1f} ms p99"
    times = f"{one.tokens_per_second / alone:5.2f} x alone"
    own = decoders.get(one.clients)
    cost = f"{one.tokens_per_second / own:5.2f} of decoder" if one.contender == "service" and own else ""
    rate = f"{one.tokens_per_second:9,.0f} tokens/s"
    cpu = "" if one.cpu is None else f"CPU {one.cpu:.2f} ms/token"
    cpu += "" if one.http_cpu is None else f" + {one.http_cpu:.2f}"
    return (
        f"{one.model:5} {one.contender:22} {one.clients:3} clients {rate} {times} {cost:16} {cpu:26} {first}"
    )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--device", default="auto", choices=["auto", "cpu", "cuda"])
    options.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "float16"])
    options.add_argument("--weights", default="fp32", help="on a CPU: fp32, fp16 or int8")
    options.add_argument("--models", nargs="+", default=list(TASKS), choices=list(TASKS))
    options.add_argument("--clients", nargs="+", type=int, default=[1, 8, 32, 64])
    options.add_argument(
        "--new",
        nargs=2,
        type=int,
        default=TASKS["gpt2"].new,
        metavar=("LOW", "HIGH"),
        help="tokens that a request of gpt2 lets be written, drawn by its number; 64 64 by default",
    )
    options.add_argument(
        "--rows", type=int, default=0, help="of the decoder; as many as clients, if not given"
    )
    options.add_argument("--seconds", type=float, default=6.0, help="of each measurement")
    options.add_argument("--folder", type=Path, help="where the models are kept from run to run")
    options.add_argument("--no-peers", action="store_true", help="heedful alone")
    options.add_argument(
        "--batching", action="store_true", help="beside transformers' continuous batching too"
    )
    options.add_argument("--json", type=Path, help="a file for all figures")
    options.add_argument("--child", choices=list(CHILDREN), help=argparse.SUPPRESS)
    options.add_argument("--model", help=argparse.SUPPRESS)
    given = options.parse_args()
    given.rows = given.rows or max(given.clients)
    TASKS["gpt2"] = replace(TASKS["gpt2"], new=tuple(given.new))
    if given.child:
        given.clients = given.clients[0]
        return print(json.dumps(asdict(CHILDREN[given.child](given))))
    if given.device == "auto":
        code = "import torch; print('cuda' if torch.cuda.is_available() else 'cpu')"
        given.device = subprocess.check_output([sys.executable, "-c", code], text=True).strip()
    with tempfile.TemporaryDirectory() as aside:
        run(given, given.folder or Path(aside), Path(aside))


def run(given: argparse.Namespace, folder: Path, logs: Path) -> None:
    """Measure, and say so at once."""
    began = time.time()
    print(f"{given.device}, {given.dtype}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", flush=True)
    found: list[Figures] = []
    for model in given.models:
        if not (folder / model).exists():
            folder.mkdir(parents=True, exist_ok=True)
            code = "import sys; from pathlib import Path; from benchmarks.serve import TASKS; "
            code += "TASKS[sys.argv[1]].make(Path(sys.argv[2]))"
            subprocess.run([sys.executable, "-c", code, model, str(folder / model)], check=True)
        own: list[Figures] = []
        for one in measure(given, model, folder / model, logs):
            own.append(one)
            decoders = {two.clients: two.tokens_per_second for two in own if two.contender == "decoder"}
            print(line(one, own[0].tokens_per_second, decoders), flush=True)
        found += own
    print(f"{time.time() - began:.0f} s, load {os.getloadavg()[0]:.1f}", flush=True)
    if given.json is not None:
        names = ("device", "dtype", "rows", "seconds", "new")
        facts = {name: getattr(given, name) for name in names}
        given.json.write_text(
            json.dumps({**facts, "figures": [asdict(one) for one in found]}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
