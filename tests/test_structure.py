"""The shape of the code itself: imports point down, nothing heavy is imported early, names tell the truth."""

import ast
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
import torch
from helpers import tiny
from helpers.tensor_names import (
    ROOT,
    told,  # noqa: F401 (fixtures)
)

import heedful
from heedful.parts.places import Lengths, Packed

# Lowest first. A file may import from its own folder and from those above it in this list.
FOLDERS = [
    "errors",
    "files",
    "parts",
    "models",
    "data",
    "corpora",
    "train",
    "decode",
    "fast",
    "interop",
    "tasks",
    "inside",
    "planner",
    "runs",
    "use",
    "certify",
    "service",
    "bench",
    "compare",
    "lab",
    "studio",
    "cli",
]
# The one way into fast/ from a folder below it: {who imports: what is imported}.
DOORS = {"train.loss": "fast.training"}
# What a folder may import from outside, beside the standard library.
LEAN = {
    "errors": set(),
    "files": set(),
    "parts": {"torch"},
    "models": {"torch"},
    "fast": {"torch", "triton"},
    "service": {"starlette", "uvicorn", "h11", "torch", "numpy"},
    "studio": {"starlette", "uvicorn", "anyio", "torch", "numpy", "safetensors"},
}
ANYTHING = {"torch", "numpy", "safetensors", "tokenizers", "rich", "tyro"}

SOURCES = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in ROOT.rglob("*.py")}
MODULES = {name.removesuffix("__init__").rstrip("."): path for name, path in SOURCES.items()}
INSIDE = sorted(name for name in MODULES if name.split(".")[0] in FOLDERS)


def nodes_at_run_time(node: ast.AST) -> Iterator[ast.AST]:
    """Everything below a node but what only a type checker reads."""
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test)):
            yield child
            yield from nodes_at_run_time(child)


