"""The public names: each is documented in the same form, and its example runs."""

import doctest
import inspect
import io
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch
from helpers import caption_cases, page_runs
from helpers.public_names import PublicName, public_names
from helpers.runs import CPU, Quiet
from helpers.small_runs import small_run  # noqa: F401 (fixture)

import heedful
from heedful.runs import trainer
from heedful.tasks import recipe

ROOT = Path(__file__).parents[1]
NAMES = public_names()
MODULES = sorted({one.module for one in NAMES})
SECTION = re.compile(
    r"^(Args|Keyword Args|Attributes|Returns|Yields|Raises|Example):\n((?:(?: .*)?\n?)*)", re.MULTILINE
)
ENTRY = re.compile(r"^    \*{0,2}(\w+)(?: \([^)]*\))?: \S", re.MULTILINE)
CLASS = re.compile(r"(?<![.\w])[A-Z]\w+")  # in an annotation
KINDS = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}


def sections(name: PublicName) -> dict[str, str]:
    """{title: text} of a docstring."""
    return dict(SECTION.findall(name.documentation + "\n"))


def is_property(name: PublicName) -> bool:
    return not callable(name.member) and not isinstance(name.member, staticmethod | classmethod)


def parameters(name: PublicName) -> set[str]:
    """What a caller gives: the arguments of a function, or those that make an object of a class."""
    if is_property(name) or getattr(name.member, "_is_protocol", False):
        return set()
    called = getattr(name.owner, name.short)
    try:
        found = list(inspect.signature(called).parameters.values())
    except ValueError:  # a class made in C, with no signature
        found = []
    if "." in name.name and not isinstance(name.member, classmethod):
        found = found[1:]  # self
    return {one.name for one in found if one.kind not in KINDS and not one.name.startswith("_")}


def returns(name: PublicName) -> bool:
    """Whether a function gives something back."""
    if inspect.isclass(name.member) or is_property(name):
        return False
    return inspect.signature(getattr(name.owner, name.short)).return_annotation not in (
        "None",
        "Iterator[None]",
        None,
    )


def documents_its_example(name: PublicName) -> bool:
    """Whether it has an example, or that of its class uses it."""
    if "Example" in sections(name) or is_property(name):
        return True
    owner = name.name.rpartition(".")[0]
    return bool(owner) and any(
        f".{name.short}(" in line or (name.short == "forward" and ">>>" in line)
        for line in inspect.getdoc(name.owner).splitlines()
    )


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_says_what_it_takes_and_gives(module):
    found = []
    for name in (one for one in NAMES if one.module == module):
        parts = sections(name)
        entries = {
            entry
            for title in ("Args", "Keyword Args", "Attributes")
            for entry in ENTRY.findall(parts.get(title, ""))
        }
        first = name.documentation.partition("\n")[0]
        if not first or len(first) > 110:
            found.append(f"{name.full}: no summary")
        if missing := parameters(name) - entries:
            found.append(f"{name.full}: no word on {', '.join(sorted(missing))}")
        known = parameters(name) | set(getattr(name.member, "__annotations__", ()))
        if "Args" in parts and (unknown := set(ENTRY.findall(parts["Args"])) - known):
            found.append(f"{name.full}: has no {', '.join(sorted(unknown))}")
        if returns(name) and not {"Returns", "Yields"} & parts.keys():
            found.append(f"{name.full}: no word on what it returns")
        if not documents_its_example(name):
            found.append(f"{name.full}: no example")
    if found:
        pytest.fail("\n".join(found))


def test_what_a_public_function_returns_is_public():
    classes = {one.member for one in NAMES if inspect.isclass(one.member)}
    names = {one.__name__ for one in classes} | {"None", "Tokenizer"}  # the library's
    missing = []
    for one in NAMES:
        found = getattr(one.member, "fget", None) or getattr(one.member, "func", None) or one.member
        found = inspect.unwrap(getattr(found, "__func__", found))
        if inspect.isclass(found):
            continue
        for word in CLASS.findall(str(inspect.signature(found).return_annotation)):
            known = found.__globals__.get(word)
            ours = inspect.isclass(known) and known.__module__.startswith("heedful")
            if known not in classes if ours else known is None and word not in names:
                missing.append(f"{one.full}: {word}")
    assert missing == []


def test_a_public_name_is_listed_once():
    full = [one.full for one in NAMES]
    assert len(full) == len(set(full))
    first = {one.name for one in NAMES if one.module == "heedful" and "." not in one.name}
    assert first == {*heedful.__all__} and len(full) > 250


@pytest.fixture(scope="module")
def folder(tmp_path_factory, small_run):
    """A folder with the runs that examples load: those of the pages, and tiny ones for the other tasks."""
    folder = page_runs.unpack(tmp_path_factory.mktemp("examples"))
    for task in ("span", "choose", "parse", "summarize"):
        (folder / "runs" / task).symlink_to(small_run(task))
    caption_cases.write_pictures(folder / "pictures")
    pictures = {"data.images": str(folder / "pictures"), "data.valid_images": str(folder / "pictures")}
    settings = caption_cases.SMALL | pictures
    with torch.enable_grad():
        trainer.start(recipe.make("caption", settings=settings), folder / "runs" / "caption", Quiet(), CPU)
    return folder


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_of_public_names_run(module, folder, monkeypatch):
    monkeypatch.chdir(folder)
    heard, runner = io.StringIO(), doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    for name in (one for one in NAMES if one.module == module):
        member = inspect.unwrap(getattr(name.member, "fget", None) or name.member)
        source = sys.modules.get(getattr(member, "__module__", "")) or import_module(name.module)
        globs = vars(source) | {"heedful": heedful, "torch": torch}
        torch.manual_seed(0)
        example = doctest.DocTestParser().get_doctest(name.documentation, dict(globs), name.full, None, 0)
        runner.run(example, out=heard.write)
    if heard.getvalue():
        pytest.fail(heard.getvalue())


def test_the_options_of_decoding_are_written_down_as_they_are():
    command = [sys.executable, str(ROOT / "tools" / "option_docs.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}: run python tools/option_docs.py"
