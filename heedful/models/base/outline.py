"""The settings of an architecture, read from its file without importing it, so that help needs no torch."""

from __future__ import annotations

import ast
import typing
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from .. import known, signature
from . import fields, settings
from .settings import Setting, read_hint

MODELS = Path(__file__).parents[1]
NAMES = {**vars(typing), **vars(settings), **vars(fields)}  # what annotations and defaults are made of


@cache
def config_settings(architecture: str) -> dict[str, Setting]:
    """{name: setting} of an architecture's config, as `settings_of` gives them of the class."""
    return class_settings(MODELS / f"{known(architecture)}.py", signature(architecture)[0])


def class_settings(file: Path, name: str) -> dict[str, Setting]:
    """The settings of a class in a file, after those of the class that it extends."""
    body = ast.parse(file.read_text()).body
    found = next(node for node in body if isinstance(node, ast.ClassDef) and node.name == name)
    base = ast.unparse(found.bases[0])
    inherited = {} if base == "Config" else class_settings(*where(file, body, base))
    return inherited | {
        setting.name: setting for node in found.body if (setting := read_field(node)) is not None
    }


def where(file: Path, body: list[ast.stmt], base: str) -> tuple[Path, str]:
    """The file and the name of a class that is imported by itself, or with its module before it."""
    module, _, name = base.rpartition(".")
    for node in body:
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            names = [alias.name for alias in node.names]
            if not module and name in names:
                return file.parent / f"{str(node.module).replace('.', '/')}.py", name
            if module in names and node.module is None:
                return file.parent / f"{module}.py", name
    return file, name


def read_field(node: ast.stmt) -> Setting | None:
    if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
        return None
    setting = read_hint(node.target.id, evaluate(node.annotation))
    if setting is None or node.value is None:
        return setting
    return replace(setting, default=evaluate(node.value))


def evaluate(node: ast.expr) -> Any:
    """The value of an annotation or a default in one of our own files."""
    return eval(compile(ast.Expression(node), "<config>", "eval"), dict(NAMES))
