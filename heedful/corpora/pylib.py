"""pylib: a corpus that every machine with Python has, the standard library's source and its docstrings."""

from __future__ import annotations

import ast
import hashlib
import os
import re
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path

from ..errors import BadInput
from ..files import naming

# Other people's packages, tests and their data, and what describes this machine rather than the language.
LEFT_OUT = re.compile(r"site-packages|dist-packages|__pycache__|tests?|idle_test|config-.*|_sysconfigdata.*")
VALID_PERCENT = 10

Function = ast.FunctionDef | ast.AsyncFunctionDef


def documents(folder: str | Path | None = None) -> Iterator[tuple[str, str]]:
    """The Python files of a folder and of those in it, by name.

    Args:
        folder: A folder with Python files. None: the standard library.

    Yields:
        (name, text) of each file. Tests and other people's packages are left out.

    Raises:
        BadInput: There is no Python source.

    Example:
        >>> next(documents())[0]
        '__future__.py'
    """
    folder = Path(folder or sysconfig.get_path("stdlib"))
    names = sorted(source_files(folder))
    if not names:
        raise BadInput(f"{folder} holds no Python source: give a text of your own instead")
    for name in names:
        with naming(folder / name):
            data = (folder / name).read_bytes()
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError:
            continue  # a few say in their first line that they are in another encoding
        if text.strip():
            yield name, text.replace("\r\n", "\n")


def source_files(folder: Path) -> Iterator[str]:
    """Names below the folder, with / on every system, so that the split is the same everywhere."""
    for where, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not LEFT_OUT.fullmatch(name)]
        for name in names:
            if name.endswith(".py") and not LEFT_OUT.fullmatch(name.removesuffix(".py")):
                yield Path(where, name).relative_to(folder).as_posix()


def content_hash(folder: str | Path | None = None) -> str:
    """SHA-256 of all names and texts: which corpus this was, since Python's versions differ."""
    found = hashlib.sha256()
    for name, text in documents(folder):
        for part in (name.encode(), text.encode()):
            found.update(len(part).to_bytes(8, "little") + part)
    return found.hexdigest()


def split(name: str) -> str:
    """The split of a file, by the hash of its name: one file in ten is held out.

    Args:
        name: The name.

    Returns:
        "train" or "valid".

    Example:
        >>> split("abc.py"), split("ast.py")
        ('valid', 'train')
    """
    number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
    return "valid" if number % 100 < VALID_PERCENT else "train"


# Functions and what they say they do


def docstrings(part: str | None = None, folder: str | Path | None = None) -> Iterator[tuple[str, str]]:
    """Functions with the first sentence of their docstring.

    Args:
        part: "train" or "valid". None: both.
        folder: A folder with Python files. None: the standard library.

    Yields:
        (the function without its docstring, the sentence).

    Example:
        >>> next(docstrings("valid"))[1]
        'A decorator indicating abstract methods.'
    """
    for name, text in documents(folder):
        if part in (None, split(name)):
            yield from described_functions(text)


def described_functions(text: str) -> Iterator[tuple[str, str]]:
    """The functions of a file that have a docstring, and a body besides."""
    lines = text.encode().split(b"\n")  # ast counts columns in bytes
    for node in ast.walk(parse(text)):
        if not isinstance(node, Function) or len(node.body) == 1:
            continue
        if sentence := first_sentence(ast.get_docstring(node) or ""):
            yield source_without_docstring(lines, node), sentence


def parse(text: str) -> ast.Module:
    """A file's syntax tree; an empty one if this Python cannot read it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about invalid escapes in old files
        try:
            return ast.parse(text)
        except (SyntaxError, ValueError, RecursionError):
            return ast.Module([], [])


def source_without_docstring(lines: list[bytes], node: Function) -> str:
    """From the first decorator to the last line, not indented."""
    doc = node.body[0]
    assert doc.end_lineno is not None and doc.end_col_offset is not None and node.end_lineno is not None
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    before = [*lines[first - 1 : doc.lineno - 1], lines[doc.lineno - 1][: doc.col_offset]]
    after = [lines[doc.end_lineno - 1][doc.end_col_offset :], *lines[doc.end_lineno : node.end_lineno]]
    # What follows the docstring takes its place, and so stands as deep as before.
    source = b"\n".join(before) + b"\n".join(after).lstrip(b" ;\t\n")
    indent = lines[first - 1][: node.col_offset]
    return b"\n".join(line.removeprefix(indent) for line in source.split(b"\n")).decode()


def first_sentence(doc: str) -> str:
    """Of the first paragraph, up to a stop that a capital follows."""
    paragraph = " ".join(doc.strip().split("\n\n")[0].split())
    return re.split(r"(?<=[.!?]) (?=[A-Z])", paragraph)[0]
