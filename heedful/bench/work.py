"""Work: what contenders do, in a few sizes each, and the arithmetic and memory traffic that it takes.

A unit of work is one training step, or one whole batch decoded. Training is by random tokens, without
dropout where the work does not name it; decoding is greedy or by beam, and never ends early, so that
everyone does the same. Nothing here imports torch.

Letters as everywhere: B rows, T or S tokens, D width, F feed-forward width, V vocabulary, L layers, W beams.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, ClassVar

from ..errors import BadInput
from ..models import nearest

BYTES = {"fp32": 4, "bf16": 2, "fp16": 2, "int8": 1}  # of a weight
FULL = "full"  # attention to all that came before


@dataclass(frozen=True)
class Work(ABC):
    """The base of every kind of work: its sizes."""

    kind: ClassVar[str] = ""
    trains: ClassVar[bool] = False

    @property
    @abstractmethod
    def tokens(self) -> int:
        """Tokens that a unit of work predicts or writes: what tokens per second count."""

    @abstractmethod
    def describe(self) -> str:
        """The sizes in words."""


@dataclass(frozen=True)
class TrainGPT2(Work):
    """A training step of a decoder with GPT-2's parts."""

    kind: ClassVar[str] = "train-gpt2"
    trains: ClassVar[bool] = True

    layers: int
    width: int
    heads: int
    vocab: int
    length: int
    batch: int
    attention: str = FULL  # or "window 256", "strided 64", "fixed 64": heedful alone

    @property
    def hidden(self) -> int:
        return 4 * self.width

    @property
    def tokens(self) -> int:
        return self.batch * self.length

    def describe(self) -> str:
        size = f"GPT-2, {self.layers} layers of {self.width}, vocabulary {self.vocab:,}"
        return f"training step of {size}; {self.batch} x {self.length:,} tokens"


@dataclass(frozen=True)
class TrainTransformer(Work):
    """A training step of the encoder-decoder of Vaswani et al. 2017, one matrix for all its embeddings."""

    kind: ClassVar[str] = "train-transformer"
    trains: ClassVar[bool] = True

    layers: int  # on either side
    width: int
    heads: int
    hidden: int
    vocab: int
    source: int
    target: int
    batch: int
    dropout: float = 0.0

    @property
    def tokens(self) -> int:
        """Target tokens only."""
        return self.batch * self.target

    def describe(self) -> str:
        size = f"Transformer, {self.layers}+{self.layers} layers of {self.width}, vocabulary {self.vocab:,}"
        dropped = f", dropout {self.dropout:g}" if self.dropout else ""
        return f"training step of {size}{dropped}; {self.batch} pairs of {self.source}+{self.target} tokens"


@dataclass(frozen=True)
class Decode(Work):
    """Greedy continuations of prompts, all of the same length."""

    parts: ClassVar[str] = ""  # whose parts the model has

    layers: int
    width: int
    heads: int
    vocab: int
    prompt: int
    new: int
    batch: int

    @property
    @abstractmethod
    def hidden(self) -> int:
        """The width of the feed-forward layer."""

    @property
    def kept(self) -> int:
        """The width of a token's keys."""
        return self.width

    @property
    @abstractmethod
    def inside(self) -> int:
        """Weights in the matrices of all blocks."""

    @property
    def length(self) -> int:
        return self.prompt + self.new

    @property
    def tokens(self) -> int:
        return self.batch * self.new

    @property
    def reading(self) -> Decode:
        """The same work up to its first new token: the prompts are read, and no more."""
        return replace(self, new=1)

    def describe(self) -> str:
        size = f"{self.parts}, {self.layers} layers of {self.width}, vocabulary {self.vocab:,}"
        return f"greedy decoding by {size}; {self.batch} x {self.prompt} tokens read, {self.new} written"

    @property
    def flops(self) -> int:
        """Two for each multiply-and-add; the last token is not read, and only new tokens are scored."""
        read = self.length - 1
        matrices = read * self.inside + self.new * self.vocab * self.width
        looks = read * (read + 1) // 2  # of every token at those before it and at itself
        return self.batch * (2 * matrices + 4 * self.layers * self.width * looks)

    def traffic(self, numbers: str, kept: str) -> int:
        """Bytes read at least, for every token: all matrices, and keys and values of those before it."""
        matrices = self.inside + self.vocab * self.width
        seen = sum(range(self.prompt, self.length))
        cache = 2 * self.layers * self.kept * seen
        return BYTES[numbers] * self.new * matrices + BYTES[kept] * self.batch * cache


