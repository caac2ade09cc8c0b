"""The check that no token sees a later one: a proof by symbols where there is one, and a measurement.

The measurement has four parts. The table of every mask has nothing above its diagonal. Every kernel that can
compute such a mask ignores later keys. Gradients of scores with respect to later tokens are exactly 0. Scores
stay the same if later tokens are replaced, cut off, padded, packed with another text, or read through a
cache. The text is longer than every stride, block, window and segment of the model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ...models.base.shells import Decoder, EncoderDecoder, keeps_packed_rows
from ...parts.cache import Cache
from ...parts.long.segments import RecurrentAttention, SegmentMemory
from ...parts.places import IN_ORDER, Lengths, Packed, Places, Source
from .finding import FAIL, OK, ROUNDING, WARN, Finding, NotApplicable, apart, finite, short
from .lengths import revealing_length
from .mask_leaks import kernel_leak, table_leak
from .patient import Patient
from .proof import unproven

OPERATIONS = 1e12  # of the gradients: a minute on two cores for 100 million parameters
AT_ONCE = 4096  # tokens of a batch
SCORES = 1 << 26  # numbers of a batch
LAST = 8  # tokens that show whether earlier ones are used
READ = 1 << 15  # tokens of all rows together, at most
CUTS = 5  # places after which tokens are replaced
REMEDY = "a part shows later tokens to earlier ones: check the masks of the decoder and whatever mixes tokens"


@dataclass(frozen=True)
class Leak:
    """How far a later token reaches, and how it was found."""

    size: float
    how: str


def no_leak(p: Patient) -> Finding:
    """No token sees a later one: by proof, and by measurement."""
    if p.decoder is None:
        raise NotApplicable("an encoder attends in both directions")
    if not getattr(p.loaded.config, "causal", True):
        raise NotApplicable("this decoder attends in both directions, as its settings say")
    text = Text(p, p.decoder)
    gap = unproven(p.decoder)
    leak, used = next(leaks(text), None), text.uses_the_past()
    measured = f"measured at {text.length:,} tokens with {len(text.cuts):,} cuts"
    if leak is not None:
        return Finding(FAIL, finite(leak.size), f"{leak.how} ({measured})", "exactly 0", REMEDY)
    if not used:
        remedy = "the model ignores all earlier tokens"
        return Finding(WARN, 0.0, f"no gradient from any other token ({measured})", "exactly 0", remedy)
    how = f"not proven: {gap}; {measured} only" if gap else f"proven for every length; {measured}"
    return Finding(OK, 0.0, f"no later token is seen ({how})", "exactly 0", REMEDY)


def leaks(text: Text) -> Iterator[Leak]:
    """Whatever leaks, the cheapest to find first."""
    context = getattr(text.p.loaded.config, "context", 0)
    for number, mask in enumerate(text.decoder.masks, 1):
        for found in (table_leak(mask, max(context, text.length)), kernel_leak(mask)):
            if found:
                yield Leak(1.0, f"the mask of layer {number}, {found}")
    yield from text.by_gradient()
    yield from text.by_change()


class Text:
    """A random text that a decoder reads, and the places where it is cut."""

    def __init__(self, p: Patient, decoder: Decoder) -> None:
        self.p, self.decoder = p, decoder
        self.length = min(revealing_length(decoder), affordable(decoder))
        self.tokens_1T = p.tokens(decoder, 1, self.length)
        self.length = self.tokens_1T.shape[1]
        self.source: Source | None = None
        if isinstance(p.model, EncoderDecoder):
            with torch.no_grad():
                self.source = p.model.read(p.inputs(1))
        all_cuts = torch.randperm(max(0, self.length - 1), generator=p.random)
        count = min(READ, affordable(decoder, 1)) // self.length
        self.cuts = sorted(all_cuts[: max(CUTS, count)].tolist())

    def scores(self, rows_BT: Tensor, places: Places = IN_ORDER, cache: Cache | None = None) -> Tensor:
        """Scores [B, T, V] of texts that follow the same source."""
        source = self.source
        if source is not None:
            vectors_BSD = source.vectors_BSD.expand(len(rows_BT), -1, -1)
            source = Source(vectors_BSD, source.places)
        return self.decoder(rows_BT, places, cache=cache, source=source)

    # By gradients.

    def by_gradient(self) -> Iterator[Leak]:
        """Scores up to each cut, and the gradient that reaches tokens after it: exactly 0."""
        for cuts in torch.tensor(self.cuts).split(self.rows_at_once()):
            here_KT = torch.arange(self.length) <= cuts[:, None]
            future_KT = self.gradient(here_KT).masked_fill(here_KT, 0)
            largest = float(future_KT.max())
            if largest != 0:
                row, later = divmod(int(future_KT.nan_to_num(math.inf).argmax()), self.length)
                size = short(largest) if math.isfinite(largest) else "not finite"
                told = f"token {later} changes scores at or before token {int(cuts[row])}: gradient {size}"
                yield Leak(largest, told)

    def uses_the_past(self) -> bool:
        """Whether the scores of the last tokens depend on any earlier token."""
        if self.length < 2:
            return True
        here_T = torch.arange(self.length)
        last_K = here_T[-LAST:]
        seen_KT = self.gradient(here_T == last_K[:, None])
        return bool((seen_KT.masked_fill(here_T >= last_K[:, None], 0) != 0).any())

    def gradient(self, weighed_KT: Tensor) -> Tensor:
        """The largest gradient [K, T] of a random mix of the scores that count, at every token."""
        p, embedded = self.p, list[Tensor]()

        def keep(module: nn.Module, given: Any, out: Tensor) -> Tensor:
            embedded.append(out.detach().requires_grad_())
            return embedded[-1]

        hook = self.decoder.inputs.tokens.register_forward_hook(keep)
        try:
            with torch.enable_grad():
                scores_KTV = self.scores(self.tokens_1T.expand(len(weighed_KT), -1))
                mix_V = torch.randn(scores_KTV.shape[-1], generator=p.random).to(scores_KTV)
                weights_KT = torch.randn(weighed_KT.shape, generator=p.random) * weighed_KT
                mixed = ((scores_KTV @ mix_V) * weights_KT.to(scores_KTV)).sum()
                (gradient_KTD,) = torch.autograd.grad(mixed, embedded[-1])
        finally:
            hook.remove()
        return gradient_KTD.abs().amax(-1).cpu()

    def rows_at_once(self) -> int:
        vocab = self.decoder.inputs.tokens.weight.shape[0]
        return max(1, min(AT_ONCE, SCORES // vocab) // self.length)

    # By changes.

    @torch.no_grad()
    def by_change(self) -> Iterator[Leak]:
        """Scores up to a cut, of the text as it is and of a text that differs after the cut."""
        if self.length < 2:
            return
        whole_1TV = self.scores(self.tokens_1T)
        for cut in self.some_cuts():
            other_1T = self.changed_after(cut)
            for how, expected_1TV, found_1TV in self.readings(cut, other_1T, whole_1TV):
                T = min(cut + 1, found_1TV.shape[1])
                difference = apart(found_1TV[:, :T], expected_1TV[:, :T])
                if not difference <= ROUNDING:
                    size = short(difference) if math.isfinite(difference) else "not finite"
                    yield Leak(difference, f"tokens after {cut} change scores up to it, {how}: by {size}")

    def some_cuts(self) -> list[int]:
        """Few cuts, near the beginning, in the middle and near the end."""
        picks = {0, self.length // 4, self.length // 2, (7 * self.length) // 8, self.length - 2}
        return sorted(picks)[-1:] if len(picks) > self.length else sorted(picks)

    def changed_after(self, cut: int) -> Tensor:
        other_1T = self.p.tokens(self.decoder, 1, self.length)
        return torch.cat([self.tokens_1T[:, : cut + 1], other_1T[:, cut + 1 :]], dim=1)

    def readings(self, cut: int, other_1T: Tensor, whole_1TV: Tensor) -> Iterator[tuple[str, Tensor, Tensor]]:
        """(how the text was read, scores that are expected up to the cut, scores that were found)."""
        yield "if they are replaced", whole_1TV, self.scores(other_1T)
        yield "if they are cut off", whole_1TV, self.scores(other_1T[:, : cut + 1])
        lengths_1 = torch.tensor([cut + 1], device=self.p.device)
        yield "if they are padding", whole_1TV, self.scores(other_1T, Lengths(lengths_1))
        if self.source is None and keeps_packed_rows(self.decoder):
            documents_1T = (torch.arange(self.length, device=self.p.device) > cut).long()[None]
            yield "if they are another document", whole_1TV, self.scores(other_1T, Packed(documents_1T))
        for name in ("growing", "static"):
            as_it_is, changed = (self.through_cache(name, rows) for rows in (self.tokens_1T, other_1T))
            yield f"through a {name} cache", as_it_is, changed
        if any(isinstance(module, RecurrentAttention) for module in self.decoder.modules()):
            as_it_is, changed = (self.in_segments(rows) for rows in (self.tokens_1T, other_1T))
            yield "in segments", as_it_is, changed

    def through_cache(self, name: str, rows_1T: Tensor) -> Tensor:
        """Scores of a text that is read in pieces, the first and the last of several tokens."""
        cache: Cache = (
            self.decoder.growing_cache() if name == "growing" else self.decoder.static_cache(1, self.length)
        )
        third = self.length // 3
        pieces = [size for size in (third, 1, self.length - third - 1) if size]
        parts = [self.scores(piece, cache=cache) for piece in rows_1T.split(pieces, dim=1)]
        return torch.cat(parts, dim=1)

    def in_segments(self, rows_1T: Tensor) -> Tensor:
        """Scores of a text in two segments, the second of which remembers the first."""
        blocks, half = len(self.decoder.stack.blocks), self.length // 2
        first = SegmentMemory(blocks, half)
        parts = [self.scores(rows_1T[:, :half], cache=first)]
        parts.append(self.scores(rows_1T[:, half:], cache=first.after()))
        return torch.cat(parts, dim=1)


def affordable(decoder: Decoder, rows: int = CUTS) -> int:
    """Tokens of so many rows that take a minute at most, forwards and backwards."""
    size = sum(weight.numel() for weight in decoder.parameters())
    return max(64, int(OPERATIONS / (6 * size * rows)))
