"""The comparison of our model with another library's: both are given the same inputs.

It measures how far logits differ, whether both generate the same tokens, and whether texts have the same
token ids.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ...files import one_line
from ...models.base.shells import EncoderDecoder
from ..hf.probes import corpus
from ..loaded import Loaded
from .certificate import (
    BOUNDS,
    DIFFERENT,
    SAME,
    UNCHECKED,
    WIDTH,
    Bound,
    Certificate,
    Logits,
    Outputs,
    Tokens,
    versions,
)
from .foreign import ForeignModel
from .own import HIDDEN, SEED, WRITTEN, OwnModel, inputs_for

PICTURES = 3


def certify(
    ours: Loaded,
    theirs: ForeignModel,
    *,
    format: str,
    kind: str = "float32",
    packages: Sequence[str] = (),
    bound: Bound | None = None,
    progress: Callable[[str], None] = lambda line: None,
) -> Certificate:
    """Compare the two, and say whether they are the same model. packages: whose versions are noted."""
    here, bound = OwnModel(ours), bound or BOUNDS.get(kind, BOUNDS["int8"])
    found: dict[str, Any] = {}
    if here.sees_pictures:
        found["logits"] = compare_pictures(here, theirs, bound)
    else:
        inputs, new = inputs_for(here)
        found["logits"] = compare_logits(here, theirs, inputs, new, bound, progress)
        if here.writes:
            slack = bound.difference * (found["logits"].scale if found["logits"] else 1.0)
            for name in ("greedy", "beam"):
                some = inputs[:WRITTEN]
                found[name] = compare_outputs(name, here, theirs, some, new, slack, progress)
        found["tokenizer"] = compare_tokens(here, theirs, progress)
    faults = faults_of(found, bound)
    nothing = all(each is None for each in found.values())
    verdict = UNCHECKED if nothing else DIFFERENT if faults else SAME
    all_faults = ("the other library returns nothing that can be compared",) if nothing else faults
    return Certificate(
        verdict, format, kind, ours.architecture, versions(packages), all_faults, **found, tolerance=bound
    )


def faults_of(found: dict[str, Any], bound: Bound) -> tuple[str, ...]:
    """What lies outside the bounds, each in a sentence."""
    faults = []
    logits: Logits | None = found.get("logits")
    if logits is not None and not logits.relative <= bound.difference:  # nor if it is no number
        apart = f"{logits.compared} differ by {logits.relative:.2g} of their scale"
        faults.append(f"{apart}, and {bound.difference:g} is allowed")
    if logits is not None and logits.argmax is not None and logits.argmax < bound.argmax:
        faults.append(f"the argmax is equal in only {logits.argmax:.2%}, and {bound.argmax:.0%} is required")
    for name in ("greedy", "beam"):
        outputs: Outputs | None = found.get(name)
        if outputs is not None and outputs.share < bound.outputs:
            equal = f"{outputs.same + outputs.ties} of {outputs.inputs}"
            faults.append(f"{name} outputs are equal in only {equal}, and {bound.outputs:.0%} is required")
    tokens: Tokens | None = found.get("tokenizer")
    if tokens is not None and tokens.same < tokens.texts:
        faults.append(f"the tokenizers agree on only {tokens.same} of {tokens.texts} texts")
    return tuple(faults)


class Differences:
    """Differences added up, input by input."""

    def __init__(self, log_probabilities: bool, slack: float) -> None:
        self.log_probabilities, self.slack = log_probabilities, slack
        self.inputs = self.numbers = self.rows = 0
        self.largest = self.total = self.scale = self.agreed = 0.0

    def add(self, ours_TV: Tensor, theirs_TV: Tensor, hidden: bool = False) -> None:
        if hidden and len(theirs_TV) == len(ours_TV) + 1:  # a pooling that the folder has no weights for
            theirs_TV = theirs_TV[:-1]
        if ours_TV.shape != theirs_TV.shape:
            self.largest, theirs_TV = math.inf, torch.full_like(ours_TV, torch.nan)
        if self.log_probabilities:
            ours_TV, theirs_TV = ours_TV.log_softmax(-1), theirs_TV.log_softmax(-1)
        off_TV = (ours_TV.double() - theirs_TV.double()).abs()
        self.inputs, self.numbers = self.inputs + 1, self.numbers + off_TV.numel()
        largest = float(off_TV.max())
        self.largest = max(self.largest, math.inf if math.isnan(largest) else largest)
        self.total += float(off_TV.sum())
        self.scale = max(self.scale, float(ours_TV.abs().max()))
        theirs_T = theirs_TV.argmax(-1, keepdim=True)
        behind_T = ours_TV.amax(-1) - ours_TV.gather(-1, theirs_T)[..., 0]
        self.agreed += float((behind_T <= 2 * self.slack * self.scale).sum())  # a tie is an agreement
        self.rows += len(behind_T)

    def logits(self, compared: str) -> Logits:
        share = None if compared == HIDDEN else self.agreed / self.rows
        mean = self.total / self.numbers
        return Logits(compared, self.inputs, self.numbers, self.largest, mean, self.scale, share)


def compare_logits(
    here: OwnModel,
    theirs: ForeignModel,
    inputs: list[list[int]],
    new: int,
    bound: Bound,
    progress: Callable[[str], None],
) -> Logits | None:
    """Logits of every input; None if the other library gives none."""
    apart = Differences(getattr(theirs, "says_log_probabilities", False), bound.difference)
    for number, ids in enumerate(inputs, 1):
        progress(f"comparing {here.compared}: input {number} of {len(inputs)}")
        target = target_for(here, ids, new)
        found = theirs.logits(ids, target)
        if found is None:
            return None
        apart.add(here.logits(ids, target), found, here.compared == HIDDEN)
    compare_together(apart, here, theirs, inputs[1:4], new)
    others: Callable[[list[int]], list[Tensor]] = getattr(theirs, "other_heads", lambda ids: [])
    for ids in inputs[1:4]:  # a library may leave out heads that the config does not name
        for ours_TV, found in zip(here.other_heads(ids), others(ids), strict=False):
            apart.add(ours_TV, found)
    return apart.logits(here.compared)


def compare_together(
    apart: Differences, here: OwnModel, theirs: ForeignModel, inputs: list[list[int]], new: int
) -> None:
    """The same of a few inputs of unequal length in one batch: padding must change nothing."""
    together = getattr(theirs, "batch", None)
    if together is not None:
        targets = [target_for(here, ids, new) for ids in inputs]
        for ids, target, found in zip(inputs, targets, together(inputs, targets), strict=True):
            apart.add(here.logits(ids, target), found, here.compared == HIDDEN)


def target_for(here: OwnModel, ids: list[int], new: int) -> list[int] | None:
    """What an encoder-decoder is to have written: what it writes itself, and another token now and then."""
    if not isinstance(here.model, EncoderDecoder):
        return None
    dice = random.Random(f"{SEED} {ids}")
    rows = here.model.decoder.inputs.tokens.weight.shape[0]
    written = here.greedy(ids, new - 1) if new > 1 else []
    return [here.start, *(dice.randrange(rows) if dice.random() < 0.3 else token for token in written or [])]


def compare_pictures(here: OwnModel, theirs: ForeignModel, bound: Bound) -> Logits | None:
    c, sees = here.loaded.config, getattr(theirs, "pictures", None)
    made = torch.Generator().manual_seed(SEED)
    images_BCHW = torch.randn(PICTURES, c.channels, c.image_size, c.image_size, generator=made)
    if sees is None or (found := sees(images_BCHW)) is None:
        return None
    apart = Differences(False, bound.difference)
    for a_TV, b_TV in zip(here.pictures(images_BCHW), found, strict=True):
        apart.add(a_TV, b_TV, here.compared == HIDDEN)
    return apart.logits(here.compared)


def compare_outputs(
    name: str,
    here: OwnModel,
    theirs: ForeignModel,
    inputs: list[list[int]],
    new: int,
    slack: float,
    progress: Callable[[str], None],
) -> Outputs | None:
    """What both write after each input, by greedy or beam search."""
    same = ties = 0
    first: dict[str, list[int]] | None = None
    for number, ids in enumerate(inputs, 1):
        progress(f"comparing {name}: input {number} of {len(inputs)}")
        found = theirs.greedy(ids, new) if name == "greedy" else theirs.beam(ids, WIDTH, new)
        if found is None:
            return None
        expected = here.greedy(ids, new) if name == "greedy" else here.beam(ids, WIDTH, new)
        assert expected is not None
        if found == expected:
            same += 1
        elif is_tie(here, ids, expected, found, new, slack, by_token=name == "greedy"):
            ties += 1
        elif first is None:
            first = {"input": ids, "heedful": expected, "other": found}
    return Outputs(len(inputs), same, ties, first)


def is_tie(
    here: OwnModel, ids: list[int], ours: list[int], theirs: list[int], new: int, slack: float, by_token: bool
) -> bool:
    """Whether our model prefers its own output to theirs by no more than rounding: at the first token in
    which the two differ, or over the whole outputs."""
    a, b = (here.nll(ids, row, len(row) < new) for row in (ours, theirs))
    if not by_token:
        return bool(b.sum() - a.sum() <= 2 * slack * max(len(a), len(b)))
    at = next(
        (n for n, (x, y) in enumerate(zip(ours, theirs, strict=False)) if x != y), min(len(ours), len(theirs))
    )
    return at < len(a) and at < len(b) and bool(b[at] - a[at] <= 2 * slack)


def compare_tokens(here: OwnModel, theirs: ForeignModel, progress: Callable[[str], None]) -> Tokens | None:
    """The token ids of every text of the corpus."""
    if here.loaded.tokenizer is None:
        return None
    progress("comparing tokenizers")
    texts, same = corpus(), 0
    first: dict[str, Any] | None = None
    for text in texts:
        found = theirs.tokens(text)
        if found is None:
            return None
        expected = here.tokens(text)
        same += found == expected
        if found != expected and first is None:
            first = {"text": one_line(text), "heedful": expected, "other": found}
    return Tokens(len(texts), same, first)
