"""A real browser on a studio: pages that note every error, and a zoo of tiny models to show on them.

    def test_it_opens(open_page, studio):
        page = open_page(studio)
        show(page, "heads", run=studio.id("demo"))
        assert page.locator("h1").inner_text() == "Heads"

Chromium comes from the system (Debian's package `chromium`). Where it is missing, tests are skipped, except
where everything is tested.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest
import torch

import heedful
from heedful.interop.loaded import Loaded
from heedful.models import gpt2
from heedful.runs import trainer
from heedful.studio import static_files
from helpers import runs, tiny
from helpers.lab_cases import write_lab
from helpers.look_cases import saved
from helpers.serve_cases import ROOT
from helpers.studio_cases import StudioClient
from helpers.tokenizer_cases import byte_level

CHROMIUM = shutil.which("chromium")
PAGES = re.findall(r"^  (\w+): \(\) =>", (static_files.FOLDER / "registry.js").read_text(), re.MULTILINE)
EVIL = "evil.test"  # a name that leads to this machine, as that of an attacker's site does after rebinding
ARGUMENTS = [f"--host-resolver-rules=MAP {EVIL} 127.0.0.1", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
PATIENCE = 30_000  # milliseconds that a busy machine may take for anything
SIZES = {"wide": {"width": 1280, "height": 900}, "narrow": {"width": 390, "height": 844}}

# In every page, before its own scripts: open requests, when the page last changed, what its policy refused.
NOTING = """(() => {
  const seen = { open: 0, changed: performance.now(), violations: [] };
  Object.defineProperty(window, 'seen', { value: seen });
  const refused = (e) => seen.violations.push(`${e.violatedDirective}: ${e.blockedURI}`);
  addEventListener('securitypolicyviolation', refused);
  const ask = window.fetch;
  window.fetch = async (path, options) => {
    const lasts = /\\/(follow|events)(\\?|$)/.test(String(path));
    seen.open += lasts ? 0 : 1;
    try {
      return await ask(path, options);
    } finally {
      seen.open -= lasts ? 0 : 1;
      seen.changed = performance.now();
    }
  };
  new MutationObserver(() => { seen.changed = performance.now(); })
    .observe(document, { subtree: true, childList: true, characterData: true, attributes: true });
})();"""
# Nothing is on its way, and nothing changed for a moment.
SETTLED = """(quiet) => !seen.open && performance.now() - seen.changed > quiet
  && document.querySelector('main h1, main .note.error')
  && ![...document.querySelectorAll('.note[role=status]:not(:empty), .status[role=status], .stale')].length"""


def need_chromium() -> Any:
    """Playwright. Tests are skipped where Chromium is missing; where everything is tested, they fail."""
    if CHROMIUM is None and os.environ.get("CI"):
        pytest.fail("there is no chromium, which .ci/run installs")
    if CHROMIUM is None:
        pytest.skip("there is no chromium: apt-get install chromium")
    return importlib.import_module("playwright.sync_api")


@contextmanager
def launched() -> Iterator[Any]:
    """Chromium without a window."""
    with need_chromium().sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@contextmanager
def without_own_guard(browser: Any) -> Iterator[Any]:
    """Another Chromium, which lets every page speak to this machine, as most browsers do."""
    args = [*ARGUMENTS, "--disable-features=LocalNetworkAccessChecks"]
    other = browser.browser_type.launch(executable_path=CHROMIUM, args=args)
    yield other
    other.close()


@dataclass
class Noted:
    """What went wrong in the pages of a context."""

    own: str  # the address of the studio
    found: list[str] = field(default_factory=list)

    def watch(self, page: Any) -> None:
        page.on("console", lambda line: line.type in ("error", "warning") and self.add("console", line.text))
        page.on("pageerror", lambda error: self.add("error", (error.stack or str(error))[:400]))
        page.on("request", lambda request: self.came(request.url))

    def add(self, kind: str, what: str) -> None:
        self.found.append(f"{kind}: {what}")

    def came(self, address: str) -> None:
        if not address.startswith((f"{self.own}/", "data:", "blob:")):
            self.add("foreign request", address)

    def all(self, page: Any) -> list[str]:
        """Everything so far, with what the policy of the page refused."""
        refused = [] if page.is_closed() else page.evaluate("globalThis.seen?.violations ?? []")
        return [*self.found, *refused]


@dataclass
class Opener:
    """Opens pages that are logged in. At the end of a test nothing may have gone wrong in them."""

    browser: Any
    opened: list[tuple[Any, Noted]] = field(default_factory=list)

    def __call__(self, studio: StudioClient, size: str = "wide", **options: Any) -> Any:
        options = {"viewport": SIZES[size], "reduced_motion": "reduce", **options}
        context = self.browser.new_context(accept_downloads=True, **options)
        context.set_default_timeout(PATIENCE)
        context.add_init_script(NOTING)
        log_in(context, studio)
        page = context.new_page()
        noted = Noted(studio.address)
        noted.watch(page)
        self.opened.append((page, noted))
        return page

    def problems(self) -> list[str]:
        return [problem for page, noted in self.opened for problem in noted.all(page)]

    def close(self) -> None:
        for page, _ in self.opened:
            page.context.close()


def log_in(context: Any, studio: StudioClient) -> None:
    """Leave the cookie that the printed link leaves."""
    key = studio.headers["authorization"].removeprefix("Bearer ")
    cookie = {"name": f"heedful_{studio.port}", "value": key, "url": studio.address}
    context.add_cookies([cookie | {"httpOnly": True, "sameSite": "Strict"}])


def show(page: Any, name: str, studio: StudioClient | None = None, **state: str) -> None:
    """Go to a page with a state and wait until it is there. Without a studio, only the hash changes."""
    address = f"#/{name}?{urlencode(state)}"
    if studio is not None:
        page.goto(f"{studio.address}/{address}")
    else:
        page.evaluate("(hash) => { location.hash = hash; seen.changed = performance.now(); }", address)
    settle(page)


def settle(page: Any, quiet: int = 80) -> None:
    """Wait until nothing is on its way. quiet: milliseconds, more than Preact takes between two effects."""
    page.wait_for_function(SETTLED, arg=quiet, polling=25)


def look(page: Any, size: str, theme: str = "light") -> None:
    """Another size of the window, or other colors, and wait until the page has followed."""
    page.set_viewport_size(SIZES[size])
    page.emulate_media(color_scheme=theme)
    page.evaluate("() => { seen.changed = performance.now(); }")  # observers of sizes come a frame later
    settle(page)


def sentence_of(page: Any) -> str:
    """The sentence by which a page says why it has nothing to show; nothing where it shows something."""
    notes = page.locator("main > .note:not([role])")
    return notes.first.inner_text() if notes.count() else ""


def violations(page: Any, *rules: str) -> list[str]:
    """What axe finds, by all of its rules or by some: rule, and the elements that break it."""
    if not page.evaluate("Boolean(globalThis.axe)"):
        page.evaluate(f"{axe_source()}; undefined")
    options = {"resultTypes": ["violations"], **({"runOnly": list(rules)} if rules else {})}
    found = page.evaluate("(options) => axe.run(options).then(({ violations }) => violations)", options)
    told = []
    for rule in found:
        elements = "; ".join(node["html"][:160] for node in rule["nodes"][:3])
        told.append(f"{rule['id']} ({rule['impact']}): {rule['help']}: {elements}")
    return told


def axe_source() -> str:
    return (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")


def bytes_sent(page: Any) -> Callable[[], int]:
    """A function that gives the bytes that came over the network from now on."""
    session = page.context.new_cdp_session(page)
    session.send("Network.enable")
    sizes: list[int] = []
    session.on("Network.dataReceived", lambda event: sizes.append(event["encodedDataLength"]))
    session.on("Network.responseReceived", lambda event: sizes.append(event["response"]["encodedDataLength"]))
    return lambda: sum(sizes)


@contextmanager
def studio_process(*arguments: str, log: Path) -> Iterator[tuple[StudioClient, subprocess.Popen[str]]]:
    """`heedful studio` as people start it: a process of its own, and one for each model."""
    command = [sys.executable, "-m", "heedful", "studio", *arguments, "--no-open"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with (
        log.open("wb") as file,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=file, env=environment, text=True) as child,
    ):
        try:
            assert child.stdout is not None
            found = re.search(r"http://127\.0\.0\.1:(\d+)/\?token=([\w-]+)", child.stdout.readline())
            assert found is not None, log.read_text()
            yield StudioClient(int(found[1]), None, headers={"authorization": f"Bearer {found[2]}"}), child
        finally:
            child.terminate()
            child.wait(30)


# Models


def make_zoo(stored: Path, root: Path) -> Path:
    """Tiny models of every kind that pages tell apart, in the folders of a studio."""
    for name in ("demo", "lm", "mlm", "classify"):
        shutil.copytree(stored / name, root / name)
    for name in ("gpt2", "llama", "bert"):
        saved(name, root / name)
    texts = {path.name: str(path) for path in written_texts(root.parent / "texts").iterdir()}
    for name, task, more in (
        ("vit", "image-classify", {}),
        ("bahdanau", "translate", {"model.architecture": "bahdanau"}),
        ("lstm", "lm", {"model.architecture": "lstm"}),
    ):
        with torch.enable_grad():
            trainer.start(runs.recipe_for(task, texts, 2, **more), root / name, runs.Quiet(), runs.CPU)
    write_lab(root)
    return root


def written_texts(folder: Path) -> Path:
    """The files of the fixture `texts`."""
    folder.mkdir()
    runs.texts.__wrapped__(folder)
    return folder


def save_large(folder: Path, layers: int = 12, heads: int = 12, context: int = 1024) -> Path:
    """GPT-2's count of layers and heads, with narrow vectors."""
    tokenizer = byte_level()
    sizes = {"layers": layers, "heads": heads, "context": context, "width": 4 * heads, "ffn_width": 48}
    config = gpt2.GPT2Config(vocab=tokenizer.get_vocab_size(), **sizes)
    heedful.save(Loaded("gpt2", config, tiny.build((gpt2, config), torch.float32, 5), tokenizer, {}), folder)
    return folder


