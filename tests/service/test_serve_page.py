"""The page on serving tells the truth: its requests are sent to a service, its metrics are all there are."""

import json
import re
import shlex
from itertools import pairwise

import pytest
from helpers import pages

from heedful.service.metrics import COUNTERS, GAUGES, HISTOGRAMS

PAGE = pages.ROOT / "docs" / "howto" / "serve.md"
BLOCKS = [block for block in pages.blocks() if block.page == PAGE]
REQUESTS = [(one, after) for one, after in pairwise(BLOCKS) if one.word == "shell"]
VARYING = {"id", "created"}
LABELS = {
    "requests_total": "`route`, `code`",
    "tokens_total": "`model`, `kind`",
    "cancelled_total": "",
    "rows": "`model`, `state`",
}


@pytest.fixture(scope="module")
def service(served):
    return served("demo", "lm", options=("--languages", "en:fr"))


def sent(service, command):
    """The answer to a line with curl."""
    words = shlex.split(command.replace("\\\n", " "))
    assert words[0] == "curl" and words[2::2] == ["-H", "-d"]
    path = words[1].removeprefix("http://127.0.0.1:8080")
    return service.post(path, words[5].encode()).json


def alike(shown, found, name=""):
    """Whether an answer has the form and the words that the page shows; figures may differ."""
    if isinstance(shown, dict):
        return shown.keys() == found.keys() and all(alike(shown[k], found[k], k) for k in shown)
    if isinstance(shown, list):
        return len(shown) == len(found) and all(map(alike, shown, found))
    if isinstance(shown, int | float) and not isinstance(shown, bool):
        return isinstance(found, int | float)
    return name in VARYING or shown == found


@pytest.mark.parametrize("block, answer", REQUESTS, ids=str)
def test_the_page_shows_what_is_answered(block, answer, service):
    assert answer.word == "json"
    found = sent(service, block.text)
    assert alike(json.loads(answer.text), found), json.dumps(found, indent=2)


def test_an_answer_that_differs_is_noticed():
    shown = {"id": "a", "texts": [{"text": "one", "score": 1}]}
    assert alike(shown, {"id": "b", "texts": [{"text": "one", "score": -2.5}]})
    assert not alike(shown, {"id": "b", "texts": [{"text": "two", "score": 1}]})
    assert not alike(shown, {"id": "b", "texts": [], "more": 1})


def test_the_example_with_openai_s_client_runs(service, capsys):
    (block,) = [one for one in BLOCKS if one.text.startswith("# pip install openai")]
    exec(block.text.replace("http://127.0.0.1:8080", service.address), {})  # noqa: S102 (our own page)
    listed, continued, *_ = capsys.readouterr().out.splitlines()
    assert listed == "['demo', 'lm']" and continued == " is going to be a very famous man"


def rows_after(title):
    """The rows of the first table after a heading."""
    table = PAGE.read_text(encoding="utf-8").partition(f"## {title}\n")[2]
    return re.findall(r"^\| `.*\|$", table.partition("\n## ")[0], re.MULTILINE)


def test_the_page_has_every_metric():
    every = COUNTERS | GAUGES | HISTOGRAMS
    expected = [
        f"| `heedful_{name}` | {LABELS.get(name, '`model`')} | {said.rstrip('.')} |"
        for name, said in every.items()
    ]
    assert rows_after("Monitoring") == expected, "\n".join(expected)
