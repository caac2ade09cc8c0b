"""Random command lines, drawn from the options themselves: each ends in a code that help explains, in words.

What an option is called and what it takes is read from heedful/cli, so that a new one is drawn at once.
Every line runs in a folder with tiny models, good and damaged ones, and tiny texts. A line that fails is
shown as it would be typed in that folder.
"""

import io
import os
import random
import shlex
import shutil
import sys
import typing
from collections import Counter
from functools import cache
from types import SimpleNamespace

import pytest
from helpers.command_lines import (
    TINY,
    AtOnce,
    first_pages,
    world,  # noqa: F401 (fixtures)
)
from helpers.refusals import at_most
from torch import nn

from heedful.certify import certificate, compare, verify
from heedful.cli import bench, lab
from heedful.cli.completion import names_file
from heedful.cli.main import main
from heedful.cli.shared import arguments
from heedful.cli.shared.commands import COMMANDS, options_of
from heedful.cli.shared.exit_codes import MEANINGS
from heedful.corpora import phrasebook
from heedful.interop.onnx.graph import Graph
from heedful.runs import training
from heedful.service import server
from heedful.studio import server as studio_server
from heedful.tasks import find_task, recipe, task_files

CHUNKS, LINES = 8, 340
SECONDS = 30  # for one line: far more than any takes, and less than for ever
STDIN = b"the cat\n\nthe [MASK] sat\n\xff\n"

# Commands that measure for minutes, in processes of their own: here only their options are read.
MEASURES = [name for name in COMMANDS if name == "bench"]
SMALL = [f"--set={name}={value}" for name, value in TINY.items()]
TEXT = ["--text", "text", "--set=data.tokenizer=char", "--set=model.context=12"]
TABLE = ["--data", "table.tsv", "--valid-data", "table.tsv", "--set=data.tokenizer=word"]
ARTICLES = ["--data", "a.jsonl", "--valid-data", "a.jsonl", "--set=data.tokenizer=word"]
TREES = ["--data", "a.conllu", "--valid-data", "a.conllu", "--set=data.tokenizer=word"]
TRAINABLE = [
    ["lm", *TEXT, *SMALL],
    ["mlm", *TEXT, *SMALL],
    ["classify", *TABLE, *SMALL],
    ["parse", *TREES, *SMALL],
    ["summarize", *ARTICLES, *SMALL],
]
TASKS = [line[:1] for line in TRAINABLE]
TRAINS = ("train", "compare")
VARIANTS = ["--variant=a", "--variant", "b: train.learning_rate=0.01"]


# A folder to be in


