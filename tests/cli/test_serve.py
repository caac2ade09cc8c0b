"""`heedful serve` as a command: its help, its first line, and what it refuses, in one sentence each."""

import json
import os
import shutil
import socket
import subprocess
import sys
import urllib.request
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from helpers.serve_cases import stored  # noqa: F401 (fixtures)
from packaging.requirements import Requirement

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
        ([".", "--host", "example.org"], "--host takes an address such as 127.0.0.1"),
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
    assert [json.loads(line)["notice"] for line in before] == ["loading lm from .", "stopped"]
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


def needed_by(requirements, extras, found):
    """Every distribution that is needed, with these extras."""
    for text in requirements or []:
        wanted = Requirement(text)
        holds = wanted.marker is None or any(wanted.marker.evaluate({"extra": x}) for x in ("", *extras))
        if holds and wanted.name not in found:
            found[wanted.name] = None
            needed_by(metadata.requires(wanted.name), wanted.extras, found)
    return found


@pytest.mark.slow
def test_a_wheel_serves_and_opens_the_studio_with_what_its_extra_installs(tmp_path, stored):
    root = Path(__file__).parents[2]
    venv.create(tmp_path / "env")
    python, (site,) = str(tmp_path / "env/bin/python"), tmp_path.glob("env/lib/python*/site-packages")
    shutil.copytree(root / "heedful", tmp_path / "source" / "heedful")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(root / name, tmp_path / "source")
    build = ["-m", "pip", "wheel", ".", "--no-deps", "--no-build-isolation", "-q", "-w", str(tmp_path)]
    subprocess.run([sys.executable, *build], cwd=tmp_path / "source", check=True)
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        wheel.extractall(site)
    (facts,) = site.glob("heedful-*.dist-info")
    others = needed_by(metadata.Distribution.at(facts).requires, ["serve"], {})
    assert {"starlette", "uvicorn", "torch"} <= others.keys() and "transformers" not in others
    for name in others:
        for file in metadata.files(name):
            first = Path(file).parts[0]
            if first != ".." and not (site / first).exists():
                (site / first).symlink_to(metadata.distribution(name).locate_file(first))
    start = [python, "-m", "heedful", "serve"]
    environment = {"PATH": os.environ["PATH"]}
    said = subprocess.check_output([*start, "--help"], env=environment, cwd=tmp_path, text=True)
    assert "--key-file" in said and "--limit" in said
    command, options = [*start, str(stored / "lm"), "--port", "0"], {"cwd": tmp_path, "text": True}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, **options) as running:
        try:
            address = running.stdout.readline().split()[0]
            body = json.dumps({"prompt": "the cat", "max_tokens": 3, "temperature": 0}).encode()
            headers = {"content-type": "application/json"}
            asked = urllib.request.Request(f"{address}/v1/completions", body, headers)
            with urllib.request.urlopen(asked, timeout=60) as answer:
                assert json.load(answer)["usage"]["completion_tokens"] == 3
        finally:
            running.terminate()
    assert running.returncode == 0

    start = [python, "-m", "heedful", "studio"]
    said = subprocess.check_output([*start, "--help"], env=environment, cwd=tmp_path, text=True)
    assert "--no-open" in said and "--allow-host" in said
    command = [*start, "--runs", str(tmp_path / "none"), "--no-open"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, **options) as running:
        try:
            address, _, token = running.stdout.readline().split()[0].partition("/?token=")
            headers = {"authorization": f"Bearer {token}"}
            for path, part in {
                "": "static/main.js",
                "static/main.js": "dom.render",
                "api/runs": "recorded",
            }.items():
                asked = urllib.request.Request(f"{address}/{path}", headers=headers)
                with urllib.request.urlopen(asked, timeout=60) as answer:
                    assert part in answer.read().decode()
        finally:
            running.terminate()
    assert running.returncode == 0
