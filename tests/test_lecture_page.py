"""The slide map and the slips: what they name exists, and every worked example and claim is on the map."""

import ast
import re
import sys
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from types import ModuleType

import pytest
from helpers import page_runs, pages

from heedful.lab.contents import claim_texts

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs" / "_ext"))

import repository
from reference import slides

MAP, SLIPS = (ROOT / "docs" / "learn" / f"{name}.md" for name in ("slide-map", "slips"))
MAPPED = ["code", "test"]  # the last columns of the table of slips
SYMBOLS, CONCEPTS = slides.contents()
COMMANDS = {one.command for one in CONCEPTS if one.command}
LONG = {"demo", "train", "compare"}  # commands that train
STORED = {path.name for path in pages.STORED.iterdir()}


def only_reads(command: str) -> bool:
    """Whether a command trains nothing, and reads no run but those that are stored."""
    return command.split()[1] not in LONG and set(re.findall(r"runs/([\w-]+)", command)) <= STORED


def rows() -> list[list[str]]:
    """The cells of every line of the table of slips that is no heading."""
    lines = [line for line in SLIPS.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip()[1:-1].split("|")] for line in lines]
    return [row for row in cells if row[-2:] != MAPPED and set("".join(row)) != {"-"}]


def quoted(cell: str) -> list[str]:
    """The names in a cell: each in backticks, commas between them."""
    names = cell.split(", ") if cell else []
    assert all(len(name) > 2 and name[0] == name[-1] == "`" for name in names), f"not a list of names: {cell}"
    return [name[1:-1] for name in names]


def built() -> list[tuple[list[str], list[str]]]:
    """(sources, tests) of every slip and every concept."""
    found = [(quoted(row[-2]), quoted(row[-1])) for row in rows()]
    return [*found, *((list(one.code), list(one.tests)) for one in CONCEPTS if one.code)]


def functions(file: str) -> set[str]:
    nodes = ast.parse((ROOT / file).read_text()).body
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef)}


# Both pages.


