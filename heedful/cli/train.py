"""`heedful train`: from options to a run, and what a person sees of it."""

from __future__ import annotations

import os
import shlex
import sys
import time
from contextlib import nullcontext
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import torch

from ..errors import BadInput, NotFinite, give_way, program, said_once
from ..inside.look import pictures
from ..interop.run.read import describe_run
from ..interop.run_folder import is_run
from ..runs import stages, trainer
from ..runs.folder import RECIPE, RunFolder
from ..runs.plan import span
from ..tasks.evaluation import spelled
from ..tasks.recipe import make, parse_settings
from ..tasks.recipe.presets import DEMO, FEATURES, FINE_TUNING, TASK_DEFAULTS
from ..tasks.recipe.settings import Recipe
from ..train.device import find_device
from ..train.loop import Progress
from ..train.processes import Lost, World, connected, join_world, leave_world, own_device

if TYPE_CHECKING:
    from .options import Demo, Train

FAILED, NOT_FINITE, INTERRUPTED_AND_SAVED = 1, 3, 75
SHOWN_RATES = 5  # one in so many that were tried
QUIET = 10.0  # seconds between lines where there is no terminal


def train(given: Train) -> int:
    """Start a run, or go on with one; under torchrun, together with the other processes."""
    with said_once():
        refuse_in_vain(given)
        device = find_device(given.device)
        if in_stages(given):
            return train_stages(given, device)
        recipe = None if given.resume else recipe_of(given, device)
    device = own_device(device)
    if recipe is not None and given.find_rate:
        return find_rate(recipe, device)
    world = join_world(device)
    try:
        with Voice() if world.leads else nullcontext(trainer.Silence()) as voice, connected(world):
            path = Path(given.resume) if given.resume else where(given, world, device)
            if recipe is None:
                outcome = trainer.resume(path, voice, device, world)
            else:
                outcome = trainer.start(
                    recipe, path, voice, device, world, remark_on(path, given.run, given.task)
                )
            world.wait(device)  # torchrun ends all once one has ended: that must not be before all is written
    except (trainer.Elsewhere, NotFinite, Lost) as error:
        if world.leads:
            raise
        return give_way(NOT_FINITE if isinstance(error, NotFinite) else FAILED)
    finally:
        leave_world(world)
    if not outcome.finished:
        return INTERRUPTED_AND_SAVED
    if world.leads:
        print(summary(outcome, path))
    return 0


def where(given: Train, world: World, device: torch.device) -> Path:
    """The run's folder: the one asked for, or the first free name, which the leading process finds."""
    if given.run:
        return Path(given.run)
    number = world.from_leader([float(free_number(given.task)) if world.leads else 0.0], device)[0]
    return numbered(given.task, int(number))


def summary(outcome: trainer.Outcome, path: Path) -> str:
    """The best figures with their intervals, what is in the folder, and what to do next."""
    from ..tasks.metrics import interval

    told = []
    for name, score in outcome.best.scores.items():
        told.append(spelled(name, score))
        if name in SHARES and outcome.job.held_out:
            low, high = interval(score, outcome.job.held_out)
            told[-1] += f" (95 % interval {low:.1%} to {high:.1%})"
    return "\n".join(
        (
            f"best at step {outcome.best.step}: {', '.join(told)}",
            f"{path}: {files_of(outcome.job.vocab)} are the model; metrics.jsonl is how it went",
            "next:",
            *(f"  {line}" for line in what_next(outcome.job.task, path, outcome.job.architecture)),
        )
    )


def files_of(vocab: Any) -> str:
    """What a model consists of."""
    return (
        "config.json and model.safetensors"
        if vocab is None
        else "config.json, model.safetensors and tokenizer.json"
    )


