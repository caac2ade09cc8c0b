"""Train a small translator on the built-in phrasebook, and show what it learned.

This takes a few minutes on a laptop. The report compares exact matches on held-out sentences with a
word-for-word baseline, and draws the attention from each translated word to the source.

Example: heedful demo
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from ..errors import program
from .shared.exit_codes import INTERRUPTED_AND_SAVED
from .shared.options import arg
from .shared.terminal import drawable

if TYPE_CHECKING:
    from torch import Tensor


# As much as two cores learn of the phrasebook in a few minutes. Narrow and deep beats wide and shallow there,
# and small steps in great number beat large ones. Sinusoids alone, because other tools have such a model.
DEMO: dict[str, Any] = {
    "model.layers": 3,
    "model.width": 64,
    "model.ffn_width": 256,
    "model.positions": "sinusoidal",
    "train.batch_tokens": 512,
    "train.learning_rate": 8e-3,
    "train.steps": 4500,
    "train.ema_decay": 0.997,
    "evaluate.every": 1500,
}


@dataclass(frozen=True)
class DemoOptions:
    """The options of `heedful demo`."""

    seed: int = 0
    """Seed of the weights and of the order of the examples."""

    steps: Annotated[int | None, arg("INT", str(DEMO["train.steps"]))] = None
    """Number of training steps; fewer steps give a worse translator sooner."""

    run: Annotated[str | None, arg("DIR", "runs/demo")] = None
    """Folder of the run; it must not exist yet."""


def demo(given: DemoOptions) -> int:
    """Train a translator on the built-in phrasebook, and report what it learned."""
    import torch

    from ..runs import trainer
    from ..tasks.recipe import make
    from .shared.training import TrainingProgress, free_name, remark_on

    settings = DEMO | {"train.seed": given.seed}
    if given.steps is not None:
        settings |= {"train.steps": given.steps}
    recipe = make("translate", "tiny", "phrasebook", settings)
    path = Path(given.run) if given.run else free_name("demo")
    device = torch.device("cpu")
    with TrainingProgress() as voice:
        voice.say("Training a small English-French translator on the built-in phrasebook.")
        outcome = trainer.start(recipe, path, voice, device, remark=remark_on(path, given.run, "demo"))
    if not outcome.finished:
        return INTERRUPTED_AND_SAVED
    print(report(outcome.model, outcome.job.vocab, path))
    return 0


def report(model: Any, vocab: Any, path: Path, rows: int | None = None) -> str:
    """Scores of the demo's model beside a baseline without training, and a drawn alignment."""
    from ..corpora import phrasebook
    from ..files import write_text
    from ..inside.look.heat_maps import heat_map as drawing_of
    from ..tasks import alignment
    from ..tasks.metrics import bleu, exact_match, interval
    from ..tasks.translate import translate

    lines = [""]
    for split, name in {
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
            f"{name:20} {exact:6.1%} exact match ({low:.1%} to {high:.1%}), "
            f"BLEU {bleu(found, expected):.1f}; word-for-word baseline {word:.1%}"
        )
    tests = phrasebook.split("test")
    head = int(alignment.error_rates(model, vocab, phrasebook.split("valid")[: min(60, rows or 60)]).argmin())
    rates = alignment.error_rates(model, vocab, tests[: min(100, rows or 100)])
    pair = next(p for p in tests if len(p.alignment) >= 7)
    weights = alignment.cross_attention(model, vocab, pair.source, pair.target)[head]
    down, across = tokens_of(vocab, pair.target), tokens_of(vocab, pair.source)
    picture = drawing_of(weights[: len(down)].tolist(), down, across, f"{pair.source} → {pair.target}").svg()
    write_text(path / "alignment.svg", picture)
    folder = shlex.quote(str(path))
    lines += [
        f"{'alignment':20} {rates[head]:6.2f} error rate of the best head (chosen on other sentences)",
        "Brackets: 95 % intervals. Baseline: each word by its most frequent translation.",
        "",
        f"{pair.source}  →  {translate(model, vocab, [pair.source])[0]}",
        "",
        f"Attention of that head while the model reads the reference, {pair.target}",
        heat_map(weights[: len(down)], down, across),
        "",
        f"{path}/alignment.svg has this picture. Next:",
        f'  {program()} translate {folder} "The small girl eats a red apple."',
        f'  {program()} look {folder} "{pair.source}"',
        f"  {program()} export {folder} {folder}-hf",
        f"  {program()} train translate --source a.en --target a.de --valid-source b.en --valid-target b.de",
        "The whole translator as one page, which opens in any browser without a network:",
        f"  {program()} export {folder} {folder}.html --to html",
    ]
    return "\n".join(lines)


def tokens_of(vocab: Any, text: str) -> list[str]:
    """The tokens of a text, in readable form."""
    return [vocab.decode([number]).strip() or "?" for number in vocab.encode_batch([text])[0]]


def heat_map(weights_TS: Tensor, rows: list[str], columns: list[str]) -> str:
    """Attention weights as shades, queries downwards and keys across; the darkest is the largest weight."""
    shades = drawable(" ░▒▓█")
    most = float(weights_TS.max()) or 1.0
    across = [max(3, len(word)) for word in columns]
    heading = " ".join(f"{word:<{width}}" for word, width in zip(columns, across, strict=True))
    lines = [
        " ".join(shades[round(weight / most * 4)] * width for weight, width in zip(row, across, strict=True))
        for row in weights_TS.tolist()
    ]
    return beside([f"{word:>{max(map(len, rows))}}" for word in ("", *rows)], [heading, *lines], " ")


def beside(left: list[str], right: list[str], gap: str = "    ") -> str:
    """Two pictures next to each other, line by line."""
    width = max(map(len, left))
    return "\n".join(f"{a:<{width}}{gap}{b}".rstrip() for a, b in zip(left, right, strict=True))
