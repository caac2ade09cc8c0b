"""Train several variants with the same data and budget, and test which differences are significant.

Every variant is trained with every seed, on the same data, tokenizer and order. One table shows quality with
its interval, parameters, FLOPs, time and memory; differences within noise are "not distinguishable". A
variant is a name and what differs from the others: settings (as in --set of heedful train) or the folder of
a run whose settings it takes. A name alone is the base. history is a built-in comparison on the phrasebook,
from the RNN to the Transformer with each notion of position that the lectures show. With
train.learning_rate=1e-3,3e-3 each variant tries both learning rates on held-out data and uses the better one.
alignment trains the stages of a model that follows instructions (supervised, dpo, rl, and rl against a
reward model) and shows their rewards, win rates and the curve of over-optimization.

The folder holds compare.json, records.jsonl, rates.jsonl, table.csv, trials.csv, plot.svg, and every model in
runs/. Ctrl-C saves and stops; the same command continues and repeats nothing. More seeds or variants can be
added to a folder.

Examples: heedful compare history; heedful compare alignment;
heedful compare translate --corpus phrasebook --size tiny --steps 500 --variant base
--variant "post: model.norm=post";
heedful compare lm --text books/ --tokens 2e6 --variant gpt2 --variant "modern: model.architecture=modern";
heedful compare lm --text books/ --flops 1e13 --seeds 5 --variant "narrow: model.width=128"
--variant "wide: model.width=256"; heedful compare --resume runs/compare
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from ..compare.comparison import (
    BUDGETS,
    BUILT_IN,
    RATE_SEED,
    Comparison,
    built_in_variants,
    check,
    read_variant,
)
from ..errors import BadInput, command
from ..files import one_line, present, write_text
from ..models import nearest
from ..tasks import find_task
from ..tasks.evaluation import format_score
from ..tasks.recipe import parse_settings
from ..train.device import find_device
from .shared.exit_codes import INTERRUPTED_AND_SAVED
from .shared.options import DataOptions, Positional, Repeated, arg

if TYPE_CHECKING:
    import torch

    from ..compare.trials import Entry
    from .shared.training import TrainingProgress


@dataclass(frozen=True)
class CompareOptions(DataOptions):
    """The options of `heedful compare`."""

    what: Annotated[
        Literal[
            "history",
            "alignment",
            "translate",
            "lm",
            "mlm",
            "classify",
            "tag",
            "span",
            "choose",
            "parse",
            "summarize",
            "instruct",
            "reward",
            "image-classify",
            "caption",
        ],
        Positional,
        arg("TASK|history|alignment"),
    ] = "translate"
    """A task of heedful train; or a built-in comparison: history, alignment."""

    variant: Annotated[tuple[str, ...], arg("NAME: PART.NAME=VALUE ...", "none"), Repeated] = ()
    """A variant, in quotes; give two or more. Without a name, its settings are its name."""

    size: Annotated[Literal["tiny", "small", "base", "large"] | None, arg(default="small; history: tiny")] = (
        None
    )
    """The size of the models, unless a variant sets it: 2 layers of width 128, 4 of 256, 6 of 512, 6 of
    1024."""

    steps: Annotated[int | None, arg("INT", "as heedful train; history: 1000")] = None
    """The budget: steps per variant."""

    tokens: Annotated[float | None, arg("FLOAT", "--steps")] = None
    """Instead of steps: target tokens per variant, such as 2e6."""

    flops: Annotated[float | None, arg("FLOAT", "--steps")] = None
    """Instead of steps: floating-point operations per variant, such as 1e13; larger models then take fewer
    steps."""

    seeds: int = 3
    """The number of seeds: 0, 1, 2, ... More seeds can detect smaller differences."""

    metric: Annotated[
        str | None,
        arg(
            "NAME",
            "translate bleu, lm and mlm loss, classify, tag and choose accuracy, span f1, parse uas, "
            "summarize rougeL",
        ),
    ] = None
    """The metric to compare: any metric of the evaluations in training, such as loss, exact, bleu or
    bits_per_byte."""

    run: Annotated[str | None, arg("DIR", "runs/compare")] = None
    """The folder to write: a new one, or that of the same comparison, which then continues."""

    resume: Annotated[str | None, arg("DIR", "none")] = None
    """Continue a comparison with the options it was started with."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute; auto takes the GPU if there is one."""

    precision: Annotated[
        Literal["fp32", "bf16", "fp16"] | None, arg(default="fp32 on a CPU, bf16 on a GPU")
    ] = None
    """Precision of matrix products; the loss is always computed in fp32."""

    json: bool = False
    """Print one JSON object instead of the table, with all figures and every pair of variants."""

    set: Annotated[tuple[str, ...], arg("PART.NAME=VALUE", "none"), Repeated] = ()
    """A setting that all variants share, such as train.batch_tokens=1024; may be given several times. With
    several learning rates, such as train.learning_rate=1e-3,3e-3, each variant uses its best one."""


