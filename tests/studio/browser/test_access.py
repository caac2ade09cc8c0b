"""The studio by keyboard, with a screen reader, in the dark, and on a small screen."""

import pytest
from helpers.studio_browser import SIZES, look, settle, show, violations

pytestmark = pytest.mark.browser
WIDEST = """[...document.querySelectorAll('main *')].map((one) => [one.getBoundingClientRect().right, one])
  .sort(([a], [b]) => b - a).slice(0, 4).map(([right, one]) => `${right} ${one.tagName} ${one.className}`)"""
OUTLINED = """(() => {
  const { outlineStyle, outlineWidth, boxShadow } = getComputedStyle(document.activeElement);
  return (outlineStyle !== 'none' && parseFloat(outlineWidth) > 0) || boxShadow !== 'none';
})()"""
# What can be pressed but not reached: of a group with arrow keys, one is reached by Tab.
PRESSED = "main :is(button, a, input, select, textarea, [role=application])"
UNREACHED = """(pressed) => [...document.querySelectorAll(pressed)]
  .filter((one) => one.tabIndex < 0 && !one.disabled && !one.parentElement.closest(':has(> [tabindex="0"])'))
  .map((one) => one.outerHTML.slice(0, 120))"""


def test_axe_finds_nothing_wide_and_narrow_in_light_and_dark(demo_page):
    found = {}
    for size, theme, rules in (
        ("wide", "light", ()),
        ("wide", "dark", ("color-contrast",)),
        ("narrow", "dark", ()),
        ("narrow", "light", ("color-contrast",)),
    ):
        look(demo_page, size, theme)
        if broken := violations(demo_page, *rules):
            found[size, theme] = broken
    assert found == {}


def test_nothing_scrolls_sideways_on_a_small_screen(demo_page):
    look(demo_page, "narrow")
    wide = demo_page.evaluate("document.documentElement.scrollWidth")
    assert wide <= SIZES["narrow"]["width"], demo_page.evaluate(WIDEST)


def test_whatever_can_be_pressed_is_reached_by_tab_and_shows_its_focus(demo_page):
    look(demo_page, "wide")
    assert demo_page.evaluate(UNREACHED, PRESSED) == []
    demo_page.evaluate("document.querySelector('main').focus()")
    for _ in range(6):
        demo_page.keyboard.press("Tab")
        if demo_page.evaluate(
            "Boolean(document.activeElement.closest('main:not(:has(:focus[type=radio]))'))"
        ):
            assert demo_page.evaluate(OUTLINED), demo_page.evaluate("document.activeElement.outerHTML")


def tab_to(page, selector, most=120):
    """Press Tab until an element that fits has the focus."""
    for _ in range(most):
        page.keyboard.press("Tab")
        if page.evaluate("(selector) => document.activeElement.matches(selector)", selector):
            return
    raise AssertionError(f"{selector} is not reached by {most} presses of Tab")


def test_a_cell_is_reached_and_read_by_keyboard_alone(studio, open_page):
    page = open_page(studio)
    show(page, "heads", studio, run=studio.id("demo"), head="cross.1.1")
    tab_to(page, ".map-over")
    assert page.evaluate(OUTLINED)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    settle(page)
    told = page.locator(".readout").text_content()
    assert "layer 1, head 1, row 2, column 3" in told
    assert page.locator(".readout").get_attribute("aria-live") == "polite"
    page.keyboard.press("Enter")  # the steps of that query
    settle(page)
    assert page.locator("main.page-step").count() and "query=2" in page.url


def test_a_text_is_entered_and_pages_are_turned_by_keyboard(studio, open_page):
    page = open_page(studio)
    show(page, "heads", studio, run=studio.id("demo"))
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "text"
    page.keyboard.press("Control+A")
    page.keyboard.type("My aunts are curious.")
    page.keyboard.press("Enter")
    settle(page)
    assert "text=My+aunts+are+curious." in page.url
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("?")
    page.get_by_role("dialog").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="hidden")
    tab_to(page, "nav a[href*='step?']")
    assert page.evaluate(OUTLINED)
    page.keyboard.press("Enter")
    settle(page)
    assert page.locator("main.page-step").count()
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("Space")
    settle(page)
    assert "step=2" in page.url


def test_other_layers_and_heads_are_reached_by_keys_from_the_first_view_on(studio, open_page):
    page = open_page(studio)
    show(page, "heads", studio, run=studio.id("demo"))
    for there, back in ("lh", "jk"):
        seen = []
        for key in (there, back):
            page.keyboard.press(key)
            settle(page)
            seen.append(page.locator(".large h2").inner_text())
        assert seen[0] != seen[1], seen
