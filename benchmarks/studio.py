"""What `heedful studio` costs: times to the first byte and the first map, bytes, work of the page, memory.

    python -m benchmarks.studio                     # both models: about five minutes on two idle cores
    python -m benchmarks.studio --models demo --json studio.json

Two models: `demo`, the translator of `heedful demo` after a few steps, and `gpt2`, GPT-2 124M's shape with
random weights. The studio runs as a process of its own, with one for each model; pages are opened in Chromium
without a window, by Playwright. A line has the median of --times measurements unless it says otherwise.

- first byte: from the start of the process to the first byte of the page
- first paint, first map: from the navigation on; the model is loaded
- trace: one POST /api/trace of a new text, as the client measures it
- change of head: from the key to the frame after the new map was drawn
- work: processor time of scripts, styles and layout on the page's main thread, in one frame
- memory: resident set size; above the model: what a process that only loaded the model has less
"""

from __future__ import annotations

import argparse
import gzip
import http.client
import itertools
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from .serve import make_demo, make_gpt2

SENTENCE = "Their small cat was a fast animal."
WORDS = ["the", "cat", "sat", "on", "a", "mat", "and", "saw", "one", "of", "ten", "red", "hens"]
WORK = ("EventDispatch", "FireAnimationFrame", "UpdateLayoutTree", "Layout")
PATIENCE = 300_000  # milliseconds
MOVES = 300
NEW = 1000  # the seed of texts that were not traced yet
BUDGETS = {
    "first byte": "0.6 s",
    "first paint": "1 s",
    "first map": "2 s",
    "bytes until the first map": "120 kB",
    "trace of a sentence, demo": "50 ms",
    "trace of 128 tokens, gpt2": "0.6 s",
    "hover, frames": "60 /s",
    "hover, work p99": "4 ms",
    "change of head": "80 ms",
    "map of 1,000 x 1,000": "200 ms",
    "hover at 1,000, frames": "30 /s",
    "static files": "260 kB",
    "memory of the HTTP process": "40 MB",
    "memory of the worker above the model": "60 MB and caches",
}
# In the page: when a frame was drawn, from the first key on.
FRAMES = (
    "() => { window.frames_ = []; const on = (t) => { frames_.push(t); requestAnimationFrame(on); }; on(0); }"
)
CHANGE = """(key) => new Promise((done, failed) => {
  const name = () => document.querySelector('.large h2')?.innerText ?? '';
  const [before, began] = [name(), performance.now()];
  const look = () => {
    if (performance.now() - began > 60_000) failed(new Error('no other head came'));
    const waits = !name() || name() === before || document.querySelector('.large .note');
    if (waits) requestAnimationFrame(look);
    else requestAnimationFrame(() => done(performance.now() - began));
  };
  document.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
  look();
})"""
SHOWN = """() => document.querySelector('.map-cells')?.width > 10
  && !document.querySelector('.stale, .large .note')"""


@dataclass
class Line:
    """One row of the table."""

    what: str
    value: float
    unit: str
    note: str = ""


@dataclass
class Table:
    """What was measured."""

    lines: list[Line] = field(default_factory=list)

    def add(self, what: str, value: float, unit: str, note: str = "") -> None:
        self.lines.append(Line(what, value, unit, note))
        print(f"{what}: {value:,.3g} {unit} {note}".rstrip(), file=sys.stderr, flush=True)

    def text(self) -> str:
        rows = [("what", "measured", "budget", "")]
        rows += [
            (line.what, f"{line.value:,.3g} {line.unit}", BUDGETS.get(line.what, ""), line.note)
            for line in self.lines
        ]
        return "\n".join("| " + " | ".join(row) + " |" for row in (rows[0], ("---",) * 4, *rows[1:]))


# The studio as a process.


@dataclass
class Running:
    """A studio that runs."""

    process: subprocess.Popen[str]
    port: int
    key: str
    first_byte: float

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(self, method: str, path: str, body: Any = None) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE / 1000)
        headers = {"authorization": f"Bearer {self.key}", "content-type": "application/json"}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        told = answer.read()
        connection.close()
        if answer.status != 200:
            raise RuntimeError(f"{method} {path}: {answer.status} {told[:300]!r}")
        return told

    def run(self, name: str) -> str:
        runs = json.loads(self.ask("GET", "/api/runs"))["runs"]
        return next(run["id"] for run in runs if run["name"] == name)

    def trace(self, run: str, text: str) -> tuple[float, dict[str, Any]]:
        began = time.perf_counter()
        told = json.loads(self.ask("POST", "/api/trace", {"run": run, "text": text}))
        return time.perf_counter() - began, told


