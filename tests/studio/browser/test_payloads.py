"""Names, texts, labels and figures that look like scripts are shown as text on every page."""

import pytest
from helpers.script_payloads import (
    NAMES,
    PAYLOADS,
    TAGS,
    write_classifier,
    write_runs,
    write_training,
    write_writer,
)
from helpers.studio_browser import PAGES, PATIENCE, Opener, settle, show
from helpers.studio_cases import local_studio

pytestmark = pytest.mark.browser
TEXTS = {"words": " ".join(PAYLOADS[:40]), "labels": "".join(PAYLOADS[60:62])}


@pytest.fixture(scope="module")
def hostile(browser, stored, tmp_path_factory):
    """A studio of hostile folders, and the names of those that pages can open."""
    root = tmp_path_factory.mktemp("hostile")
    write_runs(root)
    names = {"training": write_training(root), "labels": write_classifier(stored, root)}
    names["words"] = write_writer(root)
    with local_studio(root) as client:
        yield client, names


def nothing_ran(page):
    """Whether no payload was run, in the page or in a frame of it, and none was there to be refused."""
    return page.evaluate("[window.pwned, seen.violations.length, frames.length]") == [None, 0, 0]


@pytest.fixture
def page(hostile, open_page):
    opened = open_page(hostile[0])
    opened.on("dialog", lambda dialog: pytest.fail(dialog.message))
    return opened


def test_the_payloads_run_where_they_are_taken_for_html(browser):
    """Otherwise the other tests would say nothing."""
    page = browser.new_page()
    for text in PAYLOADS[: len(TAGS)]:
        page.goto("about:blank")
        page.evaluate("(text) => { document.open(); document.write(`<p>${text}`); document.close(); }", text)
        page.wait_for_function("window.pwned === 1", timeout=PATIENCE)
    page.close()


def test_names_of_runs_are_text_in_the_list_of_models(hostile, page):
    studio, _ = hostile
    show(page, "heads", studio, run=studio.id(hostile[1]["words"]))
    shown = page.locator("form.input option").all_inner_texts()
    assert all(any(option.startswith(name) for option in shown) for name in NAMES)
    assert nothing_ran(page)


@pytest.mark.parametrize("model", TEXTS)
def test_pages_show_hostile_models_as_text(hostile, page, model):
    studio, names = hostile
    show(page, PAGES[0], studio)
    for name in PAGES:
        show(page, name, run=studio.id(names[model]), text=TEXTS[model])
        for button in page.locator(".actions > button[aria-expanded]").all():  # code and why
            button.click()
        assert nothing_ran(page), name


def test_figures_and_samples_are_text_on_the_training_page(hostile, page):
    studio, names = hostile
    show(page, "training", studio, run=studio.id(names["training"]))
    assert PAYLOADS[0] in page.locator("main").inner_text()
    assert nothing_ran(page)


def test_words_of_a_model_are_seen_as_text(hostile, page):
    studio, names = hostile
    show(page, "step", studio, run=studio.id(names["words"]), text=" ".join(PAYLOADS[:8]))
    assert PAYLOADS[1] in page.locator("main").inner_text()  # one that is short enough to be shown whole
    assert nothing_ran(page)


def test_all_payloads_are_text_in_the_input_and_in_the_address(hostile, page):
    studio, names = hostile
    run = studio.id(names["words"])
    show(page, "heads", studio, run=run)
    for start in range(0, len(PAYLOADS), 50):
        text = " ".join(PAYLOADS[start : start + 50])
        show(page, "heads", run=run, text=text)
        assert page.locator("#text").input_value() == text
        assert nothing_ran(page)


def test_hostile_values_in_a_link_run_nothing(hostile, browser):
    """What the studio refuses is an error in the console, so the page is not watched for those."""
    studio, names = hostile
    opener = Opener(browser)
    page = opener(studio)
    show(page, "heads", studio)
    for key in ("run", "edits", "head", "query", "target", "sort", "scale", "labels", "over", "cell", "zoom"):
        state = {"run": studio.id(names["words"]), "text": PAYLOADS[0], key: "".join(PAYLOADS[:200:17])}
        show(page, "heads", **state)
        assert nothing_ran(page), key
    page.goto(f"{studio.address}/#{PAYLOADS[0]}")
    settle(page)
    assert nothing_ran(page)
    opener.close()
