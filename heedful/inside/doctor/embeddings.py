"""The check of embeddings: rows that are equal, or 0, or belong to tokens that the run never read."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ...data.shards import mapped
from ...errors import BadInput
from ...parts.embeddings import Inputs
from .finding import OK, WARN, Finding, NotApplicable
from .patient import Patient

UNTRAINED = 0.1  # of the rows
PER_ROW = 10  # tokens of the training text for each row, to judge by it
SHOWN = 3  # tokens that are named
READ = 1 << 24  # tokens of the training text that are counted


def trained_embeddings(p: Patient) -> Finding:
    """Few rows of the embedding look as if nothing had trained them."""
    shell = p.decoder or p.reader
    if not isinstance(shell.inputs, Inputs):
        raise NotApplicable("the model has no embedding table of tokens")
    weight_VD = shell.inputs.tokens.weight.detach().float().cpu()
    alike, seen = equal_rows(weight_VD), tokens_read(p, len(weight_VD))
    unseen = None if seen is None else (seen == 0).nonzero()[:, 0]
    found = {"equal another row or are 0": alike}
    if unseen is not None:
        found["never occur in the data"] = unseen
    said = [
        f"{len(rows):,} of {len(weight_VD):,} rows {what}{named(p, rows)}" for what, rows in found.items()
    ]
    worst = max(map(len, found.values()))
    bad = len(alike) > 1 or worst > UNTRAINED * len(weight_VD)
    limit = f"≤ 1 equal, ≤ {UNTRAINED:.0%} unread"
    remedy = "the model knows nothing of these tokens: train on texts that have them, or use fewer tokens"
    return Finding(WARN if bad else OK, float(worst), "; ".join(said), limit, remedy)


def equal_rows(weight_VD: Tensor) -> Tensor:
    """Rows that equal an earlier one, or are 0: a fresh table has none, but for a row of padding.

    Rows are compared by a random mix of their numbers, which is the same for equal rows only.
    """
    mix_D = torch.randn(weight_VD.shape[1], generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    mixed_V = torch.cat([(rows_VD.double() * mix_D).sum(-1) for rows_VD in weight_VD.split(4096)])
    order_V = mixed_V.argsort(stable=True)
    again_V = torch.zeros(len(mixed_V), dtype=torch.bool)
    again_V[order_V[1:]] = mixed_V[order_V[1:]] == mixed_V[order_V[:-1]]
    return (again_V | (weight_VD == 0).all(-1)).nonzero()[:, 0]


def tokens_read(p: Patient, rows: int) -> Tensor | None:
    """How often a run read every token, if it still has its training text; special tokens count as read."""
    if p.folder is None or p.recipe is None or getattr(p.recipe.train, "from_", None):
        return None
    for folder, fields in (("train", ("text",)), ("data", ("source", "target"))):
        if not (p.folder / folder).is_dir():
            continue
        try:
            store = mapped(p.folder / folder)
            streams = [store.stream(name)[:READ] for name in fields if name in store.fields]
        except (BadInput, OSError):
            return None
        if sum(map(len, streams)) < PER_ROW * rows:
            return None  # too short a text to say so
        if all(int(stream.max(initial=0)) < rows for stream in streams):
            counts = sum(np.bincount(stream, minlength=rows) for stream in streams)
            return with_special(p, torch.from_numpy(np.asarray(counts)))
    return None


def with_special(p: Patient, counts_V: Tensor) -> Tensor:
    tokenizer = p.loaded.tokenizer
    added = tokenizer.get_added_tokens_decoder() if tokenizer is not None else {}
    for number in {*p.loaded.special.values(), *added}:
        if number < len(counts_V):
            counts_V[number] += 1
    return counts_V


def named(p: Patient, rows: Tensor) -> str:
    """The first few tokens of these rows."""
    tokenizer = p.loaded.target_tokenizer or p.loaded.tokenizer
    if tokenizer is None or not len(rows):
        return ""
    names = [repr(tokenizer.id_to_token(row) or f"<{row}>") for row in rows[:SHOWN].tolist()]
    return f" ({', '.join(names)}{', ..' if len(rows) > SHOWN else ''})"
