"""A copied link shows the same view to somebody else."""

import pytest
from helpers.studio_browser import PAGES, differences, settle, show, snapshot

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
        assert differences(seen, snapshot(other)).keys() & {"numbers", "pixels"}


@pytest.mark.parametrize("name", PAGES)
def test_every_choice_made_by_hand_is_in_the_address(studio, open_page, name):
    page = open_page(studio)
    show(page, name, studio, run=studio.id("demo"))
    before = snapshot(page)
    chosen = [act for act in (choose_others, move_sliders, flip_switches, sort_tables) if act(page)]
    seen, address = snapshot(page), page.url
    assert not chosen or differences(before, seen), chosen
    other = open_page(studio)
    other.goto(address)
    settle(other)
    assert differences(seen, snapshot(other)) == {}, address


def choose_others(page):
    """Take the last of each list and of each row of buttons."""
    for number in range(page.locator(".sheet select:enabled").count()):
        found = page.locator(".sheet select:enabled").nth(number)
        if found.count():
            found.select_option(index=found.locator("option").count() - 1)
            settle(page)
    for number in range(min(4, page.locator(".sheet fieldset.choice").count())):
        found = page.locator(".sheet fieldset.choice").nth(number).locator("input:enabled").last
        if found.count():
            found.check()
            settle(page)
    return page.locator(".sheet :is(select:enabled, fieldset.choice)").count() > 0


def move_sliders(page):
    found = page.locator(".sheet input[type=range]:enabled")
    for number in range(min(3, found.count())):
        found.nth(number).focus()
        page.keyboard.press("ArrowRight")
        settle(page)
    return found.count() > 0


def flip_switches(page):
    found = page.locator(".sheet input[type=checkbox]:enabled")
    for number in range(min(3, found.count())):
        found.nth(number).click()
        settle(page)
    return found.count() > 0


def sort_tables(page):
    found = page.locator(".sheet th button")
    if found.count():
        found.last.click()
        settle(page)
    return found.count() > 0
