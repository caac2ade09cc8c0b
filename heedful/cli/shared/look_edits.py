"""What `heedful look --edit` needs: the traces that patches name, and the means that replace heads."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...interop.run_folder import is_run
from ...runs.finished import read_run

if TYPE_CHECKING:
    from ...inside.look.steps import Steps
    from ...inside.samples import Sample
    from ...interop.loaded import Loaded

STEPS_SAVED = 64  # tokens: traces of longer texts are saved without the steps of every layer
MEAN_OVER = 32  # texts


def editing(edits: Sequence[str], run: str, loaded: Loaded) -> AbstractContextManager[None]:
    """The edits of --edit; nothing without them."""
    from ...inside.edits import edit

    return edit(loaded, edits, **referred(edits, run, loaded)) if edits else nullcontext()


def referred(edits: Sequence[str], run: str, loaded: Loaded) -> dict[str, Any]:
    """What edits refer to: traces, read from their files, and the mean outputs of heads over texts."""
    from ...inside.edit_spellings import MeanHead, Patch, parse
    from ...inside.edits import head_means
    from ...inside.trace import Trace

    found = [parse(spelling) for spelling in edits]
    means = None
    if any(isinstance(one, MeanHead) for one in found):
        texts = texts_of(run, loaded, MEAN_OVER)
        targets = [one.target for one in texts] if all(one.target for one in texts) else None
        means = head_means(loaded, [one.text for one in texts], targets)
    return {
        "traces": {one.trace: Trace.load(one.trace) for one in found if isinstance(one, Patch)},
        "means": means,
    }


def texts_of(run: str, loaded: Loaded, count: int) -> list[Sample]:
    """Held-out texts of a run, or built-in sentences."""
    from ...inside.corpus import samples_of

    folder = Path(run)
    recipe = read_run(folder)[0] if is_run(folder) else None
    return samples_of(loaded, folder, recipe, count=count).samples


def with_parts(
    steps: Steps, which: str, edits: Sequence[str], run: str, loaded: Loaded, text: str, target: str | None
) -> Steps:
    """The steps of a query in the first layer, with the parts of its scores where there are any."""
    from ...inside.look.inputs import MOST
    from ...inside.trace import trace

    if which == "cross" or steps.layer > 1:
        return steps
    seen = trace(loaded, text, target, edits=edits, most=MOST, **referred(edits, run, loaded))
    found = seen.steps(which, steps.layer, steps.head, steps.query)
    names = ("q_position_K", "k_position_SK", "no_parts")
    return replace(steps, **{name: getattr(found, name) for name in names})


def save_trace(
    path: str, edits: Sequence[str], run: str, loaded: Loaded, text: str, target: str | None
) -> None:
    """Write the trace of --save."""
    from ...inside.look.inputs import MOST
    from ...inside.trace import trace

    seen = trace(loaded, text, target, edits=edits, most=MOST, **referred(edits, run, loaded))
    seen.save(path, whole=all(len(kind.down) <= STEPS_SAVED for kind in seen.kinds.values()))
