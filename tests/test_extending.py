"""What the pages about extending heedful add works in a copy of the repository: files, commands, tests."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "docs" / "howto" / f"new-{what}.md" for what in ("positions", "architecture", "task")]
FILE = re.compile(r"^```\{code-block\} python\n:caption: (\S+)\n\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TINY = "tests/helpers/tiny.py"  # gets a line, where other files are new


def added() -> dict[str, str]:
    """{path: text} of every file in the pages."""
    return {path: text for page in PAGES for path, text in FILE.findall(page.read_text(encoding="utf-8"))}


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """The repository with the files of the pages, whose commands are to be run there."""
    folder, left_out = tmp_path_factory.mktemp("extended"), shutil.ignore_patterns("__pycache__")
    for name in ("heedful", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=left_out)
    for name in ("README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    for path, text in added().items():
        if path == TINY:
            text = with_model((ROOT / TINY).read_text(encoding="utf-8"), text)
        (folder / path).write_text(text, encoding="utf-8")
    for page in PAGES:
        shown = page.read_text(encoding="utf-8").replace("```{code-block} console", "```console")
        (folder / "docs" / "howto").mkdir(parents=True, exist_ok=True)
        (folder / "docs" / "howto" / page.name).write_text(shown, encoding="utf-8")
    return folder


def with_model(text: str, line: str) -> str:
    """The tiny models with another one, and with the import of its file."""
    start = "DECODERS: dict[str, tuple[object, Config]] = {\n"
    return text.replace("    opt,\n", "    opt,\n    palm,\n", 1).replace(start, f"{start}    {line}", 1)


def run(copy: Path, *words: str) -> None:
    where = {**os.environ, "PYTHONPATH": os.pathsep.join([str(copy), str(copy / "tests")])}
    command = [sys.executable, "-m", *words]
    done = subprocess.run(command, cwd=copy, env=where, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_commands_invariants_and_tests_of_the_pages_hold(copy):
    files = ["models/test_invariants.py", "models/test_choices_of_parts.py", "test_pages.py"]
    files += [path.removeprefix("tests/") for path in added() if Path(path).name.startswith("test_")]
    chosen = "palm or kerple or test_rate or every_choice or (new- and shows)"
    where = [f"tests/{file}" for file in files]
    run(copy, "pytest", "-q", "-p", "no:cacheprovider", "-k", chosen, *where)


def test_files_of_the_pages_read_as_the_others_do(copy):
    run(copy, "ruff", "check", "--no-cache", *added())
    run(copy, "ruff", "format", "--no-cache", "--check", *added())
