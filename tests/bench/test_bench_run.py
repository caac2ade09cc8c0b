"""heedful bench from end to end, in processes of its own, on a machine that has no tyro and no rich."""

import json
import os
import socket
import subprocess
import sys

import pytest

PEER = """
import os
from heedful.bench.peers import Variant

def variants(work):
    works, claims = Variant("works"), Variant("claims", same_weights=True)
    return [works, claims, Variant("raises"), Variant("dies"), Variant("ends late")]

def build(work, variant, place):
    print("a library that talks")
    if variant.name == "raises":
        raise RuntimeError(f"no room in {os.getcwd()}/x for it")
    if variant.name == "dies":
        os._exit(7)
    calls = []
    def run():
        calls.append(1)
        if variant.name == "ends late" and len(calls) > 10:  # the first ten are for warming up
            os.kill(os.getpid(), 9)
        return [[5] * work.new] * work.batch
    return run
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """One run of the bench beside a peer that misbehaves in every way."""
    folder = tmp_path_factory.mktemp("bench")
    (folder / "peer.py").write_text(PEER)
    for missing in ("tyro", "rich"):
        (folder / f"{missing}.py").write_text(f"raise ImportError('{missing} is not installed here')")
    environment = {**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    environment.pop("HEEDFUL_DEBUG", None)
    args = ["--small", "--work", "decode-gpt2", "--peer", "odd=peer.py", "--only", "odd", "--rounds", "3"]
    done = subprocess.run(
        [sys.executable, "-m", "heedful.bench", *args, "--output", "out.jsonl", "--device", "cpu"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done, folder


def test_it_runs_without_tyro_and_rich_and_says_what_it_found(run):
    done, _ = run
    assert done.returncode == 0, done.stderr
    rows = {line.partition("  ")[0]: line for line in done.stdout.splitlines()}
    assert rows["heedful"].endswith("same tokens")
    assert rows["odd, works"].endswith("own weights")
    assert rows["odd, claims"].endswith("first 0 of 6 tokens")
    assert rows["odd, raises"].endswith("failed: RuntimeError: no room in x for it")
    assert rows["odd, dies"].endswith("failed: ended with exit code 7: a library that talks")
    assert "failed: was ended by signal 9, probably out of memory" in rows["odd, ends late"]
    assert "--peer nanogpt=PATH" in done.stdout and "a library that talks" not in rows


def test_its_first_words_are_about_the_machine(run):
    done, _ = run
    assert done.stderr.startswith("bench: reading the machine's properties\n")


def test_every_result_is_a_line_that_can_be_shown_to_anyone(run):
    _, folder = run
    text = (folder / "out.jsonl").read_text()
    found = {r["contender"]: r for r in map(json.loads, text.splitlines())}
    assert list(found) == [
        "heedful",
        "odd, works",
        "odd, claims",
        "odd, raises",
        "odd, dies",
        "odd, ends late",
    ]
    ours = found["heedful"]
    assert ours["failed"] is None and len(ours["turns_ms"]) == 3
    assert ours["sizes"]["kind"] == "decode-gpt2" and ours["work"] == "decode-gpt2"
    assert {"torch", "python", "heedful", "build"} <= set(ours["versions"])
    assert {"cpu", "cores", "gpu"} == set(ours["hardware"])
    assert ours["ceilings"]["flops"] > 0 and ours["ceilings"]["bandwidth"] > 0
    assert ours["best_peer"] in ("odd, works", "odd, claims") and ours["ratio"] > 0
    assert found["odd, dies"]["ms"] is None
    assert str(folder) not in text and os.sep + "tmp" not in text
    assert f'"{socket.gethostname()}"' not in text
