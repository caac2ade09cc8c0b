"""What is wrong with the files a person trains on: one sentence with file and line, exit code 2, nothing
touched.

Every case goes through the command line itself. A file that is only unusual (no last newline, CRLF, a byte
order mark, gzip) must give the very same tokens as the usual one.
"""

import gzip
import json
import os
import re
import shutil

import pytest
from helpers.bad_input_cases import ASKED, GOOD, OBJECTS, TABLE, TINY, here  # noqa: F401 (fixtures)
from helpers.refusals import at_most
from helpers.snapshots import snapshot

from heedful.cli.main import main
from heedful.data.store import Store


def train(task, file, run="new", **settings):
    """The exit code of `heedful train`."""
    chosen = [f"--set={key}={value}" for key, value in {**TINY, **settings}.items()]
    asked = [word.replace("FILE", str(file)) for word in ASKED[task]]
    with at_most(10):
        return main(["train", *asked, "--run", run, *chosen])


def complaint(capsys):
    """The one sentence of an error."""
    told = capsys.readouterr().err
    errors = [line for line in told.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1 and told.endswith(errors[0] + "\n") and "Traceback" not in told, told
    assert errors[0].isprintable() and len(errors[0]) <= 2000
    return errors[0]


# Files of which nothing can be made


def hurt(at, what):
    """The good lines with something in the line `at`, counted from 1."""
    lines = GOOD.split(b"\n")
    lines[at - 1] = lines[at - 1][:3] + what + lines[at - 1][3:]
    return b"\n".join(lines)


NOTHING = {"empty": b"", "a newline": b"\n", "spaces": b"  \n\t\n \r\n", "only a mark": b"\xef\xbb\xbf"}
WHOLE = {
    "all bad": (
        b"\xff\n" * 80,
        {
            "lm": "no text in FILE (80 lines dropped: 80 not UTF-8 (first FILE:1))",
            "pairs": "no text in FILE and FILE (80 lines dropped: 80 not UTF-8 (first FILE:1))",
            "held-out pairs": "80 not UTF-8 (first FILE:1)",
            "table": "FILE:1: the line that names the columns: not UTF-8",
        },
    ),
    "gzip cut short": (
        gzip.compress(GOOD)[:-20],
        dict.fromkeys(
            ["lm", "mlm", "held-out text", "pairs", "source", "held-out pairs"],
            "FILE:#: the gzip file breaks off here",
        ),
    ),
    "table cut short": (
        gzip.compress(TABLE)[:-20],
        dict.fromkeys(["table", "held-out table"], "FILE:#: the gzip file breaks off here"),
    ),
    "gzip damaged": (
        gzip.compress(GOOD)[:-5] + b"\0" * 5,
        dict.fromkeys(["lm", "pairs", "held-out pairs"], "FILE:81: the gzip file is damaged"),
    ),
    "UTF-16": (
        GOOD.decode().encode("utf-16"),
        dict.fromkeys(ASKED, "FILE is UTF-16 text: convert it with iconv"),
    ),
    "zip": (b"PK\x03\x04" + GOOD, dict.fromkeys(ASKED, "FILE is a zip file: unpack it first")),
    "one line more": (GOOD + b"more\n", {"source": "FILE has 81 lines and good has 80"}),
    "no column": (
        TABLE.replace(b"sentence", b"sentance", 1),
        {"table": 'FILE has no column "sentence" or "text": name one of sentance, label'},
    ),
    "no label column": (
        TABLE.replace(b"label", b"lable", 1),
        {"table": 'FILE:1: there is no column "label"; did you mean "lable"?'},
    ),
    "two label columns": (
        TABLE.replace(b"sentence\tlabel", b"sentence\tlabel\tlabel", 1),
        {"table": 'FILE:1: there are 2 columns "label"'},
    ),
    "unknown label": (
        b"sentence\tlabel\nba be\tback\nbi bo\tfrnt\n",
        {"held-out table": 'FILE:3: good.tsv has no label "frnt"; did you mean "front"?'},
    ),
    "one label": (
        b"sentence\tlabel\nba be\tback\nbi bo\tback\n",
        {"table": 'FILE has no label but "back" in its column label'},
    ),
    "only wrong types": (
        OBJECTS.replace(b'"label": ', b'"label": 0.'),
        {"table": "(80 lines dropped: 80 of a wrong type (first FILE:1))"},
    ),
    "too short": (b"ba\n", {"lm": "context of 16 needs more", "mlm": "windows of 14 need"}),
    "too long for training": (
        b"x" * 9000,
        {"held-out pairs": "held-out pairs are over data.max_length, 256 tokens"},
    ),
}
for kind, content in NOTHING.items():
    WHOLE[kind] = (
        content,
        {task: "there is no text in FILE" for task in ("lm", "mlm", "pairs", "held-out pairs")},
    )
WHOLE["empty"][1]["held-out text"] = "good with FILE has 800 tokens to learn from and 0 held out"
WHOLE["empty"][1].update(
    {"table": "FILE is empty: its first line names the columns", "held-out table": "FILE is empty"}
)


@pytest.mark.parametrize(
    "kind, task", [(kind, task) for kind, (_, expected) in WHOLE.items() for task in expected]
)
def test_a_file_that_cannot_be_used_is_named_and_nothing_is_left(kind, task, here, capsys):
    content, expected = WHOLE[kind]
    (here / "file").write_bytes(content)
    before = snapshot(here)
    assert train(task, "file") == 2
    sentence = complaint(capsys)
    pattern = re.escape(expected[task]).replace("FILE", "file").replace(re.escape("#"), r"\d+")
    assert re.search(pattern, sentence), sentence
    assert snapshot(here) == before


def test_what_is_no_file_is_named_and_nothing_is_left(here, capsys):
    os.mkfifo(here / "pipe")
    (here / "folder").mkdir()
    (here / "nowhere").symlink_to("gone")
    cases = {
        "gone": "gone is missing",
        "pipe": "pipe is not a regular file",
        "nowhere": "nowhere is a link that leads nowhere",
        "folder": "folder is a folder, where a file is expected",
        "/dev/zero": "/dev/zero is not a regular file",
    }
    before = snapshot(here)
    for task, words in ASKED.items():
        for name, said in cases.items():
            if name == "folder" and "text" in " ".join(words):
                said = "folder holds no text file"
            assert train(task, name) == 2
            assert said in complaint(capsys)
    assert snapshot(here) == before


# Bad lines: dropped, counted and told; or refused


BAD = {
    "NUL": (b"\0", "with NUL", "character 4 is NUL", {"lm", "mlm", "pairs", "held-out pairs"}),
    "not UTF-8": (
        b"\xff",
        "not UTF-8",
        "byte 4 of the line is no part of a character",
        {"lm", "mlm", "pairs", "held-out pairs"},
    ),
    "half a character": (
        b"\xed\xa0\x80",
        "not UTF-8",
        "byte 4 of the line",
        {"lm", "pairs", "held-out pairs"},
    ),
    "too long": (b"x" * 10_000, "too long", "longer than 10000 characters", {"pairs", "held-out pairs"}),
}


@pytest.mark.parametrize(
    "kind, task", [(kind, task) for kind, case in BAD.items() for task in sorted(case[3])]
)
def test_a_bad_line_is_dropped_and_told_once_or_refused_with_its_place(kind, task, here, capsys):
    what, name, why, _ = BAD[kind]
    (here / "file").write_bytes(hurt(17, what))
    assert train(task, "file") == 0
    assert f"1 line dropped: 1 {name} (file:17)\n" in capsys.readouterr().err
    before = snapshot(here)
    assert train(task, "file", "other", **{"data.bad_lines": "refuse"}) == 2
    sentence = complaint(capsys)
    assert "file:17: " in sentence and why in sentence
    assert snapshot(here) == before


ROWS = {
    "surrogate": (
        '{"text": "ba \\ud800", "label": 1}',
        "with half a character",
        '"text" has a lone surrogate',
    ),
    "surrogate label": (
        '{"text": "ba", "label": "\\udfff"}',
        "with half a character",
        '"label" has a lone surrogate',
    ),
    "NUL": ('{"text": "b\\u0000", "label": 1}', "with NUL", "character 2 is NUL"),
    "no object": ("[1, 2]", "not JSON", "not a JSON object"),
    "deep": ("[" * 50_000, "not JSON", "not a JSON object"),
    "no label": ('{"text": "ba"}', "without a column", 'there is no "label"'),
    "empty": ('{"text": " ", "label": 1}', "empty", '"text" is empty'),
    "list": ('{"text": ["ba"], "label": 1}', "of a wrong type", "where a text is expected"),
    "too long": (
        json.dumps({"text": "x" * 100_000, "label": 1}),
        "too long",
        "longer than 100000 characters",
    ),
}


@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.parametrize("task", ["table", "held-out table"])
def test_a_bad_row_is_dropped_and_told_once_or_refused_with_its_place(kind, task, here, capsys):
    row, name, why = ROWS[kind]
    lines = OBJECTS.decode().split("\n")
    (here / "file").write_text("\n".join([*lines[:4], row, *lines[4:]]))
    (here / "good.tsv").write_bytes(OBJECTS)
    assert train(task, "file") == 0
    assert f"1 line dropped: 1 {name} (file:5)\n" in capsys.readouterr().err
    before = snapshot(here)
    assert train(task, "file", "other", **{"data.bad_lines": "refuse"}) == 2
    sentence = complaint(capsys)
    assert "file:5: " in sentence and why in sentence
    assert snapshot(here) == before


# What is only unusual

UNUSUAL = {
    "no last newline": lambda text: text[:-1],
    "CRLF": lambda text: text.replace(b"\n", b"\r\n"),
    "byte order mark": lambda text: b"\xef\xbb\xbf" + text,
    "gzip": gzip.compress,
    "gzip in parts": lambda text: gzip.compress(text[:100]) + gzip.compress(b"") + gzip.compress(text[100:]),
}


@pytest.mark.parametrize("kind", UNUSUAL)
@pytest.mark.parametrize("task", ["lm", "pairs", "table"])
def test_an_unusual_file_gives_the_same_tokens(kind, task, here, capsys):
    usual = TABLE if task == "table" else GOOD
    results = []
    for name, content in {"usual": usual, "unusual": UNUSUAL[kind](usual)}.items():
        (here / "file").write_bytes(content)
        assert train(task, "file", name) == 0
        assert "dropped" not in capsys.readouterr().err
        results.append(tokens_of(here / name, task))
    if (kind, task) == ("no last newline", "lm"):
        results[0] = results[0][:-1]  # which is one character less
    assert len(results[0]) > 500 if task == "lm" else len(results[0]) == 80
    assert results[0] == results[1]


def tokens_of(run, task):
    """What a run learns from: of a text the whole of it, held-out part and all, since pieces may begin
    anywhere."""
    if task == "lm":
        return [int(token) for part in ("train", "valid") for token in Store.open(run / part).stream("text")]
    store = Store.open(run / "data")
    return [{field: store.row(field, i).tolist() for field in store.fields} for i in range(len(store))]


# Commands


@pytest.fixture
def run(here, capsys):
    """A run that was interrupted after its first step, in effect."""
    assert train("pairs", "good", "run", **{"train.steps": 2, "checkpoint.every": 1}) == 0
    shutil.rmtree(here / "run" / "checkpoints" / "step-2")
    capsys.readouterr()
    return here / "run"


MISTAKES = {
    "a run that is there": (
        ["lm", "--text", "good", "--run", "run"],
        "run holds a run: go on with `heedful train --resume run`",
    ),
    "a folder of other things": (["lm", "--text", "good", "--run", "."], "is no run, for it holds"),
    "a file in the way": (["lm", "--text", "good", "--run", "good"], "good cannot be written: it is a file"),
    "a name that is no UTF-8": (["lm", "--text", "good", "--run", "caf\udce9"], "caf? is no name in UTF-8"),
    "a file name that is no UTF-8": (["lm", "--text", "caf\udce9"], "data.text must be text in UTF-8"),
    "a NUL in a name": (["lm", "--text", "a\0b"], "a?b is missing"),
    "no run": (["--resume", "gone"], "gone holds no run: recipe.json is missing"),
    "no option": (["lm", "--txt", "good"], 'train has no option --txt; did you mean "--text"?'),
    "no task": (
        ["translat", "--text", "good"],
        'there is no task "translat"; did you mean "translate"?',
    ),
    "no setting": (
        ["lm", "--text", "good", "--set", "model.head=2"],
        'lm with gpt2 has no setting "model.head"; did you mean "model.heads"?',
    ),
    "no value": (
        ["lm", "--text", "good", "--set", "model.heads"],
        "--set takes part.name=value, not 'model.heads'",
    ),
    "a setting of another architecture": (
        ["translate", "--source", "good", "--set", "model.patch_size=16"],
        'translate with transformer has no setting "model.patch_size"; model has ',
    ),
    "a setting of another task": (
        ["lm", "--text", "good", "--set", "train.word_dropout=0.1"],
        'lm has no setting "train.word_dropout"; ',
    ),
    "a setting of another part": (
        ["lm", "--text", "good", "--set", "train.heads=2"],
        'lm has no setting "train.heads"; did you mean "model.heads"?',
    ),
    "heads that do not divide": (
        ["lm", "--text", "good", "--set", "model.heads=5"],
        "a width of 256 cannot be divided into 5 heads",
    ),
    "no text": (
        ["lm"],
        "give --text, a file or folder to learn from, or --corpus stories or pylib or phrasebook",
    ),
    "no target": (["translate", "--source", "good"], "give --source and --target"),
    "no held-out pairs": (
        ["translate", "--source", "good", "--target", "good"],
        "give --valid-source and --valid-target too",
    ),
    "no table": (["classify", "--data", "good.tsv"], "give --data and --valid-data"),
    "no corpus": (
        ["mlm", "--corpus", "facts"],
        'mlm has no built-in corpus "facts"; it has pylib and stories',
    ),
    "a vocabulary too small": (
        ["lm", "--text", "good", "--set", "data.vocab_size=100"],
        "a bpe vocabulary has 263 to 1000000 tokens, not 100",
    ),
    "no model to start from": (
        ["classify", "--data", "good.tsv", "--valid-data", "good.tsv", "--from", "gone"],
        "gone is not a folder",
    ),
}


@pytest.mark.parametrize("words, said", MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_one_sentence_and_touches_nothing(words, said, run, here, capsys):
    before = snapshot(here)
    where = [] if {"--run", "--resume"} & set(words) else ["--run", "new"]
    with at_most(10):
        assert main(["train", *words, *where]) == 2
    assert said in complaint(capsys)
    assert snapshot(here) == before


def other_vocabulary(folder):
    """The same vocabulary, but two of its tokens have changed places."""
    spec = json.loads((folder / "tokenizer.json").read_text())
    vocab = spec["model"]["vocab"]
    vocab["a"], vocab["b"] = vocab["b"], vocab["a"]
    (folder / "tokenizer.json").write_text(json.dumps(spec))


def flipped(name, at=5):
    def flip(folder):
        data = bytearray((folder / name).read_bytes())
        data[at] ^= 1
        (folder / name).write_bytes(data)

    return flip


def put(name, content):
    return lambda folder: (folder / name).write_bytes(content)


ALTERED = {
    "another tokenizer": (
        other_vocabulary,
        "run/data was made with another vocabulary than the one beside it",
    ),
    "no tokenizer": (put("tokenizer.json", b"{}"), "run/tokenizer.json"),
    "half a tokenizer": (lambda folder: os.truncate(folder / "tokenizer.json", 300), "run/tokenizer.json"),
    "a tokenizer not in UTF-8": (
        put("tokenizer.json", b'{"\xff": 1}'),
        "run/tokenizer.json is not UTF-8 text",
    ),
    "a bit of the tokens": (flipped("data/source.bin"), "run/data/source.bin is damaged: expected SHA-256"),
    "a bit of the offsets": (
        flipped("data/target.idx", 8),
        "run/data/target.idx is damaged: expected SHA-256",
    ),
    "half the tokens": (
        lambda folder: os.truncate(folder / "data/target.bin", 40),
        "run/data/target.bin has 40 bytes",
    ),
    "no count": (put("data/store.json", b"{}"), "run/data/store.json: format is None"),
}


@pytest.mark.parametrize("alter, said", ALTERED.values(), ids=ALTERED)
def test_a_run_whose_data_has_changed_is_not_resumed_and_not_touched(alter, said, run, here, capsys):
    alter(run)
    before = snapshot(here)
    with at_most(10):
        assert main(["train", "--resume", "run"]) == 2
    assert said in complaint(capsys)
    assert snapshot(here) == before


def test_a_text_that_has_changed_is_not_taken_for_the_old_one(here, capsys):
    """What a run has tokenized is its own, and stays as it is; made again of another text, it is refused."""
    assert train("lm", "good", "run", **{"train.steps": 2, "checkpoint.every": 1}) == 0
    shutil.rmtree(here / "run" / "checkpoints" / "step-2")
    (here / "good").write_bytes(GOOD.replace(b"ba", b"be"))
    shutil.copytree(here / "run", here / "kept")
    assert main(["train", "--resume", "kept"]) == 0
    shutil.rmtree(here / "run" / "train")
    capsys.readouterr()
    assert main(["train", "--resume", "run"]) == 2
    assert "run: the data is not the one the run was begun with" in complaint(capsys)


def test_held_out_files_that_have_changed_are_not_taken_for_the_old_ones(run, here, capsys):
    (here / "good").write_bytes(GOOD.replace(b"ba", b"be"))
    before = snapshot(here)
    assert main(["train", "--resume", "run"]) == 2
    assert "run: the held-out data is not the one the run was begun with" in complaint(capsys)
    assert snapshot(here) == before


def test_a_run_that_has_not_changed_is_resumed(run, capsys):
    assert main(["train", "--resume", "run"]) == 0
    assert "going on after step 1" in capsys.readouterr().err
