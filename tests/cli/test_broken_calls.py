"""Broken calls of every command that answers: what is typed, what is wrong with it, and what is said.

Each ends with its exit code, one sentence on stderr that names the thing and what to do, nothing half-said
on stdout, and every file as it was. "…" in a sentence stands for whatever is there.
"""

import io
import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter

import pytest
from helpers.broken_calls import ELSEWHERE, folders, intact, options, texts
from helpers.command_lines import world  # noqa: F401 (fixtures)
from helpers.refusals import JARGON, at_most
from helpers.snapshots import snapshot

from heedful.cli.main import main, overview
from heedful.cli.shared.commands import COMMANDS

# What may be said before the sentence.
PROGRESS = (
    "evaluating ",
    "task: ",
    "Training a small ",
    "run: ",
    "warning: ",
    "measuring ",
    "exporting ",
    "verifying ",
)
PROGRESS += ("importing ",)


TABLE = [*options.TABLE, *folders.TABLE, *texts.TABLE]


def matches(sentence, said):
    return re.fullmatch(".*".join(map(re.escape, sentence.split("…"))), said)


@pytest.mark.parametrize("call", TABLE)
def test_a_broken_call_ends_in_one_sentence(call, world, tmp_path, capsys, monkeypatch):
    here = world if call.broken is intact else shutil.copytree(world, tmp_path / "here")
    monkeypatch.chdir(here)
    call.broken()
    before = snapshot(here)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(call.stdin)))
    with at_most(20):
        code = main(call.words)
    out, told = capsys.readouterr()
    *earlier, last = told.splitlines()
    assert last.startswith("error: ") and matches(call.sentence, last.removeprefix("error: ")), told
    assert code == call.code
    assert all(each.startswith(PROGRESS) for each in earlier) or earlier == [*overview().splitlines(), ""]
    assert re.fullmatch(call.out, out)
    assert last.isprintable() and not [word for word in JARGON if word in told]
    assert snapshot(here) == before


def test_the_table_has_every_command_that_has_none_elsewhere():
    assert len({each.id for each in TABLE}) == len(TABLE) >= 70
    calls = Counter(command for each in TABLE for command in each.values[0].words[:1])
    assert {command for command in COMMANDS if calls[command] >= 5} == COMMANDS.keys() - ELSEWHERE


# Streams that a shell has closed, or a full disk


@pytest.mark.parametrize(
    "line, code, out, told",
    [
        pytest.param("embed run-lm <&-", 0, "", "", id="nothing to read"),
        pytest.param("embed run-lm the >&-", 0, "", "", id="nowhere to write"),
        pytest.param("evaluate run-lm 2>&-", 0, "run-lm: lm, step 1; …", "", id="nowhere to talk"),
        pytest.param(
            "--help >/dev/full",
            5,
            "",
            "error: No space left on device: make room, or write elsewhere\n",
            id="no room",
        ),
        pytest.param("tarnslate 2>&-", 2, "", "", id="a mistake, and nowhere to talk"),
        pytest.param(
            "info --batch 3",
            2,
            "",
            "error: --batch applies to one model: give its NAME too, such as gpt2\n",
            id="a mistake",
        ),
    ],
)
def test_streams_that_are_closed_or_full_are_no_mystery(line, code, out, told, world):
    done = subprocess.run(
        ["bash", "-c", f"{shlex.quote(sys.executable)} -m heedful {line}"],
        cwd=world,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (code, told)
    assert matches(out, done.stdout.replace("\n", " "))