SHARES = ("exact", "accuracy", "uas")  # scores that are shares of rows, and so have an interval
NEXT = {
    "translate": ('translate {path} "your own sentence"',),
    "lm": ('generate {path} "once upon a time"',),
    "mlm": (
        'fill {path} "once upon a [MASK]"',
        "train classify --data a.tsv --valid-data b.tsv --from {path}",
    ),
    "classify": ('classify {path} "your own text"',),
    "tag": ('tag {path} "your own words ."',),
    "span": ('answer {path} --context your-own.txt "your own question"',),
    "choose": (),
    "parse": ('parse {path} "your own words ."',),
    "elmo": (
        "train tag --data a.conllu --valid-data b.conllu --from {path}",
        "train classify --data a.tsv --valid-data b.tsv --from {path}",
    ),
    "summarize": ("summarize {path} < articles.jsonl",),
    "image-classify": ("classify {path} your-own.png", "look {path} your-own.png"),
    "caption": ("caption {path} your-own.png", "look {path} your-own.png"),
    "text-to-image": (),
}


def what_next(task: str, path: Path, architecture: str = "") -> list[str]:
    """Commands that can be copied: what the model scores, what it is made of, and how it is used."""
    folder = shlex.quote(str(path))
    uses = (use.format(path=folder) for use in NEXT.get(architecture, NEXT[task]))
    return [f"{program()} {words}" for words in (f"evaluate {folder}", f"info {folder}", *uses)]


def refuse_in_vain(given: Train) -> None:
    """Options that would do nothing: a run that goes on does what its recipe says, and a try keeps nothing."""
    if given.resume:
        for field in fields(given):
            if field.name not in ("resume", "device", "task") and getattr(given, field.name) != field.default:
                name = field.name.rstrip("_").replace("_", "-")
                raise BadInput(
                    f"--{name} cannot be given with --resume: the recipe in {given.resume} says everything"
                    f"{how_to_change(field.name, Path(given.resume) / RECIPE)}"
                )
        refuse_other_task(given)
    if given.find_rate and given.run:
        raise BadInput("--run cannot be given with --find-rate: nothing is kept of the steps that are tried")
    if given.find_rate and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise BadInput("--find-rate is for one process: try it without torchrun")


def how_to_change(option: str, recipe: Path) -> str:
    """The end of a sentence: where an option can be changed that does not make it another run."""
    setting = {"steps": "train.steps", "minutes": "train.steps", "precision": "train.precision"}.get(option)
    return "" if setting is None else f"; edit {setting} in {recipe} to change it"


def refuse_other_task(given: Train) -> None:
    """A task beside --resume; the first in the list may stand there because nobody named one."""
    path = Path(given.resume or "")
    if given.task == type(given).task or not (path / RECIPE).is_file():
        return
    task = RunFolder.read_recipe(path).get("task")
    if task != given.task:
        raise BadInput(f"{path} is a run of {task}, not of {given.task}: leave the task out")


def find_rate(recipe: Recipe, device: torch.device) -> int:
    """Try learning rates, from tiny to absurd, and say which is good to begin with."""
    from ..train.finder import suggest

    tried = []
    print("rate      loss")
    with Voice() as voice:
        for one in trainer.find_rate(recipe, voice, device):
            tried.append(one)
            if len(tried) % SHOWN_RATES == 1:
                print(f"{one.rate:.1e}  {one.loss:.3f}", flush=True)
    if not tried:
        raise NotFinite("the loss is not finite at any rate: look at the data, or at the model to start from")
    lowest = min(tried, key=lambda one: one.loss)
    between = "" if tried.index(lowest) % SHOWN_RATES == 0 else ", between two of these"
    print(
        f"lowest at {lowest.rate:.1e} (loss {lowest.loss:.3f}{between}); a tenth of that: "
        f"--set train.rate={suggest(tried):g} (without it: {recipe.train.rate:g})"
    )
    return 0


def demo(given: Demo) -> int:
    """The main job on the built-in phrasebook: train a translator, and say honestly what it learned."""
    settings = DEMO | {"train.seed": given.seed}
    if given.steps is not None:
        settings |= {"train.steps": given.steps}
    recipe = make("translate", "tiny", "phrasebook", settings)
    path = Path(given.run) if given.run else free_name("demo")
    device = torch.device("cpu")
    with Voice() as voice:
        voice.say("Training a small English-French translator on the built-in phrasebook.")
        outcome = trainer.start(recipe, path, voice, device, remark=remark_on(path, given.run, "demo"))
    if not outcome.finished:
        return INTERRUPTED_AND_SAVED
    print(report(outcome.model, outcome.job.vocab, path))
    return 0


