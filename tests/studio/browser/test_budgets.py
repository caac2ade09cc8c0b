"""What the page may cost: work of the main thread under a moving pointer, and bytes until the first map."""

import json

import numpy as np
import pytest
from helpers.studio_browser import bytes_sent, show, text_of

pytestmark = pytest.mark.browser
# What a script makes the main thread do, with the time that the processor spent on it: other programs do not
# count, and neither does painting.
TRACED = ["devtools.timeline"]
WORK = ("EventDispatch", "FireAnimationFrame", "UpdateLayoutTree", "Layout")


def frame_work(events: list[dict]) -> np.ndarray:
    """Milliseconds of work in each frame that a script drew in."""
    frames = [event for event in events if event["name"] == "FireAnimationFrame"]
    (thread,) = {(event["pid"], event["tid"]) for event in frames}
    work = [one for one in events if one["name"] in WORK and (one["pid"], one["tid"]) == thread]
    ends = sorted(event["ts"] for event in frames)
    spent = np.zeros(len(ends) + 1)
    np.add.at(spent, np.searchsorted(ends, [one["ts"] for one in work]), [one["tdur"] for one in work])
    return spent[:-1] / 1000


def test_pointing_at_a_map_of_128_tokens_is_little_work(large, open_page, browser):
    studio, folder = large
    page = open_page(studio)
    show(page, "heads", studio, run=studio.id("large"), text=text_of(folder, 128))
    over = page.locator(".map-over")
    over.scroll_into_view_if_needed()
    box = over.bounding_box()
    assert page.locator(".map-labels text").count() > 10 and box["width"] > 300
    rng = np.random.default_rng(0)
    page.mouse.move(box["x"] + 5, box["y"] + 5)
    browser.start_tracing(page=page, categories=TRACED)
    texts = set()
    for x, y in rng.random((240, 2)):
        page.mouse.move(box["x"] + 1 + x * (box["width"] - 2), box["y"] + 1 + y * (box["height"] - 2))
        texts.add(page.locator(".readout").text_content())
    work = frame_work(json.loads(browser.stop_tracing())["traceEvents"])
    assert len(work) > 100 and len(texts) > 100
    assert np.quantile(work, 0.99) < 4, sorted(work)[-5:]


def test_a_text_of_512_tokens_needs_less_than_a_megabyte(large, open_page):
    """The model has 4 of GPT-2's 12 layers, to be quick: small pictures of the other 8 are counted too."""
    studio, folder = large
    page = open_page(studio)
    sent = bytes_sent(page)
    show(page, "heads", studio, run=studio.id("shallow"), text=text_of(folder, 512))
    assert page.evaluate("document.querySelector('.map-cells').width") > 200
    weights, small = 512 * 512 * 2, 12 * 32 * 32
    assert weights + 4 * small < sent() <= 1_000_000 - 8 * small


def test_the_demo_needs_less_than_120_kilobytes_until_the_first_map(studio, open_page):
    page = open_page(studio)
    sent = bytes_sent(page)
    show(page, "heads", studio, run=studio.id("demo"))
    assert page.locator(".map-cells").count() == 1
    assert 10_000 < sent() <= 120_000
