"""Help of `heedful train`: the tasks; or, for one task, its options and the settings that apply."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ...tasks import STAGED, STAGES, find_task, summaries

if TYPE_CHECKING:
    from ...models.base.settings import Setting
    from ...tasks.recipe.settings import Recipe

NARROW, WIDE = 60, 110  # columns
GAP = 2
LEAST_TEXT, MOST_VALUE = 24, 18  # columns of a meaning, and of a default

# The settings of a task's data that have options of their own, and what their values are called.
DATA = {
    "corpus": "NAME",
    "source": "FILE",
    "target": "FILE",
    "valid_source": "FILE",
    "valid_target": "FILE",
    "text": "PATH",
    "table": "FILE",
    "valid_table": "FILE",
    "images": "FOLDER",
    "valid_images": "FOLDER",
    "trees": "FILE",
    "valid_trees": "FILE",
}
OPTION_OF = {"table": "data", "valid_table": "valid_data"}

COMMON = {
    "--architecture NAME": "{architectures} (default: {architecture})",
    "--size NAME": "{sizes} (default: small)",
    "--steps N": "optimizer steps (default: {steps})",
    "--minutes N": "train for so long instead, compiling and evaluating included",
    "--from FOLDER": "run or Hugging Face folder to start from; sizes and tokenizer come along",
    "--tune whole|head|lora": "with --from, what learns (default: whole)",
    "--run DIR": "folder of the run (default: runs/{task})",
    "--resume RUN": "continue an interrupted run; its recipe says everything else",
    "--seed N": "weights and order of examples (default: 0)",
    "--device auto|cpu|cuda": "auto takes the GPU if there is one",
    "--track NAME": "also write metrics for tensorboard, trackio or wandb, on this machine only",
    "--find-rate": "only try learning rates and suggest one",
    "--set PART.NAME=VALUE": "any setting below; may be repeated",
}
WARMUP, DROPOUT = "train.warmup_steps", "model.dropout"  # the one is shortened even if a corpus sets it
SETTING_OF = {  # options that set something, beside those of the data
    "--steps N": "train.steps",
    "--minutes N": "train.minutes",
    "--from FOLDER": "train.from",
    "--tune whole|head|lora": "train.tune",
    "--seed N": "train.seed",
}


def show_help(args: Sequence[str]) -> None:
    """Print the help that fits the words of a command line. What needs no torch comes first, at once."""
    words = [word for word in args if not word.startswith("-")]
    known = [*summaries(), STAGED]
    task = next((word for word in words if word in known), "")
    for part in task_help(task, list(args)) if task else overview():
        print(part, flush=True)


def overview() -> Iterator[str]:
    """All tasks, each with the first line of its file."""
    yield "usage: heedful train TASK [OPTIONS]\n\nTrain a model on your own files or on a built-in corpus.\n"
    yield "tasks:"
    found = {name: line for name, line in summaries().items() if not name.startswith(f"{STAGED}-")}
    found[STAGED] = (
        f"Text to image: all stages in one folder; or one, as {STAGED}-{', -'.join(STAGES)} or -judge"
    )
    yield table({name: brief(line) for name, line in sorted(found.items())})
    yield wrapped("\n`heedful train TASK --help` shows the options and settings of a task.") + "\n\nexamples:"
    yield indented(EXAMPLES)


def brief(line: str) -> str:
    """What a task does: its first sentence, without its name."""
    said = line.partition(": ")[2] or line
    return re.split(r"(?<! al)[.] ", said)[0].removesuffix(".")


EXAMPLES = (
    "heedful train translate --corpus phrasebook --size tiny --minutes 3",
    "heedful train translate --source a.en --target a.de --valid-source b.en --valid-target b.de",
    "heedful train lm --text books/ --architecture llama",
    "heedful train classify --data a.tsv --valid-data b.tsv --from runs/mlm",
    "heedful train --resume runs/translate",
    "torchrun --nproc-per-node 4 -m -- heedful train lm --text books/",
)


def task_help(task: str, args: list[str]) -> Iterator[str]:
    """The options of a task, then the settings that apply to it with their defaults for this call."""
    staged = task == STAGED
    title = "Text to image, all stages in one folder." if staged else summaries()[task]
    yield f"usage: heedful train {task} [OPTIONS]\n\n{wrapped(title)}\n"
    shown = find_task(f"{STAGED}-codes" if staged else task)
    yield "data:"
    yield table(data_options(shown))
    recipe = recipe_of_words(shown.name, args)
    yield "\noptions:"
    yield table(common_options(shown, recipe, staged))
    if staged:
        stages = ", ".join(f"{STAGED}-{stage}" for stage in STAGES)
        yield wrapped(f"\nsettings: those of {stages} (see their help); {STAGES[0]}.train.steps=N sets one.")
        return
    yield wrapped(f"\nsettings and defaults of {describe(recipe)} (auto: chosen before step 1):")
    yield settings_table(recipe)


def data_options(task: Any) -> dict[str, str]:
    """The options that name a task's data, with the help of its settings."""
    from ...models.base.settings import settings_of

    known = settings_of(task.data)
    lines = {key: known[key].help for key in DATA if key in known}
    lines["corpus"] += f": {', '.join(task.corpora) or 'none'}"
    return {f"--{OPTION_OF.get(key, key).replace('_', '-')} {DATA[key]}": line for key, line in lines.items()}


