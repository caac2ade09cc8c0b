"""Reports for a browser: what Markdown says, nothing that runs, and nothing from elsewhere."""

from html.parser import HTMLParser

from heedful.lab.web_page import web_page

TEXT = """# Key: a & b

1. **Bold** and `code <b>`.

- [ ] One.
- Two.

![figure](figure.svg)

| arm | mean |
|---|---|
| x < y | 3 |
"""


class Tags(HTMLParser):
    def __init__(self, page):
        super().__init__()
        self.tags, self.texts = [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)

    def handle_data(self, data):
        self.texts.append(data)


def test_headings_lists_tables_and_figures_become_html():
    page = web_page(TEXT, {"figure.svg": "<svg id='drawn'></svg>"})
    found = Tags(page)
    assert [tag for tag in found.tags if tag in ("h1", "strong", "code", "li", "svg", "th", "td")] == [
        "h1", "strong", "code", "li", "li", "svg", "th", "th", "td", "td",
    ]  # fmt: skip
    for text in ("Key: a & b", "Bold", "code <b>", "x < y", "\N{BALLOT BOX} One."):
        assert text in found.texts


def test_text_is_never_markup():
    hostile = "<script>alert(1)</script> [x](javascript:alert(1)) <img src=x onerror=alert(1)>"
    page = web_page(f"# {hostile}\n\n{hostile}\n\n- {hostile}\n\n| {hostile} |\n|---|\n| {hostile} |", {})
    assert not {"script", "img", "a"} & set(Tags(page).tags)
    assert "default-src 'none'" in page


def test_a_page_links_only_to_pages_beside_it():
    page = web_page("[mask](mask/page.html) [far](http://x/page.html) [up](../page.html)", {})
    assert page.count("<a ") == 1 and 'href="mask/page.html"' in page
