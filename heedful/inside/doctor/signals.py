"""Checks of the signal on its way through the layers: the residual stream, and the softmax of attention."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ...parts.view import View
from ..look.layers import kinds_of, mask_of, paths_of
from .finding import FAIL, OK, WARN, Finding, NotApplicable, short
from .heads import attention_of, texts_for_heads
from .patient import Patient

EXPLODED, VANISHED = 1e4, 1e-3  # times the size after the first block
IDLE = 1e-5  # of the stream: what a block adds
ONE_KEY = 0.9999  # of a query's attention
SATURATED = 0.9  # of the queries of a layer


@torch.no_grad()
def residual_stream(p: Patient) -> Finding:
    """The residual stream keeps its size from block to block, and every block adds something."""
    name, blocks = list(p.shells)[-1], getattr(list(p.shells.values())[-1].stack, "blocks", ())
    if not blocks:
        raise NotApplicable("this model has no residual stream")
    sizes, added = stream_of(p, list(blocks))
    if not sizes:
        raise NotApplicable("this model has no residual stream")
    if not all(map(torch.isfinite, sizes)):
        return Finding(FAIL, None, "not finite", "finite", "see whether the weights are finite")
    ratios = [float(size / sizes[0].clamp(min=1e-30)) for size in sizes]
    idle = [f"{name} block {i}".strip() for i, share in enumerate(added, 1) if share < IDLE]
    largest, smallest = max(ratios), min(ratios)
    summary = f"{short(float(sizes[0]))} after the first block, {short(float(sizes[-1]))} after the last"
    limit = f"{VANISHED:.0e} to {EXPLODED:.0e} times"
    if idle and largest <= EXPLODED and smallest >= VANISHED:
        remedy = "normal in a fresh model whose output layers begin at 0; a trained one can do without them"
        return Finding(WARN, 0.0, f"{', '.join(idle[:4])} adds nothing; {summary}", limit, remedy)
    far = largest if largest > EXPLODED else smallest
    block = ratios.index(far) + 1
    remedy = f"look at the weights and norms of block {block}; train again with a lower train.learning_rate "
    remedy += "or train.max_grad_norm, or go back to an earlier checkpoint"
    if VANISHED <= far <= EXPLODED:
        return Finding(OK, ratios[-1], summary, limit, remedy)
    how = "explodes" if far > EXPLODED else "vanishes"
    return Finding(WARN, far, f"it {how} at block {block}: {summary}", limit, remedy)


def stream_of(p: Patient, blocks: list[nn.Module]) -> tuple[list[Tensor], list[float]]:
    """(the median root mean square of a token after each block, what each block changes relative to it)."""
    sizes: list[Tensor] = []
    added: list[float] = []

    def note(module: nn.Module, given: Any, out: Any) -> None:
        if isinstance(out, Tensor) and isinstance(given[0], Tensor) and given[0].shape == out.shape:
            size = out.float().square().mean(-1).sqrt().median().cpu()
            change = (out - given[0]).float().square().mean(-1).sqrt().median().cpu()
            sizes.append(size)
            added.append(float(change / size.clamp(min=1e-30)))

    hooks = [block.register_forward_hook(note) for block in blocks]
    try:
        p.outputs(p.inputs(), p.targets() if p.is_pair else None)
    finally:
        for hook in hooks:
            hook.remove()
    return sizes, added


@torch.no_grad()
def softmax_saturation(p: Patient) -> Finding:
    """Attention is no hard choice everywhere: a softmax at its limit has no gradient."""
    if not kinds_of(p.model):
        raise NotApplicable("this model has no attention heads")
    traces = [attention_of(p, *each) for each in texts_for_heads(p)]
    shares: dict[str, float] = {}
    for which in kinds_of(p.model):
        if which == "encoder" and not p.is_pair:
            continue  # the same as self
        for layer, path in paths_of(p.model, which).items():
            weights_NHTS = torch.stack([trace[path] for trace in traces])
            length, keys = weights_NHTS.shape[-2:]
            allowed = View(mask_of(p.model, which, layer), length, keys).allowed(1)
            free_T = allowed.expand(1, 1, length, keys)[0, 0].sum(-1) >= 3
            if free_T.any():
                hard = weights_NHTS[:, :, free_T].amax(-1) >= ONE_KEY
                shares[f"{which} {layer}"] = float(hard.float().mean())
    if not shares:
        raise NotApplicable("no query has three keys to choose from")
    worst = max(shares, key=lambda name: shares[name])
    summary = f"at most {shares[worst]:.0%} of a layer's queries attend to one key only ({worst})"
    remedy = (
        "scores are too large to learn from: lower train.learning_rate, check the scale of queries and keys"
    )
    verdict = WARN if shares[worst] > SATURATED else OK
    return Finding(verdict, shares[worst], summary, f"≤ {SATURATED:.0%}", remedy)
