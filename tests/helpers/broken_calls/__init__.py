"""Broken calls of every command that answers: ways to break something, and rows of a table of them."""

import json
import math
import shlex
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

LINES = b"the ba sat\n"  # on stdin, unless a row says otherwise
GPT2 = "hf-gpt2/config.json"
# Commands whose broken calls are in test_bad_input.py, test_bench.py, test_text_to_image.py, test_chat.py
# and test_serve.py, and in tests/studio/test_process.py.
ELSEWHERE = {"train", "bench", "paint", "chat", "serve", "studio"}


# Ways to break something: each is done in the folder where the command is given.


def intact():
    pass


def written(name, content=b""):
    return lambda: Path(name).write_bytes(content)


def removed(name):
    return lambda: Path(name).unlink()


def cut(name):
    """The end is missing, as after a download that broke off."""
    return lambda: Path(name).write_bytes(Path(name).read_bytes()[:-40])


def changed(name, **settings):
    """Other values in a JSON file; part__name is a value inside a part."""

    def damage():
        found = json.loads(Path(name).read_text())
        for key, value in settings.items():
            part, _, inner = key.rpartition("__")
            (found[part] if part else found)[inner] = value
        Path(name).write_text(json.dumps(found))

    return damage


def in_its_place(name, make):
    """Something else under the name of a file."""

    def damage():
        if Path(name).exists():
            Path(name).unlink()
        make(Path(name))

    return damage


def folder(path):
    path.mkdir()


def link_to_itself(path):
    path.symlink_to(path.name)


def both(*damages):
    return lambda: [damage() for damage in damages]


def swapped(a, b):
    """One file for another of its kind."""
    return lambda: shutil.copy(a, b)


def no_numbers(run):
    """Weights none of which is a number, and nothing that vouches for others."""

    def damage():
        weights = load_file(f"{run}/model.safetensors")
        save_file({name: weight * math.nan for name, weight in weights.items()}, f"{run}/model.safetensors")
        Path(run, "model.json").unlink()

    return damage


def header(content):
    """A safetensors file with this header and nothing behind it."""
    text = json.dumps(content).encode()
    return written("hf-gpt2/model.safetensors", struct.pack("<Q", len(text)) + text)


# The table


@dataclass(frozen=True)
class BrokenCall:
    line: str | list[str]  # what is typed; words, where they are no plain text
    sentence: str
    broken: Callable[[], object] = intact
    code: int = 2
    stdin: bytes = LINES
    out: str = ""  # a pattern

    @property
    def words(self):
        return shlex.split(self.line) if isinstance(self.line, str) else self.line


def row(what, *values, **more):
    return pytest.param(BrokenCall(*values, **more), id=what)


NO_FOLDER = "is not a folder; a model is a folder with a config.json and its weights"
NO_CONFIG = "config.json is missing: a model is a folder with a config.json and its weights"
NO_MODEL = "has no model yet (a run writes it every step): go on with `heedful train --resume"
NO_JSON = (
    "is not valid JSON: Expecting property name enclosed in double quotes: …; "
    "mend it, or put a whole copy there"
)
DAMAGED = "is damaged: its SHA-256 is …, and …model.json says …; restore both from a copy"
OWN_DATA = "--source FILE and --target FILE, or --data FILE"
TORN = "is not a whole safetensors file: …; it may be cut short or altered, fetch it again"
NO_NUMBER = "gives what is not a number: heedful doctor says which of its weights"
BEAM_ONLY = "has no effect without --beam: give a --beam of 2 or more"
DRAWN_ONLY = "has no effect without --sample: give --sample too"

TWO = (
    "lm --text text --set data.tokenizer=char --set model.context=12 --size tiny "
    "--variant a --variant 'b: model.width=8'"
)
