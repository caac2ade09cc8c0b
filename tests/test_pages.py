"""The pages tell the truth: their commands exist, run, and print what the pages show."""

from functools import cache

import pytest
from helpers import page_runs, pages

from heedful.cli.shared import arguments
from heedful.cli.shared.commands import COMMANDS
from heedful.cli.train import recipe_of
from heedful.tasks import find_task, task_files
from heedful.tasks.recipe import known_settings


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the pages are read: the runs that they speak of lie in runs/."""
    return page_runs.unpack(tmp_path_factory.mktemp("pages"))


@pytest.fixture
def here(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "100")
    return folder


@pytest.mark.parametrize("block", pages.blocks(pages.SHOWN), ids=str)
def test_a_page_shows_what_its_commands_print(block, here):
    for shown in pages.commands(block):
        code, printed = pages.run(shown.command, here)
        assert pages.agree(shown.output, printed), f"{block}: {shown.command}\n{printed}"
        assert code == 0 or "error: " in shown.output


@pytest.mark.parametrize("block", pages.blocks("sh"), ids=str)
def test_commands_without_output_succeed(block, here):
    for shown in pages.commands(block):
        code, printed = pages.run(shown.command, here)
        assert code == 0, f"{block}: {shown.command}\n{printed}"


def calls() -> list:
    """Every call of heedful in the pages, whether it is run or not."""
    shown = [
        block for block in pages.blocks() if block.word.split()[:1] not in (["python"], ["{code-block}"])
    ]
    return [
        pytest.param(words, id=f"{block}-{words[0]}") for block in shown for words in pages.of_heedful(block)
    ]


@pytest.mark.parametrize("words", calls())
def test_every_command_of_a_page_exists_with_its_options_and_settings(words):
    command, *rest = words
    if not command.startswith("--"):
        assert command in COMMANDS
        given = arguments.parse(command, rest)
        if command == "train" and not (given.resume or given.from_ or given.task == "text-to-image"):
            recipe_of(given)  # it would refuse a setting that its task or its architecture does not have
    assert pages.settings_of(words) <= every_setting()


@cache
def every_setting() -> set[str]:
    """The settings of all tasks with all their architectures."""
    tasks = map(find_task, task_files())
    found = {key for task in tasks for name in task.architectures for key in known_settings(task, name)}
    read = known_settings(find_task("tag"), "elmo_reader")  # with --from an ELMo
    return found | set(read) | {"model.architecture"}


@pytest.mark.parametrize("page", pages.PAGES, ids=pages.name_of)
def test_every_setting_that_a_page_names_exists(page):
    assert pages.named_settings(page) - every_setting() == set()


@pytest.mark.parametrize("block", pages.blocks("python"), ids=str)
def test_what_a_page_imports_exists(block):
    assert [found for found in pages.imported(block) if not pages.has(*found)] == []


@pytest.mark.parametrize("block", [b for b in pages.blocks("python") if pages.can_run(b)], ids=str)
def test_python_of_a_page_runs(block, here):
    exec(compile(block.text, str(block), "exec"), {})  # noqa: S102 (our own page)


@pytest.mark.parametrize("block", [b for b in pages.blocks("python") if ">>>" in b.text], ids=str)
def test_a_page_shows_what_python_answers(block, here):
    for typed, shown, printed in pages.answers(block):
        assert pages.agree(shown, printed), f"{block}: {typed}\n{printed}"


@pytest.mark.parametrize(
    "shown, printed, same",
    [
        ("loss 1.25, 3 rows\n", "loss  0.5,  12 rows\n", True),
        ("loss 1.25, 3 rows\n", "loss 1.25, 3 lines\n", False),
        ("a\n...\nz\n", "a\nb\nc\nz\n", True),
        ("a\n...\nz\n", "a\nb\nc\n", False),
        (" cat ███ ·  0.97\n", " cat ·   ▓▓ 0.61\n", True),
        ("gpt2\n", "gpt3\n", False),
        ("", "warning: 1 token\n", False),
    ],
)
def test_figures_may_differ_and_words_may_not(shown, printed, same):
    assert pages.agree(shown, printed) == same