def report(model: Any, vocab: Any, path: Path, rows: int | None = None) -> str:
    """What the demo's model gets right, beside what takes no learning; the alignment in words and as a picture."""
    from ..corpora import phrasebook
    from ..files import write_text
    from ..tasks import alignment
    from ..tasks.metrics import bleu, exact_match, interval
    from ..tasks.translate import translate
    from .commands import heat_map

    lines = [""]
    for split, told in {
        "test": "held-out sentences",
        "combinations": "unseen combinations",
        "long": "longer sentences",
    }.items():
        pairs = phrasebook.split(split)[:rows]
        found, expected = translate(model, vocab, [p.source for p in pairs]), [p.target for p in pairs]
        exact = exact_match(found, expected)
        low, high = interval(exact, len(pairs))
        word = alignment.word_for_word(phrasebook.split("train"), pairs)
        lines.append(
            f"{told:20} {exact:6.1%} right to the letter ({low:.1%} to {high:.1%}), BLEU {bleu(found, expected):.1f}; "
            f"word for word {word:.1%}"
        )
    tests = phrasebook.split("test")
    head = int(alignment.error_rates(model, vocab, phrasebook.split("valid")[: min(60, rows or 60)]).argmin())
    rates = alignment.error_rates(model, vocab, tests[: min(100, rows or 100)])
    pair = next(p for p in tests if len(p.alignment) >= 7)
    weights = alignment.cross_attention(model, vocab, pair.source, pair.target)[head]
    down, across = tokens_of(vocab, pair.target), tokens_of(vocab, pair.source)
    picture = pictures.heat_map(weights[: len(down)].tolist(), down, across, f"{pair.source} → {pair.target}")
    write_text(path / "alignment.svg", picture)
    lines += [
        f"{'alignment':20} {rates[head]:6.2f} error rate of the head that aligns best (chosen on other sentences)",
        "In brackets: 95 % intervals. Word for word: a dictionary, each word by its most frequent translation.",
        "", f"{pair.source}  →  {translate(model, vocab, [pair.source])[0]}", "",
        heat_map(weights[: len(down)], down, across), "",
        f"{path}/alignment.svg is this picture. Next:",
        f"  {program()} translate {shlex.quote(str(path))} \"The small girl eats a red apple.\"",
        f"  {program()} look {shlex.quote(str(path))} \"{pair.source}\"",
        f"  {program()} train translate --source a.en --target a.de --valid-source b.en --valid-target b.de",
    ]  # fmt: skip
    return "\n".join(lines)


def tokens_of(vocab: Any, text: str) -> list[str]:
    """A text's tokens, as a person reads them."""
    return [vocab.decode([number]).strip() or "?" for number in vocab.encode_batch([text])[0]]


def named_settings(given: Train) -> dict[str, Any]:
    """The settings that have options of their own, as far as they were given."""
    named = {
        "data.corpus": given.corpus, "data.source": given.source, "data.target": given.target,
        "data.valid_source": given.valid_source, "data.valid_target": given.valid_target, "data.text": given.text,
        "data.trees": given.trees, "data.valid_trees": given.valid_trees,
        "data.table": given.data, "data.valid_table": given.valid_data, "data.images": given.images,
        "data.valid_images": given.valid_images, "train.from_folder": given.from_, "train.tune": given.tune,
        "train.steps": given.steps, "train.minutes": given.minutes, "train.seed": given.seed,
        "train.precision": given.precision, "train.compile": given.compile or None,
    }  # fmt: skip
    return {key: value for key, value in named.items() if value is not None}


# The stages of text-to-image.


def in_stages(given: Train) -> bool:
    """Whether more than one run is asked for: text-to-image without a stage."""
    if given.resume:
        return stages.is_staged(Path(given.resume))
    return given.task == "text-to-image" and "train.stage" not in parse_settings(list(given.set))


