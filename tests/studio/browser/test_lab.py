"""The Lab page: claims that never ran, dots that come while a claim is measured, verdicts and their parts."""

import json

import pytest
from helpers.lab_cases import append, lab_folder, record_line, report_of, write_lab
from helpers.script_payloads import PAYLOADS, TAGS
from helpers.studio_browser import SIZES, differences, look, settle, show, snapshot, violations
from helpers.studio_cases import local_studio

pytestmark = pytest.mark.browser
SOON = 8_000  # milliseconds: the page looks every two seconds


@pytest.fixture
def lab(tmp_path):
    """A studio whose lab has a finished claim and one that is being measured."""
    write_lab(tmp_path)
    with local_studio(tmp_path) as client:
        yield client, tmp_path / "lab"


def card(page, name):
    return page.locator(f"article[aria-label='{name}']")


def arm(page, name, arm):
    return card(page, name).locator(".bar-row").filter(has_text=arm)


def test_a_claim_that_never_ran_shows_its_command(lab, open_page):
    studio, folder = lab
    page = open_page(studio)
    show(page, "lab", studio)
    names = [one["name"] for one in studio.get("/api/lab").json["claims"]]
    assert page.locator("article h2").all_inner_texts() == [
        f"{one['letter']} {one['name']}" for one in studio.get("/api/lab").json["claims"]
    ]
    assert len(names) >= 11 and page.locator(".controls .chip").count() == len(names)
    mask = card(page, "mask")
    assert mask.locator(".verdict").inner_text() == "not run"
    assert mask.locator("code").inner_text() == f"heedful lab run g --run {folder}"
    assert "nothing leaks" in mask.inner_text() and "L1 L2 L3 L5" in mask.inner_text()
    page.get_by_role("button", name="g mask").click()
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "mask"


def test_a_new_record_becomes_a_dot_and_a_report_a_verdict(lab, open_page):
    studio, folder = lab
    page = open_page(studio)
    show(page, "lab", studio)
    order = card(page, "order")
    assert "18 measured, no report yet" in order.locator("header").inner_text()
    assert arm(page, "order", "learned").locator(".dot").count() == 3
    append(folder / "order", record_line("learned", 3, "standard", accuracy=0.9)[:-20])
    page.wait_for_timeout(2_500)
    assert arm(page, "order", "learned").locator(".dot").count() == 3  # a line that is not whole
    append(folder / "order", record_line("learned", 3, "standard", accuracy=0.9)[-20:])
    arm(page, "order", "learned").locator(".dot").nth(3).wait_for(timeout=SOON)
    assert order.locator(".dot.on").get_attribute("data-from") == "seed 3: 0.9"
    assert "19 measured" in order.locator("header").inner_text()
    assert arm(page, "order", "learned").get_attribute("data-from").startswith("learned: mean 0.675; seed 0")
    said = report_of(name="order", verdict="contradicted", summary="No: order is learned.", size="standard")
    (folder / "order" / "report.json").write_text(json.dumps(said))
    order.locator(".verdict.contradicted").first.wait_for(timeout=SOON)
    assert order.locator(".verdict").first.inner_text() == "✗ contradicted"
    assert "No: order is learned." in order.inner_text() and order.locator(".dot").count() > 9
    assert order.locator("header [role=status]").count() == 0


def test_a_claim_that_begins_anew_loses_its_old_dots(lab, open_page):
    studio, folder = lab
    page = open_page(studio)
    show(page, "lab", studio)
    (folder / "order" / "records.jsonl").write_text(record_line("learned", 7, accuracy=0.5) * 2)
    page.wait_for_function("() => document.querySelectorAll('.dot').length === 1", timeout=SOON)
    lab_folder(folder.parent, "mask", record_line("causal", 0, loss=0.5))
    card(page, "mask").locator(".dot").wait_for(timeout=SOON)


def test_a_page_that_is_not_seen_asks_for_nothing(lab, open_page):
    studio, folder = lab
    page = open_page(studio)
    asked = []
    page.on("request", lambda request: "/api/lab" in request.url and asked.append(request.url))
    show(page, "lab", studio)
    page.evaluate("""() => {
      window.unseen = true;
      Object.defineProperty(document, 'hidden', { get: () => window.unseen });
      document.dispatchEvent(new Event('visibilitychange'));
    }""")
    before = len(asked)
    append(folder / "order", record_line("learned", 3, "standard", accuracy=0.9))
    page.wait_for_timeout(4_500)
    assert len(asked) == before
    page.evaluate("window.unseen = false; document.dispatchEvent(new Event('visibilitychange'))")
    arm(page, "order", "learned").locator(".dot").nth(3).wait_for(timeout=SOON)
    assert "after=" in asked[-1] and len(asked) > before


