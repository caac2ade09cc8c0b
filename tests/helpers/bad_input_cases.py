"""Good files that tests spoil, and how each task is given a file."""

import json

import pytest

TINY = {
    "model.layers": 1,
    "model.width": 16,
    "model.heads": 2,
    "model.ffn_width": 24,
    "train.batch_tokens": 64,
    "train.warmup_steps": 1,
    "train.steps": 1,
    "evaluate.rows": 4,
    "evaluate.examples": 1,
    "data.tokenizer": "char",
}
SMALL = ["--set=model.context=16"]
WORDS = [f"{a}{b}" for a in "bdfgk" for b in "aeiou"]
LINES = [f"{WORDS[i % 25]} {WORDS[i * 7 % 25]} é{WORDS[i * 3 % 25]}" for i in range(80)]
GOOD = "".join(f"{line}\n" for line in LINES).encode()
TABLE = "".join(
    ["sentence\tlabel\n", *(f"{line}\t{'front' if i % 3 else 'back'}\n" for i, line in enumerate(LINES))]
).encode()
OBJECTS = "".join(json.dumps({"text": line, "label": i % 2}) + "\n" for i, line in enumerate(LINES)).encode()


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with good files, and where commands are given."""
    for name, content in {
        "good": GOOD,
        "good.tsv": TABLE,
        "good.jsonl": OBJECTS,
        "seventy-nine": GOOD.partition(b"\n")[2],
    }.items():
        (tmp_path / name).write_bytes(content)
    monkeypatch.chdir(tmp_path)
    return tmp_path


# How each task is given a file.
ASKED = {
    "lm": ["lm", "--text", "FILE", *SMALL],
    "mlm": ["mlm", "--text", "FILE", *SMALL],
    "held-out text": ["lm", "--text", "good", "--set", "data.valid_text=FILE", *SMALL],
    "pairs": [
        "translate",
        "--source",
        "FILE",
        "--target",
        "FILE",
        "--valid-source",
        "good",
        "--valid-target",
        "good",
    ],
    "source": [
        "translate",
        "--source",
        "FILE",
        "--target",
        "good",
        "--valid-source",
        "good",
        "--valid-target",
        "good",
    ],
    "held-out pairs": [
        "translate",
        "--source",
        "good",
        "--target",
        "good",
        "--valid-source",
        "FILE",
        "--valid-target",
        "FILE",
    ],
    "table": ["classify", "--data", "FILE", "--valid-data", "good.tsv"],
    "held-out table": ["classify", "--data", "good.tsv", "--valid-data", "FILE"],
}