@contextmanager
def running(root: Path) -> Iterator[Running]:
    began = time.perf_counter()
    command = [sys.executable, "-m", "heedful", "studio", "--runs", str(root), "--no-open"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert child.stdout is not None
        found = re.search(r"127\.0\.0\.1:(\d+)/\?token=([\w-]+)", child.stdout.readline())
        assert found is not None
        connection = http.client.HTTPConnection("127.0.0.1", int(found[1]))
        connection.request("GET", "/")
        connection.getresponse().read(1)
        first = time.perf_counter() - began
        connection.close()
        yield Running(child, int(found[1]), found[2], first)
    finally:
        child.terminate()
        child.wait(30)


def resident(pid: int | str) -> float:
    """Megabytes of a process in memory."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def loaded_only(folder: Path) -> float:
    """Megabytes of a process that loads the model as a worker does, and traces one text."""
    code = (
        "import sys, heedful, os; import heedful.studio.worker\n"
        f"model = heedful.load({str(folder)!r}); trace = model.trace('the cat sat'); del trace\n"
        "print(int(open('/proc/self/statm').read().split()[1]) * os.sysconf('SC_PAGE_SIZE') / 1e6)"
    )
    return float(
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    )


def text_of(folder: Path, tokens: int, seed: int) -> str:
    """A text of so many tokens."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    words = random.Random(seed).choices(WORDS, k=tokens)
    text = " ".join(words)
    while len(tokenizer.encode(text).ids) > tokens:
        text = text[:-1]
    return text


# What is measured without a browser.


def measure_files(table: Table) -> None:
    from heedful.studio.static_files import listing

    contents = [path.read_bytes() for path in listing().values()]
    table.add("static files", sum(map(len, contents)) / 1000, "kB", f"{len(contents)} files")
    packed = sum(len(gzip.compress(one, mtime=0)) for one in contents)
    table.add("static files as sent", packed / 1000, "kB", "gzip, all pages")


def measure_traces(table: Table, studio: Running, root: Path, models: list[str], times: int) -> None:
    for name in models:
        run = studio.run(name)
        began = time.perf_counter()
        studio.ask("GET", f"/api/runs/{run}/about")
        table.add(f"load of {name}", time.perf_counter() - began, "s", "a new process")
        what, tokens = ("a sentence", 0) if name == "demo" else ("128 tokens", 128)
        texts = [
            text_of(root / name, tokens, seed) if tokens else f"{SENTENCE} {WORDS[seed % len(WORDS)]}"
            for seed in range(times + 1)
        ]
        seconds = [studio.trace(run, text)[0] for text in texts][1:]
        best, unit = statistics.median(seconds), "s"
        if name == "demo":
            best, unit = 1000 * best, "ms"
        table.add(f"trace of {what}, {name}", best, unit, f"of {times}")


def measure_memory(table: Table, studio: Running, root: Path, name: str) -> None:
    """After 200 requests of a page for different texts."""
    run = studio.run(name)
    studio.trace(run, SENTENCE)
    before = {pid: resident(pid) for pid in children(studio.process.pid)}
    for number in range(40):
        _, trace = studio.trace(
            run, f"{SENTENCE} {number}" if name == "demo" else text_of(root / name, 64, number)
        )
        which = next(iter(trace["kinds"]))
        at = f"which={which}&layer=1&head=1"
        for path in (
            f"thumbs?which={which}",
            f"tensor?name=weights&{at}",
            f"steps?{at}&query=1",
            f"tensor?name=q&{at}",
        ):
            studio.ask("GET", f"/api/trace/{trace['id']}/{path}")
    table.add("memory of the HTTP process", resident(studio.process.pid), "MB", "after 200 requests")
    worker = max(resident(pid) for pid in children(studio.process.pid))
    alone = loaded_only(root / name)
    table.add(
        "memory of the worker above the model",
        worker - alone,
        "MB",
        f"{name}: {worker:.0f} and {alone:.0f} MB, with kept traces",
    )
    table.add("growth of the worker", worker - max(before.values(), default=0.0), "MB", "over 200 requests")


# What is measured in a browser.


class Pages:
    """Pages of the studio in one browser."""

    def __init__(self, browser: Any, studio: Running) -> None:
        self.browser, self.studio = browser, studio

    @contextmanager
    def open(self, run: str, text: str, head: str = "self.1.1") -> Iterator[tuple[Any, dict[str, float]]]:
        """The Heads page in a new context, and what it took until its map was drawn."""
        context = self.browser.new_context(viewport={"width": 1280, "height": 900}, device_scale_factor=1)
        context.set_default_timeout(PATIENCE)
        cookie = {"name": f"heedful_{self.studio.port}", "value": self.studio.key, "url": self.studio.address}
        context.add_cookies([cookie])
        page = context.new_page()
        session = context.new_cdp_session(page)
        session.send("Network.enable")
        sizes: list[int] = []
        session.on("Network.dataReceived", lambda event: sizes.append(event["encodedDataLength"]))
        session.on(
            "Network.responseReceived", lambda event: sizes.append(event["response"]["encodedDataLength"])
        )
        began = time.perf_counter()
        page.goto(f"{self.studio.address}/#heads?run={run}&text={quote(text)}&head={head}")
        page.wait_for_function(SHOWN, polling="raf")
        told = {"map": time.perf_counter() - began, "bytes": float(sum(sizes))}
        paint = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? NaN"
        told["paint"] = page.evaluate(paint) / 1000
        yield page, told
        context.close()


def frame_work(events: list[dict[str, Any]]) -> list[float]:
    """Milliseconds of work in each frame."""
    frames = sorted(event["ts"] for event in events if event["name"] == "FireAnimationFrame")
    threads = {(one["pid"], one["tid"]) for one in events if one["name"] == "FireAnimationFrame"}
    work = [0.0] * (len(frames) + 1)
    at = 0
    for event in sorted((one for one in events if one["name"] in WORK), key=lambda one: one["ts"]):
        if (event["pid"], event["tid"]) in threads:
            while at < len(frames) and frames[at] < event["ts"]:
                at += 1
            work[at] += event.get("tdur", 0) / 1000
    return work[:-1]


def hover(page: Any, browser: Any) -> tuple[float, list[float]]:
    """Frames a second under a pointer that always moves, and the work of each frame."""
    box = page.locator(".map-over").bounding_box()
    rng = random.Random(0)
    page.evaluate(FRAMES)
    browser.start_tracing(page=page, categories=["devtools.timeline"])
    for _ in range(MOVES):
        x, y = rng.random() * (box["width"] - 2) + 1, rng.random() * (box["height"] - 2) + 1
        page.mouse.move(box["x"] + x, box["y"] + y)
    events = json.loads(browser.stop_tracing())["traceEvents"]
    stamps = page.evaluate("window.frames_.slice(1)")
    gaps = [b - a for a, b in itertools.pairwise(stamps)]
    return 1000 / statistics.mean(gaps), sorted(frame_work(events))


def changes(page: Any, times: int) -> list[float]:
    """Milliseconds from the key of another head to its map, along the diagonal from the first head on."""
    return [page.evaluate(CHANGE, "jl"[number % 2]) for number in range(min(times, 22))]


def measure_pages(table: Table, pages: Pages, root: Path, models: list[str], times: int) -> None:
    if "demo" in models:
        told = []
        for _ in range(times):
            with pages.open(pages.studio.run("demo"), SENTENCE) as (_, one):
                told.append(one)
        for key, what, unit, factor in (
            ("paint", "first paint", "s", 1.0),
            ("map", "first map", "s", 1.0),
            ("bytes", "bytes until the first map", "kB", 1e-3),
        ):
            table.add(what, factor * statistics.median(one[key] for one in told), unit, "demo")
    if "gpt2" in models:
        run = pages.studio.run("gpt2")
        with pages.open(run, text_of(root / "gpt2", 128, NEW)) as (page, told_one):
            table.add("first map, gpt2 at 128 tokens", told_one["map"], "s", "with the trace")
            rate, work = hover(page, pages.browser)
            table.add("hover, frames", rate, "/s", "12 x 12 heads, 128 tokens")
            table.add("hover, work p50", work[len(work) // 2], "ms")
            table.add("hover, work p99", work[int(0.99 * len(work))], "ms")
            table.add("change of head", statistics.median(changes(page, 2 * times)), "ms", f"of {2 * times}")
        with pages.open(run, text_of(root / "gpt2", 512, NEW)) as (_, told_one):
            table.add("bytes until the first map at 512 tokens", told_one["bytes"] / 1000, "kB", "gpt2")
        with pages.open(run, text_of(root / "gpt2", 1000, NEW)) as (page, told_one):
            table.add("first map, gpt2 at 1,000 tokens", told_one["map"], "s", "with the trace")
            table.add(
                "map of 1,000 x 1,000", statistics.median(changes(page, times)), "ms", "request to painted"
            )
            rate, _ = hover(page, pages.browser)
            table.add("hover at 1,000, frames", rate, "/s")


def main() -> None:
    parser = argparse.ArgumentParser(description="What `heedful studio` costs.")
    parser.add_argument("--models", nargs="*", default=["demo", "gpt2"], choices=["demo", "gpt2"])
    parser.add_argument("--times", type=int, default=7)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    from playwright.sync_api import sync_playwright

    makers: dict[str, Callable[[Path], None]] = {"demo": make_demo, "gpt2": make_gpt2}
    table = Table()
    measure_files(table)
    with tempfile.TemporaryDirectory() as name:
        root = Path(name) / "runs"
        root.mkdir()
        for model in given.models:
            makers[model](root / model)
        starts = []
        for _ in range(given.times):
            with running(root) as studio:
                starts.append(studio.first_byte)
        table.add("first byte", statistics.median(starts), "s", f"of {given.times}")
        with running(root) as studio, sync_playwright() as started:
            measure_traces(table, studio, root, given.models, given.times)
            arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
            browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=arguments)
            measure_pages(table, Pages(browser, studio), root, given.models, given.times)
            browser.close()
        with running(root) as studio:
            measure_memory(table, studio, root, given.models[0])
    print(table.text())
    if given.json:
        given.json.write_text(json.dumps([asdict(line) for line in table.lines], indent=1) + "\n")


if __name__ == "__main__":
    main()
