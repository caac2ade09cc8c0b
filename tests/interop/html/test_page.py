"""The page in Chromium, from its file: it works offline, and nothing that a model says is run."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.html_cases import tiny_loaded, written
from helpers.page_runs import unpack
from helpers.studio_browser import SIZES, launched, violations
from helpers.tokenizer_cases import byte_level

import heedful
from heedful.cli.main import main
from heedful.corpora import phrasebook
from heedful.data.vocab import train_vocab
from heedful.interop.hf.chat import Chat
from heedful.interop.html.page import PAGE, as_block, block_of, with_story
from heedful.interop.html.story import conversations
from heedful.interop.loaded import Loaded
from heedful.models import gpt2

pytestmark = pytest.mark.browser
HOSTILE = '</script><script>globalThis.ran = 1</script><!--<img src=x onerror="globalThis.ran = 2">'


@pytest.fixture(scope="module")
def browser():
    with launched() as started:
        yield started


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The stored runs as pages, by name."""
    folder = unpack(tmp_path_factory.mktemp("pages"))
    for name in ("demo", "lm", "mlm", "classify"):
        assert (
            main(["export", str(folder / "runs" / name), str(folder / f"{name}.html"), "--to", "html"]) == 0
        )
    return folder


@pytest.fixture
def visit(browser):
    """A page, opened without a network, and everything that went wrong in it."""
    opened = []

    def open_page(path, size="wide", **options):
        context = browser.new_context(viewport=SIZES[size], offline=True, **options)
        page, noted = context.new_page(), []
        page.on("console", lambda line: line.type in ("error", "warning") and noted.append(line.text))
        page.on("pageerror", lambda error: noted.append(str(error)))
        page.on("request", lambda one: one.url != path.as_uri() and noted.append(one.url))
        opened.append((context, noted))
        page.goto(path.as_uri())
        page.wait_for_selector("textarea")
        return page

    yield open_page
    for context, noted in opened:
        context.close()
        assert noted == []


def run(page, text, method=None):
    if method:
        page.get_by_label("Method").select_option(method)
    page.get_by_label("Text", exact=True).fill(text)
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("button.primary:not([disabled])")
    return page.locator(".output").inner_text()


def test_a_translator_translates_as_the_command_does(pages, visit):
    page, model = visit(pages / "demo.html"), heedful.load(str(pages / "runs" / "demo"))
    text = "The small girl eats a red apple."
    assert run(page, text) == model.translate(text)
    assert run(page, text, "greedy") == model.translate(text, beam=1)
    assert page.locator(".chip").count() == len(model.translate(text, beam=1).tokens)
    sampled = run(page, text, "sample")
    assert run(page, text, "sample") == sampled != ""
    page.locator(".chip").nth(2).press("Enter")
    assert page.locator(".chip").nth(2).get_attribute("aria-pressed") == "true"
    assert page.locator(".bars li").count() == 6


def test_a_page_has_an_example_and_says_which_languages_it_knows(pages, visit):
    page = visit(pages / "demo.html")
    assert "from English to French" in page.locator("header").inner_text()
    page.get_by_role("button", name="Example").click()
    text = page.get_by_label("Text", exact=True).input_value()
    assert text == next(iter(phrasebook.split("valid"))).source
    assert run(page, text) == heedful.load(str(pages / "runs" / "demo")).translate(text)


def test_a_language_model_goes_on_past_its_context(pages, visit):
    page, model = visit(pages / "lm.html"), heedful.load(str(pages / "runs" / "lm"))
    assert run(page, "the cat") == "the cat" + model.generate("the cat")


def test_blanks_are_filled_and_texts_classified(pages, visit):
    text = "The [MASK] cat was a fast [MASK]."
    filled = heedful.load(str(pages / "runs" / "mlm")).fill(text)
    page = visit(pages / "mlm.html")
    assert run(page, text) == filled
    shares = page.locator(".bars .share").all_inner_texts()
    assert shares[0] == f"{filled.blanks[0][0].probability:.0%}".replace("%", " %")
    label = heedful.load(str(pages / "runs" / "classify")).classify("Is the cat old?")
    assert run(visit(pages / "classify.html"), "Is the cat old?") == label


