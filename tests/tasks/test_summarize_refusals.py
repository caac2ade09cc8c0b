"""Summaries: what is wrong with files and settings is one sentence, and leaves nothing behind."""

from pathlib import Path

import pytest
from helpers.runs import (
    CPU,
    TINY,
    Quiet,
    texts,  # noqa: F401 (fixtures)
)
from helpers.small_runs import (
    small_run,  # noqa: F401 (fixtures)
)

from heedful.cli.main import main
from heedful.runs import trainer
from heedful.tasks import recipe

# What is wrong


GOOD = '{"article": "the cat sat", "summary": "cat"}\n'


FILES = {
    "good": GOOD,
    "empty": "",
    "blank": "\n\n",
    "prose": "a story\n",
    "summary": '{"article": "a b"}\n',
    "other": '{"text": "a", "gist": "b"}\n',
    "number": '{"article": "a", "summary": 3}\n',
    "nothing": '{"article": [], "summary": "b"}\n',
    "mixed": GOOD + '{"article": "a"}\n',
    "array": GOOD + "[1]\n",
    "silent": GOOD + '{"article": "a", "summary": " "}\n',
    "surrogate": GOOD + r'{"article": "\ud800", "summary": "b"}' + "\n",
    "nul": GOOD + r'{"article": "a\u0000", "summary": "b"}' + "\n",
    "deep": GOOD + "[" * 9999 + "\n",
    "huge": GOOD + '{"article": "' + "a" * 1_000_000 + '", "summary": "b"}\n',
}


REFUSE = ["--set", "data.bad_lines=refuse"]


BOTH = ["--data", "good", "--valid-data", "good"]


BROKEN = {
    "no file": ([], "give --data and --valid-data, articles as JSON lines, or --corpus facts"),
    "no held-out file": (
        ["--data", "good"],
        "give --valid-data too: held-out articles to judge the model by",
    ),
    "another corpus": (["--corpus", "pylib"], 'summarize has no built-in corpus "pylib"; it has facts'),
    "sources of a file": (
        [*BOTH, "--set", "data.sources=9"],
        "data.sources is of the built-in corpus facts: give --corpus facts, or leave it out",
    ),
    "trees": (
        [*BOTH, "--set", "model.positions=structural"],
        "structural positions come from the trees of sentences, which articles have none of",
    ),
    "positions of a decoder": (
        [*BOTH, "--set", "model.architecture=dmca", "--set", "model.positions=rotary"],
        'summarize with dmca has no setting "model.positions"; it is for --architecture transformer or ',
    ),
    "a weight of nothing": (
        [*BOTH, "--set", "train.lm_loss_weight=2"],
        "train.lm_loss_weight is for decoders, which read article and summary as one row, and ",
    ),
    "another architecture": (
        [*BOTH, "--set", "model.architecture=bert"],
        "summarize cannot train the architecture bert: it can train transformer, ",
    ),
    "an architecture that reads pictures": (
        [*BOTH, "--set", "model.architecture=captioner"],
        "summarize cannot train the architecture captioner: it can train transformer, ",
    ),
    "a model to start from": (
        [*BOTH, "--from", "good"],
        "summarize cannot start from a model: leave out --from",
    ),
    "a context": (
        [*BOTH, "--set", "model.context=99"],
        "model.context follows from the data in summarize: set data.max_length and data.max_summary_length",
    ),
    "experts of a Transformer without any": (
        [*BOTH, "--set", "model.experts=4"],
        'summarize with transformer has no setting "model.experts"; it is for --architecture mixture_tr',
    ),
    "extracting otherwise": (
        [*BOTH, "--set", "data.extract=textrank"],
        "data.extract must be one of first, tf-idf, not 'textrank'",
    ),
    "no such column": (
        [*BOTH, "--set", "data.target_column=sumary"],
        'good: in its first object there is no "sumary"; did you mean "summary"?',
    ),
    "all too long": (
        [*BOTH, "--set", "data.max_summary_length=1", "--set", "data.tokenizer=char"],
        "no summary is left to learn from: all are over data.max_summary_length, 1 tokens",
    ),
    **{
        f"data: {name}": (["--data", name, "--valid-data", "good", *REFUSE], sentence)
        for name, sentence in {
            "gone": "gone is missing",
            "empty": "empty has no JSON objects, one a line: {",
            "prose": "prose has no JSON objects, one a line: {",
            "blank": "blank has no JSON objects, one a line: {",
            "summary": 'summary: in its first object there is no "summary" or "target" or "highlights"',
            "other": 'other: in its first object there is no "summary" or "target" or "highlights"',
            "number": 'number:1: "summary" is 3, where a text or a list of texts is expected',
            "nothing": 'nothing:1: "article" is empty',
            "mixed": 'mixed:2: there is no "summary"',
            "array": "array:2: not a JSON object {...}",
            "silent": 'silent:2: "summary" is empty',
            "surrogate": 'surrogate:2: "article" has a lone surrogate',
            "nul": "nul:2: character 2 is NUL",
            "deep": "deep:2: not a JSON object {...}",
            "huge": "huge:2: longer than 1000000 characters: cut the line",
        }.items()
    },
    "held out, refused": (
        ["--data", "good", "--valid-data", "mixed", *REFUSE],
        'mixed:2: there is no "summary"',
    ),
    "nothing good": (
        ["--data", "nothing", "--valid-data", "good"],
        "there is no article in nothing (1 line dropped: 1 empty (nothing:1))",
    ),
    "nothing good held out": (
        [*BOTH[:2], "--valid-data", "number"],
        "there is no article in number (1 line dropped: 1 of a wrong type (number:1))",
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_what_is_wrong_is_said_in_one_sentence_and_leaves_nothing(what, tmp_path, monkeypatch, capsys):
    for name, content in FILES.items():
        (tmp_path / name).write_text(content)
    monkeypatch.chdir(tmp_path)
    options, sentence = BROKEN[what]
    small = [f"--set={key}={value}" for key, value in {**TINY, "train.steps": 1}.items()]
    assert main(["train", "summarize", *small, *options, "--run", "run"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[-1].startswith(f"error: {sentence}") and not Path("run").exists()


@pytest.mark.parametrize("name", ["mixed", "array", "silent", "surrogate", "nul", "deep", "huge"])
def test_a_bad_line_is_counted_and_dropped(name, tmp_path, monkeypatch):
    (tmp_path / name).write_text(FILES[name])
    settings = {**TINY, "train.steps": 1, "data.table": str(tmp_path / name), "data.tokenizer": "word"}
    talk = Quiet()
    job = trainer.start(
        recipe.make("summarize", settings=settings | {"data.valid_table": str(tmp_path / name)}),
        tmp_path / "run",
        talk,
        CPU,
    ).job
    assert job.held_out == 1 and any("dropped" in line and f"{name}:2" in line for line in talk.lines)
