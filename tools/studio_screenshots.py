"""Pictures of every page of the studio, in light and dark, wide and narrow.

    python tools/studio_screenshots.py RUNS OUT [--run NAME] [--pages heads step] [--start]

RUNS is the folder of runs that the studio shows. Needs Chromium and Playwright. Pages show the model of --run
or the first of the list. Pictures are named as in heads-light-1280.png.
"""

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

STATIC = Path(__file__).parents[1] / "heedful" / "studio" / "static"
WIDTHS = {1280: 900, 390: 844}
PATIENCE = 120_000  # milliseconds
READY = """() => document.querySelector('main h1, main .note.error')
  && !document.querySelector('.note[role=status]:not(:empty), .status[role=status], .stale')"""


def pages() -> list[str]:
    """The names of all pages."""
    return re.findall(
        r"^  (\w+): \(\) =>", (STATIC / "registry.js").read_text(encoding="utf-8"), re.MULTILINE
    )


def take(page: Any, address: str, name: str, given: argparse.Namespace) -> None:
    """All pictures of one page."""
    run = f"?run={given.run}" if given.run else ""
    page.goto(f"{address}/#{name}{run}")
    page.wait_for_function(READY, timeout=PATIENCE)
    if given.start:
        press_start(page)
    for width, height in WIDTHS.items():
        page.set_viewport_size({"width": width, "height": height})
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)
            page.wait_for_timeout(300)  # curves and maps are drawn anew
            page.screenshot(path=given.out / f"{name}-{theme}-{width}.png", full_page=True)


def press_start(page: Any) -> None:
    """Start the work that a page offers, and wait for its end."""
    button = page.locator(".sheet button.primary:enabled:visible")
    if button.count():
        button.first.click()
        page.wait_for_timeout(300)
        page.wait_for_function(READY, timeout=5 * PATIENCE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--run", default="", help="the name of a run")
    parser.add_argument("--pages", nargs="*", default=pages())
    parser.add_argument(
        "--start", action="store_true", help="start the work that pages offer, and wait for it"
    )
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "heedful", "studio", "--runs", str(given.runs), "--no-open"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        link = child.stdout.readline().split()[0]
        with sync_playwright() as started:
            browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            context = browser.new_context(reduced_motion="reduce")
            page = context.new_page()
            page.goto(link)
            address = link.partition("/?")[0]
            if given.run:
                runs = page.evaluate("fetch('/api/runs').then((answer) => answer.json())")["runs"]
                given.run = next(run["id"] for run in runs if run["name"] == given.run)
            for name in given.pages:
                take(page, address, name, given)
                print(f"{name}: pictures are in {given.out}", flush=True)
            browser.close()
    finally:
        child.terminate()
        child.wait(30)


if __name__ == "__main__":
    main()
