"""Reading takes little memory, whatever the input is."""

import json
import subprocess
import sys

from helpers.bad_input_cases import ASKED, TINY, WORDS, here  # noqa: F401 (fixtures)

MEASURED = """
import contextlib, io, json, sys, threading, time
import torch
torch.set_num_threads(1)

def megabytes():
    # Memory of one's own: what is mapped from a file can be given back at any time.
    lines = open("/proc/self/status").read().splitlines()
    return int(next(line for line in lines if line.startswith("RssAnon")).split()[1]) / 1024

start, peak, going = megabytes(), [0.0], True

def watch():
    while going:
        peak[0] = max(peak[0], megabytes())
        time.sleep(0.001)

watcher = threading.Thread(target=watch)
watcher.start()
from heedful.cli.main import main
for words in json.loads(sys.argv[1]):
    peak[0], told = 0.0, io.StringIO()
    with contextlib.redirect_stderr(told), contextlib.redirect_stdout(io.StringIO()):
        code = main(words)
    print(json.dumps([code, peak[0] - start, told.getvalue()]), flush=True)
going = False
watcher.join()
"""


def long_line(path, megabytes):
    with path.open("wb") as file:
        for _ in range(megabytes):
            file.write(b"x yz" * (1 << 18))
        file.write(b"\n")
    return path.name


def many_lines(path, count):
    path.write_text("".join(f"{WORDS[i % 25]} {WORDS[i * 7 % 25]}\n" for i in range(count)))
    return path.name


def test_neither_a_line_of_a_hundred_megabytes_nor_very_many_lines_take_memory(here):
    """Peaks above `import torch`: everything that training itself loads is in them, about 75 MB."""
    huge, few, many = (
        long_line(here / "huge", 100),
        many_lines(here / "few", 3_000),
        many_lines(here / "many", 100_000),
    )
    short, long = long_line(here / "short", 1), long_line(here / "long", 6)
    # (task, file, exit code, what is said)
    cases = [
        ("lm", "good", 0, "step 1: held-out"),
        ("pairs", huge, 2, "error: there is no text in huge and huge (1 line dropped: 1 too long (huge:1))"),
        ("held-out pairs", huge, 2, "error: there is no text in huge and huge (1 line dropped: 1 too long"),
        ("table", huge, 2, "error: huge:1: the line that names the columns: longer than 100000 characters"),
        ("lm", short, 0, "step 1: held-out"),
        ("lm", long, 0, "step 1: held-out"),
        ("pairs", few, 0, "data: 3,000 pairs"),
        ("pairs", many, 0, "data: 100,000 pairs"),
        ("held-out pairs", many, 0, "data: 80 pairs, 100,000 held out (4 of them tried each time)"),
    ]
    chosen = [
        f"--set={key}={value}"
        for key, value in {**TINY, "data.tokenizer": "bpe", "data.vocab_size": 300}.items()
    ]
    commands = [
        ["train", *(word.replace("FILE", file) for word in ASKED[task]), "--run", f"run{i}", *chosen]
        for i, (task, file, _, _) in enumerate(cases)
    ]
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, json.dumps(commands)],
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(results) == len(cases), done.stderr
    peaks = []
    for i, ((task, file, expected, said), (code, peak, told)) in enumerate(zip(cases, results, strict=True)):
        assert code == expected and said in told, (task, file, told)
        assert peak <= 150, (task, file, peak)
        assert (here / f"run{i}").exists() == (code == 0)
        peaks.append(round(peak))
    print("MB above import torch:", peaks)
    assert peaks[5] - peaks[4] <= 20 and peaks[7] - peaks[6] <= 20, peaks  # six times, thirty times as much