def test_every_file_and_symbol_on_the_pages_exists():
    for sources, tests in built():
        assert sources and tests, sources
        for file, symbol in (source.split("::") for source in sources):
            module = import_module(file.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
            assert is_home(module, symbol), f"{symbol} is not in {file}"


def is_home(module: ModuleType, symbol: str) -> bool:
    """Whether a module defines a symbol, and does not only import it."""
    with suppress(AttributeError):
        return getattr(attrgetter(symbol)(module), "__module__", module.__name__) == module.__name__
    return False


def test_every_test_on_the_pages_exists():
    missing = []
    for _, tests in built():
        for test in tests:
            file, function = test.split("::")
            if not (ROOT / file).is_file() or function not in functions(file):
                missing.append(test)
    assert missing == []


def test_every_slip_has_five_cells():
    assert [row for row in rows() if len(row) != 5 or not all(row)] == []


# The slide map.


def test_the_page_has_the_symbols_and_every_lecture():
    text = MAP.read_text(encoding="utf-8")
    assert [place for place in slides.PLACES if text.count(f"<!-- generated: {place} -->") != 1] == []
    headings = [line[3:5] for line in text.splitlines() if line.startswith("## L")]
    assert headings == [*slides.LECTURES]


@pytest.mark.parametrize("lecture", slides.LECTURES)
def test_a_lecture_shows_what_it_teaches_once_and_nothing_else(lecture):
    text = slides.lecture(lecture)
    shown = {one.name: text.count(f"- **{one.name}**\\\n") for one in CONCEPTS}
    assert shown == {one.name: int(lecture in one.lectures.split()) for one in CONCEPTS}


def test_every_fact_stands_in_one_place():
    for values in (
        [one.name for one in CONCEPTS],
        [one.know for one in CONCEPTS],
        [one.slide for one in SYMBOLS],
    ):
        assert all(values) and len(set(values)) == len(values)


def test_what_the_map_names_exists():
    assert [fault for one in (*SYMBOLS, *CONCEPTS) for fault in one.faults()] == []


@pytest.mark.parametrize(
    "change",
    [
        {"lectures": "L1 L6"},
        {"code": ("heedful/parts/nowhere.py::attend_plain",)},
        {"code": ("heedful/parts/attention.py::attend_nowhere",)},
        {"tests": ("tests/test_lectures.py::test_nothing",)},
        {"tests": ()},
        {"read": "learn/9-nothing.md"},
        {"read": "learn/1-attention.md#a-hard-lookup"},
        {"command": "heedful gaze runs/demo"},
        {"command": "heedful look runs/demo Cats. --twice"},
        {"command": "heedful train translate --corpus phrasebook --set model.widht=8"},
        {"claim": "luck"},
    ],
    ids=lambda change: "-".join(change),
)
def test_what_does_not_exist_is_found(change):
    one = next(one for one in CONCEPTS if one.name == "Soft lookup")
    assert list(one.faults()) == []
    assert len(list(replace(one, **change).faults())) == 1


@pytest.mark.parametrize(
    "change", [{"names": ["q_BHTX"]}, {"code": "heedful/parts/masks.py::Causal"}], ids=str
)
def test_a_symbol_that_the_source_does_not_say_is_found(change):
    one = next(one for one in SYMBOLS if one.names == ["q_BHTK"])
    with pytest.raises(ValueError, match="does not say"):
        slides.check([replace(one, **change)])


@pytest.mark.parametrize("one", SYMBOLS, ids=lambda one: one.names[0])
def test_a_symbol_leads_to_the_line_that_says_it(one):
    file, _, name = one.code.partition("::")
    line = repository.line_of(file, name, one.names[0])
    assert re.search(rf"\b{one.names[0]}\b", (ROOT / file).read_text(encoding="utf-8").splitlines()[line - 1])


@pytest.mark.parametrize(
    "word, line",
    [
        ("weights_BHTS", "weights_BHTS = attention_weights(q_BHTK, k_BGSK, mask, bias, scale, dropout)"),
        ("dropout", "dropout: float = 0.0,"),
        ("repeat_heads", "return weights_BHTS @ repeat_heads(v_BGSL, q_BHTK.shape[1])"),
        ("nowhere", "def attend_plain("),
    ],
    ids=["assigned", "taken", "read", "absent"],
)
def test_a_word_leads_to_where_a_function_assigns_takes_or_reads_it(word, line):
    file = "heedful/parts/attention.py"
    found = (ROOT / file).read_text(encoding="utf-8").splitlines()
    assert found[repository.line_of(file, "attend_plain", word) - 1].strip() == line


def test_every_worked_example_is_on_the_map():
    mentioned = {test for _, tests in built() for test in tests}
    examples = {
        f"{file}::{name}"
        for file in ("tests/test_lectures.py", "tests/test_lectures_training.py")
        for name in functions(file)
        if name.startswith("test_")
    }
    assert examples - mentioned == set()


def test_every_claim_and_every_lesson_is_on_the_map():
    for claim in claim_texts():
        lectures = {name for one in CONCEPTS if one.claim == claim.name for name in one.lectures.split()}
        assert lectures & set(claim.lecture.split()), claim.name
    lessons = {f"learn/{path.name}" for path in (ROOT / "docs" / "learn").glob("[0-9]-*.md")}
    assert lessons - {one.read.partition("#")[0] for one in CONCEPTS} == set()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return page_runs.unpack(tmp_path_factory.mktemp("slides"))


@pytest.mark.parametrize("command", sorted(filter(only_reads, COMMANDS)))
def test_a_command_that_only_reads_succeeds(command, folder, monkeypatch):
    monkeypatch.chdir(folder)
    code, printed = pages.run(command, folder)
    assert code == 0, printed
