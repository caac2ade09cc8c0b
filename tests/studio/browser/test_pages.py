"""Every page opens on every kind of model, or says why it has nothing to show."""

import pytest
from helpers.studio_browser import PAGES, SIZES, Opener, look, sentence_of, settle, show
from helpers.studio_cases import local_studio

pytestmark = pytest.mark.browser
MODELS = ["demo", "bert", "gpt2", "llama", "vit", "bahdanau", "lstm", "mlm", "classify"]
NARROW = ("vit", "gpt2")  # seen on a small screen as well


@pytest.mark.parametrize("name", PAGES)
def test_a_page_opens_on_every_kind_of_model(studio, open_page, name):
    page = open_page(studio)
    show(page, name, studio)
    for model in MODELS:
        show(page, name, run=studio.id(model))
        assert page.locator("main .note.error").all_inner_texts() == [], model
        if reason := sentence_of(page):
            assert reason.endswith(".") and len(reason.split()) <= 25, (model, reason)
            assert not page.locator(".picture").count(), model
        else:
            assert page.locator(".picture").inner_text().strip(), model
        if model in NARROW:
            look(page, "narrow")
            wide = page.evaluate("document.documentElement.scrollWidth")
            assert wide <= SIZES["narrow"]["width"], model
            look(page, "wide")
    assert page.title() == f"{page.locator('h1').inner_text()} · heedful studio"


@pytest.mark.parametrize("name", ["heads", "step"])
def test_a_model_without_attention_has_no_heads_to_show(studio, open_page, name):
    page = open_page(studio)
    show(page, name, studio, run=studio.id("lstm"))
    assert sentence_of(page) == "This lstm has no attention, so there are no heads to show."


def test_a_text_that_is_too_long_for_a_model_is_refused_in_a_sentence(studio, browser):
    """The studio answers with an error, so the page is not watched for those."""
    opener = Opener(browser)
    page = opener(studio)
    show(page, "heads", studio, run=studio.id("gpt2"), text="the cat sat " * 40)
    told = page.locator("main .note.error").inner_text()
    opener.close()
    assert "tokens" in told and "41" in told and "Error" not in told, told


@pytest.fixture(scope="module")
def empty(browser, tmp_path_factory):
    with local_studio(tmp_path_factory.mktemp("empty")) as client:
        yield client


def test_without_a_run_the_recorded_example_is_shown_and_the_demo_offered(empty, open_page):
    page = open_page(empty)
    page.goto(f"{empty.address}/?token={empty.studio.key}")
    settle(page)
    assert page.url in (f"{empty.address}/#heads", f"{empty.address}/#/heads")
    assert page.locator(".picture canvas").count() >= 2
    assert page.locator("#text").input_value() == empty.get("/api/runs").json["recorded"]["text"]
    assert "recorded numbers of the demo" in page.locator("form.input").inner_text()
    assert page.get_by_role("button", name="Train the demo").is_enabled()
    for name in ("write", "step", "flow"):
        show(page, name)
        assert page.locator("main .note.error").all_inner_texts() == [], name


def test_no_page_fails_without_a_run(empty, open_page):
    page = open_page(empty)
    show(page, PAGES[0], empty)
    for name in PAGES:
        show(page, name)
        assert page.locator("main .note.error").all_inner_texts() == [], name
        assert page.locator("main h1").inner_text(), name
        said = page.locator("main .note").all_inner_texts() + page.locator(".picture").all_inner_texts()
        assert "".join(said).strip(), name