def test_the_attention_map_shows_what_python_computes(pages, visit):
    """Read by the arrow keys: the share of a word, head by head."""
    page = visit(pages / "demo.html")
    run(page, "The small girl eats a red apple.", "greedy")
    assert page.locator(".head").count() == 4
    canvas = page.locator("canvas.map")
    canvas.focus()
    first = page.locator("#map-value").inner_text()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    second = page.locator("#map-value").inner_text()
    assert first != second and second.startswith("“") and "from “small”" in second
    page.locator(".head").nth(1).press("Enter")
    assert page.locator(".head").nth(1).get_attribute("aria-pressed") == "true"
    page.get_by_label("Which").select_option("0")
    assert "from “The”" in page.locator("#map-value").inner_text()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_pages_fit_and_have_no_barriers(pages, visit, size, theme):
    page = visit(pages / "demo.html", size, color_scheme=theme, bypass_csp=True)
    run(page, "The small girl eats a red apple.")
    page.locator("summary").click()
    assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size]["width"]
    assert violations(page) == []


def test_what_stands_in_the_way_is_said(pages, visit):
    page = visit(pages / "demo.html")
    run(page, "   ")
    assert page.locator(".note").inner_text() == "Write a text first."
    run(page, "The zyxwv cat was fast.")
    assert page.locator(".note").inner_text() == "1 of 6 tokens are unknown to the model."
    page = visit(pages / "mlm.html")
    run(page, "No blank.")
    assert page.locator(".note").inner_text() == "Write [MASK] where a word is missing."


def test_a_value_out_of_range_is_changed_in_its_field_and_said(pages, visit):
    """Also of a field that another method hides: the button works all the same."""
    page = visit(pages / "demo.html")
    page.get_by_label("Method").select_option("sample")
    page.get_by_label("Temperature").fill("99")
    page.get_by_label("Method").select_option("beam")
    page.get_by_label("Beams").fill("2.7")
    page.get_by_label("Text", exact=True).fill("The cat was fast.")
    page.locator("button.primary").click()
    page.wait_for_selector(".hypotheses")
    assert page.get_by_label("Beams").input_value() == "3" and page.locator(".hypotheses li").count() == 3
    assert page.locator(".note").inner_text() == "Beams is a whole number from 1 to 16: 3 was taken."
    assert page.get_by_label("Temperature").input_value() == "5"


def test_a_map_of_a_part_of_a_long_text_says_so(pages, visit):
    page = visit(pages / "demo.html")
    run(page, "cat " * 200, "greedy")
    assert "the model reads the first 96 of 200 tokens only" in page.locator(".attention").inner_text()
    run(page, "The cat was fast.", "greedy")
    assert "tokens only" not in page.locator(".attention").inner_text()


def test_a_model_of_conversations_shows_how_they_are_written(tmp_path, visit):
    """A page has no chat templates: what they write for a question is shown."""
    tokenizer = byte_level()
    template = "{% for m in messages %}{{ m.role }}> {{ m.content }}\n{% endfor %}<b>assistant</b>>"
    loaded = replace(
        small_gpt2(tokenizer.get_vocab_size()), tokenizer=tokenizer, chat=Chat("t", {"default": template}, {})
    )
    path, said = written(loaded, tmp_path), conversations(loaded)
    path.write_text(with_story(path.read_text(), {"name": "chat", "conversations": said}))
    shown = visit(path).locator(".conversation code").inner_text()
    assert shown == said["question"] == "user> Hello!\n<b>assistant</b>>"
    assert said["whole"].startswith("user> Hello!\nassistant> Hello, how can I help?\n")
    refusing = Chat("t", {"default": "{{ raise_exception('no') }}"}, {})
    assert conversations(replace(loaded, chat=refusing)) == conversations(replace(loaded, chat=None)) == {}


def test_the_page_tells_what_it_is_and_its_certificate(pages, visit):
    page = visit(pages / "demo.html")
    assert page.locator("h1").inner_text() == "demo"
    assert "data phrasebook" in page.locator(".about").inner_text()
    page.locator("summary").click()
    parity = json.loads((pages / "demo.html.parity.json").read_text())
    lines = page.locator(".certificate li").all_inner_texts()
    assert lines == [f"{check['name']}: {check['summary']}" for check in parity["checks"]]
    assert parity["verdict"] in page.locator("summary").inner_text()
    assert "Chrome" in parity["versions"]["page"]


