"""Align: which word of its source each word of a translation came from, by cross-attention.

Words are what stands between spaces. The model reads the source and the translation once more; each word of
the translation is linked to the source word that gets most attention where the model predicts it. The weights
are the mean over all heads of all layers.
"""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..decode.prompts import pad
from ..errors import BadInput
from ..parts.places import Lengths
from ..parts.watch import watch
from .batches import in_batches
from .search import Reading
from .texts import Tokenized
from .wording import tokenize

if TYPE_CHECKING:
    from .model import Model

Links = list[tuple[int, int]]  # (source word, target word), both counted from 0


def aligned(
    model: Model, read: Reading, sources: Sequence[Tokenized], targets: Sequence[str], batch: int
) -> list[Links]:
    """The links of each pair. read: makes the network ready for sources, which have the spans of tokens."""
    words = model.wording
    first = words.target([""])[0]  # what a folder puts before every answer
    rows = tokenize(words.writes, list(targets), spans=True)
    fed = [[words.start, *first, *row.ids] for row in rows]

    def do(some: list[int]) -> Sequence[Links]:
        attention_BTS = cross_attention(model, read, [sources[i] for i in some], [fed[i] for i in some])
        found = []
        for i, weights_TS in zip(some, attention_BTS, strict=True):
            numbers = words_of(sources[i].text, sources[i].spans), words_of(targets[i], rows[i].spans)
            found.append(links(weights_TS[len(first) :], *numbers))
        return found

    return in_batches([[*a.ids, *b] for a, b in zip(sources, fed, strict=True)], batch, do)


def cross_attention(model: Model, read: Reading, sources: list[Tokenized], fed: list[list[int]]) -> Tensor:
    """Attention [B, T, S], the mean over all heads: row t predicts the token after fed[t]."""
    network: Any = model.model
    source_BS, lengths_B = pad([row.ids for row in sources], model.device)
    fed_BT, _ = pad(fed, model.device)
    with torch.no_grad(), watch(network) as trace:
        source = read(network, sources).read(source_BS, Lengths(lengths_B))
        network.decoder.hidden(fed_BT, source=source)
    layers = [weights for path, weights in trace.weights().items() if ".cross." in path]
    if not layers:
        raise BadInput(f"{model.folder} has no cross-attention to align words by: leave out `align`")
    return torch.cat(layers, dim=1).float().mean(1).cpu()


def words_of(text: str, spans: Sequence[tuple[int, int]]) -> list[int]:
    """The number of the word that each token belongs to; -1 for tokens that stand for no part of the text."""
    starts = [word.start() for word in re.finditer(r"\S+", text)]
    found = []
    for start, stop in spans:
        letters = [place for place in range(start, stop) if not text[place].isspace()]
        found.append(bisect(starts, letters[0]) - 1 if letters else -1)
    return found


def links(weights_TS: Tensor, read: Sequence[int], written: Sequence[int]) -> Links:
    """Each target word with the source word that gets most attention, summed over the tokens of both."""
    if max(read, default=-1) < 0 or max(written, default=-1) < 0:
        return []
    table = torch.zeros(max(written) + 1, max(read) + 1)
    for t, target in enumerate(written):
        for s, source in enumerate(read):
            if target >= 0 and source >= 0:
                table[target, source] += weights_TS[t, s]
    return sorted((source, target) for target, source in enumerate(table.argmax(-1).tolist()))
