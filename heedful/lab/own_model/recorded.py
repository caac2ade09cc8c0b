"""Recorded scores: what the softmax of every head was given while a model read some texts."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ...errors import BadInput
from ...inside.ablation import attentions
from ...inside.corpus import samples_of
from ...inside.measuring import Measurer, SampleBatch
from ...inside.samples import Samples
from ...parts.attention import Score, masked_softmax
from ...parts.watch import Record, watch
from .report import refusal

if TYPE_CHECKING:
    from ...use.model import Model

TEXTS = 16
LONGEST = 128  # tokens of a text
CHOICE = 3  # keys that a query must see to count: with fewer there is little to choose from


@dataclass(frozen=True, eq=False)
class RecordedScores:
    """One attention of a model while it read one text, in float64."""

    score: Score
    width: int  # of a key
    scores_HTS: Tensor  # before bias, mask and softmax
    bias_HTS: Tensor | None  # of positions
    allowed_HTS: Tensor
    values_HSL: Tensor

    @property
    def counted_HT(self) -> Tensor:
        """Queries with keys to choose from."""
        return self.allowed_HTS.sum(-1) >= CHOICE

    def weights(self, scores_HTS: Tensor | None = None, temperature: float = 1.0) -> Tensor:
        """The softmax of these scores, or of others in their place, at a temperature."""
        x_HTS = self.scores_HTS if scores_HTS is None else scores_HTS
        x_HTS = x_HTS if self.bias_HTS is None else x_HTS + self.bias_HTS
        return masked_softmax(x_HTS[None] / temperature, self.allowed_HTS[None])[0]

    def mean(self, numbers_HT: Tensor) -> list[float]:
        """The mean of each head over the queries that count; not a number where there are none."""
        counted_HT = self.counted_HT
        return (numbers_HT.where(counted_HT, 0).sum(-1) / counted_HT.sum(-1)).tolist()


def texts_for(model: Model, data: str | None, count: int = TEXTS, longest: int = LONGEST) -> Samples:
    """Texts to read: those of a file, the held-out data of a run, or built-in sentences."""
    folder = Path(model.folder) if model.own else None
    try:
        return samples_of(model.loaded, folder, model.recipe, data=data, count=count, longest=longest)
    except BadInput as error:
        raise BadInput(str(error).replace("`heedful heads --data FILE`", "--data FILE")) from None


@torch.no_grad()
def recorded(model: Model, samples: Samples) -> Iterator[dict[tuple[str, int], RecordedScores]]:
    """{(kind, layer): its scores} of each text in turn."""
    measurer, network = Measurer(model.loaded, samples.samples), model.model
    for i in range(len(samples)):
        with watch(network, also=("scores", "bias", "allowed", "k", "v")) as records:
            SampleBatch(measurer, [i]).unblanked().hidden(1)
        found = {
            place: scores_in(network.get_submodule(path), records[path])
            for place, path in attentions(network).items()
        }
        if not all(one.scores_HTS.isfinite().all() for one in found.values()):
            raise BadInput(f"the scores of {model.folder} are not finite: `heedful doctor` names the weights")
        yield found


Measure = Callable[[RecordedScores], list[dict[str, float]]]  # numbers of each head of an attention
HeadNumbers = dict[str, dict[str, float]]  # {head, such as "cross.3.2": its numbers}


def by_text(name: str, model: Model, samples: Samples, measure: Measure) -> list[HeadNumbers]:
    """What each head gives in each text; heads without a query that counts are left out.

    name: of the claim, which does not apply where nothing is left.
    """
    found = []
    for text in recorded(model, samples):
        rows = {
            f"{kind}.{layer}.{h}": numbers
            for (kind, layer), scores in text.items()
            for h, numbers in enumerate(measure(scores), 1)
        }
        kept = {head: row for head, row in rows.items() if not any(map(math.isnan, row.values()))}
        found += [kept] if kept else []
    if len(found) < 2:
        raise refusal(
            name, model, f"{len(found)} of these texts have a query with {CHOICE} keys to choose from"
        )
    return found


def means(texts: Sequence[HeadNumbers]) -> HeadNumbers:
    """The mean of each head's numbers over the texts."""
    heads = list(dict.fromkeys(head for text in texts for head in text))
    rows = {head: [text[head] for text in texts if head in text] for head in heads}
    return {
        head: {name: statistics.fmean([row[name] for row in some]) for name in some[0]}
        for head, some in rows.items()
    }


def scores_in(layer: Any, record: Record) -> RecordedScores:
    """One record; a decoder that works word by word has one call a word."""
    weights_HTS = torch.cat(record.weights, 2)[0]
    scores_HTS = torch.cat(record.scores, 2)[0].double()
    bias_HTS = record.bias[0].double().expand(1, *weights_HTS.shape)[0] if record.bias else None
    allowed_HTS = torch.cat([one.expand(-1, layer.heads, -1, -1) for one in record.allowed], 2)[0]
    width = record.k[-1].shape[-1]
    return RecordedScores(layer.score, width, scores_HTS, bias_HTS, allowed_HTS, record.v[-1][0].double())