def common_options(task: Any, recipe: Recipe, staged: bool = False) -> dict[str, str]:
    """The options of every task that apply to this one."""
    from ...models import listed
    from ...tasks.recipe import known_settings

    first = next(iter(task.architectures))
    architecture = recipe.model.architecture or first
    architectures, known = task.all_architectures(), known_settings(task, recipe.model.architecture)
    why = chosen_by(task, recipe)
    filled = {
        "task": STAGED if staged else task.name,
        "architectures": ", ".join(architectures),
        "architecture": first,
        "sizes": ", ".join(
            dict.fromkeys([*task.sizes, *([] if staged else listed(architecture)["PRESETS"])])
        ),
        "steps": "each stage's own" if staged else why.get("train.steps", f"{recipe.train.steps:,}"),
    }
    without = {option for option, setting in SETTING_OF.items() if setting not in known}
    without |= {"--architecture NAME"} if staged or len(architectures) == 1 else set()
    without |= {"--find-rate"} if staged else set()
    return {option: line.format(**filled) for option, line in COMMON.items() if option not in without}


def recipe_of_words(task: str, args: list[str]) -> Recipe:
    """The recipe that the other words of the command ask for; where they are wrong, the task's own."""
    from ...errors import BadInput
    from ...tasks.recipe import make
    from ..train import TrainOptions, settings_of_call
    from .arguments import parse

    others = [word for word in args if word not in ("-h", "--help")]
    try:
        given: TrainOptions = parse("train", others)
        return make(task, given.size, given.corpus or "", settings_of_call(given))
    except BadInput:
        return make(task)


def describe(recipe: Recipe) -> str:
    """What the defaults are the defaults of."""
    parts = [recipe.task, recipe.model.architecture or "the model to start from"]
    return " with ".join(parts) + (f" on {recipe.data.corpus}" if recipe.data.corpus else "")


def settings_table(recipe: Recipe) -> str:
    """Every setting that applies, by part. Those with an option stand above."""
    above = {*SETTING_OF.values(), *(f"data.{name}" for name in DATA)}
    parts = {
        part: {key: row for key, row in rows.items() if key not in above}
        for part, rows in setting_rows(recipe).items()
    }
    left = max(len(key) for rows in parts.values() for key in rows)
    middle = min(MOST_VALUE, max(len(value) for rows in parts.values() for value, _ in rows.values()))
    return "\n\n".join(three_columns(rows, left, middle) for rows in parts.values() if rows)


def setting_rows(recipe: Recipe) -> dict[str, dict[str, tuple[str, str]]]:
    """{part: {"part.name": (default, meaning)}} of every setting that applies to a recipe."""
    from ...tasks.recipe import PARTS, known_settings, to_json

    task, values = find_task(recipe.task), to_json(recipe)
    why, known = chosen_by(task, recipe), known_settings(task, recipe.model.architecture)
    parts: dict[str, dict[str, tuple[str, str]]] = {part: {} for part in PARTS}
    for key, setting in known.items():
        part, _, name = key.partition(".")
        default = "auto" if key in why else shown_value(values[part].get(name))
        parts[part][key] = default, explained(setting, why.get(key, ""))
    return parts