def text_of(model: Path, tokens: int) -> str:
    """A text that a model reads as so many tokens."""
    loaded = heedful.load(str(model))
    words = ("the", "cat", "sat", "on", "a", "mat", "and", "saw", "3", "of", "them")
    text = "the"
    while len(loaded.tokenizer.encode(text).ids) < tokens:
        text += f" {words[len(text) % len(words)]}"
    while len(loaded.tokenizer.encode(text).ids) > tokens:
        text = text[:-1]
    return text


def port_of(address: str) -> int:
    return urlsplit(address).port or 80


# What a page shows

SNAPSHOT = """() => {
  const picture = document.querySelector('.picture');
  const lines = (text) => text.split('\\n').map((line) => line.trim()).filter(Boolean);
  return {
    title: document.querySelector('h1').innerText,
    text: lines(picture.innerText),
    drawn: [...picture.querySelectorAll('svg text')].map((one) => one.textContent.trim()),
    numbers: [...picture.querySelectorAll('[data-from]')]
      .map((one) => [one.dataset.from, one.textContent.trim()]),
    values: [...document.querySelectorAll('.controls :is(input, select), .picture :is(input, select)')]
      .map((one) => (/^(radio|checkbox)$/.test(one.type) ? one.checked : one.value)),
    pixels: [...picture.querySelectorAll('canvas')].map((one) => one.toDataURL()),
  };
}"""


def snapshot(page: Any) -> dict[str, Any]:
    """Everything that can be read in the picture of a page, and the pixels of its canvases."""
    page.mouse.move(1, 1)  # nothing is pointed at
    page.evaluate("document.activeElement?.blur()")
    settle(page)
    return page.evaluate(SNAPSHOT)


def differences(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Where two snapshots differ, short enough to read."""
    found = {}
    for name, mine in one.items():
        if mine != (theirs := other[name]):
            pairs = zip(mine, theirs, strict=False)
            unequal = [(str(a)[:200], str(b)[:200]) for a, b in pairs if a != b][:5]
            found[name] = (len(mine), len(theirs), unequal)
    return found
