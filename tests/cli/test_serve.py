"""`heedful serve` as a command: its help, its first line, and what it refuses, in one sentence each."""

import json
import os
import socket
import subprocess
import sys

import pytest

from heedful.cli.main import main


@pytest.fixture(scope="module")
def empty(tmp_path_factory):
    """A folder that holds no model, and a key."""
    folder = tmp_path_factory.mktemp("empty")
    (folder / "key").write_text("a-key-of-32-characters-for-tests\n")
    (folder / "short").write_text("secret\n")
    return folder


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["nowhere"], "there is no nowhere"),
        ([".", "."], "two models have the name"),
        ([".", "--name", "a", "--name", "b"], "2 names are given for 1 models"),
        ([".", "--name", "my model"], "'my model' is no name for a model"),
        ([".", "--port", "65536"], "--port must be from 0 to 65535, not 65536"),
        ([".", "--port", "-1"], "--port"),
        ([".", "--rows", "0"], "--rows must be from 1 to 1024, not 0"),
        ([".", "--waiting", "-1"], "--waiting"),
        ([".", "--host", "0.0.0.0"], "--host 0.0.0.0 lets other machines in"),
        ([".", "--allow-origin", "https://chat.example"], "so a key is needed"),
        ([".", "--key-file", "nowhere"], "--key-file nowhere cannot be read"),
        ([".", "--key-file", "short"], "at least 16 characters"),
        ([".", "--languages", "en"], "--languages takes two codes"),
        ([".", "--limit", "queue_seconds"], "--limit takes NAME=VALUE"),
        ([".", "--limit", "queue_second=5"], "queue_seconds"),
        ([".", "--limit", "texts=0"], "texts"),
        ([".", "--host", "203.0.113.7", "--key-file", "key"], "cannot listen on 203.0.113.7"),
        ([], "no model is given"),
    ],
)
def test_what_cannot_be_served_is_refused_in_one_sentence(options, why, empty, monkeypatch, capsys):
    monkeypatch.chdir(empty)
    assert main(["serve", *options]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith("error: ") and said.err.count("\n") == 1
    assert why in said.err


def test_a_port_that_is_taken_is_named(empty, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", str(empty), "--port", str(port)]) == 2
    assert f"port {port} of 127.0.0.1 is in use: give another --port" in capsys.readouterr().err


def test_without_its_extra_it_says_what_to_install(empty, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert main(["serve", str(empty)]) == 2
    assert 'uvicorn is not installed: pip install "heedful[serve]"' in capsys.readouterr().err


def run(*options, folder):
    """A service that ends by itself."""
    environment = os.environ | {"PYTHONPATH": os.getcwd()}
    command = [sys.executable, "-m", "heedful", "serve", *options, "--port", "0"]
    options = {"cwd": folder, "env": environment, "capture_output": True, "text": True, "timeout": 120}
    return subprocess.run(command, check=False, **options)


def test_a_folder_without_a_model_ends_the_service_with_its_reason(empty):
    found = run(".", "--name", "lm", folder=empty)
    *before, last = found.stderr.splitlines()
    assert found.returncode == 2 and last.startswith("error: lm cannot be loaded: ")
    assert [json.loads(line)["notice"] for line in before] == ["loading lm from ."]
    address, _, rest = found.stdout.partition(" ")
    assert address.startswith("http://127.0.0.1:")
    assert rest == "serves lm, from this machine only; Ctrl-C stops it\n"


def test_the_process_that_speaks_http_imports_nothing_heavy():
    code = (
        "import sys, heedful.cli.main, heedful.cli.serve, heedful.service.server;"
        "print(*{'torch', 'numpy', 'tokenizers', 'transformers', 'safetensors'} & sys.modules.keys())"
    )
    environment = os.environ | {"PYTHONPATH": os.getcwd()}
    assert subprocess.check_output([sys.executable, "-c", code], env=environment, text=True) == "\n"
