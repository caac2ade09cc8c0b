"""The commands that the pages show: which they are, what a page says they print, and what they do print.

A fenced block of a page says by its word what happens to the commands in it:

```console   each line after "$ " is run, and what the page shows below it is compared with what is printed
```sh        each line is run and must succeed
```          lines that call heedful are not run; their options and settings must exist
```python    what it imports from heedful must exist; it is run if it is whole and loads stored runs only,
             and compared if it has ">>>"
```{...}     a directive of the site: its build runs the cells, and checks the rest; tests/test_extending.py
             runs a {code-block} in a copy of the repository

Figures may differ from machine to machine, so only their form is compared; "..." stands for lines left out.
"""

from __future__ import annotations

import ast
import contextlib
import doctest
import importlib
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from heedful.cli.main import main
from heedful.use.model import Model

ROOT = Path(__file__).parents[2]
STORED = Path(__file__).parent / "stored_runs"  # the runs that the pages use
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^```([^`\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RUN, SHOWN = ("sh", "console"), "console"


@dataclass(frozen=True)
class Block:
    """A fenced block of a page: where it begins, its word, and its text."""

    page: Path
    line: int
    word: str
    text: str

    def __str__(self) -> str:
        return f"{name_of(self.page)}:{self.line}"


def name_of(page: Path) -> str:
    """A page's path in the repository."""
    return str(page.relative_to(ROOT))


@dataclass(frozen=True)
class Shown:
    """A command as a page shows it, and what the page says it prints."""

    command: str
    output: str


