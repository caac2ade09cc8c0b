"""The slide map: every file, symbol and test that it names exists, and every worked example is on it."""

import ast
from contextlib import suppress
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[1]
MAP, SLIPS = (ROOT / "docs" / "learn" / f"{name}.md" for name in ("slide-map", "slips"))
MAPPED = ["file", "symbol", "test"]  # the last columns of every table
NOT_YET = "not built yet"


def rows() -> list[list[str]]:
    """The cells of every table line that is no heading."""
    texts = [page.read_text(encoding="utf-8") for page in (MAP, SLIPS)]
    lines = [line for text in texts for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip()[1:-1].split("|")] for line in lines]
    return [row for row in cells if row[-3:] != MAPPED and set("".join(row)) != {"-"}]


def quoted(cell: str) -> list[str]:
    """The names in a cell: each in backticks, commas between them."""
    names = cell.split(", ") if cell else []
    assert all(len(name) > 2 and name[0] == name[-1] == "`" for name in names), f"not a list of names: {cell}"
    return [name[1:-1] for name in names]


def built() -> list[tuple[list[str], list[str], list[str]]]:
    return [tuple(map(quoted, row[-3:])) for row in rows() if row[-3] != NOT_YET]


def functions(file: str) -> set[str]:
    nodes = ast.parse((ROOT / file).read_text()).body
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef)}


def test_the_page_has_its_sections_and_every_row_six_cells():
    headings = [line[3:] for line in MAP.read_text(encoding="utf-8").splitlines() if line.startswith("## ")]
    expected = "Why, Attention, Order, The block, The models, Results and limits"
    assert ", ".join(headings) == expected
    assert [row for row in rows() if len(row) != 6 or not all(row[:4])] == []


def test_what_is_not_built_claims_nothing_on_the_page():
    assert [row for row in rows() if (row[3] == NOT_YET) != (row[4:] == ["", ""])] == []


def test_every_file_and_symbol_on_the_page_exists():
    for files, symbols, tests in built():
        assert files and symbols and tests, files
        modules = [
            import_module(file.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
            for file in files
        ]
        homes = {symbol: home_of(symbol, modules) for symbol in symbols}
        assert set(homes.values()) == {module.__name__ for module in modules}, f"{homes} are not in {files}"


def home_of(symbol: str, modules: list[ModuleType]) -> str | None:
    """The one of several modules that defines a symbol."""
    for module in modules:
        with suppress(AttributeError):
            if getattr(attrgetter(symbol)(module), "__module__", module.__name__) == module.__name__:
                return module.__name__
    return None


def test_every_test_on_the_page_exists():
    missing = []
    for _, _, tests in built():
        for test in tests:
            file, function = test.split("::")
            if not (ROOT / file).is_file() or function not in functions(file):
                missing.append(test)
    assert missing == []


def test_every_worked_example_is_on_the_page():
    mentioned = {test for _, _, tests in built() for test in tests}
    examples = {
        f"{file}::{name}"
        for file in ("tests/test_lectures.py", "tests/test_lectures_training.py")
        for name in functions(file)
        if name.startswith("test_")
    }
    assert examples - mentioned == set()
