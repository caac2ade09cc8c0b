"""What `heedful look --edit` needs: the traces that patches name, and the means that replace heads."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...interop.run_folder import is_run
from ...runs.finished import read_run

if TYPE_CHECKING:
    from ...inside.look.steps import Steps
    from ...inside.samples import Sample
    from ...inside.trace import Trace
    from ...interop.loaded import Loaded

STEPS_SAVED = 64  # tokens: traces of longer texts are saved without the steps of every layer
MEAN_OVER = 32  # texts


@dataclass(frozen=True)
class EditedModel:
    """A model and the edits of --edit; without edits, the model as it is."""

    loaded: Loaded
    run: str
    edits: Sequence[str]

    def editing(self) -> AbstractContextManager[None]:
        """The model with its edits, within a `with` block."""
        from ...inside.edits import edit

        return edit(self.loaded, self.edits, **self.referred) if self.edits else nullcontext()

    @cached_property
    def referred(self) -> dict[str, Any]:
        """What edits refer to: traces, read from their files, and the mean outputs of heads over texts."""
        from ...inside.edit_spellings import MeanHead, Patch, parse
        from ...inside.edits import head_means
        from ...inside.trace import Trace

        found = [parse(spelling) for spelling in self.edits]
        means = None
        if any(isinstance(one, MeanHead) for one in found):
            texts = texts_of(self.run, self.loaded, MEAN_OVER)
            targets = [one.target for one in texts] if all(one.target for one in texts) else None
            means = head_means(self.loaded, [one.text for one in texts], targets)
        traces = {one.trace: Trace.load(one.trace) for one in found if isinstance(one, Patch)}
        return {"traces": traces, "means": means}

    def trace(self, text: str, target: str | None) -> Trace:
        """What the model computes for a text under its edits."""
        from ...inside.look.inputs import MOST
        from ...inside.trace import trace

        return trace(self.loaded, text, target, edits=self.edits, most=MOST, **self.referred)

    def save_trace(self, path: str, text: str, target: str | None) -> None:
        """Write the trace of --save."""
        seen = self.trace(text, target)
        seen.save(path, whole=all(len(kind.down) <= STEPS_SAVED for kind in seen.kinds.values()))

    def with_parts(self, steps: Steps, which: str, text: str, target: str | None) -> Steps:
        """The steps of a query in the first layer, with the parts of its scores where there are any."""
        if which == "cross" or steps.layer > 1:
            return steps
        found = self.trace(text, target).steps(which, steps.layer, steps.head, steps.query)
        names = ("q_position_K", "k_position_SK", "no_parts")
        return replace(steps, **{name: getattr(found, name) for name in names})


def texts_of(run: str, loaded: Loaded, count: int) -> list[Sample]:
    """Held-out texts of a run, or built-in sentences."""
    from ...inside.corpus import samples_of

    folder = Path(run)
    recipe = read_run(folder)[0] if is_run(folder) else None
    return samples_of(loaded, folder, recipe, count=count).samples
