"""Checks of what a model must not depend on: padding, its batch, and the cache; and of its weights."""

from __future__ import annotations

import torch
from torch import Tensor

from ...data.tensor_files import is_finite
from ...models.base.shells import EncoderDecoder
from ...parts.cache import Cache
from ...parts.places import Lengths
from .finding import FAIL, OK, Finding, NotApplicable, apart, compared, worse
from .patient import B, Patient


def finite_weights(p: Patient) -> Finding:
    """Every weight is finite."""
    bad = {name: weight for name, weight in p.model.named_parameters() if not is_finite(weight.detach())}
    total = sum(weight.numel() for weight in p.model.parameters())
    count = sum(int((~torch.isfinite(weight)).sum()) for weight in bad.values())
    summary = f"{count:,} of {total:,} are not finite" + (f", the first in {next(iter(bad))}" if bad else "")
    remedy = "training diverged, or the file is damaged: "
    remedy += "go back to a checkpoint, with a lower train.learning_rate or train.max_grad_norm"
    return Finding(FAIL if bad else OK, float(count), summary, "0", remedy)


@torch.no_grad()
def padding(p: Patient) -> Finding:
    """Rows of unequal length together give what each gives alone."""
    if not p.reads_text:
        raise NotApplicable("all images have the same size")
    read = p.inputs()
    lengths = unequal(read.shape[1]).to(p.device)
    written = p.targets() if p.is_pair else None
    ends = lengths if written is None else unequal(written.shape[1]).flip(0).to(p.device)
    together = p.outputs(read, written, Lengths(lengths), Lengths(ends))
    worst = 0.0
    for b in range(B):
        row = None if written is None else written[b : b + 1, : ends[b]]
        alone = p.outputs(read[b : b + 1, : lengths[b]], row)
        worst = worse(worst, apart(together[b, : ends[b]], alone[0]))
    return compared(worst, "padding is attended to or counted: check how lengths become positions and masks")


def unequal(length: int) -> Tensor:
    return torch.tensor([length, max(1, length // 2), 1])


@torch.no_grad()
def batch(p: Patient) -> Finding:
    """Rows of equal length together give what each gives alone."""
    read, written = p.inputs(), p.targets() if p.is_pair else None
    together = p.outputs(read, written)
    alone = [p.outputs(read[b : b + 1], None if written is None else written[b : b + 1]) for b in range(B)]
    remedy = "rows of a batch affect each other: look for a sum or a norm over the wrong axis"
    return compared(apart(together, torch.cat(alone)), remedy)


@torch.no_grad()
def cache(p: Patient) -> Finding:
    """Decoding step by step with remembered keys and values gives what computing all at once gives."""
    if p.decoder is None:
        raise NotApplicable("an encoder does not decode")
    if not getattr(p.loaded.config, "causal", True):
        raise NotApplicable("this decoder attends in both directions, as its settings say")
    written_BT = p.targets()
    length = written_BT.shape[1]
    source = None
    if isinstance(p.model, EncoderDecoder):
        source = p.model.read(p.inputs())
    whole = p.decoder(written_BT, source=source)
    pieces = [min(2, length), *[1] * max(0, length - 2)]
    caches: list[Cache] = [p.decoder.growing_cache(), p.decoder.static_cache(B, length)]
    worst = 0.0
    for kind in caches:
        parts = [p.decoder(piece, cache=kind, source=source) for piece in written_BT.split(pieces, dim=1)]
        worst = worse(worst, apart(torch.cat(parts, dim=1), whole))
    return compared(worst, "the cache loses, repeats or misplaces keys: check its positions")