@pytest.fixture
def here(world, tmp_path, monkeypatch):
    """A copy of that folder to be in, where training takes a moment: it is interrupted at its first step."""
    shutil.copytree(world, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(training, "Stop", AtOnce)
    monkeypatch.setattr(phrasebook, "split", first_pages)
    monkeypatch.setattr(nn.Module, "compile", lambda module: None)  # takes long; test_compiled.py has it
    for module in (compare, verify):  # the other library is heard in test_export.py
        monkeypatch.setattr(module, "compared", unchecked)
    monkeypatch.setattr(Graph, "write", lambda graph, path: path.touch())
    monkeypatch.setattr(bench, "bench", lambda given: None)
    monkeypatch.setattr(lab, "measure", unmeasured)  # tests/lab has it
    monkeypatch.setattr(server, "run", lambda serving, host, socket: socket.close())  # test_serve.py has it
    monkeypatch.setattr(studio_server, "run", lambda studio, socket, hosts, opens: socket.close())
    return tmp_path


def unmeasured(given, claim, size, alone):
    return SimpleNamespace(claim=claim, surprises=[], as_json=dict)


def unchecked(loaded, folder, to, kind, tell, source=""):
    return certificate.unchecked(loaded, to, kind, "there is no time")


# What is typed

OWN = {
    "translate": "run-translate",
    "generate": "run-lm",
    "fill": "run-mlm",
    "classify": "run-classify",
    "tag": "run-tag",
    "parse": "run-parse",
    "summarize": "run-summarize",
}
GOOD = [*OWN.values(), "hf-gpt2", "hf-bert"]
BAD = [
    "run-cut",
    "run-bare",
    "run-torn",
    "hf-odd",
    "hf-mute",
    "empty",
    "text",
    "gone",
    "gone/run",
    "runs/lm",
    "new",
]
FILES = [
    "text",
    "a.src",
    "a.tgt",
    "a.conllu",
    "a.jsonl",
    "table.tsv",
    "empty.txt",
    "latin.txt",
    "empty",
    "gone",
    "hf-bert/config.json",
]
NEW = ["new", "new.svg", "new.png", "new.txt", "gone/new.svg", "text", "empty"]
TEXTS = ["the cat", "[MASK] sat", "the", "1", "2", "0 1 2", "best", "mean", "sat\tthe", ""]
ODD = [
    "", " ", "-", "--", "---", "-1", "--=", "=", "a=b", "--json", "é", "日本", "🙂", "a\nb", "\x1b[31mred",
    "\t", "a\rb",
    "\udcff", "\u202e", "None", "True", "*", "a" * 5000, "é" * 200, "%s{0}", "'\"", "..\\x", ".", "/dev/null",
]  # fmt: skip
NUMBERS = [
    "0", "-1", "1", "2", "7", "0x10", "1e3", "1.5", "1e308", "-1e308", "1e999", "nan", "inf", "-inf", "1_0",
    "٣",
    "9" * 30, "-" + "9" * 30, "9" * 5000, "1" + "0" * 400, str(2**63), str(-(2**63) - 1), "0.0001", "00",
    "+1", "1,5",
]  # fmt: skip
FIRST = [
    "--help",
    "-h",
    "help",
    "--version",
    "--print-completion",
    "--prnt",
    "--json",
    "helo",
    "TRAIN",
    "bash",
]


@cache
def fields_of(command):
    """(the name as it is typed, or None for a place; its type) of everything that a command takes."""
    hints = typing.get_type_hints(options_of(command), include_extras=True)
    return [
        (None if arguments.is_positional(hint) else arguments.option(name), hint)
        for name, hint in hints.items()
    ]


def drawn(rng):
    """A command line: careful, with a slip, or careless. The more options a command has, the more often it
    comes."""
    if rng.random() < 0.06:
        return rng.choices([*FIRST, *ODD, *COMMANDS], k=rng.randrange(4))
    command = rng.choices(list(COMMANDS), [len(fields_of(name)) for name in COMMANDS])[0]
    care = rng.choice([0.3, 0.9, 1.0])
    begun = [] if command not in TRAINS else rng.choice([SMALL, rng.choice(TRAINABLE)])
    begun = [*begun, *VARIANTS] if command == "compare" else begun
    options = [(name, hint) for name, hint in fields_of(command) if name is not None]
    places = [hint for name, hint in fields_of(command) if name is None and begun[:1] not in TASKS]
    count = rng.choice([0, 0, 1, 1, 2, 3, 6])
    pieces = [typed(command, *rng.choice(options), care, rng) for _ in range(count)]
    pieces += [[value(command, hint, care, rng)] for hint in places if rng.random() < (1 + care) / 2]
    pieces += [[nonsense(rng)]] if rng.random() > (4 + care) / 5 else []
    pieces += [["--help"]] if rng.random() < 0.01 else []
    rng.shuffle(pieces)
    return [command, *begun, *(word for piece in pieces for word in piece)]


def typed(command, name, hint, care, rng):
    """An option with its value, in one of the ways in which people type it."""
    given = value(command, hint, care, rng)
    name = name if rng.random() < care else misspelled(name, rng)
    alone = bool in arguments.kinds_of(hint)
    if rng.random() > care:  # a flag with a value, or an option without one
        alone = not alone
    together = [name] if alone else [f"{name}={given}"]
    return together if alone or rng.random() < 0.3 else [name, given]


def misspelled(name, rng):
    """Cut short, with one dash, and so on; underscores for dashes are right."""
    short, under = name[: rng.randrange(2, len(name) + 1)], f"--{name[2:].replace('-', '_')}"
    return rng.choice([short, under, name[1:], name.upper(), f"{name}x", f"--no{name[1:]}"])


def value(command, hint, care, rng):
    return sense(command, hint, rng) if rng.random() < care else nonsense(rng)


def nonsense(rng):
    return rng.choice(rng.choice([ODD, NUMBERS, GOOD, BAD, FILES, NEW]))


def sense(command, hint, rng):
    """A value of the kind that is wanted. Numbers are small, for none must make a model large or a text
    long."""
    kinds, called = arguments.kinds_of(hint), arguments.metavar(hint)
    if {"RUN", "FOLDER"} & set(called.split("|")):
        return rng.choice([rng.choice(GOOD), OWN.get(command, "gpt2")])
    if names_file(hint):
        return rng.choice(NEW if called == "DIR" else FILES + NEW)
    if int in kinds:
        return rng.choice(["1", "2", "3", "5"])
    if float in kinds:
        return rng.choice(["0.5", "1", "2", "0.01"])
    if isinstance(kinds[0], str):
        return rng.choice(kinds)
    return setting(rng) if "=" in called else rng.choice(TEXTS)


@cache
def settings():
    """Every setting of the tasks and their architectures."""
    tasks = [find_task(name) for name in task_files()]
    known = [recipe.known_settings(task, name) for task in tasks for name in task.architectures]
    return [pair for some in known for pair in some.items()]


def setting(rng):
    """part.name=value of a recipe: its choices, or the least it may be, a little less, far too much."""
    name, known = rng.choice(settings())
    if known.choices:
        return f"{name}={rng.choice(known.choices)}"
    if known.limits:
        least, most = known.limits.least, known.limits.most
        return f"{name}={rng.choice([least, least - 1, 10 * most, 1, 2, 0.5, 'auto'])}"
    return f"{name}={rng.choice(['true', 'false', *FILES, *ODD])}"


def as_typed(words):
    """A line that bash reads as these very words."""
    plain = [shlex.quote(word) if word.isascii() and word.isprintable() else in_bytes(word) for word in words]
    return " ".join(["heedful", *plain])


def in_bytes(word):
    return "$'" + "".join(f"\\x{byte:02x}" for byte in os.fsencode(word)) + "'"


# How it must end

EXPLAINED = {*MEANINGS}
ENDINGS = {
    0: COMMANDS,
    2: COMMANDS,
    3: ("doctor", "train"),  # a check did not hold; a loss was not finite
    4: ("train",),  # --resume, where no checkpoint is whole
    75: ("train", "demo", "compare"),  # interrupted, as all training is here
}  # 1 would be an error that nobody foresaw; 5, 130 and 141 need a full disk, a Ctrl-C, a closed pipe


def wrong_with(words, code, out, err):
    """What is wrong with an ending; None if nothing is."""
    command = words[0] if words else ""
    sentences = [line for line in err.splitlines() if line.startswith("error: ")]
    expected = 0 if code in (0, 75) or (code, command) == (3, "doctor") else 1
    if code not in EXPLAINED or code not in ENDINGS or (code not in (0, 2) and command not in ENDINGS[code]):
        return f"the exit code is {code}"
    if "Traceback" in out + err:
        return "there is a traceback"
    if len(sentences) != expected:
        return f"the exit code is {code}, with {len(sentences)} sentences"
    if sentences and not err.endswith(f"{sentences[0]}\n"):
        return "the sentence is not the last thing said"
    if sentences and not (sentences[0].isprintable() and len(sentences[0]) < 2010):
        return "the sentence is no plain text, or endless"
    return None


@pytest.mark.parametrize("chunk", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, CHUNKS))])
def test_any_line_ends_in_a_code_that_help_explains_and_at_most_one_sentence(
    chunk, here, capsys, monkeypatch
):
    rng, codes = random.Random(chunk), Counter()
    for _ in range(LINES):
        words = drawn(rng)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(STDIN)))
        with at_most(SECONDS):
            code = main(words)
        out, err = capsys.readouterr()
        wrong = wrong_with(words, code, out, err)
        assert wrong is None, f"{wrong}: {as_typed(words)}\nin {here}\n{err}"
        codes[code] += 1
    assert codes[0] > LINES / 20 and codes[2] > LINES / 3, "too tame or too wild to show anything"


def test_every_option_of_every_command_is_drawn():
    lines = [drawn(rng) for rng in map(random.Random, range(CHUNKS)) for _ in range(LINES)]
    for command in COMMANDS:
        given = {word.partition("=")[0] for line in lines if line[:1] == [command] for word in line}
        assert {name for name, _ in fields_of(command) if name is not None} <= given