def imports_of(name: str, nodes: Callable[[ast.AST], Iterable[ast.AST]] = ast.walk) -> set[str]:
    """The modules of heedful that a module imports, lazily or not."""
    path, found = MODULES[name], set()
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in nodes(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = [*package[: len(package) - node.level + 1], *(node.module or "").split(".")]
            parent = ".".join(part for part in base if part)
            for alias in node.names:
                child = f"{parent}.{alias.name}".lstrip(".")
                found.add(child if child in MODULES else parent)
    return found - {name, "", "__version__"}


@pytest.mark.parametrize("name", INSIDE)
def test_imports_point_down(name):
    mine = FOLDERS.index(name.split(".")[0])
    for target in imports_of(name):
        down = FOLDERS.index(target.split(".")[0]) <= mine
        assert down or DOORS.get(name) == target, f"{name} imports {target}, which is above it"


def test_every_door_to_what_is_fast_is_in_use():
    assert {name: target for name, target in DOORS.items() if target not in imports_of(name)} == {}


@pytest.mark.parametrize("name", INSIDE)
def test_few_packages_are_imported_from_outside(name):
    found = set()
    for node in ast.walk(ast.parse(MODULES[name].read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add((node.module or "").split(".")[0])
    assert found - sys.stdlib_module_names <= LEAN.get(name.split(".")[0], ANYTHING)


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The modules on a cycle: what is left after removing, again and again, those without imports."""
    rest = dict(graph)
    while free := [name for name, targets in rest.items() if not targets & rest.keys()]:
        for name in free:
            del rest[name]
    while wanted := [name for name in rest if not any(name in rest[other] for other in rest)]:
        for name in wanted:
            del rest[name]
    return [sorted(rest)] if rest else []


def test_no_file_imports_itself_by_a_detour():
    assert cycles({name: imports_of(name, nodes_at_run_time) for name in INSIDE}) == []


def test_a_cycle_is_found():
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}, "e": set()}) == [["b", "c"]]


# No room is too full.


def test_five_loose_files_at_most():
    assert len([path for path in ROOT.iterdir() if path.is_file()]) <= 5


@pytest.mark.parametrize("name", sorted(MODULES))
def test_files_and_classes_are_short(name):
    text = MODULES[name].read_text()
    assert text.count("\n") <= 500, "one idea a file: 500 lines at most"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef):
            assert node.end_lineno - node.lineno < 300, f"{node.name} is longer than 300 lines"


def test_one_class_name_has_one_meaning():
    homes: dict[str, list[str]] = {}
    for name, path in MODULES.items():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(name)
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}


def test_tests_mirror_the_folders():
    here = Path(__file__).parent
    rooms = {path.name for path in here.iterdir() if path.is_dir() and not path.name.startswith((".", "__"))}
    assert rooms - {"helpers"} <= {path.name for path in ROOT.iterdir() if path.is_dir()}
    assert [path.name for path in here.glob("helpers/test_*.py")] == []


def run_python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_importing_heedful_imports_no_torch_and_nothing_of_transformers_ever():
    assert (
        run_python("import heedful, sys; print('torch' in sys.modules, 'numpy' in sys.modules)")
        == "False False\n"
    )
    heavy = ("transformers", "rich", "tyro", "torch._inductor")
    code = (
        f"import heedful, sys; heedful.load; heedful.watch; print([m for m in {heavy} if m in sys.modules])"
    )
    assert run_python(code) == "[]\n"


WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")


@pytest.mark.parametrize(
    ("given", "code", "expected"),
    [
        ({}, "import heedful", {"GOMP_SPINCOUNT": "1000"}),
        ({}, "import heedful.cli.main", {"GOMP_SPINCOUNT": "1000"}),
        ({"GOMP_SPINCOUNT": "7"}, "import heedful", {"GOMP_SPINCOUNT": "7"}),
        ({"OMP_WAIT_POLICY": "active"}, "import heedful", {"OMP_WAIT_POLICY": "active"}),
        ({}, "import sys; sys.modules['torch'] = sys; import heedful", {}),  # too late to have an effect
    ],
)
def test_idle_threads_sleep_soon_unless_somebody_chose_otherwise(given, code, expected, monkeypatch):
    for name in WAITING:
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    shown = f"import os; print({{n: os.environ[n] for n in {WAITING} if n in os.environ}})"
    assert run_python(f"{code}; {shown}") == f"{expected}\n"


def test_loading_a_model_does_not_import_the_compiler(tmp_path):
    """torch._dynamo takes longer to import than torch itself, and loading needs nothing of it."""
    from helpers import hf_zoo

    for name in hf_zoo.FAMILIES:
        hf_zoo.write(hf_zoo.make(name, 0), tmp_path / name)
    code = f"""
import heedful, sys
for name in {list(hf_zoo.FAMILIES)}:
    heedful.load({str(tmp_path)!r} + "/" + name)
print("torch._dynamo" in sys.modules)
"""
    assert run_python(code) == "False\n"


def test_every_public_name_exists():
    for name in heedful.__all__:
        assert getattr(heedful, name) is not None
    assert set(heedful.__all__) <= set(dir(heedful))
    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        heedful.lode  # noqa: B018


def test_an_editable_install_is_a_plain_path():
    """setuptools then writes a .pth; its other way, a finder, comes after the folder that holds a clone
    named heedful."""
    told = tomllib.loads((ROOT.parent / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert told["package-dir"] == {"": "."} and told["packages"]["find"]["include"] == ["heedful*"]


# Names tell the truth: x_BTD has three axes, and a letter means one size within a function.


def test_tensor_names_tell_the_truth(told):
    found, heard = told
    tree = tiny_tree()
    for name, entry in {**tiny.DECODERS, **tiny.ENCODER_DECODERS, **tiny.ENCODERS}.items():
        model = tiny.build(entry)
        ids, lengths = torch.randint(17, (2, 5)), torch.tensor([5, 3])
        with heedful.watch(model):
            for _ in range(2):
                if name in tiny.ENCODER_DECODERS:
                    model(torch.randint(17, (2, 7)), ids, Lengths(torch.tensor([7, 6])), Lengths(lengths))
                else:
                    model(ids, Lengths(lengths))
        if name in tiny.DECODERS:
            for cache in (model.growing_cache(), model.static_cache(2, 13)):
                model(ids, Lengths(lengths), cache=cache)
                model(ids[:, :1], cache=cache)
            model(ids, Packed(torch.tensor([[0, 0, 1, 1, 1], [0, 1, 1, 2, 2]])))
    tiny.build((tiny.vit, tiny.VIT))(torch.randn(2, 3, 12, 12, dtype=torch.float64))
    for position in every_relative_position():
        layer = heedful.parts.multihead.MultiHeadAttention(12, 3, position=position)  # type: ignore[attr-defined]
        layer(torch.randn(2, 5, 12), tree)
    assert found == []
    assert {
        "attend_sdpa",
        "masked_softmax",
        "MultiHeadAttention.forward",
        "StaticLayer.append",
        "Shaw.bias",
    } <= heard


def tiny_tree():
    from heedful.parts.masks import full
    from heedful.parts.positions.base import Tree
    from heedful.parts.view import View

    places = Tree(torch.arange(5), torch.tensor([[1, -1, 1, 2, 3], [-1, 0, 0, 0, 1]]))
    return View(full(), 5, 5, q_pos=places, k_pos=places)


def every_relative_position():
    from heedful.parts.positions.relative import ALiBi, Shaw, T5Buckets, TransformerXL
    from heedful.parts.positions.rotary import Rotary
    from heedful.parts.positions.syntax import StructuralRelative

    yield from (
        Shaw(2, 4),
        StructuralRelative(2, 4),
        TransformerXL(12, 3, 4),
        ALiBi(3),
        Rotary(4),
        T5Buckets(3),
    )


def test_the_listener_hears_a_lie(told):
    found, _ = told
    source = """
def f(torch):
    x_BT = torch.zeros(2, 3, 4)
    y_BT = torch.zeros(2, 3)
    z_TB = torch.zeros(2, 3)
"""
    scope: dict = {}
    exec(compile(source, str(ROOT / "lie.py"), "exec"), scope)  # noqa: S102 (a function that lives in the package)
    scope["f"](torch)
    assert len(found) == 3


@pytest.mark.parametrize("asked", ["heedful.use.load", "heedful.runs.trainer"])
def test_loading_and_training_wait_for_no_library_that_they_may_not_need(asked):
    """Each of these takes half as long to import as torch, or longer."""
    slow = ("sympy", "torch._dynamo", "torch._inductor", "torch.distributed.tensor", "transformers")
    code = f"import {asked}, sys; print([name for name in {slow} if name in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
