"""The mask on your own model: does any token see a later one, and is one pass the same as token by token?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...inside.doctor.finding import FAIL, OK, ROUNDING, NotApplicable, apart
from ...inside.doctor.leaks import Text, no_leak
from ...inside.doctor.patient import Patient
from ...inside.look.drawing import Drawing
from ...models.base.shells import shells_of
from ..figures import LinePanel, MapPanel, figure
from ..rules import CONTRADICTED, EXACT, INCONCLUSIVE
from .report import OwnModelReport, TriedStatement, held, refusal

if TYPE_CHECKING:
    from ...use.model import Model

NAME = "mask"
ASKED = "Does any output of this model depend on a later token?"
PALE = 0.15  # the shade of the smallest influence
TOKENS = 16  # of the text that is read prefix by prefix
PREFIX, CACHE, GRADIENT = "prefix by prefix", "token by token, with a cache", "gradient from later tokens"


def try_on(model: Model, data: str | None = None) -> OwnModelReport:
    """The claim on a decoder: the leak check of `heedful doctor`, then every prefix by itself."""
    if not shells_of(model.model):
        raise refusal(NAME, model, "it has no rows of tokens")
    patient = Patient(model.loaded, Path(model.folder) if model.own else None, model.recipe)
    try:
        leak = no_leak(patient)
    except NotApplicable as why:
        raise refusal(NAME, model, str(why)) from None
    assert patient.decoder is not None
    text = Text(patient, patient.decoder)
    size = min(TOKENS, text.length)
    map_TT = influence(text, size)
    off = differences(text, size)
    verdict = EXACT if leak.verdict == OK else CONTRADICTED if leak.verdict == FAIL else INCONCLUSIVE
    statements = (
        TriedStatement("No token sees a later one.", verdict, leak.summary),
        held(
            f"One pass over a text equals reading it {PREFIX}.",
            max(off[PREFIX]),
            ROUNDING,
            "relative difference",
        ),
        held(
            f"One pass over a text equals reading it {CACHE}.",
            max(off[CACHE]),
            ROUNDING,
            "relative difference",
        ),
    )
    numbers = {
        f"token {t + 1}": {
            PREFIX: off[PREFIX][t],
            CACHE: off[CACHE][t],
            GRADIENT: float(map_TT[t, t + 1 :].max()) if t + 1 < size else 0.0,
        }
        for t in range(size)
    }
    return OwnModelReport(
        NAME,
        model.folder,
        ASKED,
        statements,
        finding(statements, max(*off[PREFIX], *off[CACHE])),
        f"a random text of {text.length} tokens, and its first {size} {PREFIX}",
        "output at",
        numbers,
        draw(map_TT, off),
        shown=(),
    )


def finding(statements: tuple[TriedStatement, ...], largest: float) -> str:
    leak, *same = statements
    if leak.verdict == INCONCLUSIVE:
        return "Nothing leaks, but nothing could: the outputs of this model depend on no other token at all."
    if leak.verdict == CONTRADICTED:
        return (
            "Yes, it leaks: a later token reaches an earlier output, so the training loss of this model is "
            "too good to be true. `heedful doctor` says where."
        )
    if any(one.verdict == CONTRADICTED for one in same):
        return (
            f"No token sees a later one, but reading in pieces differs from one pass (by {largest:.0e}): the "
            "model writes with other numbers than it was trained with. `heedful doctor` says more."
        )
    return (
        "No: no output depends on a later token, so training on all positions at once is fair. One pass over "
        f"a text also gives what token by token gives (to {largest:.0e}, which is rounding)."
    )


def influence(text: Text, size: int) -> Tensor:
    """[T, T]: the gradient of each output (rows) with respect to each input."""
    weighed_KT = torch.zeros(size, text.length)
    weighed_KT[torch.arange(size), torch.arange(size)] = 1
    return text.gradient(weighed_KT)[:, :size]


@torch.no_grad()
def differences(text: Text, size: int) -> dict[str, list[float]]:
    """How far outputs of prefixes, and those with a cache, are from those of one pass: relative to these."""
    rows_1T, decoder = text.tokens_1T[:, :size], text.decoder
    whole_TV = text.scores(rows_1T)[0]
    cache = decoder.growing_cache()
    ways = {
        PREFIX: [text.scores(rows_1T[:, : t + 1])[0, -1] for t in range(size)],
        CACHE: [text.scores(rows_1T[:, t : t + 1], cache=cache)[0, -1] for t in range(size)],
    }
    return {name: [apart(row_V, whole_TV[t]) for t, row_V in enumerate(rows)] for name, rows in ways.items()}


def draw(map_TT: Tensor, off: dict[str, list[float]]) -> Drawing:
    shares_TT = map_TT / map_TT.amax(-1, keepdim=True).clamp(min=1e-30)
    shades_TT = torch.where(map_TT > 0, PALE + (1 - PALE) * shares_TT, 0)  # what is exactly 0 stays white
    lines = {name: {float(t + 1): [value] for t, value in enumerate(some)} for name, some in off.items()}
    return figure(
        "Which output of this model depends on which token",
        [
            MapPanel("influence", "inputs across, outputs down", shades_TT.tolist(), cell=13),
            LinePanel("difference from one pass", "token; 0 stands at the bottom", lines, (False, True)),
        ],
        [
            "Map: size of the gradient, relative to the largest of a row; white is exactly 0.",
            "Lines: relative differences of the scores.",
        ],
    )
