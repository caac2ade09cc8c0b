"""A release: what its archives hold, the wheel at work outside the clone, and one version everywhere."""

import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import urllib.request
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.version import Version

import heedful

ROOT = Path(__file__).parents[1]


def run(*words: object, **more: object) -> str:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    """What `make dist` writes: its command, on a copy of the clone."""
    (line,) = re.findall(r"^\t\$\(BIN\)/python (-m build .*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    copy = tmp_path_factory.mktemp("release")
    shutil.copytree(ROOT / "heedful", copy / "heedful", ignore=shutil.ignore_patterns("__pycache__"))
    for file in ROOT.iterdir():
        if file.is_file():
            shutil.copy(file, copy)
    run(sys.executable, *shlex.split(line), cwd=copy)
    return copy / "dist"


@pytest.fixture(scope="module")
def wheel(dist):
    (found,) = dist.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The commands of an environment that has the wheel, and finds all other packages in this one."""
    place = tmp_path_factory.mktemp("environment")
    venv.create(place, symlinks=True)
    purelib = Path(sysconfig.get_path("purelib", vars={"base": str(place)}))
    # A plain path: the .pth files there, such as that of an editable heedful, stay unread.
    (purelib / "needs.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = place / "bin" / "python"
    pip = ("-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index")
    run(sys.executable, *pip, wheel)
    return place / "bin"


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A folder outside the clone, whose programs do not see the clone."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


# The archives.


def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(wheel):
    held = set(zipfile.ZipFile(wheel).namelist())
    about = {name for name in held if name.startswith(f"heedful-{heedful.__version__}.dist-info/")}
    package = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "heedful").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert held - about == package
    assert f"heedful-{heedful.__version__}.dist-info/licenses/LICENSE" in about
    for name in ("py.typed", "studio/static/index.html", "studio/static/vendor/LICENSES"):
        assert f"heedful/{name}" in held
    assert {"heedful/corpora/phrasebook/words/nouns.tsv", "heedful/interop/html/static/page.html"} <= held
    assert wheel.stat().st_size < 5e6


def test_the_source_archive_builds_the_wheel_and_has_no_tests(dist):
    (file,) = dist.glob("*.tar.gz")
    with tarfile.open(file) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml", "heedful/__init__.py"} <= held
    assert [name for name in held if name.startswith(("tests", "docs", "benchmarks"))] == []
    assert file.stat().st_size < 5e6


# The wheel at work.


def test_the_installed_package_is_that_of_the_wheel(installed, elsewhere):
    shown = run(installed / "python", "-c", "import heedful; print(heedful.__file__, heedful.__version__)")
    file, version = shown.split()
    assert Path(file).is_relative_to(installed.parent) and version == heedful.__version__
    assert run(installed / "heedful", "--version") == f"heedful {heedful.__version__}\n"


def test_the_installed_commands_work(installed, elsewhere):
    shown = run(installed / "heedful", "demo", "--steps", "50")
    assert "held-out sentences" in shown and (elsewhere / "runs" / "demo" / "model.safetensors").is_file()
    assert "124.4 M" in run(installed / "heedful", "info", "gpt2")
    assert "Serve models over HTTP" in run(installed / "heedful", "serve", "--help")


def test_the_installed_studio_serves_its_first_page(installed, elsewhere):
    command = [str(installed / "heedful"), "studio", "--runs", "none", "--no-open"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as child:
        try:
            link = re.search(r"http://\S+", child.stdout.readline())[0]
            page = read(link)
            assert "<title>" in page and "heedful" in page
            script = re.search(r'src="([^"]+\.js)"', page)[1]
            assert read(link.partition("?")[0].rstrip("/") + "/" + script.lstrip("./"))
        finally:
            child.terminate()


def read(link: str) -> str:
    with urllib.request.urlopen(link, timeout=30) as answer:
        assert answer.status == 200
        return answer.read().decode()


# One version.


def test_there_is_one_version_and_it_follows_pep_440():
    told = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" not in told["project"] and "version" in told["project"]["dynamic"]
    assert told["tool"]["setuptools"]["dynamic"] == {"version": {"attr": "heedful.__version__"}}
    assert str(Version(heedful.__version__)) == heedful.__version__
    if (citation := ROOT / "CITATION.cff").is_file():
        (cited,) = re.findall(r'^version: "?([^"\n]+)"?$', citation.read_text(), re.MULTILINE)
        assert cited == heedful.__version__


def test_the_changelog_has_its_releases_in_order_and_none_beyond_this_version():
    text = (ROOT / "CHANGELOG.md").read_text()
    titles = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert titles[0] == "Unreleased"
    released = [re.fullmatch(r"(\S+) - \d{4}-\d\d-\d\d", title) for title in titles[1:]]
    assert None not in released, "a release is titled as in: ## 0.2.0 - 2026-12-01"
    versions = [Version(found[1]) for found in released]
    assert versions == sorted(versions, reverse=True) and len({*versions}) == len(versions)
    assert all(version <= Version(heedful.__version__) for version in versions)
    kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert {*re.findall(r"^### (.*)$", text, re.MULTILINE)} <= kinds
