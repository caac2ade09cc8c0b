"""Tasks: one file each, which ends in its `TASK`. The files that do are the list; none is imported for it."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import BadInput
from ..models import nearest

if TYPE_CHECKING:
    from .task import Task

FOLDER = Path(__file__).parent
STAGES = ("codes", "decoder", "ranker")  # of text-to-image, in the order in which they are trained
STAGED = "text-to-image"  # what all stages together are called


@cache
def task_files() -> dict[str, str]:
    """{task: module below heedful.tasks}: tasks/image_classify.py is image-classify."""
    files = sorted(path for path in FOLDER.rglob("*.py") if "\nTASK = Task(\n" in path.read_text("utf-8"))
    modules = [path.relative_to(FOLDER).with_suffix("").parts for path in files]
    return {"-".join(parts).replace("_", "-"): ".".join(parts) for parts in modules}


def summaries() -> dict[str, str]:
    """Every task with a line about it. Nothing is imported for it.

    Returns:
        The first line of each task's file, by the name of the task.

    Example:
        >>> summaries()["parse"].partition(":")[0]
        'Parse'
    """
    found = {}
    for name, module in task_files().items():
        with (FOLDER / Path(*module.split("."))).with_suffix(".py").open(encoding="utf-8") as file:
            found[name] = file.readline().strip().strip('"')
    return found


def find_task(name: str) -> Task:
    """A task by its name.

    Args:
        name: The name, such as "translate".

    Returns:
        `Task`: its settings, how it reads data, its loss and its evaluation.

    Raises:
        BadInput: There is no such task; the message names the nearest.

    Example:
        >>> task = find_task("translate")
        >>> task.metric, list(task.architectures)[0], list(task.corpora)
        ('bleu', 'transformer', ['phrasebook'])
    """
    if name not in task_files():
        raise BadInput(f'there is no task "{name}"{nearest(name, task_files())}')
    return import_module(f"{__name__}.{task_files()[name]}").TASK