def compare(given: CompareOptions) -> int:
    """Train what is not trained yet, then report."""
    from ..compare.trials import open_comparison, run_all
    from .shared.training import TrainingProgress

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise BadInput("compare is for one process: give the command without torchrun")
    if given.what == ALIGNMENT:
        return compare_alignment(given)
    given = resumed(given) if given.resume else given
    device = find_device(given.device)
    asked = asked_of(given, device)
    path = Path(given.run or "runs/compare")
    metric = metric_of(given, asked)
    with TrainingProgress() as voice:
        entries = open_comparison(path, asked, asdict(given), device, voice)
        say_plan(voice, path, asked, entries)
        for record in run_all(path, asked, entries, device, voice):
            if record is None:
                again = command("compare", "--resume", path)
                voice.say(f"stopped and saved: continue with `{again}`")
                return INTERRUPTED_AND_SAVED
            voice.say(
                f"  {failure(record.failed)}" if record.failed else f"  {describe_scores(record, metric)}"
            )
    print(write_report(path, asked, entries, metric, given.json))
    return 0


ALIGNMENT = "alignment"
OF_ALIGNMENT = ("what", "steps", "seeds", "run", "resume", "device", "json")


def compare_alignment(given: CompareOptions) -> int:
    """Train every stage with every seed, judge the models, and report."""
    from ..lab.alignment import judged, report, stages
    from .shared.training import TrainingProgress

    for option in fields(given):
        if option.name not in OF_ALIGNMENT and getattr(given, option.name) != option.default:
            name = option.name.replace("_", "-")
            raise BadInput(f"--{name} cannot be given with alignment, whose stages are settled: leave it out")
    if given.seeds < 1:
        raise BadInput(f"--seeds is at least 1, not {given.seeds}")
    device, path = find_device(given.device), Path(given.resume or given.run or "runs/alignment")
    stages.open_folder(path, given.steps)
    with TrainingProgress() as voice:
        for seed in range(given.seeds):
            for stage, finished in stages.run_stages(path, seed, voice, device, given.steps):
                if not finished:
                    again = command("compare", ALIGNMENT, "--run", path)
                    voice.say(f"stopped and saved in {stage.name}, seed {seed}: continue with `{again}`")
                    return INTERRUPTED_AND_SAVED
        voice.say("judging")
        names = (*stages.COMPARED, stages.OVER_OPTIMIZED)
        found = {
            (name, seed): judged.judged_stage(path, name, seed, judged.ALL, device)
            for seed in range(given.seeds)
            for name in names
        }
    rows, points = report.rows_of_stages(found), report.curve_of(path, range(given.seeds))
    report.write_files(path, rows, points)
    if given.json:
        print(report.as_json(rows, points, path))
        return 0
    files = ", ".join(f"{path}/{name}" for name in (report.TABLE, report.CURVE, report.FIGURE))
    print(f"{report.report_text(rows, points, found)}\n{files}")
    return 0


def failure(why: str) -> str:
    return f"failed: {one_line(why)}"


def describe_scores(record: Any, metric: str) -> str:
    """The score that counts first, then the others."""
    from ..runs.plan import format_seconds

    names = [metric, *(name for name in record.scores if name != metric)]
    took = "" if record.seconds is None else f" ({format_seconds(record.seconds)})"
    return ", ".join(format_score(name, record.scores[name]) for name in names) + took


def say_plan(voice: TrainingProgress, path: Path, asked: Comparison, entries: list[Entry]) -> None:
    """What will be done, before it is."""
    from ..compare.trials import left_to_do

    seeds = f"{asked.seeds} seed{'s' * (asked.seeds > 1)}"
    every = len(entries) * asked.seeds
    left = left_to_do(path, entries, asked.seeds)
    finished = every - sum(one.rate is None for one in left)
    skipped = f", {finished} of them finished" if finished else ""
    voice.say(f"{len(entries)} variants x {seeds} = {every} trials{skipped}: {path}")
    tries, tried = sum(len(entry.tries) for entry in entries), sum(one.rate is not None for one in left)
    if tries:
        skipped = f", {tries - tried} of them finished" if tried < tries else ""
        voice.say(
            f"before them, {tries} trials with seed {RATE_SEED} choose learning rates{skipped}: "
            f"{100 * tries / (tries + every):.0f} % of all trials"
        )


