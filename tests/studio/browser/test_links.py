"""A copied link shows the same view to somebody else."""

import pytest
from helpers.studio_browser import differences, settle, show, snapshot

pytestmark = pytest.mark.browser
TEXT = "My aunts are curious."
HEADS = {"head": "cross.2.3", "edits": "zero:cross.1.2,uniform:self.2.1", "scale": "root", "cell": "2.3"}
HEADS |= {"text": TEXT, "sort": "bits", "over": "cross.1.1", "table": "sharp"}
STEP = {"head": "self.2.1", "edits": "scale:self.1.*:2.0", "query": "3", "step": "8", "all": "1"}
STEP |= {"text": TEXT, "target": "Mes tantes sont curieuses."}
VIEWS = [("heads", HEADS), ("step", STEP), ("overview", {"length": "17"})]


@pytest.mark.parametrize(("name", "state"), VIEWS, ids=[name for name, _ in VIEWS])
def test_a_copied_link_shows_the_same_view(studio, open_page, name, state):
    page = open_page(studio, permissions=["clipboard-read", "clipboard-write"])
    show(page, name, studio, run=studio.id("demo"), **state)
    page.get_by_role("button", name="Copy link").click()
    page.get_by_role("button", name="Copied").wait_for()
    link = page.evaluate("navigator.clipboard.readText()")
    seen = snapshot(page)
    other = open_page(studio)
    other.goto(link)
    settle(other)
    assert differences(seen, snapshot(other)) == {}
    if "edits" in state:
        assert state["edits"] in other.locator("form.input").inner_text()
        other.get_by_role("button", name="Remove the edits").click()
        settle(other)
        assert "numbers" in differences(seen, snapshot(other)) or "pixels" in differences(
            seen, snapshot(other)
        )


def test_every_choice_made_by_hand_is_in_the_address(studio, open_page):
    page = open_page(studio)
    show(page, "heads", studio, run=studio.id("demo"))
    page.get_by_label("Text", exact=True).fill(TEXT)
    page.keyboard.press("Enter")
    settle(page)
    page.get_by_role("radio", name="Encoder").check()
    settle(page)
    page.keyboard.press("j")
    settle(page)
    seen, address = snapshot(page), page.url
    other = open_page(studio)
    other.goto(address)
    settle(other)
    assert differences(seen, snapshot(other)) == {}
