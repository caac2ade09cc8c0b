"""Every setting of every task with its default, as `heedful train TASK --help` has them."""

from heedful.cli.shared.train_help import explained, setting_rows, shown_value
from heedful.models import config_class
from heedful.models.base.config import model_settings
from heedful.models.base.settings import Setting
from heedful.tasks import find_task, summaries, task_files
from heedful.tasks.recipe import make

from .markdown import code, prose, table

TITLES = ("setting", "default", "meaning")


def tasks() -> str:
    """A table for each task, without the settings of its model."""
    return "\n".join(map(task_section, sorted(task_files())))


def task_section(task: str) -> str:
    rows = [
        (code(name), code(value), prose(meaning))
        for part, some in setting_rows(make(task)).items()
        if part != "model"
        for name, (value, meaning) in some.items()
    ]
    names = ", ".join(f"[{name}](architectures.md#{name})" for name in find_task(task).architectures)
    said = f"{prose(summaries()[task])}\n\nArchitectures, the default first: {names}."
    return f"## {task}\n\n{said}\n\n{table(TITLES, rows)}\n"


def architectures() -> str:
    """A table for each architecture that a task can train."""
    found: dict[str, list[str]] = {}
    for task in sorted(task_files()):
        for name in find_task(task).architectures:
            found.setdefault(name, []).append(task)
    return "\n".join(architecture_section(name, found[name]) for name in sorted(found))


def architecture_section(name: str, trained_by: list[str]) -> str:
    settings = model_settings(config_class(name))
    rows = [
        (code(f"model.{key}"), prose(default_of(one)), prose(explained(one, "")))
        for key, one in settings.items()
    ]
    tasks_ = ", ".join(f"[{task}](settings.md#{task})" for task in trained_by)
    return f"## {name}\n\nTasks: {tasks_}.\n\n{table(TITLES, rows)}\n"


def default_of(setting: Setting) -> str:
    return shown_value(setting.default)
