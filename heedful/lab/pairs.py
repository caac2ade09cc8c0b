"""Pairs: twelve keys with their values, and a query for one of them, read by one attention layer.

The score function and the width of the keys are arguments: claims on scores and on their scaling share this.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from ..parts.attention import Score
from ..parts.embeddings import TokenEmbedding
from ..parts.layers import LayerNorm
from ..parts.multihead import MultiHeadAttention
from .results import at
from .toys import ToyBatch, drawn
from .training import TEST, accuracy, steps_to, trained

PAIRS, KEYS, VALUES = 12, 48, 16  # pairs in a text, and different keys and values
WIDTH, ROWS, TESTED = 64, 64, 1000
KEY_WIDTHS = (8, 32, 128)
NARROW, WIDE = KEY_WIDTHS[0], KEY_WIDTHS[-1]
LEVEL = 1.0  # nats of loss; guessing gives 2.77
# In pilots 1e-3 was slower for every score. At 3e-2, wide raw scores were 20 and 80 % right (two seeds).
RATES = {"quick": (1e-2,), "standard": (3e-3, 1e-2), "full": (3e-3, 1e-2)}
GROWTH = "log2 of steps, widest relative to narrowest"

MakeScore = Callable[[int], Score]  # a score of queries and keys of this width


def pairs(seed: int, step: int, rows: int = ROWS) -> ToyBatch:
    """Twelve different keys, their values, and one of the keys again; the answer is the value of that key."""
    rng = drawn(seed, step)
    keys_BP = torch.rand(rows, KEYS, generator=rng).argsort(-1)[:, :PAIRS]
    values_BP = torch.randint(VALUES, (rows, PAIRS), generator=rng)
    asked_B1 = torch.randint(PAIRS, (rows, 1), generator=rng)
    tokens_BT = torch.cat([keys_BP, KEYS + values_BP, keys_BP.gather(1, asked_B1)], 1)
    return ToyBatch(tokens_BT, values_BP.gather(1, asked_B1)[:, 0])


class PairLookup(nn.Module):
    """The query looks at all pairs with one head, and a linear layer reads a value from what it finds.

    At first, the components of queries and keys have variance 1, as the lectures assume.
    """

    def __init__(self, score: MakeScore, key_width: int) -> None:
        super().__init__()
        self.tokens, self.norm = TokenEmbedding(KEYS + VALUES, WIDTH), LayerNorm(WIDTH)
        self.attention = MultiHeadAttention(WIDTH, 1, key_width=key_width, value_width=WIDTH)
        self.linear = nn.Linear(WIDTH, VALUES)
        for layer in (self.attention.query, self.attention.key):
            nn.init.normal_(layer.weight, std=1 / math.sqrt(WIDTH))
        self.attention.score = score(key_width)  # last: all other weights are the same for every score

    def forward(self, tokens_BT: Tensor) -> Tensor:
        keys_BPD, values_BPD, query_B1D = self.tokens(tokens_BT).split([PAIRS, PAIRS, 1], 1)
        found_B1D = self.attention(self.norm(query_B1D), source_BSD=self.norm(keys_BPD + values_BPD))
        return self.linear(found_B1D[:, 0])


def looked_up(score: MakeScore, seed: int, size: str, steps: int) -> dict[str, float]:
    """Train at each width of the keys: steps until the loss is at the level, and accuracy after all steps.

    Each learning rate begins with the same weights. The one that needs fewer steps is kept: every batch is
    new, so its loss is that of held-out data.
    """
    found: dict[str, float] = {}
    for width in KEY_WIDTHS:
        begin, models, needed = torch.get_rng_state(), dict[float, nn.Module](), dict[float, int]()
        for rate in RATES[size]:
            torch.set_rng_state(begin)
            models[rate] = PairLookup(score, width)
            needed[rate] = steps_to(trained(models[rate], partial(pairs, seed), steps, rate), LEVEL)
            found[at(f"steps, width {width}, learning rate", rate)] = needed[rate]
        best = min(needed, key=needed.__getitem__)
        found[at("steps", width)] = needed[best]
        found[at("log2 of steps", width)] = math.log2(needed[best])
        found[at("learning rate", width)] = best
        found[at("accuracy", width)] = accuracy(models[best], pairs(seed, TEST, TESTED))
    found[GROWTH] = found[at("log2 of steps", WIDE)] - found[at("log2 of steps", NARROW)]
    return found