def blocks(*words: str) -> list[Block]:
    """The blocks of all pages, or those with one of these words."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in FENCE.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            found.append(Block(page, line, match[1], match[2]))
    return [block for block in found if not words or block.word in words]


def commands(block: Block) -> list[Shown]:
    """The commands of a block; in a console only lines after "$ " are, and the others are output."""
    if block.word != SHOWN:
        text = block.text.replace("\\\n", " ")
        lines = [line.removeprefix("$ ").strip() for line in text.splitlines()]
        return [Shown(line, "") for line in lines if line and not line.startswith("#")]
    before, *parts = re.split(r"^\$ ", block.text, flags=re.MULTILINE)
    assert not before, f"{block}: a console begins with a command after '$ '"
    split = [re.split(r"(?<!\\)\n", part, maxsplit=1) for part in parts]  # the output may have such lines
    return [Shown(command.replace("\\\n", " "), output) for command, output in split]


def of_heedful(block: Block) -> list[list[str]]:
    """The words after `heedful` in each line that calls it, alone, in a pipe or under torchrun."""
    found = []
    for shown in commands(block):
        if re.search(r"(^|[\s/])heedful\s", shown.command):
            for words in (piece.words for piece in pipeline(shown.command)):
                names = [Path(word).name for word in words]
                found += [words[names.index("heedful") + 1 :]] if "heedful" in names else []
    return found


def settings_of(words: list[str]) -> set[str]:
    """The settings of training that a command names, wherever it does."""
    found = re.findall(r"\b((?:data|model|train|checkpoint|evaluate)\.\w+)=", " ".join(words))
    return set(found)


PART = r"(?<![\w./])((?:data|model|train|checkpoint|evaluate)\.\w+)\b(?![(/.])"
OTHERS = ("json", "jsonl", "safetensors", *dir(Model))  # files, and attributes of `model`


def named_settings(page: Path) -> set[str]:
    """The settings of training that the text of a page names between backticks."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    found = {name for code in re.findall(r"`([^`\n]+)`", text) for name in re.findall(PART, code)}
    return {name for name in found if name.partition(".")[2] not in OTHERS}


# A small shell.


@dataclass
class Piece:
    """One command of a pipeline, with the files it reads and writes."""

    words: list[str]
    stdin: str | None = None
    stdout: str | None = None


def pipeline(command: str) -> list[Piece]:
    """A line of a shell as commands; without substitution, which the pages do not use in what is run."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars="|<>")
    lexer.whitespace_split, lexer.commenters = True, "#"
    pieces, into = [Piece([])], ""
    for token in lexer:
        if token == "|":
            pieces.append(Piece([]))
        elif token in ("<", ">"):
            into = token
        elif into:
            setattr(pieces[-1], "stdin" if into == "<" else "stdout", token)
            into = ""
        else:
            pieces[-1].words.append(token)
    return pieces


def run(command: str, folder: Path) -> tuple[int, str]:
    """The exit code of a line, and what it prints, as a terminal shows it; heedful runs in this process."""
    screen, code = io.BytesIO(), 0
    *first, last = pipeline(command)
    data = b""
    for piece in (*first, last):
        data = (folder / piece.stdin).read_bytes() if piece.stdin else data
        out = screen if piece is last and not piece.stdout else io.BytesIO()
        call = call_heedful if Path(piece.words[0]).name == "heedful" else call_other
        code = call(piece.words, data, out, screen, folder)
        data = out.getvalue()
        if piece.stdout:
            (folder / piece.stdout).write_bytes(data)
    return code, screen.getvalue().decode()


def call_heedful(words: list[str], data: bytes, out: io.BytesIO, err: io.BytesIO, folder: Path) -> int:
    """One of heedful's commands, with streams of its own."""
    kept = {name: getattr(sys, name) for name in ("stdin", "stdout", "stderr")}
    sys.stdin = io.TextIOWrapper(io.BytesIO(data))
    sys.stdout = io.TextIOWrapper(out, encoding="utf-8", write_through=True)
    sys.stderr = io.TextIOWrapper(err, encoding="utf-8", write_through=True)
    try:
        return main(words[1:])
    finally:
        for name in ("stdout", "stderr"):
            getattr(sys, name).detach()  # or the bytes would be closed with it
        for name, stream in kept.items():
            setattr(sys, name, stream)


def call_other(words: list[str], data: bytes, out: io.BytesIO, err: io.BytesIO, folder: Path) -> int:
    """Any other command, by bash."""
    line = shlex.join([sys.executable if words[0] == "python" else words[0], *words[1:]])
    where = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "-c", line], input=data, capture_output=True, cwd=folder, env=where, check=False
    )
    out.write(done.stdout)
    err.write(done.stderr)
    return done.returncode


# Comparing.

NUMBER = re.compile(r"(?<![A-Za-z_\d])-?\d[\d,]*(\.\d+)?(e[-+]?\d+)?")
SHADES = re.compile("[·░▒▓█]+")
LEFT_OUT = "..."


def canonical(text: str) -> list[str]:
    """The lines of a text without what differs between machines: figures, shades, and their widths."""
    lines = (" ".join(NUMBER.sub("#", SHADES.sub(" ", line)).split()) for line in text.strip().splitlines())
    return list(lines)


def agree(shown: str, printed: str) -> bool:
    """Whether a page shows what is printed, but for figures and for lines that "..." leaves out."""
    lines = [".*" if line == LEFT_OUT else re.escape(line) for line in canonical(shown)]
    return re.fullmatch("\n".join(lines), "\n".join(canonical(printed)), re.DOTALL) is not None


def rewritten(block: Block, folder: Path) -> str:
    """The text of a block with what its commands print where the page shows something else."""
    if block.word == "python":
        found = [(f">>> {typed}", shown, printed) for typed, shown, printed in answers(block)]
    else:
        found = [(f"$ {c.command}\n", c.output, run(c.command, folder)[1]) for c in commands(block)]
    return "".join(head + (shown if agree(shown, printed) else printed) for head, shown, printed in found)


# Python.


def imported(block: Block) -> Iterator[tuple[str, str]]:
    """(module, name) of everything that a block imports from heedful; name is "" for a module."""
    for node in ast.walk(ast.parse(code_of(block))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("heedful"):
            yield from ((node.module or "", alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names if alias.name.startswith("heedful"))


def code_of(block: Block) -> str:
    if ">>>" not in block.text:
        return block.text
    return "".join(example.source for example in doctest.DocTestParser().get_examples(block.text))


def can_run(block: Block) -> bool:
    """Whether a block of Python is whole: it imports what it uses, and loads stored runs at most."""
    stored = {path.name for path in STORED.iterdir()}
    folders = re.findall(r'load\("(.*?)"\)', block.text)
    return block.text.startswith(("import ", "from ")) and all(
        Path(name).parent.name == "runs" and Path(name).name in stored for name in folders
    )


def has(module: str, name: str) -> bool:
    """Whether something can be imported."""
    try:
        found = importlib.import_module(module)
        return not name or hasattr(found, name) or importlib.import_module(f"{module}.{name}") is not None
    except ImportError:
        return False


def answers(block: Block) -> Iterator[tuple[str, str, str]]:
    """(what is typed, what the page shows, what is printed) of a session of Python."""
    names: dict[str, object] = {}
    for example in doctest.DocTestParser().get_examples(block.text):
        screen = io.StringIO()
        with contextlib.redirect_stdout(screen):
            try:
                exec(compile(example.source, str(block), "single"), names)  # noqa: S102 (our own page)
            except Exception as error:  # noqa: BLE001 (a page may show what is refused)
                print(f"{type(error).__module__}.{type(error).__qualname__}: {error}")
        yield example.source, example.want, screen.getvalue()