def test_sizes_stay_apart_and_another_number_can_be_chosen(lab, open_page):
    studio, _ = lab
    page = open_page(studio)
    show(page, "lab", studio)
    order = card(page, "order")
    assert order.locator("select").input_value() == "accuracy"  # not the learning rate
    assert order.locator("select option").all_inner_texts() == ["accuracy", "steps", "learning rate"]
    assert order.locator("[type=radio]:checked").input_value() == "standard"  # the newest
    order.locator("select").select_option("steps")
    order.get_by_role("radio", name="quick").check()
    settle(page)
    assert arm(page, "order", "learned").locator(".bar-value").inner_text() == "100"
    seen, link = snapshot(page), page.url
    other = open_page(studio)
    other.goto(link)
    settle(other)
    assert differences(seen, snapshot(other)) == {}


def test_parts_unfold_by_keyboard_and_the_address_keeps_it(lab, open_page):
    studio, _ = lab
    page = open_page(studio)
    show(page, "lab", studio)
    offsets = card(page, "offsets")
    assert offsets.locator(".verdict").first.inner_text() == "= exact"
    assert offsets.locator(".check").first.is_hidden() and offsets.locator(".dot").count() == 0
    offsets.locator("summary").focus()
    page.keyboard.press("Enter")
    offsets.locator(".dot").first.wait_for()
    said = offsets.locator(".check").all_inner_texts()
    assert "For every seed, error is at most 1e-12." in said[0] and "error at most 5.7e-14" in said[0]
    assert "? inconclusive" in said[1] and "(control, expected: supported)" in said[1]
    assert "logarithmic" in offsets.inner_text() and "e.offsets" in page.url
    other = open_page(studio)
    other.goto(page.url)
    settle(other)
    assert card(other, "offsets").locator(".check").first.is_visible()
    page.keyboard.press("Enter")
    settle(page)
    assert "e.offsets" not in page.url


def test_axe_finds_nothing_and_nothing_scrolls_sideways(lab, open_page):
    studio, folder = lab
    for name, verdict in (("mask", "supported"), ("cost", "depends"), ("heads", "contradicted")):
        lab_folder(folder.parent, name, record_line("x", 0, error=0.0), report=report_of(verdict=verdict))
    page = open_page(studio)
    show(page, "lab", studio, open="e.offsets,g.mask")
    found = {}
    for size in SIZES:
        for theme in ("light", "dark"):
            look(page, size, theme)
            assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size]["width"]
            if broken := violations(page):
                found[size, theme] = broken
    assert found == {}


def test_the_figure_is_in_the_picture_that_is_exported(lab, open_page, tmp_path):
    studio, _ = lab
    page = open_page(studio)
    show(page, "lab", studio)
    page.get_by_role("button", name="Export").click()
    with page.expect_download() as saved:
        page.get_by_role("button", name="SVG picture").click()
    saved.value.save_as(tmp_path / "lab.svg")
    text = (tmp_path / "lab.svg").read_text()
    assert 'href="data:image/svg+xml;base64,' in text and "offsets" in text


def test_hostile_reports_and_records_are_text(tmp_path, open_page):
    part = report_of()["parts"][0] | {"name": PAYLOADS[3], "says": PAYLOADS[4], "rule": PAYLOADS[5]}
    said = dict.fromkeys(("says", "summary", "lecture"), PAYLOADS[0])
    lines = [
        record_line(text, n, **{text: 0.5, "__proto__": 1}) for n, text in enumerate(PAYLOADS[: len(TAGS)])
    ]
    folder = lab_folder(tmp_path, "offsets", *lines, report=report_of(parts=[part], **said))
    script = "<svg xmlns='http://www.w3.org/2000/svg'><script>parent.pwned=1</script></svg>"
    (folder / "figure.svg").write_text(script)
    lab_folder(tmp_path, "__proto__", record_line("x", 0, y=1.0), report=report_of(says="own claim"))
    with local_studio(tmp_path) as studio:
        page = open_page(studio)
        show(page, "lab", studio, open="e.offsets,~__proto__", **{"e.offsets.by": PAYLOADS[1]})
        shown = page.locator("main").inner_text()
        assert PAYLOADS[0] in shown and PAYLOADS[4] in shown and "own claim" in shown
        assert page.locator("#e\\.offsets select").input_value() == PAYLOADS[1]
        assert page.evaluate("[window.pwned, ({}).mark, frames.length]") == [None, None, 0]