@dataclass(frozen=True)
class DecodeGPT2(Decode):
    """Decoding by a model with GPT-2's parts."""

    kind: ClassVar[str] = "decode-gpt2"
    parts: ClassVar[str] = "GPT-2"

    @property
    def hidden(self) -> int:
        return 4 * self.width

    @property
    def inside(self) -> int:
        return self.layers * self.width * (4 * self.width + 2 * self.hidden)


@dataclass(frozen=True)
class DecodeLlama(Decode):
    """Decoding by a model with LLaMA's parts, whose feed-forward layer has three matrices."""

    kind: ClassVar[str] = "decode-llama"
    parts: ClassVar[str] = "LLaMA"

    kv_heads: int | None = None  # as many as heads
    ffn: int | None = None  # the width of the feed-forward layer
    tied: bool = False  # whether the output matrix is that of the embeddings

    @property
    def hidden(self) -> int:
        """As many weights as GPT-2's two matrices have, to a multiple of 128 where the width is one."""
        if self.ffn is not None:
            return self.ffn
        unit = math.gcd(self.width, 128)
        return -(-8 * self.width // 3 // unit) * unit

    @property
    def kept(self) -> int:
        return self.width if self.kv_heads is None else self.width // self.heads * self.kv_heads

    @property
    def inside(self) -> int:
        return self.layers * self.width * (2 * self.width + 2 * self.kept + 3 * self.hidden)


@dataclass(frozen=True)
class Translate(Work):
    """Translations of sources, all of the same length: greedy (beam 1) or by beam search."""

    kind: ClassVar[str] = "translate"

    layers: int  # on either side
    width: int
    heads: int
    hidden: int
    vocab: int
    source: int
    new: int
    batch: int
    beam: int

    @property
    def tokens(self) -> int:
        return self.batch * self.new

    def describe(self) -> str:
        size = f"Transformer, {self.layers}+{self.layers} layers of {self.width}, vocabulary {self.vocab:,}"
        how = "greedy" if self.beam == 1 else f"beam {self.beam}"
        return f"translation by {size}; {self.batch} x {self.source} tokens read, {self.new} written, {how}"

    @property
    def flops(self) -> int:
        """Two for each multiply-and-add; keys and values of the source are made once, for all beams."""
        B, S, N, W = self.batch, self.source, self.new, self.beam
        once = S * self.reading
        looks = S * S + W * (N * (N + 1) // 2 + N * S)  # the encoder's, the decoder's own, and at the source
        return B * (2 * (once + W * N * self.writing) + 4 * self.layers * self.width * looks)

    def traffic(self, numbers: str, kept: str) -> int:
        """Bytes read at least: the encoder once; for every token the decoder, its cache and the source's."""
        B, S, N, W = self.batch, self.source, self.new, self.beam
        cache = 2 * self.layers * self.width * (W * N * (N - 1) // 2 + N * S)
        return BYTES[numbers] * (self.reading + N * self.writing) + BYTES[kept] * B * cache

    @property
    def reading(self) -> int:
        """Weights that read a source: the encoder's, and those of its keys and values in the decoder."""
        return self.layers * self.width * (6 * self.width + 2 * self.hidden)

    @property
    def writing(self) -> int:
        """Weights in the matrices that write a token."""
        blocks = self.layers * self.width * (6 * self.width + 2 * self.hidden)
        return blocks + self.vocab * self.width


END = 0  # of a sentence: a token that the weights never let anyone write


def start_token(work: TrainTransformer | Translate) -> int:
    """What a translation begins with: in Marian's layout the padding, last of the vocabulary."""
    return work.vocab - 1


def dropout_of(work: Work) -> float:
    """What share of numbers a work drops by chance."""
    return work.dropout if isinstance(work, TrainTransformer) else 0.0


KINDS: dict[str, type[Work]] = {
    kind.kind: kind for kind in (TrainGPT2, TrainTransformer, DecodeGPT2, DecodeLlama, Translate)
}


def as_json(work: Work) -> dict[str, Any]:
    return {"kind": work.kind, **asdict(work)}


def from_json(found: Mapping[str, Any]) -> Work:
    """The work that `as_json` wrote."""
    kind = KINDS[found["kind"]]
    return kind(**{f.name: found[f.name] for f in fields(kind)})


# Settings by name.

BASE: dict[str, Any] = {
    "layers": 6,
    "width": 512,
    "heads": 8,
    "hidden": 2048,
    "vocab": 32000,
}  # Transformer base
GPT2: dict[str, Any] = {"layers": 12, "width": 768, "heads": 12, "vocab": 50257}  # 124 M parameters
SMOLLM2: dict[str, Any] = {
    "layers": 30,
    "width": 576,
    "heads": 9,
    "kv_heads": 3,
    "ffn": 1536,
    "vocab": 49152,
    "tied": True,
}  # 135 M parameters

CPU: dict[str, Work] = {
    "train-gpt2-128": TrainGPT2(layers=4, width=128, heads=4, vocab=65, length=64, batch=12),
    "train-gpt2-384": TrainGPT2(layers=6, width=384, heads=6, vocab=65, length=256, batch=12),
    "decode-gpt2": DecodeGPT2(**GPT2, prompt=32, new=64, batch=1),
    "decode-smollm2": DecodeLlama(**SMOLLM2, prompt=32, new=64, batch=1),
    **{
        f"translate-b{batch}-beam{beam}": Translate(**BASE, source=24, new=32, batch=batch, beam=beam)
        for batch in (1, 32)
        for beam in (1, 4)
    },
}

CUDA: dict[str, Work] = {
    "train-gpt2": TrainGPT2(**GPT2, length=1024, batch=32),
    "train-transformer": TrainTransformer(**BASE, source=64, target=64, batch=384),
    "train-transformer-dropout": TrainTransformer(**BASE, source=64, target=64, batch=384, dropout=0.1),
    **{f"decode-gpt2-b{batch}": DecodeGPT2(**GPT2, prompt=32, new=128, batch=batch) for batch in (1, 64)},
    **{
        f"translate-b{batch}-beam{beam}": Translate(**BASE, source=64, new=64, batch=batch, beam=beam)
        for batch, beam in ((64, 4), (64, 1), (1, 1))
    },
}

# Measured only when named: every size, batch and prompt of two families, where "-read" is the prompt alone,
# and training at larger sizes.
SIZES: dict[str, dict[str, Any]] = {
    "124m": GPT2,
    "355m": {"layers": 24, "width": 1024, "heads": 16, "vocab": 50257},
    "1.56b": {"layers": 48, "width": 1600, "heads": 25, "vocab": 50257},
}
POINTS: dict[str, Decode] = {
    f"grid-{family}-{size}-b{batch}-p{prompt}": kind(**SIZES[size], prompt=prompt, new=128, batch=batch)
    for family, kind in (("gpt2", DecodeGPT2), ("llama", DecodeLlama))
    for size in SIZES
    for prompt in (32, 1024)
    for batch in (1, 4, 16, 64)
}
TRAINED: dict[str, Work] = {
    f"train-gpt2-{size}": TrainGPT2(**SIZES[size], length=1024, batch=batch)
    for size, batch in (("355m", 16), ("1.56b", 8))
}
READ = "-read"
GRID: dict[str, Work] = {
    name + apart: point.reading if apart else point for name, point in POINTS.items() for apart in ("", READ)
} | TRAINED

# Microscopic ones, sizes all different: whether everything works, in seconds.
SMALL: dict[str, Work] = {
    "train-gpt2": TrainGPT2(layers=2, width=12, heads=3, vocab=29, length=7, batch=5),
    "train-transformer": TrainTransformer(
        layers=2, width=12, heads=3, hidden=20, vocab=31, source=5, target=6, batch=4
    ),
    "train-transformer-dropout": TrainTransformer(
        layers=2, width=12, heads=3, hidden=20, vocab=31, source=5, target=6, batch=4, dropout=0.1
    ),
    "decode-gpt2": DecodeGPT2(layers=2, width=12, heads=3, vocab=29, prompt=4, new=6, batch=3),
    "decode-llama": DecodeLlama(layers=2, width=12, heads=3, vocab=29, prompt=5, new=7, batch=2),
    "decode-smollm2": DecodeLlama(
        layers=2, width=24, heads=6, vocab=29, prompt=5, new=7, batch=1, kv_heads=2, ffn=32, tied=True
    ),
    "translate-beam1": Translate(
        layers=2, width=12, heads=3, hidden=20, vocab=31, source=5, new=7, batch=3, beam=1
    ),
    "translate-beam4": Translate(
        layers=2, width=12, heads=3, hidden=20, vocab=31, source=5, new=6, batch=3, beam=4
    ),
}


def settings(device: str, small: bool = False) -> dict[str, Work]:
    """The named works of a device."""
    return SMALL if small else CUDA if device == "cuda" else CPU


def choose(asked: Sequence[str], known: Mapping[str, Work]) -> dict[str, Work]:
    """The works whose name is, or begins with, one that was asked for; all that are `known` if none was."""
    found: dict[str, Work] = {}
    every = {**known, **GRID}
    for name in asked:
        some = {n: w for n, w in every.items() if n == name} or {
            n: w for n, w in every.items() if n.startswith(name)
        }
        if not some:
            raise BadInput(f'there is no workload "{name}"{nearest(name, every)}')
        found |= some
    return found or dict(known)
