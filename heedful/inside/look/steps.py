"""One query, step by step: its score with every key, scaled, masked, softmax, and the weighted values.

    scores q·k   ->   scaled by 1/sqrt(K)   ->   plus a bias   ->   masked   ->   softmax: weights   ->   sum
    of weight × v

All values are the model's own, recorded during its forward pass.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

import torch
from torch import Tensor

from ...errors import BadInput
from ...parts.watch import Record, Watchable
from .shades import columns_of

NO_TRACE = "the parts of a score come with a trace: use model.trace(text).steps(...).parts()"
FIRST = 3  # components of a vector that are shown


@dataclass(frozen=True)
class ScoreParts:
    """A query's scores q·k, split by what comes from words and what from positions; the query's part first.

    The four add up to the scores. Segments and biases count as the word.
    """

    content_content_S: Tensor
    content_position_S: Tensor
    position_content_S: Tensor
    position_position_S: Tensor

    def as_json(self) -> dict[str, list[float]]:
        """The four by their names."""
        return {name.removesuffix("_S"): x.tolist() for name, x in vars(self).items()}


@dataclass(frozen=True)
class Steps:
    """What one head does for one query.

    Attributes:
        layer: Number of the layer, from 1.
        head: Number of the head, from 1.
        query: Number of the query, from 1.
        word: The query as a word.
        keys: The keys as words.
        q_K: The query's vector.
        k_SK: The vectors of the keys.
        v_SL: The values.
        scores_S: Products of the query with each key.
        scale: What products are multiplied by.
        scaled_S: The scaled products.
        bias_S: What positions add to the scores, if they do.
        allowed_S: Which keys the query may attend to.
        weights_S: Attention weights.
        added_L: What relative positions add to the values, if they do.
        q_position_K: What positions contribute to the query, where they are added to embeddings.
        k_position_SK: What positions contribute to the keys.
        no_parts: Why the scores cannot be divided into words and positions.

    Example:
        >>> steps = heedful.load("runs/demo").look("The cat sleeps.", layer=1, head=1).steps("dort")
        >>> torch.allclose(steps.masked_S.softmax(-1), steps.weights_S)
        True
        >>> torch.allclose(steps.weighted_SL.sum(0), steps.output_L)
        True
        >>> steps.text().splitlines()[0].split()[:2]
        ['query', '3,']
    """

    layer: int
    head: int
    query: int
    word: str
    keys: list[str]
    q_K: Tensor = field(repr=False)
    k_SK: Tensor = field(repr=False)
    v_SL: Tensor = field(repr=False)
    scores_S: Tensor
    scale: float
    scaled_S: Tensor
    bias_S: Tensor | None
    allowed_S: Tensor
    weights_S: Tensor
    added_L: Tensor | None = field(repr=False)
    q_position_K: Tensor | None = field(repr=False, default=None)
    k_position_SK: Tensor | None = field(repr=False, default=None)
    no_parts: str = NO_TRACE

    def parts(self) -> ScoreParts:
        """The scores as sums of four: words and positions of the query with words and positions of the keys.

        Only the first layer of a model that adds positions to its embeddings has them; others are refused.
        """
        if self.q_position_K is None or self.k_position_SK is None:
            raise BadInput(self.no_parts)
        q_K, k_SK = self.q_position_K.double(), self.k_position_SK.double()
        word_K, words_SK = self.q_K.double() - q_K, self.k_SK.double() - k_SK
        pairs = (words_SK @ word_K, k_SK @ word_K, words_SK @ q_K, k_SK @ q_K)
        return ScoreParts(*(one.float() for one in pairs))

    @property
    def masked_S(self) -> Tensor:
        """What the softmax reads: scaled scores with bias, and minus infinity where a key is masked."""
        biased_S = self.scaled_S if self.bias_S is None else self.scaled_S + self.bias_S
        return biased_S.masked_fill(~self.allowed_S, -math.inf)

    @property
    def weighted_SL(self) -> Tensor:
        """Each key's value times its weight."""
        return self.weights_S[:, None] * self.v_SL

    @property
    def output_L(self) -> Tensor:
        """The output of the head: the sum of all weighted values."""
        sum_L = self.weighted_SL.sum(0)
        return sum_L if self.added_L is None else sum_L + self.added_L

    def text(self) -> str:
        """The table, a line for each key.

        Returns:
            The lines.
        """
        titles = ["q·k", f"× {self.scale:.3g}", *(["+ bias"] if self.bias_S is not None else []), "masked"]
        titles += ["weight", "|v|", "|weight × v|"]
        rows = [["key", *titles, "weight × v"]]
        for s, key in enumerate(self.keys):
            numbers = [self.scores_S[s], self.scaled_S[s]]
            numbers += [] if self.bias_S is None else [self.bias_S[s]]
            cells = [f"{float(x):z.2f}" for x in (*numbers, self.masked_S[s])]
            cells += [f"{float(self.weights_S[s]):.3f}", f"{float(self.v_SL[s].norm()):.2f}"]
            rows.append([key, *cells, *sized(self.weighted_SL[s])])
        if self.added_L is not None:
            rows.append(["positions", *[""] * (len(titles) - 1), *sized(self.added_L)])
        total = f"{float(self.weights_S.sum()):.3f}"
        rows.append(["sum", *[""] * (len(titles) - 3), total, "", *sized(self.output_L)])
        parts = [] if self.no_parts else ["", *self.parts_table()]
        return "\n".join([*self.heading(), "", *table(rows), *parts])

    def parts_table(self) -> list[str]:
        """The four parts of each score, the query's first."""
        parts = self.parts()
        columns = [*vars(parts).values(), self.scores_S]
        rows = [
            ["key", "word · word", "word · position", "position · word", "position · position", "sum", ""]
        ]
        for s, key in enumerate(self.keys):
            rows.append([key, *(f"{float(column[s]):z.2f}" for column in columns), ""])
        return [
            "q·k in four parts: what comes from the word and from the position of query · key",
            "",
            *table(rows),
        ]

    def heading(self) -> list[str]:
        width = len(self.q_K)
        lines = [
            f'query {self.query}, "{self.word}", layer {self.layer}, head {self.head}',
            f"q = {vector(self.q_K)}, {width} dimensions, |q| = {float(self.q_K.norm()):.3g}",
        ]
        if math.isclose(self.scale, 1 / math.sqrt(width)):
            lines.append(f"scores are scaled by 1/√{width} = {self.scale:.3g}")
        elif self.scale == 1:
            lines.append("scores are not scaled: this model was trained without scaling")
        return lines

    def as_json(self) -> dict[str, Any]:
        """All the numbers; what is masked has null for -inf."""
        bias = None if self.bias_S is None else self.bias_S.tolist()
        masked = [x if math.isfinite(x) else None for x in self.masked_S.tolist()]
        return {
            "query": self.query,
            "word": self.word,
            "layer": self.layer,
            "head": self.head,
            "keys": self.keys,
            "q": self.q_K.tolist(),
            "k": self.k_SK.tolist(),
            "v": self.v_SL.tolist(),
            "scores": self.scores_S.tolist(),
            "scale": self.scale,
            "scaled": self.scaled_S.tolist(),
            "bias": bias,
            "allowed": self.allowed_S.tolist(),
            "masked": masked,
            "weights": self.weights_S.tolist(),
            "weighted_values": self.weighted_SL.tolist(),
            "output": self.output_L.tolist(),
            **(
                {"parts": None, "parts_refused": self.no_parts}
                if self.no_parts
                else {"parts": self.parts().as_json()}
            ),
        }


