"""The examination: every check in turn, each with its value, the limit of the value, and a remedy.

One function a check; the table of them is here. A check that does not apply to a model says why. A warning is
worth knowing; a failure means that the model, its files or the code that runs it is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from ...interop.loaded import Loaded
from ...models.base.settings import Range
from ...tasks.recipe.settings import Recipe
from .embeddings import trained_embeddings
from .finding import Finding, NotApplicable
from .fit import padding_and_end, tokenizer_fits, trained_context
from .heads import heads
from .invariance import batch, cache, finite_weights, padding
from .leaks import no_leak
from .loss import first_loss, held_out
from .patient import Patient
from .signals import residual_stream, softmax_saturation
from .tokenizer import round_trip, used_vocabulary

SEEDS = Range(0, 2**63 - 1)

# The table of checks, in the order in which they are made.
CHECKS: dict[str, Callable[[Patient], Finding]] = {
    "weights are finite": finite_weights,
    "no leak from the future": no_leak,
    "padding changes nothing": padding,
    "a batch equals its rows": batch,
    "cached equals uncached": cache,
    "tokenizer round trip": round_trip,
    "the vocabulary is used": used_vocabulary,
    "tokenizer fits the model": tokenizer_fits,
    "padding is not the end": padding_and_end,
    "embeddings were trained": trained_embeddings,
    "positions were trained": trained_context,
    "first loss near ln V": first_loss,
    "residual stream is level": residual_stream,
    "softmax is not saturated": softmax_saturation,
    "heads are in use": heads,
    "better than guessing": held_out,
}


def examine(
    loaded: Loaded, folder: Path | None = None, recipe: Recipe | None = None, seed: int = 0
) -> Iterator[Finding | tuple[str, str]]:
    """Check a model: padding, leaks of the future, caches, tokenizers, dead heads and others.

    Args:
        loaded: `model.loaded`.
        folder: The folder of a run, if there is one.
        recipe: The recipe of a run, `model.recipe`.
        seed: Seed of random inputs.

    Yields:
        For each check a `Finding`, or a pair: which check, and why it does not apply.

    Example:
        >>> found = list(examine(heedful.load("runs/lm").loaded))
        >>> {one.verdict for one in found if not isinstance(one, tuple)} <= {"ok", "warn"}
        True
    """
    patient = Patient(loaded, folder, recipe, seed)
    for name, check in CHECKS.items():
        try:
            yield replace(check(patient), name=name)
        except NotApplicable as why:
            yield name, str(why)
