"""The inputs that both models are given: random tokens, texts, every row of the tables, the whole context.

A damaged row of an embedding shows only where its token is read, and a damaged position only where a text is
that long. So every token is read once, and one input is as long as the context, within a limit on the work.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import nn

from ..interop.foreign import InputLimits, NetworkInput
from ..interop.hf.probes import corpus
from ..interop.hf.tokenizer_files import tells_segments
from ..models.base.shells import Decoder, EncoderDecoder, WithHeads, shells_of
from .own import OwnModel

SEED = 20170612
ENDLESS = 512  # tokens, where neither a table nor the config ends
SHORT = (1, 7, 23)  # tokens of random inputs
READ = 10  # texts whose outputs are compared
CONTINUED = 6  # inputs that are continued by searches
NEW = 16  # tokens to generate
LONGEST_TEXT = 48  # tokens of a probe text
CHUNK = 256  # tokens of an input that reads rows of the embedding
# Logits of one input: 480 MB. One pass over all inputs: a minute or two on a CPU.
USUAL = InputLimits(numbers=120_000_000, work=4e12)


@dataclass(frozen=True)
class ProbeInputs:
    """All inputs, and what of the tables they read."""

    drawn: list[NetworkInput]  # random tokens, one as long as the context
    texts: list[NetworkInput]
    covering: list[NetworkInput]  # that read the rest of the embedding
    prompts: list[list[int]]  # to be continued
    new: int  # tokens to generate
    rows: int  # of the embedding
    read: int  # of these, read by an input

    @property
    def all(self) -> list[NetworkInput]:
        return [*self.drawn, *self.texts, *self.covering]

    @property
    def lengths(self) -> list[int]:
        return sorted({max(len(row.ids), len(row.target or ())) for row in self.all})


def inputs_for(here: OwnModel, limits: InputLimits | None = None) -> ProbeInputs:
    """The inputs of a model, always the same ones. limits: of a library that is slower than others."""
    return InputDrawing(here, limits or USUAL).inputs()


class InputDrawing:
    """How inputs of one model are drawn."""

    def __init__(self, here: OwnModel, limits: InputLimits = USUAL) -> None:
        self.here, self.model, self.config = here, here.model, here.loaded.config
        self.limits = limits
        self.dice = random.Random(SEED)
        self.both = isinstance(self.model, EncoderDecoder)
        self.context = context_of(self.model, self.config)
        self.longest = min(self.context, max(CHUNK, limits.numbers // self.sizes[-1]))
        self.new = max(1, min(NEW, self.longest // 2))
        self.room = max(1, self.longest if self.both else self.longest - self.new)

    @cached_property
    def sizes(self) -> list[int]:
        """The rows of the embedding that is read, and of the one that is written."""
        shells = shells_of(self.model).values()
        return [shell.inputs.tokens.weight.shape[0] for shell in shells] or [self.config.vocab]

    @cached_property
    def plain(self) -> list[int]:
        """The tokens that are read and have no meaning of their own."""
        return [n for n in self.free(0) if n not in self.here.loaded.special.values()] or [0]

    def free(self, side: int) -> list[int]:
        """The tokens that stand within a text: padding does not, nor does what ends a decoded text."""
        special = self.here.loaded.special
        out = {special.get("pad")} if not isinstance(self.model, Decoder) else set()
        out |= {special.get("eos")} if side else set()
        return [n for n in range(self.sizes[side]) if n not in out] or [0]

    def inputs(self) -> ProbeInputs:
        lengths = [*(min(length, self.room) for length in SHORT), self.longest]
        drawn = [self.row(self.dice.choices(self.plain, k=length), length) for length in lengths]
        texts = [self.row(ids, NEW) for ids in self.read_texts()]
        covering = list(self.covering([*drawn, *texts]))
        read = {token for row in (*drawn, *texts, *covering) for token in row.ids}
        prompts = [row.ids[: self.room] for row in (*drawn[:-1], *texts)][:CONTINUED]
        return ProbeInputs(drawn, texts, covering, prompts, self.new, self.sizes[0], len(read))

    def row(self, ids: list[int], target: int) -> NetworkInput:
        """An input with what is decoded (of random tokens) and with segments, where the model has them."""
        segments = None
        if isinstance(self.model, WithHeads) and tells_segments(self.model):
            table: Any = self.model.encoder.inputs.segments
            segments = [self.dice.randrange(len(table.weight)) for _ in ids]
        decoded = None
        if self.both:
            length = max(1, min(target, self.longest))
            decoded = [self.here.start, *self.dice.choices(self.free(1), k=length - 1)]
        return NetworkInput(ids, decoded, segments)

    def read_texts(self) -> list[list[int]]:
        """The token ids of some texts of the corpus."""
        room = min(self.room, LONGEST_TEXT)
        read = [ids[:room] for text in corpus() if (ids := self.here.tokens(text) or [])]
        read = [ids for n, ids in enumerate(read) if len(ids) > 1 and ids not in read[:n]]
        return self.dice.sample(read, min(READ, len(read)))

    def covering(self, before: list[NetworkInput]) -> Iterator[NetworkInput]:
        """Inputs with every token that those before do not read, until the work is too much."""
        weights = sum(weight.numel() for weight in self.model.parameters())
        left = self.limits.work / weights - sum(len(row.ids) + len(row.target or ()) for row in before)
        seen = [{token for row in before for token in part(row)} for part in (ids_of, target_of)]
        sides = range(len(self.sizes) if self.both else 1)
        rest = [[token for token in self.free(side) if token not in seen[side]] for side in sides]
        size = max(1, min(self.longest, CHUNK) - 1)
        while any(rest) and left > 0:
            taken, rest = [some[:size] for some in rest], [some[size:] for some in rest]
            # A plain token first: CTranslate2 skips a text that begins with the token that ends one.
            ids = [self.dice.choice(self.plain), *taken[0]]
            decoded = [self.here.start, *taken[1]] if self.both else None
            yield NetworkInput(ids, decoded, self.row(ids, 1).segments)
            left -= len(ids) + len(decoded or ())


def ids_of(row: NetworkInput) -> list[int]:
    return row.ids


def target_of(row: NetworkInput) -> list[int]:
    return row.target or []


def context_of(model: nn.Module, config: Any) -> int:
    """How many tokens a model reads at most."""
    tables = [shell.inputs.position.longest for shell in shells_of(model).values()]
    return min([size for size in (*tables, getattr(config, "context", None)) if size] or [ENDLESS])