def chosen_by(task: Any, recipe: Recipe) -> dict[str, str]:
    """{setting: how it is chosen} of those that are left open until the data and the device are known."""
    from ...tasks.recipe import to_json
    from ...tasks.recipe.choices import CHOSEN

    values, given = to_json(recipe), recipe.given or frozenset()
    corpus = task.corpus_settings(recipe.data.corpus).keys()
    notes = CHOSEN | {key: how for key, how in task.chosen.items() if key not in corpus}
    found = {}
    for key, how in notes.items():
        part, _, name = key.partition(".")
        if key not in given and name in values[part] and (key not in corpus or key == WARMUP):
            found[key] = how.format(default=shown_value(values[part][name]))
    if DROPOUT in found and values["model"].get("attention_dropout") == values["model"]["dropout"]:
        found.setdefault("model.attention_dropout", "as model.dropout")
    return {key: how for key, how in found.items() if key not in given}


def shown_value(value: Any) -> str:
    """A value as --set takes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    return '""' if value == "" else "auto" if value is None else f"{value}"


def explained(setting: Setting, how: str) -> str:
    """The help of a setting, its choices where it has some, and how it is chosen where nobody does."""
    choices = f" ({', '.join(setting.choices)})" if setting.choices else ""
    meaning = setting.help.replace("None: ", "auto: ")  # as the command line spells it
    return f"{meaning}{choices}" + (f"; auto: {how}" if how else "")


# Layout


def width() -> int:
    """The columns that help may fill."""
    return max(NARROW, min(WIDE, shutil.get_terminal_size((80, 24)).columns)) if sys.stdout else NARROW


def table(rows: dict[str, str]) -> str:
    """Names in one column, and what they mean in another, wrapped once."""
    left = min(34, max((len(name) for name in rows), default=0)) + GAP
    lines = []
    for name, text in rows.items():
        wrapped = textwrap.wrap(text, max(20, width() - left - 2), break_on_hyphens=False) or [""]
        if len(name) + GAP > left:
            lines.append(f"  {name}")
            lines += [f"  {'':{left}}{line}" for line in wrapped]
        else:
            lines.append(f"  {name:{left}}{wrapped[0]}".rstrip())
            lines += [f"  {'':{left}}{line}" for line in wrapped[1:]]
    return "\n".join(lines)


def three_columns(rows: dict[str, tuple[str, str]], left: int, middle: int) -> str:
    """Names, defaults and meanings; where the terminal is narrow, a meaning stands below its name."""
    room = width() - left - middle - 2 * GAP - 2
    lines = []
    for name, (value, text) in rows.items():
        head = f"  {name:{left + GAP}}{value}"
        if room < LEAST_TEXT or len(value) > middle:
            lines += [head, *below(text)]
            continue
        first, *more = textwrap.wrap(text, room, break_on_hyphens=False) or [""]
        lines.append(f"{head:{left + middle + 2 * GAP + 2}}{first}".rstrip())
        lines += [" " * (left + middle + 2 * GAP + 2) + line for line in more]
    return "\n".join(lines)


def below(text: str) -> list[str]:
    """A meaning in lines of its own."""
    return textwrap.wrap(
        text, width(), initial_indent=" " * 6, subsequent_indent=" " * 6, break_on_hyphens=False
    )


def wrapped(text: str) -> str:
    """A sentence at the width of the terminal; an empty line before it stays."""
    return "\n" * text.startswith("\n") + textwrap.fill(text.strip(), width(), break_on_hyphens=False)


def indented(lines: Sequence[str]) -> str:
    """Commands, each on a line of its own; one that is too long is continued as a shell takes it."""
    wrap = textwrap.TextWrapper(width() - 8, break_long_words=False, break_on_hyphens=False)
    return "\n".join("  " + " \\\n      ".join(wrap.wrap(line)) for line in lines)
