"""What tests of recipes share: every task with each of its architectures, and every setting there is."""

from functools import cache

from heedful.models.base.settings import Setting
from heedful.tasks import find_task, recipe, task_files
from heedful.tasks.recipe.settings import Recipe

BUILT = [(task, name) for task in task_files() for name in find_task(task).architectures]
STARTED = [(task, "") for task in task_files() if find_task(task).starts is not None]


def made_for(
    task: str, architecture: str, size: str = "small", corpus: str = "", settings: dict | None = None
) -> Recipe:
    """The recipe of a task and an architecture; without one, of a task that starts from a folder."""
    chosen = {"model.architecture": architecture} if architecture else {"train.from": "there"}
    return recipe.make(task, size, corpus, {**chosen, **(settings or {})})


def without_sizes(settings: dict) -> dict:
    """Settings for a model that is started from, whose sizes and whose tokenizer come along."""
    if not settings.get("train.from"):
        return settings
    brought = {key for key in settings if key.startswith("model.") and not key.endswith("dropout")}
    return {key: value for key, value in settings.items() if key not in brought.union(recipe.TOKENIZER)}


@cache
def every_setting() -> dict[str, tuple[str, str, str, Setting]]:
    """{name: (key, task, architecture, setting)}: one for each key, type and range, not one for each task."""
    found: dict[tuple, tuple[str, str, str, Setting]] = {}
    for task, architecture in [*BUILT, *STARTED]:
        for key, known in recipe.known_settings(find_task(task), architecture).items():
            what = (key, known.kind, known.choices, known.limits, known.optional)
            found.setdefault(what, (key, task, architecture, known))
    keys = [key for key, *_ in found]
    return {
        key if keys.count(key) == 1 else f"{key} of {architecture or task}": (key, task, architecture, known)
        for key, task, architecture, known in found.values()
    }
