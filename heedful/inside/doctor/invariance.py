"""Checks of what a model must not depend on: the future, padding, its batch, and the cache; and of its
weights."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from ...data.tensor_files import is_finite
from ...models.base.shells import EncoderDecoder
from ...parts.cache import Cache
from ...parts.places import Lengths
from .finding import FAIL, OK, WARN, Finding, NotApplicable, apart, compared, finite, short, worse
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


def no_leak(p: Patient) -> Finding:
    """d scores_t / d embedding_s is exactly 0 for every later token s > t."""
    if p.decoder is None:
        raise NotApplicable("an encoder attends in both directions")
    tokens_1T = p.targets(1)
    embedded: list[Tensor] = []

    def keep(module: nn.Module, given: Any, out: Tensor) -> Tensor:
        embedded.append(out.detach().requires_grad_())
        return embedded[-1]

    source = None
    if isinstance(p.model, EncoderDecoder):
        with torch.no_grad():
            source = p.model.read(p.inputs(1))
    hook = p.decoder.inputs.register_forward_hook(keep)
    try:
        with torch.enable_grad():
            scores_TV = p.decoder(tokens_1T, source=source)[0]
            mixed_T = scores_TV @ torch.randn(scores_TV.shape[1], generator=p.random).to(scores_TV)
            rows = [torch.autograd.grad(score, embedded[-1], retain_graph=True)[0] for score in mixed_T]
    finally:
        hook.remove()
    seen_TT = torch.cat(rows).abs().amax(-1).cpu()
    future = float(seen_TT.triu(1).max())
    past = float(seen_TT.tril(-1).max()) if len(seen_TT) > 1 else 1.0
    summary = (
        f"largest gradient from a later token: {short(future)}" if math.isfinite(future) else "not finite"
    )
    verdict = FAIL if future != 0 else WARN if past == 0 else OK
    remedy = "a mask shows later tokens: check the masks of the decoder"
    if verdict == WARN:
        summary, remedy = "no gradient from any other token", "the model ignores all earlier tokens"
    return Finding(verdict, finite(future), summary, "exactly 0", remedy)


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