def write_report(path: Path, asked: Comparison, entries: list[Entry], metric: str, as_json: bool) -> str:
    """Write the tables and the picture, and give what is printed."""
    from ..compare import report
    from ..compare.plot import plot
    from ..compare.trials import rate_records_of, records_of, trials

    wanted = {(entry.variant.name, seed) for entry, seed in trials(entries, asked.seeds)}
    done = records_of(path)
    scored = [done[key] for key in wanted & done.keys() if not done[key].failed]
    if scored and not any(metric in record.scores for record in scored):
        raise BadInput(f'none of these trials has the metric "{metric}": give another --metric')
    tries = rate_records_of(path)
    rates = [tries[key] for e in entries for rate in e.tries if (key := (e.variant.name, rate)) in tries]
    rows = report.rows_of(entries, [done[key] for key in sorted(wanted & done.keys())], metric, rates)
    write_text(path / "table.csv", report.table_csv(rows))
    write_text(path / "trials.csv", report.trials_csv(rows))
    what = f"{asked.task}{f' on {asked.corpus}' if asked.corpus else ''}"
    write_text(path / "plot.svg", plot(rows, what))
    if as_json:
        facts = {"task": asked.task, "seeds": asked.seeds, "folder": str(path)}
        return json.dumps(report.as_json(rows, facts), indent=2)
    files = ", ".join(f"{path}/{name}" for name in ("table.csv", "trials.csv", "plot.svg"))
    return f"{report.report_text(rows, asked.seeds, asked.task)}\n{files}"


# From options to what is asked.


def resumed(given: CompareOptions) -> CompareOptions:
    """The options that a comparison was begun with; only how it is shown may be given again."""
    from ..compare.trials import COMPARISON, read_comparison

    path = Path(given.resume or "")
    for option in fields(given):
        if (
            option.name not in ("resume", "device", "json", "metric", "what")
            and getattr(given, option.name) != option.default
        ):
            name = option.name.replace("_", "-")
            raise BadInput(
                f"--{name} cannot be given with --resume, which uses the options stored in {path}: "
                f"to add seeds or variants, give --run {path} and all options instead"
            )
    if not present(path / COMPARISON):
        raise BadInput(one_line(f"{path} holds no comparison: {COMPARISON} is missing"))
    before = read_comparison(path)["typed"]
    known = {option.name: option.default for option in fields(given)}
    unlike = [name for name, value in before.items() if name not in known or not alike(value, known[name])]
    if unlike:
        raise BadInput(
            one_line(f"{path / COMPARISON} has an unknown option or value, {unlike[0]}: correct it")
        )
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


def asked_of(given: CompareOptions, device: torch.device) -> Comparison:
    """The comparison that the options describe, checked."""
    story = BUILT_IN.get(given.what)
    task = story.task if story else given.what
    refuse_in_vain(given)
    named = given.data_settings() | {"train.steps": given.steps, "train.precision": given.precision}
    base: dict[str, Any] = {"train.precision": "bf16" if device.type == "cuda" else "fp32"}
    base |= {**story.base, "train.steps": story.steps} if story else {}
    base |= parse_settings(list(given.set))
    base |= {key: value for key, value in named.items() if value is not None}
    variants = [read_variant(text, task) for text in given.variant]
    corpus = story.corpus if story else str(base.get("data.corpus", ""))
    size = given.size or (story.size if story else "small")
    amounts = {name: getattr(given, name) for name in BUDGETS[1:] if getattr(given, name) is not None}
    budget = next(iter(amounts.items()), None)
    every = (*(built_in_variants(given.what) if story else ()), *variants)
    asked = Comparison(task, size, corpus, base, tuple(every), budget, given.seeds)
    check(asked)
    return asked


def refuse_in_vain(given: CompareOptions) -> None:
    """Options that contradict each other, or would do nothing."""
    budgets = [name for name in BUDGETS if getattr(given, name) is not None]
    if len(budgets) > 1:
        raise BadInput(f"--{budgets[0]} and --{budgets[1]} are two budgets: give one of them")
    for name in budgets:
        amount = getattr(given, name)
        if not 1 <= amount < 1e30:
            raise BadInput(f"--{name} is a number of at least 1, not {amount:g}")
    if given.what in BUILT_IN:
        own = ("corpus", "source", "target", "valid_source", "valid_target", "text", "data", "valid_data")
        for name in own:
            if getattr(given, name) is not None:
                option = name.replace("_", "-")
                raise BadInput(
                    f"--{option} cannot be given with {given.what}, which has its own data: leave it out"
                )


def metric_of(given: CompareOptions, asked: Comparison) -> str:
    """What is compared."""
    if given.metric is None:
        return find_task(asked.task).metric
    there = SCORES[asked.task]
    if given.metric not in there:
        raise BadInput(f'{asked.task} has no metric "{given.metric}"{nearest(given.metric, there)}')
    if given.metric in ("exact", "facts") and asked.task == "summarize" and asked.corpus != "facts":
        raise BadInput(f'the metric "{given.metric}" needs --corpus facts: give another --metric')
    return given.metric


# The metrics of the evaluations in training.
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
    "instruct": ("exact", "reward", "loss"),
    "reward": ("accuracy", "margin", "loss"),
    "image-classify": ("accuracy", "macro_f1", "loss"),
    "caption": ("exact", "bleu", "loss"),
}
