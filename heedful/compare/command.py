"""`heedful compare`: from options to a table, and what a person sees on the way."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..cli.train import INTERRUPTED_AND_SAVED, Voice
from ..errors import BadInput, command
from ..files import one_line, present, write_text
from ..models import nearest
from ..runs.plan import span
from ..tasks.evaluation import SHOWN, spelled
from ..tasks.recipe import parse_settings
from ..train.device import find_device
from . import report
from .asked import BUDGETS, METRICS, STORIES, Asked, chapters, check, read_variant
from .plot import plot
from .trials import COMPARISON, Entry, open_comparison, read_comparison, records_of, run_all, trials

if TYPE_CHECKING:
    import torch

    from ..cli.options import Compare


def compare(given: Compare) -> int:
    """Train what is not trained yet, then tell."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise BadInput("compare is for one process: give the command without torchrun")
    given = resumed(given) if given.resume else given
    device = find_device(given.device)
    asked = asked_of(given, device)
    path = Path(given.run or "runs/compare")
    metric = metric_of(given, asked)
    with Voice() as voice:
        entries = open_comparison(path, asked, asdict(given), device, voice)
        say_plan(voice, path, asked, entries)
        for record in run_all(path, asked, entries, device, voice):
            if record is None:
                again = command("compare", "--resume", path)
                voice.say(f"stopped, and saved: go on with `{again}`")
                return INTERRUPTED_AND_SAVED
            voice.say(f"  {failure(record.failed)}" if record.failed else f"  {scores_told(record, metric)}")
    print(told(path, asked, entries, metric, given.json))
    return 0


def failure(why: str) -> str:
    return f"failed: {one_line(why)}"


def scores_told(record: Any, metric: str) -> str:
    """The score that counts first, then the others."""
    names = [metric, *(name for name in record.scores if name != metric)]
    took = "" if record.seconds is None else f" ({span(record.seconds)})"
    return ", ".join(spelled(name, record.scores[name]) for name in names) + took


def say_plan(voice: Voice, path: Path, asked: Asked, entries: list[Entry]) -> None:
    """What will be done, before it is."""
    done = records_of(path)
    every = trials(entries, asked.seeds)
    left = [entry for entry, seed in every if (entry.variant.name, seed) not in done]
    skipped = f", {len(every) - len(left)} of them done already" if len(left) < len(every) else ""
    voice.say(
        f"{len(entries)} variants x {asked.seeds} seed{'s' * (asked.seeds > 1)} are {len(every)} trials{skipped}: {path}"
    )


def told(path: Path, asked: Asked, entries: list[Entry], metric: str, as_json: bool) -> str:
    """Write the tables and the picture, and give what is printed."""
    wanted = {(entry.variant.name, seed) for entry, seed in trials(entries, asked.seeds)}
    done = records_of(path)
    scored = [done[key] for key in wanted & done.keys() if not done[key].failed]
    if scored and not any(metric in record.scores for record in scored):
        raise BadInput(f'none of these trials has a score "{metric}": give another --metric')
    rows = report.rows_of(entries, [done[key] for key in sorted(wanted & done.keys())], metric)
    write_text(path / "table.csv", report.table_csv(rows))
    write_text(path / "trials.csv", report.trials_csv(rows))
    title = f"{asked.task}{f' on {asked.corpus}' if asked.corpus else ''}: {SHOWN[metric][0]}"
    write_text(path / "plot.svg", plot(rows, title))
    if as_json:
        facts = {"task": asked.task, "seeds": asked.seeds, "folder": str(path)}
        return json.dumps(report.as_json(rows, facts), indent=2)
    files = ", ".join(f"{path}/{name}" for name in ("table.csv", "trials.csv", "plot.svg"))
    return f"{report.told(rows, asked.seeds, asked.task)}\n{files}"


# From options to what is asked.