def train_stages(given: Train, device: torch.device) -> int:
    """All stages of text-to-image, one after the other, in one folder."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise BadInput("the stages of text-to-image are trained in one process: try it without torchrun")
    if given.find_rate:
        raise BadInput("--find-rate is for one stage: add --set train.stage=codes, decoder or ranker")
    path = Path(given.resume or given.run or free_name("text-to-image"))
    with Voice() as voice:
        if given.resume:
            found = stages.resume(path, voice, device)
        else:
            settings = {"train.precision": "bf16" if device.type == "cuda" else "fp32"}
            settings |= parse_settings(list(given.set)) | named_settings(given)
            recipes = stages.recipes_of(given.size, given.corpus or "", settings, path)
            found = stages.start(recipes, path, voice, device)
    if not found.finished:
        return INTERRUPTED_AND_SAVED
    print(stages_summary(found.outcomes, path))
    return 0


def stages_summary(outcomes: dict[str, trainer.Outcome], path: Path) -> str:
    """What each stage reached, and what to do next."""
    lines = []
    for stage, outcome in outcomes.items():
        told = ", ".join(spelled(name, score) for name, score in outcome.best.scores.items())
        lines.append(f"{stage}: best at step {outcome.best.step}: {told}")
    folder = shlex.quote(str(path))
    lines += [
        f"{path}: codes, decoder and ranker are its models",
        "next:",
        f'  {program()} paint {folder} "a small red circle above a blue square"',
        f"  {program()} info {shlex.quote(str(path / 'decoder'))}",
    ]
    return "\n".join(lines)


# Recipes and names.


def recipe_of(given: Train, device: torch.device) -> Recipe:
    """Defaults, recipe file, --set, and the options by name, in rising order."""
    settings: dict[str, Any] = {"train.precision": "bf16" if device.type == "cuda" else "fp32"}
    asked = parse_settings(list(given.set)) | named_settings(given)
    if given.from_ and not is_run(Path(given.from_)):
        settings |= FINE_TUNING if asked.get("train.tune", "whole") == "whole" else {}
    elif given.from_ and describe_run(Path(given.from_))[0] == "elmo":
        settings |= FEATURES
    elif given.from_ and given.task == "tag" and asked.get("train.tune", "whole") == "whole":
        settings |= {"train.rate": TASK_DEFAULTS["classify"]["train.rate"]}
    return make(given.task, given.size, given.corpus or "", settings | asked)


def free_name(name: str) -> Path:
    """runs/NAME, or with the first number that is free."""
    return numbered(name, free_number(name))


def remark_on(path: Path, asked: str | None, name: str) -> str:
    """Why a run that nobody gave a name has a number."""
    first = numbered(name, 1)
    return f" ({first} is there already)" if asked is None and path != first else ""


def free_number(name: str) -> int:
    number = 1
    while numbered(name, number).exists():
        number += 1
    return number


def numbered(name: str, number: int) -> Path:
    return Path("runs") / (name if number == 1 else f"{name}-{number}")


class Voice:
    """What a run says, on stderr: a bar on a terminal, a line now and then elsewhere."""

    def __init__(self) -> None:
        self.bar: Any = None
        self.job: Any = None
        self.spoke = 0.0
        self.pace = 0.0  # seconds a step
        self.smooth: float | None = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
            )
            self.bar = Bar(*columns, console=Console(stderr=True))
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def say(self, line: str) -> None:
        if self.bar is not None:
            self.bar.console.print(line, markup=False, highlight=False)
        else:
            print(line, file=sys.stderr, flush=True)

    def step(self, progress: Progress, steps: int) -> None:
        self.smooth = progress.loss if self.smooth is None else 0.95 * self.smooth + 0.05 * progress.loss
        self.pace = 0.95 * self.pace + 0.05 * progress.seconds if self.pace else progress.seconds
        told = f"loss {self.smooth:.3f}, {progress.a_second(progress.seconds)}/s"
        if self.bar is not None:
            if self.job is None:
                self.job = self.bar.add_task(told, total=steps)
            self.bar.update(self.job, completed=progress.step, description=told)
        elif time.monotonic() - self.spoke > QUIET:
            self.spoke = time.monotonic()
            left = span(self.pace * (steps - progress.step))
            print(f"step {progress.step} of {steps}: {told}, {left} left", file=sys.stderr, flush=True)
