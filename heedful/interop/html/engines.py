"""Engines that run a page: Chromium, else Node. Each is asked by a line of JSON and replies with one.

Chromium is spoken to through two pipes, by the protocol of its developer tools: no port is opened.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import weakref
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...errors import NotInstalled
from .page import STATIC

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
QUIET = (
    "--headless=new", "--disable-gpu", "--no-first-run", "--disable-extensions", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--hide-scrollbars", "--mute-audio",
    "--disable-dev-shm-usage", "--host-resolver-rules=MAP * ~NOTFOUND",
)  # fmt: skip


# Chromium reads from handle 3 and writes to handle 4, which the parent may use for something else.
HANDLES = """
import os, sys
down, up = (os.dup(os.dup(os.dup(int(n)))) for n in sys.argv[1:3])
os.dup2(down, 3)
os.dup2(up, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


class PageFault(RuntimeError):
    """What a page says when it cannot answer."""


class NotStarted(PageFault):
    """A browser that does not start, or cannot read the page: it says nothing about the page."""


class Engine(ABC):
    """A process in which one page is open."""

    version: str  # what it is, such as "Chromium/131.0"

    @abstractmethod
    def ask(self, question: dict[str, Any]) -> Any:
        """The answer of the page to {ask: ..., more}; static/answers.js has the questions."""


def engine_for(page: Path, plain: bool = False) -> Engine:
    """The first engine of this machine that opens the page. plain: without WebAssembly, which Node can do."""
    browser = None if plain or os.name != "posix" else found(BROWSERS)
    if browser is not None:
        with suppress(NotStarted):  # as in containers, or with a browser that may not read this folder
            return Chromium(browser, page)
    if node := found(("node", "nodejs")):
        return Node(node, page, plain)
    why = "neither Chromium nor Node is installed" if browser is None else f"{browser} does not open the page"
    raise NotInstalled(f"{why}, and one of them runs the page: install Chromium or Node")


def found(names: tuple[str, ...]) -> str | None:
    return next((path for name in names if (path := shutil.which(name))), None)


class Node(Engine):
    """Node.js, given the scripts of the page."""

    def __init__(self, program: str, page: Path, plain: bool = False) -> None:
        handle, script = tempfile.mkstemp(suffix=".mjs")
        os.close(handle)
        how = ["plain"] if plain else []
        printed = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
        self.version = f"Node/{printed.stdout.strip()}"
        self.child = subprocess.Popen(
            [program, str(STATIC / "node.mjs"), str(page), script, *how],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.close = weakref.finalize(self, end, self.child, Path(script))

    def ask(self, question: dict[str, Any]) -> Any:
        assert self.child.stdin is not None and self.child.stdout is not None
        try:
            self.child.stdin.write(json.dumps(question).encode() + b"\n")
            self.child.stdin.flush()
            line = self.child.stdout.readline()
        except BrokenPipeError:
            line = b""
        if not line:
            assert self.child.stderr is not None
            raise PageFault(self.child.stderr.read().decode(errors="replace").strip() or "Node ended")
        reply = json.loads(line)
        if "fault" in reply:
            raise PageFault(reply["fault"])
        return reply["answer"]


class Chromium(Engine):
    """Chromium without a window, with the page opened from its file."""

    def __init__(self, program: str, page: Path) -> None:
        self.profile = Path(tempfile.mkdtemp(prefix="heedful-page-"))
        down, self.down = os.pipe()
        self.up, up = os.pipe()
        root = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
        arguments = [
            *QUIET,
            *root,
            f"--user-data-dir={self.profile}",
            "--remote-debugging-pipe",
            "about:blank",
        ]
        self.child = subprocess.Popen(
            [sys.executable, "-S", "-E", "-c", HANDLES, str(down), str(up), program, *arguments],
            pass_fds=(down, up),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(down)
        os.close(up)
        self.close = weakref.finalize(self, end, self.child, self.profile, self.down, self.up)
        self.rest, self.number, self.session = b"", 0, ""
        self.version = self.send("Browser.getVersion")["product"]
        target = self.send("Target.createTarget", url=page.resolve().as_uri())["targetId"]
        self.session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.wait()

    def wait(self) -> None:
        """Wait for the page, whose context takes the place of an empty one."""
        while True:
            try:
                if self.evaluate("location.protocol") == "chrome-error:":
                    raise NotStarted("the browser cannot read the page")
                self.ready = float(self.evaluate(OPENED))  # milliseconds since the page was asked for
                return
            except PageFault as fault:
                if "context was destroyed" not in str(fault):
                    raise

    def ask(self, question: dict[str, Any]) -> Any:
        asked = json.dumps(json.dumps(question))
        return json.loads(self.evaluate(f"heedful.then((opened) => opened.ask({asked}))"))

    def evaluate(self, expression: str) -> Any:
        found = self.send("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if wrong := found.get("exceptionDetails"):
            raise PageFault(wrong.get("exception", {}).get("description") or wrong["text"])
        return found["result"].get("value")

    def send(self, method: str, **given: Any) -> dict[str, Any]:
        """The result of a command; what the browser says meanwhile is not heard."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": given}
        message |= {"sessionId": self.session} if self.session else {}
        data = json.dumps(message).encode() + b"\0"
        try:
            while data:
                data = data[os.write(self.down, data) :]
        except BrokenPipeError:
            raise NotStarted("the browser ended") from None
        while (reply := self.receive()).get("id") != self.number:
            pass
        if "error" in reply:
            raise PageFault(reply["error"]["message"])
        return reply["result"]

    def receive(self) -> dict[str, Any]:
        parts = [self.rest]
        while b"\0" not in parts[-1]:
            parts.append(os.read(self.up, 1 << 20))
            if not parts[-1]:
                raise NotStarted("the browser ended")
        message, _, self.rest = b"".join(parts).partition(b"\0")
        return json.loads(message)


# The page is there once its script has run; a navigation may still be on its way.
OPENED = """new Promise((done, fail) => {
  const wait = () => {
    if (location.protocol === 'about:' || document.readyState !== 'complete') setTimeout(wait, 20);
    else if (globalThis.heedful) globalThis.heedful.then(() => done(performance.now()), fail);
    else fail(new Error('the script of the page did not run'));
  };
  wait();
})"""


def end(child: subprocess.Popen[bytes], left: Path, *handles: int) -> None:
    """End a process and remove what it has left."""
    for handle in handles:
        os.close(handle)
    child.terminate()
    try:
        child.wait(10)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    for stream in (child.stdin, child.stdout, child.stderr):
        if stream is not None:
            stream.close()
    if left.is_dir():
        shutil.rmtree(left, ignore_errors=True)
    else:
        left.unlink(missing_ok=True)
