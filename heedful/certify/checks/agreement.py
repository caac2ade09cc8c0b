"""Agreement: how far a quantized export is from its source, as it is used.

top tokens     the share of predictions whose most likely token (or label) is the same one
loss           nats per token of the probe texts, the export's minus the source's
divergence     nats, KL(source || export), the mean over predictions
distance       of hidden states: root mean square of the difference, as a share of that of the source
outputs        greedy and beam outputs that are equal
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from ...interop.foreign import NetworkInput, Outputs
from ...models.base.shells import Decoder, EncoderDecoder
from ..certificate import Check
from ..sides import Sides
from .outputs import HIDDEN, PICTURES, ROWS, SEED, of_pictures
from .searches import written

NAME = "agreement"


class Agreement:
    """Measures over predictions, added up input by input."""

    def __init__(self) -> None:
        self.predictions = self.equal = 0
        self.divergence = self.squares = self.whole = 0.0
        self.largest = 0.0  # difference of a number
        self.losses = [0.0, 0.0]
        self.tokens = 0

    def add(self, name: str, ours_TV: Tensor, theirs_TV: Tensor) -> None:
        if ours_TV.shape != theirs_TV.shape:
            self.divergence = self.squares = math.inf
            self.largest = math.inf
            return
        self.largest = max(self.largest, float((ours_TV.double() - theirs_TV.double()).abs().max()))
        if name in HIDDEN:
            self.squares += float((ours_TV.double() - theirs_TV.double()).square().sum())
            self.whole += float(ours_TV.double().square().sum())
        else:
            for ours, theirs in zip(ours_TV.split(ROWS), theirs_TV.split(ROWS), strict=True):
                self.add_predictions(ours, theirs)

    def add_predictions(self, ours_TV: Tensor, theirs_TV: Tensor) -> None:
        p, q = ours_TV.double().log_softmax(-1), theirs_TV.double().log_softmax(-1)
        self.predictions += len(p)
        self.equal += int((ours_TV.argmax(-1) == theirs_TV.argmax(-1)).sum())
        self.divergence += float((p.exp() * (p - q)).sum())

    def add_loss(self, ours_TV: Tensor, theirs_TV: Tensor, next_T: list[int]) -> None:
        """Of the tokens that follow; an output without one has none."""
        at, tokens = torch.arange(len(next_T)), torch.tensor(next_T)
        for side, logits_TV in enumerate((ours_TV, theirs_TV)):
            self.losses[side] -= float(logits_TV.double().log_softmax(-1)[at, tokens].sum())
        self.tokens += len(next_T)

    @property
    def mean_divergence(self) -> float:
        return self.divergence / max(1, self.predictions)

    @property
    def distance(self) -> float:
        return math.sqrt(self.squares / self.whole) if self.whole else 0.0

    @property
    def loss(self) -> float:
        """How much larger the export's loss is."""
        return (self.losses[1] - self.losses[0]) / max(1, self.tokens)


def check(sides: Sides) -> Check | None:
    """Measure; None where the export is in float32, which `outputs` compares."""
    if not sides.is_rounded:
        return None
    found = Agreement()
    for row, ours, theirs in measured(sides):
        for name in ours.keys() & theirs.keys():
            found.add(name, ours[name], theirs[name])
        if row is not None and (after := following(sides, row)):
            found.add_loss(ours["logits"], theirs["logits"], after)
    outputs = {name: equal_outputs(sides, name) for name in ("greedy", "beam")} if sides.ours.writes else {}
    result: dict[str, object] = {
        "top_tokens": {"equal": found.equal, "of": found.predictions} if found.predictions else None,
        "divergence": found.mean_divergence if found.predictions else None,
        "distance": found.distance if found.whole else None,
        "largest": found.largest,
        "loss": {"heedful": found.losses[0] / found.tokens, "difference": found.loss}
        if found.tokens
        else None,
        **outputs,
    }
    return Check(NAME, in_words(found, outputs), given(sides), result, tuple(faults_of(found, sides)))


def given(sides: Sides) -> dict[str, object]:
    if sides.ours.sees_pictures:
        return {"pictures": PICTURES, "seed": SEED}
    rows = sides.inputs.drawn + sides.inputs.texts
    return {
        "random": len(sides.inputs.drawn),
        "texts": len(sides.inputs.texts),
        "tokens": sum(len(r.ids) for r in rows),
    }


def measured(sides: Sides) -> Iterator[tuple[NetworkInput | None, Outputs, Outputs]]:
    """(input, outputs of the source, outputs of the export as it is used)."""
    if sides.ours.sees_pictures:
        yield from ((None, ours, theirs) for ours, theirs in of_pictures(sides, used=True))
        return
    rows = sides.inputs.drawn + sides.inputs.texts
    for number, row in enumerate(rows, 1):
        sides.tell(f"measuring agreement: input {number} of {len(rows)}")
        yield row, sides.ours.outputs([row])[0], sides.used.outputs([row])[0]


def following(sides: Sides, row: NetworkInput) -> list[int]:
    """The tokens that the logits of a text predict; nothing of a random input."""
    if row not in sides.inputs.texts:
        return []
    if isinstance(sides.ours.model, Decoder):
        return row.ids[1:]
    return (row.target or [])[1:] if isinstance(sides.ours.model, EncoderDecoder) else []


def equal_outputs(sides: Sides, name: str) -> dict[str, int]:
    """How many outputs of a search are equal, as the export is used."""
    sides.tell(f"measuring agreement: {name}")
    prompts, new = sides.inputs.prompts, sides.inputs.new
    same = [written(sides.ours, name, ids, new) == written(sides.used, name, ids, new) for ids in prompts]
    return {"equal": sum(same), "of": len(same)}


def faults_of(found: Agreement, sides: Sides) -> list[str]:
    """What lies outside the tolerance; what is no number does."""
    allowed = sides.tolerance
    measures = {
        "the loss on texts differs by {:.2g} nats per token": (abs(found.loss), allowed.loss),
        "predictions diverge by {:.2g} nats": (found.mean_divergence, allowed.divergence),
        "hidden states differ by {:.2g} of their size": (found.distance, allowed.distance),
    }
    return [
        f"{words.format(value)}, and {limit:g} is allowed"
        for words, (value, limit) in measures.items()
        if not value <= limit
    ]


def in_words(found: Agreement, outputs: dict[str, dict[str, int]]) -> str:
    parts = []
    if found.predictions:
        parts.append(
            f"top token equal in {found.equal} of {found.predictions} ({found.equal / found.predictions:.2%})"
        )
    parts.append(f"outputs at most {found.largest:.2g} apart")
    if found.tokens:
        parts.append(f"loss {found.loss:+.4f} nats per token")
    if found.predictions:
        parts.append(f"divergence {found.mean_divergence:.4f} nats")
    if found.whole:
        parts.append(f"hidden states {found.distance:.2%} apart")
    parts += [f"{each['equal']} of {each['of']} {name} outputs equal" for name, each in outputs.items()]
    return ", ".join(parts)
