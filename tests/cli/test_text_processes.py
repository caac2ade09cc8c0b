"""Commands that answer texts, each in a process of its own: memory, signals, terminals, progress."""

import io
import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

from helpers.commands import start
from helpers.small_runs import PAIRS, SOURCES, lines

from heedful.cli.main import main
from heedful.cli.shared import lines as line_commands


@contextmanager
def running(*args: str):
    """heedful in a process of its own that does not outlive the test, should it never answer."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": ""}
    before = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # what a shell starts in the background ignores it
    try:
        process = start(*args, stdin=subprocess.PIPE, env=environment)
    finally:
        signal.signal(signal.SIGINT, before)
    with process:
        guard = threading.Timer(60, process.kill)
        guard.start()
        yield process
        process.wait()
        guard.cancel()


def test_starting_up_imports_nothing_heavy_beside_torch(small_run):
    code = f"""
import io, sys, torch
before = set(sys.modules)
sys.stdin = io.TextIOWrapper(io.BytesIO(b"the cat sleeps\\n"))
from heedful.cli.main import main
assert main(["translate", {small_run("demo")!r}]) == 0
heavy = ("rich", "transformers", "torch._dynamo", "torch._inductor", "sacrebleu", "heedful.train.loop")
heavy += ("pydoc",)
print([name for name in heavy if name in set(sys.modules) - before])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "le chat dort\n[]\n"


def resident(pid: int) -> int:
    """Kilobytes of memory that a process has."""
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1])


def test_memory_does_not_grow_with_the_input(small_run):
    """20,000 lines through a small model: after the first tenth, memory stays what it is."""
    count, seen = 20_000, []
    with running("translate", small_run("demo"), "--beam", "1", "--batch", "256") as process:
        texts = [*PAIRS, ""]

        def feed():
            for n in range(count):
                process.stdin.write(texts[n % 7] + "\n")
            process.stdin.close()

        writer = threading.Thread(target=feed)
        writer.start()
        expected = [*PAIRS.values(), ""]
        for n, line in enumerate(process.stdout):
            assert line.rstrip("\n") == expected[n % 7]
            if n % 2000 == 1999:
                seen.append(resident(process.pid) if process.poll() is None else seen[-1])
        writer.join()
    assert n == count - 1 and process.returncode == 0
    assert max(seen) - seen[0] < 12_000  # kilobytes


def test_a_reader_that_has_seen_enough_ends_it_quietly(small_run):
    with running("translate", small_run("demo"), "--batch=2") as process:
        process.stdin.write(lines("the cat sleeps"))
        process.stdin.flush()
        assert process.stdout.readline() == "le chat dort\n"
        process.stdout.close()  # as `| head -1` does
        process.stdin.write(lines(*SOURCES))
        process.stdin.close()
        said = process.stderr.read()
    assert (said, process.returncode) == ("", 141)


def test_ctrl_c_leaves_what_was_answered_and_no_traceback(small_run):
    """A line is answered as soon as it is there, though the input goes on."""
    with running("translate", small_run("demo")) as process:
        process.stdin.write(lines("the cat sleeps", "", "the dog sleeps"))
        process.stdin.flush()
        assert [process.stdout.readline() for _ in range(3)] == ["le chat dort\n", "\n", "le chien dort\n"]
        process.send_signal(signal.SIGINT)
        out, said = process.communicate(timeout=60)
    assert (out, said, process.returncode) == ("", "interrupted\n", 130)


def test_a_terminal_sees_tokens_as_they_come_and_no_progress(small_run):
    """On a terminal: what is typed is answered, in pieces; with a file, progress is told elsewhere."""
    leader, terminal = pty.openpty()
    command = [sys.executable, "-m", "heedful", "generate", small_run("lm"), "--max-new-tokens", "8"]
    with subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=subprocess.PIPE) as process:
        guard = threading.Timer(60, process.kill)
        guard.start()
        os.write(leader, b"the cat\n")
        seen = b""
        while not seen.endswith(b" sat on \r\n") and process.poll() is None:
            seen += os.read(leader, 1000) if select.select([leader], [], [], 1)[0] else b""
        os.write(leader, b"\x04")
        said = process.stderr.read().decode()
        guard.cancel()
    os.close(leader)
    os.close(terminal)
    assert (process.returncode, said) == (0, "one text a line; Ctrl-D ends\n")


class Terminal(io.StringIO):
    def __init__(self, pieces=None):
        super().__init__()
        self.pieces = pieces if pieces is not None else []

    def isatty(self):
        return True

    def write(self, text):
        self.pieces.append(text)
        return super().write(text)


def test_an_answer_is_streamed_to_a_terminal_piece_by_piece(small_run, monkeypatch, load):
    shown = Terminal()
    monkeypatch.setattr(sys, "stdout", shown)
    assert main(["generate", small_run("lm"), "the cat", "--max-new-tokens", "8"]) == 0
    assert shown.pieces == [*load("lm").stream("the cat", max_new_tokens=8), "\n"] and len(shown.pieces) == 9
    shown.pieces.clear()
    assert main(["generate", small_run("lm"), "the cat", "--max-new-tokens", "8", "--beam", "2"]) == 0
    assert len(shown.pieces) == 1  # a beam decides at the end
    shown.pieces.clear()
    assert main(["generate", small_run("lm"), "the cat", "--max-new-tokens", "8", "--json"]) == 0
    assert len(shown.pieces) == 1


def test_a_terminal_is_not_made_to_obey_a_model(monkeypatch):
    """Control characters go into files as they are, and on a terminal they are shown as unknown ones."""
    said = "a\x1b[31mb\x9bc\x07\td\n"
    for kind, expected in ((Terminal, "a\ufffd[31mb\ufffdc\ufffd\td\n"), (io.StringIO, said)):
        monkeypatch.setattr(sys, "stdout", kind())
        line_commands.write(said)
        assert sys.stdout.getvalue() == expected


def test_progress_is_told_to_who_can_see_it_once_it_takes_long(given, monkeypatch):
    talk = Terminal()
    monkeypatch.setattr(sys, "stderr", talk)
    given("translate", "demo", "--batch=1", stdin=lines(*PAIRS) * 4)
    assert talk.getvalue() == ""
    monkeypatch.setattr(line_commands, "PATIENCE", 0.0)
    monkeypatch.setattr(line_commands, "PACE", 0.0)
    monkeypatch.setattr(line_commands, "CHUNK", 2)
    _, out, _ = given("translate", "demo", "--batch=1", stdin=lines(*PAIRS) * 4)
    assert len(out) == 25
    told = talk.getvalue().split("\r")
    assert told[1].startswith("2 lines, ") and told[-2].startswith("24 lines, ") and told[-1] == "\x1b[K"


def test_progress_counts_what_was_answered_and_not_what_was_read(small_run, tmp_path, monkeypatch, capsys):
    """A file is read far ahead of the answers."""
    talk = Terminal()
    (tmp_path / "in").write_text(lines(*PAIRS) * 4)
    for name, value in {"PATIENCE": 0.0, "PACE": 0.0, "CHUNK": 6}.items():
        monkeypatch.setattr(line_commands, name, value)
    with open(tmp_path / "in") as file:
        monkeypatch.setattr(sys, "stdin", file)
        monkeypatch.setattr(sys, "stderr", talk)
        assert main(["translate", small_run("demo"), "--batch=1"]) == 0
    told = [re.search(r"(\d+)% of the input", line)[1] for line in talk.getvalue().split("\r")[1:-1]]
    assert told == ["25", "50", "75", "100"]