def resumed(given: Compare) -> Compare:
    """The options that a comparison was begun with; only how it is shown may be given again."""
    path = Path(given.resume or "")
    for option in fields(given):
        if (
            option.name not in ("resume", "device", "json", "metric", "what")
            and getattr(given, option.name) != option.default
        ):
            name = option.name.replace("_", "-")
            raise BadInput(
                f"--{name} cannot be given with --resume: {path} says everything; without --resume, --run {path} and all "
                f"options go on as well, with more seeds or variants"
            )
    if not present(path / COMPARISON):
        raise BadInput(one_line(f"{path} holds no comparison: {COMPARISON} is missing"))
    before = read_comparison(path)["typed"]
    known = {option.name: option.default for option in fields(given)}
    unlike = [name for name, value in before.items() if name not in known or not alike(value, known[name])]
    if unlike:
        raise BadInput(one_line(f"{path / COMPARISON} has an option {unlike[0]} that is none: mend it"))
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in before.items()
    }
    shown: dict[str, Any] = {"device": given.device, "json": given.json, "run": str(path), "resume": None}
    shown |= {} if given.metric is None else {"metric": given.metric}
    return replace(type(given)(**values), **shown)


def alike(value: Any, default: Any) -> bool:
    """Whether a value from a file may stand where an option has this default."""
    if default is None:
        return value is None or isinstance(value, str | int | float)
    if isinstance(default, tuple):
        return isinstance(value, list) and all(isinstance(one, str) for one in value)
    return type(value) is type(default)


def asked_of(given: Compare, device: torch.device) -> Asked:
    """What the options ask for, if it can be compared."""
    story = STORIES.get(given.what)
    task = story.task if story else given.what
    refuse_in_vain(given)
    named = {
        "data.corpus": given.corpus, "data.source": given.source, "data.target": given.target,
        "data.valid_source": given.valid_source, "data.valid_target": given.valid_target, "data.text": given.text,
        "data.table": given.data, "data.valid_table": given.valid_data, "data.images": given.images,
        "data.valid_images": given.valid_images, "train.steps": given.steps,
        "train.precision": given.precision,
    }  # fmt: skip
    base: dict[str, Any] = {"train.precision": "bf16" if device.type == "cuda" else "fp32"}
    base |= {**story.base, "train.steps": story.steps} if story else {}
    base |= parse_settings(list(given.set))
    base |= {key: value for key, value in named.items() if value is not None}
    variants = [read_variant(text, task) for text in given.variant]
    corpus = story.corpus if story else str(base.get("data.corpus", ""))
    size = given.size or (story.size if story else "small")
    amounts = {name: getattr(given, name) for name in BUDGETS[1:] if getattr(given, name) is not None}
    budget = next(iter(amounts.items()), None)
    every = (*(chapters(given.what) if story else ()), *variants)
    asked = Asked(task, size, corpus, base, tuple(every), budget, given.seeds)
    check(asked)
    return asked


def refuse_in_vain(given: Compare) -> None:
    """Options that contradict each other, or would do nothing."""
    budgets = [name for name in BUDGETS if getattr(given, name) is not None]
    if len(budgets) > 1:
        raise BadInput(f"--{budgets[0]} and --{budgets[1]} are two budgets: give one of them")
    for name in budgets:
        amount = getattr(given, name)
        if not 1 <= amount < 1e30:
            raise BadInput(f"--{name} is a number of at least 1, not {amount:g}")
    if given.what in STORIES:
        for name in (
            "corpus",
            "source",
            "target",
            "valid_source",
            "valid_target",
            "text",
            "data",
            "valid_data",
        ):
            if getattr(given, name) is not None:
                option = name.replace("_", "-")
                raise BadInput(f"--{option} cannot be given with {given.what}, which has data of its own")


def metric_of(given: Compare, asked: Asked) -> str:
    """What is compared."""
    if given.metric is None:
        return METRICS[asked.task]
    there = SCORES[asked.task]
    if given.metric not in there:
        raise BadInput(f'{asked.task} has no score "{given.metric}"{nearest(given.metric, there)}')
    if given.metric in ("exact", "facts") and asked.task == "summarize" and asked.corpus != "facts":
        raise BadInput(f'the score "{given.metric}" is of --corpus facts: give another --metric')
    return given.metric


# The scores that training tells of held-out data.
SCORES = {
    "translate": ("bleu", "exact", "loss"),
    "lm": ("loss", "perplexity", "bits_per_byte"),
    "mlm": ("loss", "perplexity", "accuracy"),
    "classify": ("accuracy", "macro_f1", "loss"),
    "tag": ("accuracy", "loss"),
    "span": ("f1", "exact", "loss"),
    "choose": ("accuracy", "loss"),
    "parse": ("uas", "las", "loss"),
    "summarize": ("rougeL", "rouge1", "rouge2", "exact", "facts", "loss"),
    "image-classify": ("accuracy", "macro_f1", "loss"),
    "caption": ("exact", "bleu", "loss"),
}
