"""The check of attention heads: those that do nothing, or the same as another one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...decode.greedy import greedy
from ...decode.step import step_of
from ...errors import BadInput, NotFinite
from ...parts.masks import Mask
from ...parts.multihead import MultiHeadAttention
from ...parts.view import View
from ...parts.watch import watch
from ..look.heads import entropy, practice
from ..look.inputs import ends_of, tokens_of
from ..look.layers import kinds_of, mask_of, paths_of
from .finding import FAIL, OK, WARN, Finding, NotApplicable
from .patient import Patient, T
from .tokenizer import there_and_back

IDLE = 0.99  # of a head's attention on one key, or of the entropy of uniform attention
SILENT = 1e-3  # of the weights of the median head
TWINS = 0.005  # of their attention in which two heads differ


@dataclass
class HeadStates:
    """Heads that do nothing, by name."""

    total: int
    dead: list[str]  # all queries attend to one key
    uniform: list[str]  # all keys get the same attention
    twins: list[str]  # pairs of one layer with equal attention
    silent: list[str] = field(default_factory=list)  # nothing of what they read is written


@torch.no_grad()
def heads(p: Patient) -> Finding:
    """Heads attend to different keys for different queries, and differ from each other."""
    if p.reads_text and not kinds_of(p.model):
        raise NotApplicable("this model has no attention heads")
    found, finite = HeadStates(0, [], [], []), True
    inputs = list(texts_for_heads(p))
    traces = [attention_of(p, *each) for each in inputs]
    for which in kinds_of(p.model):
        if which == "encoder" and not p.is_pair:
            continue  # the same as self
        for layer, path in paths_of(p.model, which).items():
            weights_NHTS = torch.stack([trace[path] for trace in traces])
            finite = finite and bool(torch.isfinite(weights_NHTS).all())
            judge_layer(found, weights_NHTS, mask_of(p.model, which, layer), f"{which} {layer}")
            silent = silent_heads(p.model.get_submodule(path))
            found.silent += [f"{which} {layer}.{h + 1}" for h in silent]
    idle = len(found.dead) + len(found.uniform) + len(found.twins) + len(found.silent)
    summary = [f"{idle} of {found.total} idle"]
    summary += [f"all queries attend to one key: {some(found.dead)}"] if found.dead else []
    summary += [f"uniform: {some(found.uniform)}"] if found.uniform else []
    summary += [f"equal: {some(found.twins)}"] if found.twins else []
    summary += [f"output is 0: {some(found.silent)}"] if found.silent else []
    remedy = "normal in a fresh model; in a trained one these heads can be pruned: `heedful look` shows them"
    if not finite:
        return Finding(FAIL, None, "attention is not finite", "0", "see whether the weights are finite")
    return Finding(WARN if idle else OK, float(idle), "; ".join(summary), "0", remedy)


def judge_layer(found: HeadStates, weights_NHTS: Tensor, mask: Mask, where: str) -> None:
    """Note the idle heads of a layer."""
    length, keys = weights_NHTS.shape[-2:]
    allowed_TS = View(mask, length, keys).allowed(1).expand(1, 1, length, keys)[0, 0]
    use = LayerUse()
    for weights_HTS in weights_NHTS:
        use.add(weights_HTS, allowed_TS)
    names = [f"{where}.{h + 1}" for h in range(weights_NHTS.shape[1])]
    found.total += len(names)
    found.dead += [names[h] for h in use.dead()]
    found.uniform += [names[h] for h in use.uniform()]
    found.twins += [f"{names[a]} and {names[b]}" for a, b in use.twins()]


class LayerUse:
    """What the heads of a layer do with several texts. Queries that see fewer than three keys have little
    choice, and do not count."""

    def __init__(self) -> None:
        self.rows = 0
        self.place_HS = torch.zeros(0, 0, dtype=torch.double)  # attention to each place, summed
        self.spread_H = torch.zeros(0, dtype=torch.double)  # share of the largest entropy, summed
        self.apart_HH = torch.zeros(0, 0, dtype=torch.double)  # attention in which two heads differ, summed

    def add(self, weights_HTS: Tensor, allowed_TS: Tensor) -> None:
        """One more text."""
        choice_T = allowed_TS.sum(-1)
        free_T = choice_T >= 3
        weights_HTS = weights_HTS[:, free_T].double()
        H, rows, S = weights_HTS.shape
        if not self.rows:
            self.place_HS, self.spread_H = weights_HTS.new_zeros(H, S), weights_HTS.new_zeros(H)
            self.apart_HH = weights_HTS.new_zeros(H, H)
        wider = max(S, self.place_HS.shape[1])
        parts = (self.place_HS, weights_HTS.sum(1))
        self.place_HS = torch.stack([F.pad(part, (0, wider - part.shape[1])) for part in parts]).sum(0)
        self.spread_H = self.spread_H + (entropy(weights_HTS) / choice_T[free_T].log2()).sum(-1)
        flat_HN = weights_HTS.flatten(1)
        self.apart_HH = self.apart_HH + torch.cdist(flat_HN, flat_HN, p=1) / 2
        self.rows += rows

    def dead(self) -> list[int]:
        """Heads whose queries all attend to one key."""
        return [h for h in self.heads() if self.place_share(h) >= IDLE]

    def uniform(self) -> list[int]:
        """Heads that give all keys the same attention."""
        return [h for h in self.heads() if self.place_share(h) < IDLE and self.spread_share(h) >= IDLE]

    def twins(self) -> list[tuple[int, int]]:
        """Pairs of equal attention, of heads that are in use."""
        used = sorted(set(self.heads()) - {*self.dead(), *self.uniform()})
        return [(a, b) for a, b in combinations(used, 2) if self.apart_HH[a, b] / self.rows < TWINS]

    def heads(self) -> range:
        return range(len(self.spread_H) if self.rows else 0)

    def place_share(self, h: int) -> float:
        """The largest share of attention that one place gets."""
        return float(self.place_HS[h].max() / self.rows)

    def spread_share(self, h: int) -> float:
        """The share of the largest entropy."""
        return float(self.spread_H[h] / self.rows)


def silent_heads(layer: nn.Module) -> list[int]:
    """Heads whose values or output weights are 0, next to those of the other heads."""
    if not isinstance(layer, MultiHeadAttention):
        return []
    value_HLD = layer.value.weight.detach().float().unflatten(0, (layer.kv_heads, -1))
    out_HDL = layer.out.weight.detach().float().unflatten(1, (layer.heads, -1)).transpose(0, 1)
    read_H = value_HLD.flatten(1).norm(dim=-1).repeat_interleave(layer.heads // layer.kv_heads)
    if layer.value.bias is not None:
        bias_G = layer.value.bias.detach().float().unflatten(0, (layer.kv_heads, -1)).norm(dim=-1)
        read_H = read_H + bias_G.repeat_interleave(layer.heads // layer.kv_heads)
    size_H = read_H * out_HDL.flatten(1).norm(dim=-1)
    return torch.nonzero(size_H < SILENT * size_H.median())[:, 0].tolist()


def some(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def texts_for_heads(p: Patient, count: int = 6) -> Iterator[tuple[Tensor, Tensor | None]]:
    """Several inputs of one length: texts that the tokenizer knows, or random tokens."""
    rows = p.inputs(count) if not p.reads_text else read_texts(p, count)
    for row in rows:
        read = row[None]
        yield read, written_for(p, read) if p.is_pair else None


def read_texts(p: Patient, count: int) -> Tensor:
    """Token numbers of texts, cut to the length of the shortest."""
    tokenizer = p.loaded.tokenizer
    longest = p.reader.inputs.position.longest or 1 << 30
    if tokenizer is not None:
        texts = [pair.source for pair in practice(p.folder)] if p.folder else []
        texts = [text for text in texts if len(text.split()) >= 8] or list(PROSE)
        known = all(there_and_back(tokenizer, text)[1] for text in texts[:count])
        ids = [tokens_of(p.loaded, text) for text in texts[:count]]
        if known and len(ids) > 1:
            length = min(longest, *map(len, ids))
            return torch.tensor([row[:length] for row in ids], device=p.device)
    return p.tokens(p.reader, count, 12)


PROSE = (
    "The old man who lived by the sea had three daughters and a boat.",
    "When it rains in the mountains, the river rises within a few hours.",
    "She asked him twice whether he had seen the letter on the table.",
    "Most of the houses in this street were built before the great war.",
    "If you want to learn how to cook, start with eggs and patience.",
    "Nobody knew why the train stopped in the middle of the forest.",
)


def written_for(p: Patient, read_1S: Tensor) -> Tensor:
    """What the model itself writes, as its decoder reads it: always of the same length."""
    try:
        start, _ = ends_of(p.loaded)
    except BadInput:
        return p.targets(1)
    start_11 = torch.tensor([[start]], device=p.device)
    step = step_of(p.model, read_1S)  # type: ignore[arg-type]
    try:
        written = greedy(step, start_11, longest=T - 1)[0].tokens
    except NotFinite:
        return p.targets(1)
    return torch.tensor([[start, *written]], device=p.device)


def attention_of(p: Patient, read: Tensor, written: Tensor | None) -> dict[str, Tensor]:
    with watch(p.model) as trace:
        p.outputs(read, written)
    return {path: weights[0].float().cpu() for path, weights in trace.weights().items()}