@torch.no_grad()
def steps_of(
    record: Record,
    attention: Watchable,
    allowed_S: Tensor,
    *,
    layer: int,
    head: int,
    query: int,
    word: str,
    keys: list[str],
) -> Steps:
    """The steps of a query in a head of an attention that was watched, all of them counted from 1."""
    h, t = head - 1, query - 1
    q_BHTK, k_BHSK, v_BHSL = record.q[-1], record.k[-1], record.v[-1]
    weights_BHTS, scaled_BHTS = record.weights[-1], record.scores[-1]
    H, T, S = weights_BHTS.shape[1:]
    q_pos, k_pos = (torch.arange(n, device=q_BHTK.device) for n in (T, S))
    dot = attention.score.as_dot(q_BHTK, k_BHSK)
    scores_BHTS = scaled_BHTS if dot is None else dot[0] @ dot[1].mT
    bias = attention.position.bias(q_BHTK, k_BHSK, q_pos, k_pos)
    added = attention.position.values(weights_BHTS, q_pos, k_pos)
    return Steps(
        layer=layer,
        head=head,
        query=query,
        word=word,
        keys=keys,
        q_K=plain(q_BHTK[0, h, t]),
        k_SK=plain(k_BHSK[0, h]),
        v_SL=plain(v_BHSL[0, h]),
        scores_S=plain(scores_BHTS[0, h, t]),
        scale=1.0 if dot is None else dot[2],
        scaled_S=plain(scaled_BHTS[0, h, t]),
        bias_S=None if bias is None else plain(bias.expand(1, H, T, S)[0, h, t]),
        allowed_S=allowed_S,
        weights_S=plain(weights_BHTS[0, h, t]),
        added_L=None if added is None else plain(added[0, h, t]),
    )


def plain(x: Tensor) -> Tensor:
    return x.detach().float().cpu()


def find(down: list[str], query: str | int, remedy: str = "") -> int:
    """The place, from 0, of a query given as a word (the first of them) or by its number from 1."""
    words = [word.lower() for word in down]
    wanted = str(query).strip().lower()
    if isinstance(query, str) and wanted in words:
        return words.index(wanted)
    if wanted.isascii() and wanted.isdigit() and 1 <= int(wanted) <= len(down):
        return int(wanted) - 1
    close = get_close_matches(wanted, words, n=1)
    near = (
        f'; did you mean "{down[words.index(close[0])]}"?'
        if close
        else f"; there are {', '.join(dict.fromkeys(down))}"
    )
    raise BadInput(f"there is no query {query}: give a number from 1 to {len(down)}, or a word{near}{remedy}")


# Text


def sized(x_L: Tensor) -> list[str]:
    """A vector's length and its first components."""
    return [f"{float(x_L.norm()):.3f}", vector(x_L)]


def vector(x_L: Tensor) -> str:
    """The first components, and a sign that there are more."""
    numbers = " ".join(f"{float(x):z6.3f}" for x in x_L[:FIRST])
    return f"[{numbers}{' …' if len(x_L) > FIRST else ''}]"


def table(rows: list[list[str]]) -> list[str]:
    """Columns: the first to the left, numbers to the right, the last as it is."""
    widths = [max(columns_of(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [row[0] + " " * (widths[0] - columns_of(row[0]))]
        cells += [f"{cell:>{width}}" for cell, width in zip(row[1:-1], widths[1:-1], strict=True)]
        lines.append("  ".join([*cells, row[-1]]).rstrip())
    return lines
