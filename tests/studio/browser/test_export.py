"""A page saved as one HTML file opens from the disk, without a network, with the same numbers."""

import pytest
from helpers.studio_browser import (
    NOTING,
    PAGES,
    PATIENCE,
    SIZES,
    differences,
    sentence_of,
    settle,
    show,
    snapshot,
)

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("name", PAGES)
def test_an_exported_page_shows_the_same_offline(studio, open_page, browser, tmp_path, name):
    page = open_page(studio)
    show(page, name, studio, run=studio.id("demo"))
    assert sentence_of(page) == ""
    start_work(page)
    page.get_by_role("button", name="Export").click()
    with page.expect_download() as saved:
        page.get_by_role("button", name="HTML, one file").click()
    file = tmp_path / saved.value.suggested_filename
    saved.value.save_as(file)
    assert file.suffix == ".html"
    seen = snapshot(page)
    context = browser.new_context(viewport=SIZES["wide"], reduced_motion="reduce", offline=True)
    context.set_default_timeout(PATIENCE)
    context.add_init_script(NOTING)
    problems, asked = [], []
    other = context.new_page()
    other.on("console", lambda line: line.type in ("error", "warning") and problems.append(line.text))
    other.on("pageerror", lambda error: problems.append(str(error)))
    other.on("request", lambda request: asked.append(request.url))
    other.goto(file.as_uri())
    settle(other)
    assert problems == [] and other.locator("main .note.error").all_inner_texts() == []
    assert [address for address in asked if not address.startswith("data:")] == [file.as_uri()]
    assert differences(seen, snapshot(other)) == {}
    assert seen["text"]
    context.close()


def start_work(page):
    """Press the buttons that start a computation in the picture, as a person does, and wait for its end."""
    for _ in range(3):
        buttons = page.locator(".sheet button.primary:enabled:visible")
        if not buttons.count():
            return
        buttons.first.click()
        settle(page, 400)
