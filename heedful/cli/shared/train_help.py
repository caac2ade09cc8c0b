"""Help of `heedful train`: the tasks; or, for one task, its options and the settings that apply."""

from __future__ import annotations

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

DATA = {
    "corpus": ("NAME", "built-in corpus: {corpora}"),
    "source": ("FILE", "sentences to read, one per line, plain or gzip"),
    "target": ("FILE", "their translations, line by line"),
    "valid_source": ("FILE", "held-out sentences"),
    "valid_target": ("FILE", "their translations"),
    "text": ("PATH", "text file, folder of them, or JSON lines; the last tenth is held out"),
    "table": ("FILE", "{table}"),
    "valid_table": ("FILE", "the same, held out"),
    "images": ("FOLDER", "{images}"),
    "valid_images": ("FOLDER", "the same, held out (default: one in ten of --images)"),
    "trees": ("FILE", "dependency trees of the sources, CoNLL-U"),
    "valid_trees": ("FILE", "the same, held out"),
}
TABLES = {
    "translate": "table with the columns source and target, tab-separated or JSON lines",
    "classify": "table with the columns text (or sentence) and label, tab-separated or JSON lines",
    "summarize": "JSON lines with article and summary, and a title if there is one",
    "span": 'JSON lines with question, context and answers, a list of {"text", "start"}',
    "choose": "JSON lines with context, choices (a list) and answer (which is right, from 0)",
}
TREEBANK = "treebank, CoNLL-U"
IMAGES = {"image-classify": "folder with one folder of images per class, or IDX files as MNIST's"}
CAPTIONED = "folder of images with captions.tsv (name, tab, caption) or captions.jsonl"
OPTION_OF = {"table": "data", "valid_table": "valid_data"}

COMMON = {
    "--architecture NAME": "{architectures}",
    "--size NAME": "tiny, small, base, large, or a preset of the architecture (default: small)",
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
        f"Text to image: all stages ({', '.join(STAGES)}) in one folder, or one: {STAGED}-codes, ..."
    )
    yield table({name: line.partition(": ")[2] or line for name, line in sorted(found.items())})
    yield "\n`heedful train TASK --help` shows the options and settings of a task.\n\nexamples:"
    yield indented(EXAMPLES)


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
    yield f"usage: heedful train {task} [OPTIONS]\n\n{title}\n"
    shown = find_task(f"{STAGED}-codes" if staged else task)
    yield "data:"
    yield table(data_options(shown, task))
    recipe = recipe_of_words(shown.name, args)
    yield "\noptions:"
    yield table(common_options(shown, recipe))
    if staged:
        yield f"\nSettings are those of {', '.join(f'{STAGED}-{stage}' for stage in STAGES)}; see their help."
        return
    yield f"\nsettings, with their defaults for {describe(recipe)}:"
    yield settings_table(recipe)


def data_options(task: Any, name: str) -> dict[str, str]:
    """The options that name a task's data."""
    from ...models.base.settings import settings_of

    words = {
        "corpora": ", ".join(task.corpora) or "none",
        "table": TABLES.get(name, TREEBANK),
        "images": IMAGES.get(name, CAPTIONED),
    }
    known = settings_of(task.data)
    return {
        f"--{OPTION_OF.get(key, key).replace('_', '-')} {metavar}": line.replace(
            "{corpora}", words["corpora"]
        )
        .replace("{table}", words["table"])
        .replace("{images}", words["images"])
        for key, (metavar, line) in DATA.items()
        if key in known
    }


def common_options(task: Any, recipe: Recipe) -> dict[str, str]:
    """The options of every task that apply to this one."""
    names = ", ".join(task.architectures)
    steps = f"{recipe.train.steps:,}"
    filled = {"architectures": f"{names}, ... (default: {next(iter(task.architectures))})"}
    without = [] if task.starts is not None else ["--from FOLDER", "--tune whole|head|lora"]
    without += [] if len(task.architectures) > 1 else ["--architecture NAME"]
    return {
        option: line.format(steps=steps, task=task.name, **filled)
        for option, line in COMMON.items()
        if option not in without
    }


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
    """Every setting that applies, by part, with its value and its help. Files have options of their own."""
    from ...tasks.recipe import known_settings, to_json

    known = known_settings(find_task(recipe.task), recipe.model.architecture)
    values = to_json(recipe)
    rows = {}
    for key, setting in known.items():
        part, _, name = key.partition(".")
        if part == "data" and (name in DATA or name == "corpus"):
            continue
        rows[key] = f"{shown_value(values[part].get(name))}  {explained(setting)}".rstrip()
    return table(rows)


def shown_value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return '""' if value == "" else "auto" if value is None else f"{value}"


def explained(setting: Setting) -> str:
    """The help of a setting, and its choices where it has some."""
    choices = f"{', '.join(setting.choices)}" if setting.choices else ""
    return "; ".join(filter(None, (setting.help, choices)))


# Layout


def width() -> int:
    """The columns that help may fill."""
    return max(NARROW, min(WIDE, shutil.get_terminal_size((80, 24)).columns)) if sys.stdout else NARROW


def table(rows: dict[str, str]) -> str:
    """Names in one column, and what they mean in another, wrapped once."""
    left = min(34, max((len(name) for name in rows), default=0)) + GAP
    lines = []
    for name, text in rows.items():
        wrapped = textwrap.wrap(text, max(20, width() - left - 2)) or [""]
        if len(name) + GAP > left:
            lines.append(f"  {name}")
            lines += [f"  {'':{left}}{line}" for line in wrapped]
        else:
            lines.append(f"  {name:{left}}{wrapped[0]}".rstrip())
            lines += [f"  {'':{left}}{line}" for line in wrapped[1:]]
    return "\n".join(lines)


def indented(lines: Sequence[str]) -> str:
    return "\n".join(f"  {line}" for line in lines)
