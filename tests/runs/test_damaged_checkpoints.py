"""Checkpoints that were damaged, moved about or left half done: all is noticed, and an older one is taken."""

import os
import random
import re

import pytest
from helpers import train_toy
from helpers.checkpoints import (  # noqa: F401 (fixtures)
    FILES,
    copied,
    falls_back,
    flip,
    memory,
    names,
    run,
    save,
    seed_of,
    server,
    tmp_path,
    why,
)

from heedful.errors import NoCheckpoint
from heedful.runs import checkpoint


@pytest.mark.parametrize("name", FILES)
def test_every_flipped_bit_is_noticed(run, name):
    path = run / "checkpoints/step-30" / name
    bits = 8 * path.stat().st_size
    places = random.Random(name).sample(range(bits), min(bits, 400))
    for count, place in enumerate(places):
        whole = flip(path, place)
        told = why(path.parent) if count % 20 else falls_back(run, 30, 20)
        assert re.search(rf"{re.escape(name)}: expected SHA-256 .{{64}}, found [0-9a-f]{{64}}", told), (
            place,
            told,
        )
        path.write_bytes(whole)
    assert checkpoint.latest(run) == (path.parent, [])


@pytest.mark.parametrize("name", FILES)
def test_every_cut_is_noticed(run, name):
    path = run / "checkpoints/step-30" / name
    whole = path.read_bytes()
    for size in {0, 1, len(whole) - 1, *(len(whole) * part // 47 for part in range(47))}:
        path.write_bytes(whole[:size])
        told = falls_back(run, 30, 20)
        assert name in told and "expected" in told
        assert name == "manifest.json" or f"expected {len(whole)} bytes, found {size}" in told
    path.write_bytes(whole + b"\0")
    assert name in falls_back(run, 30, 20)


def test_every_whitespace_and_every_fact_of_the_manifest_counts(run):
    path = run / "checkpoints/step-30/manifest.json"
    text = path.read_text()
    for old, new in [
        ("\n", "\r\n"),
        (" ", "\t"),
        ('"threads": 1', '"threads": 2'),
        ('"step"', '"step":1,"step"'),
    ]:
        assert old in text
        path.write_text(text.replace(old, new, 1), newline="")
        assert "manifest.json: expected SHA-256" in why(path.parent)
    path.write_text("\ufeff" + text)
    assert "manifest.json" in why(path.parent)


@pytest.mark.parametrize(
    "manifest",
    [
        {},
        {"format": 1, "step": 30},
        {"format": 1, "step": 30, "files": {}},
        {"format": 1, "step": 30, "files": {"state.json": 3}},
        {
            "format": 1,
            "step": 30,
            "files": {"state.json": {"bytes": 1, "sha256": ""}, "../x": {"bytes": 1, "sha256": ""}},
        },
        {"format": 1, "step": 31, "files": {"state.json": {"bytes": 1, "sha256": ""}}},
        {"format": 2, "step": 30, "files": {"state.json": {"bytes": 1, "sha256": ""}}},
        {
            "format": 1,
            "step": 30,
            "files": {"state.json": {"bytes": 1, "sha256": ""}, "gone": {"bytes": 1, "sha256": ""}},
        },
    ],
)
def test_a_manifest_that_makes_no_sense_is_refused(run, manifest):
    (run / "checkpoints/step-30/manifest.json").write_bytes(checkpoint.sealed(manifest))
    why(run / "checkpoints/step-30")
    falls_back(run, 30, 20)


def test_a_manifest_of_another_format_says_so(run):
    entries = {"state.json": {"bytes": 1, "sha256": ""}}
    path = run / "checkpoints/step-30/manifest.json"
    path.write_bytes(checkpoint.sealed({"format": 2, "step": 30, "files": entries}))
    assert "format 2, and this version of heedful reads 1" in why(path.parent)


def test_when_all_are_damaged_each_is_named(run, capsys):
    for step, name in zip((10, 20, 30), FILES, strict=False):
        flip(run / f"checkpoints/step-{step}" / name, 17)
    with pytest.raises(NoCheckpoint) as caught:
        checkpoint.latest(run)
    for step, name in zip((10, 20, 30), FILES, strict=False):
        assert f"step-{step} is damaged ({name}: expected" in str(caught.value)
    (run / "recipe.json").write_text("{}")
    assert train_toy.main([str(run), "--resume"]) == 4
    assert "no checkpoint that can be read" in capsys.readouterr().err


# Files moved about.


def test_a_missing_an_extra_and_a_renamed_file_are_noticed(run):
    folder = run / "checkpoints/step-30"
    for name in FILES:
        (folder / name).rename(run / "away")
        assert f"{name} is missing" in why(folder) and name in falls_back(run, 30, 20)
        (run / "away").rename(folder / name)
    (folder / "more.bin").write_text("x")
    assert "more.bin: expected no such file" in why(folder)
    (folder / "more.bin").rename(folder / ".hidden")
    assert ".hidden: expected no such file" in why(folder)
    (folder / ".hidden").unlink()
    (folder / "state.json").rename(folder / "State.json")
    assert "state.json is missing" in why(folder)


@pytest.mark.parametrize("name", FILES)
def test_files_swapped_between_two_checkpoints_are_noticed(run, name):
    a, b = (run / "checkpoints" / step / name for step in ("step-20", "step-30"))
    assert a.stat().st_size == b.stat().st_size
    a.rename(run / "away")
    b.rename(a)
    (run / "away").rename(b)
    folder, told = checkpoint.latest(run)
    assert folder.name == "step-10" and len(told) == 2 and all(name in sentence for sentence in told)


@pytest.mark.parametrize("name", FILES)
def test_a_link_or_a_folder_or_a_pipe_is_no_file(run, name):
    path = run / "checkpoints/step-30" / name
    whole = path.read_bytes()
    path.unlink()
    path.mkdir()
    assert "not a regular file" in why(path.parent)
    path.rmdir()
    os.mkfifo(path)
    assert "not a regular file" in why(path.parent)
    path.unlink()
    (run / "outside").write_bytes(whole)
    path.symlink_to(run / "outside")
    assert "leads out of its folder" in why(path.parent)


def test_a_renamed_folder_is_not_taken_for_a_later_one(run):
    (run / "checkpoints/step-10").rename(run / "checkpoints/step-99")
    assert "it is of step 10, expected 99" in falls_back(run, 99, 30)


def test_other_names_are_ignored(run):
    for name in (
        "step-99x",
        "step-",
        "step-099",
        "step--5",
        "Step-98",
        "step-1e3",
        "step-٣٣",
        "best",
        "step-97.bak",
    ):
        copied(run / "checkpoints/step-30", run / "checkpoints" / name)
    (run / "checkpoints/step-96").write_text("a file")
    assert checkpoint.latest(run) == (run / "checkpoints/step-30", [])
    save(run, 40, keep=1)
    assert {"step-99x", "step-096", "best", "step-96"} - set(names(run)) == {"step-096"}


def test_an_empty_folder_with_a_higher_number_is_passed_over_and_never_deleted(run):
    (run / "checkpoints/step-99").mkdir()
    (run / "checkpoints/step-5").mkdir()
    assert "manifest.json is missing" in falls_back(run, 99, 30)
    save(run, 40, keep=1)
    assert names(run) == ["step-40", "step-5", "step-99"]


def test_the_clock_does_not_matter(run):
    for step, when in ((10, 3e9), (20, 2e9), (30, 1e9)):
        for path in (run / f"checkpoints/step-{step}", *(run / f"checkpoints/step-{step}").iterdir()):
            os.utime(path, (when, when))
    assert checkpoint.latest(run) == (run / "checkpoints/step-30", [])
    save(run, 40, keep=2)
    assert names(run) == ["step-30", "step-40"]


def test_numbers_are_compared_as_numbers(tmp_path):
    for step in (0, 9, 10, 100):
        save(tmp_path, step, keep=9)
    assert [path.name for path in checkpoint.newest_first(tmp_path / "checkpoints")] == [
        "step-100",
        "step-10",
        "step-9",
        "step-0",
    ]


def test_what_dead_processes_left_is_cleared_and_what_living_ones_write_is_not(run, server):
    dead = server.start("x", do="publish")
    server.wait()
    for kind in ("tmp", "old"):
        for pid in (dead, os.getpid()):  # ours was another's before us
            copied(run / "checkpoints/step-30", run / f"checkpoints/step-30.{kind}-{pid}")
        copied(run / "checkpoints/step-30", run / f"checkpoints/step-50.{kind}-{server.process.pid}")
    assert checkpoint.latest(run) == (run / "checkpoints/step-30", [])
    living = [f"step-50.{kind}-{server.process.pid}" for kind in ("old", "tmp")]
    assert names(run) == ["step-10", "step-20", "step-30", *living]


def test_what_a_process_with_our_number_left_is_no_part_of_a_checkpoint(run):
    copied(run / "checkpoints/step-30", run / f"checkpoints/step-40.tmp-{os.getpid()}")
    (run / f"checkpoints/step-40.tmp-{os.getpid()}/more.bin").write_text("x")
    assert seed_of(save(run, 40)) == 40.0


def test_one_that_was_being_replaced_by_a_process_that_died_comes_back_if_it_is_whole(run, server):
    dead = server.start("x", do="publish")
    server.wait()
    for step in (20, 30):
        (run / f"checkpoints/step-{step}").rename(run / f"checkpoints/step-{step}.old-{dead}")
    flip(run / f"checkpoints/step-30.old-{dead}/model.safetensors", 99)
    assert checkpoint.latest(run) == (run / "checkpoints/step-20", [])
    assert names(run) == ["step-10", "step-20"]


def test_a_run_without_checkpoints_has_no_latest(tmp_path):
    assert checkpoint.latest(tmp_path) is None
    (tmp_path / "checkpoints").mkdir()
    assert checkpoint.latest(tmp_path) is None