def test_the_page_checks_itself_in_any_browser(pages, tmp_path, visit):
    for name in ("demo", "lm", "mlm", "classify"):
        page = visit(pages / f"{name}.html")
        page.locator("summary").click()
        page.get_by_role("button", name="Check in this browser").click()
        said = page.locator(".certificate [role=status]").inner_text()
        assert said.startswith("This browser computes the same: 3 inputs differ by at most ")
    text = (pages / "lm.html").read_text()
    story = json.loads(block_of(text, "story"))
    story["probe"][1]["numbers"][3] += 0.01
    (tmp_path / "changed.html").write_text(with_story(text, story))
    page = visit(tmp_path / "changed.html")
    page.locator("summary").click()
    page.get_by_role("button", name="Check in this browser").click()
    assert "computes something else" in page.locator(".certificate [role=status]").inner_text()


def small_gpt2(vocab: int) -> Loaded:
    return tiny_loaded("gpt2", (gpt2, gpt2.GPT2Config(vocab=vocab, context=31, layers=1, width=12, heads=3)))


def hostile_page(folder: Path) -> Path:
    """A page whose model has code in its name, its vocabulary and its training data."""
    tokenizer = byte_level()
    tokenizer.add_special_tokens([HOSTILE, "</SCRIPT>", "<!--"])
    path = written(replace(small_gpt2(tokenizer.get_vocab_size()), tokenizer=tokenizer), folder)
    story = {
        "name": HOSTILE,
        "architecture": HOSTILE,
        "trained": HOSTILE,
        "verdict": "same",
        "checks": [HOSTILE],
    }
    path.write_text(with_story(path.read_text(), story))
    return path


def test_nothing_that_a_model_says_is_run(tmp_path, visit):
    path = hostile_page(tmp_path)
    page = visit(path)
    run(page, f"a {HOSTILE}", "greedy")
    page.locator("summary").click()
    assert page.evaluate("globalThis.ran") is None
    assert page.locator("h1").inner_text() == HOSTILE
    assert page.locator("img").count() == 0 and page.locator("script").count() == 5
    assert json.loads(block_of(path.read_text(), "story"))["name"] == HOSTILE
    assert "<" not in as_block({"name": HOSTILE})


def test_a_planted_request_is_refused_by_the_policy(pages, tmp_path, browser):
    text = (pages / "lm.html").read_text()
    planted = (
        "fetch('https://example.org/').then(() => { globalThis.sent = 1; }, () => { globalThis.sent = 0; });"
    )
    planted += "new Image().src = 'https://example.org/x.png';"
    path = tmp_path / PAGE
    path.write_text(text.replace("globalThis.openHeedful =", f"{planted}\nglobalThis.openHeedful =", 1))
    page, asked = browser.new_page(), []
    page.on("requestfailed", lambda one: asked.append((one.url, one.failure)))
    refused = "addEventListener('securitypolicyviolation', (event) => refused.push(event.blockedURI))"
    page.add_init_script(f"globalThis.refused = []; {refused}")
    page.goto(path.as_uri())
    page.wait_for_function("globalThis.sent !== undefined && refused.length === 2")
    assert page.evaluate("sent") == 0
    assert [one for one in asked if one != ("https://example.org/x.png", "csp")] == []
    page.close()


def test_a_vocabulary_with_a_break_in_it_survives(tmp_path, visit):
    """Line separators are line ends in older JavaScript, and stand in a block of JSON all the same."""
    vocab = train_vocab("char", ["a\u2028b\u2029c </script> & \u0000 d"], 40)
    page = visit(written(replace(small_gpt2(40), tokenizer=vocab.tokenizer), tmp_path))
    assert (
        page.evaluate("heedful.then((one) => one.spec.readers[0].encode('a\\u2028</b'))")
        == (vocab.encode_batch(["a\u2028</b"])[0])
    )
