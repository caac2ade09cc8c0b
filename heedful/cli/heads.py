"""Show what each attention head does, and how much the model needs it.

Prints a table of all heads, the most important first. The importance of a head is the rise of the loss when
its output is replaced by zeros (or by its mean), with a 95 % interval over texts. Beside it stand measured
labels, such as "one before 0.93": the share of its attention that goes to the token before. Labels are given
where the share is at least 0.4, and 0.25 above that of shuffled keys. Below the table is the loss without the
least important heads.

The texts are the held-out data of a run, or the lines of --data. For a Hugging Face folder without --data
they are built-in English sentences. --pattern lists instead how much each head follows a pattern, and the
texts where the best head follows it most and least.

Patterns: offset:K (the token K places on, such as offset:-1), first, same (an earlier occurrence of the
token), after-same (the token after it), words>marks (from a word to punctuation or a special token; also
marks>words, any>marks and so on), gold (the reference alignment of a translation), parent and child (in a
dependency tree).

Examples: heedful heads runs/demo; heedful heads runs/demo --by mean --svg heads.svg;
heedful heads runs/lm --texts 16 --json; heedful heads ./gpt2 --data lines.txt;
heedful heads ./bert --data trees.conllu --pattern parent --pattern offset:-1
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from ..errors import BadInput
from ..files import one_line, present, write_text
from ..interop.run_folder import is_run, refuse_stage
from .shared.options import Positional, Repeated, arg
from .shared.terminal import check_free, say, track

if TYPE_CHECKING:
    from ..inside.heads import HeadProgress
    from ..inside.samples import Samples
    from ..interop.loaded import Loaded


@dataclass(frozen=True)
class HeadsOptions:
    """The options of `heedful heads`."""

    run: Annotated[str, Positional, arg("RUN|FOLDER")]
    """The folder of a run, or a Hugging Face folder."""

    texts: int = 64
    """How many texts to measure on, at most. Fewer texts take less time and give wider intervals."""

    data: Annotated[str | None, arg("FILE", "the held-out data of the run, or built-in sentences")] = None
    """Texts, one a line; for an encoder-decoder, a source and its target with a tab between, or a source
    alone, whose target is the model's own translation. A .conllu file brings dependency trees."""

    by: Literal["zero", "mean"] = "zero"
    """What replaces the output of a head: zeros, or its mean output over the texts."""

    pattern: Annotated[tuple[str, ...], arg("PATTERN", "none"), Repeated] = ()
    """Instead of the importance: how much each head follows this pattern. May be repeated."""

    svg: Annotated[str | None, arg("FILE", "none")] = None
    """Write a picture here: a grid of heads colored by importance; a new .svg file."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute; auto takes the GPU if there is one."""

    json: bool = False
    """Print one JSON object with all values instead."""


def heads(given: HeadsOptions) -> None:
    """Measure every head, and print a table."""
    svg = check_options(given)
    folder = Path(given.run)
    if present(folder) and not given.json:
        say(f"heads of {given.run}")  # at once: torch is imported with the model
    from ..inside.corpus import samples_of
    from ..runs.finished import open_model, read_run

    loaded = open_model(folder, given.device)
    refuse_stage(folder, loaded.architecture, "look")
    recipe = read_run(folder)[0] if is_run(folder) else None
    samples = samples_of(loaded, folder, recipe, data=given.data, count=given.texts)
    if not given.json:
        say(f"{loaded.architecture}; measuring on {samples.described}")
    if given.pattern:
        return print_patterns(given, loaded, samples)
    from ..inside.heads import measure_heads

    table = finished(measure_heads(loaded, samples, given.by))
    if svg is not None:
        write_text(svg, table.svg())
    if given.json:
        return print(
            json.dumps({"run": given.run, **table.as_json(), "svg": given.svg}, indent=2, allow_nan=False)
        )
    print(table.text())
    if svg is not None:
        say(f"picture: {svg}")


def check_options(given: HeadsOptions) -> Path | None:
    """Refuse what cannot be measured before a model is loaded; returns where the picture goes."""
    if given.texts < 2:
        raise BadInput(f"--texts must be at least 2, so that there is an interval, not {given.texts}")
    if given.data is not None and not present(Path(given.data)):
        raise BadInput(one_line(f"--data {given.data} is not there"))
    if given.pattern and given.svg is not None:
        raise BadInput("--svg draws the importance of heads: leave out --pattern")
    if given.pattern and given.by != "zero":
        raise BadInput("--by is for the importance of heads: leave out --pattern")
    if given.svg is None:
        return None
    path = Path(given.svg)
    if path.suffix != ".svg":
        raise BadInput(one_line(f"--svg writes a .svg file, not {path.name}"))
    check_free(path)
    return path


def print_patterns(given: HeadsOptions, loaded: Loaded, samples: Samples) -> None:
    """How much each head follows patterns."""
    from ..inside.scan import scan_patterns

    found = finished(scan_patterns(loaded, samples, given.pattern))
    if given.json:
        return print(json.dumps({"run": given.run, **found.as_json()}, indent=2, allow_nan=False))
    print(found.text())


class MeasuredSteps:
    """The steps of a measurement, counted, so that progress can be shown; then its result."""

    def __init__(self, steps: Generator[HeadProgress, None, Any]) -> None:
        self.steps = steps
        self.first = next(steps)
        self.result: Any = None

    def __len__(self) -> int:
        return self.first.total

    def __iter__(self) -> Iterator[HeadProgress]:
        self.result = yield from self.steps


def finished(steps: Generator[HeadProgress, None, Any]) -> Any:
    """Do all steps and show progress if it takes long; returns the result."""
    counted = MeasuredSteps(steps)
    for _ in track(counted, "measuring heads"):
        pass
    return counted.result
