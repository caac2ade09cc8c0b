"""`heedful train`: from options to a run, and what a person sees of it."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import torch

from . import pictures
from .errors import BadInput
from .interop.load import is_run
from .recipe import FINE_TUNING, Recipe, make, parse_settings
from .tasks import run
from .train.loop import Progress

if TYPE_CHECKING:
    from .cli import Demo, Train

INTERRUPTED_AND_SAVED = 75
QUIET = 10.0  # seconds between lines where there is no terminal


def train(given: Train) -> int:
    """Start a run, or go on with one."""
    device = find_device(given.device)
    with Voice() as voice:
        if given.resume:
            outcome = run.resume(Path(given.resume), voice, device)
            path = Path(given.resume)
        else:
            recipe = recipe_of(given, device)
            path = Path(given.run) if given.run else free_name(given.task)
            voice.say(f"run: {path}")
            outcome = run.start(recipe, path, voice, device)
    if not outcome.finished:
        return INTERRUPTED_AND_SAVED
    told = ", ".join(f"{name} {score:.4g}" for name, score in outcome.best.scores.items())
    print(f"best at step {outcome.best.step}: {told}")
    print(
        f"{path}: config.json, model.safetensors and tokenizer.json are the model; metrics.jsonl is how it went"
    )
    return 0


def demo(given: Demo) -> int:
    """The main job on the built-in phrasebook: train a translator, and say honestly what it learned."""
    print("Training a small English-French translator on the built-in phrasebook.", flush=True)
    settings = {"train.seed": given.seed} | ({"train.steps": given.steps} if given.steps else {})
    recipe = make("translate", "tiny", "phrasebook", settings)
    path = Path(given.run) if given.run else free_name("demo")
    device = torch.device("cpu")
    with Voice() as voice:
        voice.say(f"run: {path}")
        outcome = run.start(recipe, path, voice, device)
    if not outcome.finished:
        return INTERRUPTED_AND_SAVED
    print(report(outcome.model, outcome.job.vocab, path))
    return 0


def report(model: Any, vocab: Any, path: Path, rows: int | None = None) -> str:
    """What the demo's model gets right, beside what takes no learning; the alignment in words and as a picture."""
    from .commands import heat_map
    from .tasks import alignment
    from .tasks.metrics import bleu, exact_match, interval
    from .tasks.translate import translate
    from .text import phrasebook
    from .train.files import write_text

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
        f"alignment            error rate {rates[head]:.2f} of the head that aligns best (chosen on other sentences)",
        "", f"{pair.source}  →  {translate(model, vocab, [pair.source])[0]}", "",
        heat_map(weights[: len(down)], down, across), "",
        f"{path}/alignment.svg is this picture. Next:",
        f"  heedful info {path}",
        "  heedful train translate --corpus phrasebook --size small --minutes 10",
        "  heedful train translate --source a.en --target a.de --valid-source b.en --valid-target b.de",
    ]  # fmt: skip
    return "\n".join(lines)


def tokens_of(vocab: Any, text: str) -> list[str]:
    """A text's tokens, as a person reads them."""
    return [vocab.decode([number]).strip() or "?" for number in vocab.encode_batch([text])[0]]


def find_device(asked: str) -> torch.device:
    """auto: the GPU if there is one."""
    if asked == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if asked == "cuda" and not torch.cuda.is_available():
        raise BadInput("there is no CUDA GPU here: use --device cpu")
    return torch.device(asked)


def recipe_of(given: Train, device: torch.device) -> Recipe:
    """Defaults, recipe file, --set, and the options by name, in rising order."""
    named = {
        "data.corpus": given.corpus, "data.source": given.source, "data.target": given.target,
        "data.valid_source": given.valid_source, "data.valid_target": given.valid_target, "data.text": given.text,
        "data.table": given.data, "data.valid_table": given.valid_data, "train.from_folder": given.from_,
        "train.steps": given.steps, "train.minutes": given.minutes, "train.seed": given.seed,
        "train.precision": given.precision,
    }  # fmt: skip
    settings: dict[str, Any] = {"train.precision": "bf16" if device.type == "cuda" else "fp32"}
    if given.from_ and not is_run(Path(given.from_)):
        settings |= FINE_TUNING
    settings |= parse_settings(list(given.set))
    settings |= {key: value for key, value in named.items() if value is not None}
    return make(given.task, given.size, given.corpus or "", settings)


def free_name(name: str) -> Path:
    """runs/NAME, or with the first number that is free."""
    path, number = Path("runs") / name, 1
    while path.exists():
        number += 1
        path = Path("runs") / f"{name}-{number}"
    return path


class Voice:
    """What a run says, on stderr: a bar on a terminal, a line now and then elsewhere."""

    def __init__(self) -> None:
        self.bar: Any = None
        self.job: Any = None
        self.spoke = 0.0
        self.began = time.monotonic()
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
        told = f"loss {self.smooth:.3f}, {progress.tokens / progress.seconds:,.0f} tokens/s"
        if self.bar is not None:
            if self.job is None:
                self.job = self.bar.add_task(told, total=steps)
            self.bar.update(self.job, completed=progress.step, description=told)
        elif time.monotonic() - self.spoke > QUIET:
            self.spoke = time.monotonic()
            done = progress.step / steps
            left = (time.monotonic() - self.began) * (1 - done) / max(done, 1e-9)
            print(
                f"step {progress.step} of {steps}: {told}, {left / 60:.1f} minutes left",
                file=sys.stderr,
                flush=True,
            )
