"""The log: JSON in a file, plain words on a terminal, and one line for each event in both."""

import io
import json

import pytest

from heedful.service import records

ANSWERED = {"id": "req-1", "route": "/v1/completions", "method": "POST", "status": 200, "model": "lm"}
COUNTED = {"prompt_tokens": 3, "completion_tokens": 16, "total_tokens": 19, "seconds": 0.1234}


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (ANSWERED | COUNTED, "POST /v1/completions 200, lm, 3 + 16 tokens, 0.12 s"),
        ({"route": "/health", "method": "GET", "status": 200, "seconds": 2.0}, "GET /health 200, 2 s"),
        ({"notice": "loading lm from runs/lm"}, "loading lm from runs/lm"),
        ({"notice": "a\nb\x1b[31m"}, "a?b?[31m"),
        ({"fault": "KeyError", "what": "req-1"}, "fault KeyError, what req-1"),
    ],
)
def test_a_line_is_plain_on_a_terminal_and_json_elsewhere(facts, words, monkeypatch):
    terminal, file = Terminal(), io.StringIO()
    monkeypatch.setattr("sys.stderr", terminal)
    records.log(**facts)
    assert terminal.getvalue()[9:] == words + "\n" and terminal.getvalue()[2::3][:2] == "::"
    monkeypatch.setattr("sys.stderr", file)
    records.log(**facts)
    assert json.loads(file.getvalue()) == facts | {"time": json.loads(file.getvalue())["time"]}
    assert file.getvalue().count("\n") == 1
