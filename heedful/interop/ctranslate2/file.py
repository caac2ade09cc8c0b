"""CTranslate2's model.bin: a list of named tensors, some of them int8 with scales; some are settings.

Every length is checked against the size of the file first. The file remembers which variables were asked for,
so that any other can be refused: it may change what the model computes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...errors import BadInput
from ...files import short
from ..binary import ByteReader
from ..loaded import by

VERSIONS = (4, 5, 6)  # of the file's layout, which are alike as far as they are read here
TYPES = (torch.float32, torch.int8, torch.int16, torch.int32, torch.float16, torch.bfloat16)  # by their codes
MOST = 20_000  # variables; the largest published models have a tenth of it
LONGEST = 256  # bytes of a name
RANK = 4
NEVER = -1e9  # added to the score of a token that cannot be written


def read_head(data: ByteReader) -> tuple[str, int]:
    """(what the file describes, the revision of that)."""
    version = data.number("I", "the version")
    if version not in VERSIONS:
        known = f"{VERSIONS[0]} to {VERSIONS[-1]}"
        raise BadInput(f"{data.path} has the layout {version} of CTranslate2's files; heedful reads {known}")
    return read_name(data, "the specification"), data.number("I", "the revision")


def read_name(data: ByteReader, what: str) -> str:
    """A length, as many bytes, the last of which is 0."""
    length = data.number("H", what)
    if not 1 <= length <= LONGEST:
        raise data.broken(f"{what} has {length} bytes, where 1 to {LONGEST} are expected")
    found = data.text(length, what)
    if not found.endswith("\0") or not found[:-1].isprintable():
        raise data.broken(f"{what} is {short(found)}")
    return found[:-1]


@dataclass(frozen=True)
class Variable:
    """A tensor of the file, as it is stored."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    data: memoryview

    def tensor(self) -> Tensor:
        return torch.frombuffer(bytearray(self.data), dtype=self.dtype).view(self.shape)


def read_variables(data: ByteReader) -> tuple[str, Variables]:
    """What the file describes, and its variables by name."""
    kind, _ = read_head(data)
    count = data.several(data.number("I", "the count"), 10, "variables")
    if count > MOST:
        raise data.broken(f"it announces {count} variables; at most {MOST} are read")
    found: dict[str, Variable] = {}
    for _ in range(count):
        name = read_name(data, "a name")
        if name in found:
            raise data.broken(f"it holds {name} twice")
        found[name] = read_variable(data, name)
    aliases = data.several(data.number("I", "the count of other names"), 4, "other names")
    if aliases > MOST:
        raise data.broken(f"it announces {aliases} other names; at most {MOST} are read")
    others: dict[str, str] = {}
    for _ in range(aliases):
        alias, name = read_name(data, "another name"), read_name(data, "a name")
        if alias in found or alias in others or name not in found:
            raise data.broken(f"it gives {name} the second name {alias}, which is not possible")
        others[alias] = name
    if data.left:
        raise data.broken(f"{data.left} bytes follow its end")
    return kind, Variables(data.path, found, others)


def read_variable(data: ByteReader, name: str) -> Variable:
    rank = data.number("B", f"the rank of {name}")
    if rank > RANK:
        raise data.broken(f"{name} has {rank} axes; at most {RANK} are read")
    shape = tuple(data.number("I", f"the shape of {name}") for _ in range(rank))
    number = data.number("B", f"the type of {name}")
    if number >= len(TYPES):
        raise data.broken(f"{name} has the unknown type {number}")
    size = data.number("I", f"the size of {name}")
    if size != math.prod(shape) * TYPES[number].itemsize or size == 0:
        raise data.broken(f"{name} is {by(shape)} and has {size} bytes")
    return Variable(TYPES[number], shape, data.take(size, name))


@dataclass
class Variables:
    """The variables of a file; it remembers which were asked for."""

    path: Path
    found: dict[str, Variable]
    others: dict[str, str]  # {another name: the name}
    asked: set[str] = field(default_factory=set)
    extra: int = 0  # words added at the end of every vocabulary, with vectors of zeros

    def __contains__(self, name: str) -> bool:
        return name in self.found or name in self.others

    def get(self, name: str) -> Variable:
        self.asked.add(name)
        if name not in self:
            raise BadInput(f"{self.path} has no {name}")
        return self.found[self.others.get(name, name)]

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a weight, which has two axes."""
        shape = self.get(name).shape
        if len(shape) != 2:
            raise BadInput(f"{self.path}: {name} is {by(shape)}, where a matrix is expected")
        return shape[0] + (self.extra if name in EXTENDED else 0), shape[1]

    def setting(self, name: str, default: float | None = None) -> Any:
        """A variable that is a single number."""
        if name not in self and default is not None:
            self.asked.add(name)
            return default
        variable = self.get(name)
        if variable.shape != ():
            raise BadInput(f"{self.path}: {name} is {by(variable.shape)}, where a single number is expected")
        value = variable.tensor().item()
        if isinstance(value, float) and not math.isfinite(value):
            raise BadInput(f"{self.path}: {name} is {value}")
        return value

    def need(self, name: str, *values: float) -> None:
        """Refuse another setting than these, or none."""
        value = self.setting(name)
        if value not in values:
            known = " or ".join(map(str, values))
            raise BadInput(f"{self.path}: {name} is {value}; heedful implements only {known}")

    def may(self, name: str, *values: float) -> None:
        """Refuse another setting than these, if there is one."""
        if name in self:
            self.need(name, *values)

    def layers(self, side: str) -> int:
        count = 0
        while f"{side}/layer_{count}/ffn/linear_0/weight" in self:
            count += 1
        return count

    def same(self, one: str, other: str) -> bool:
        """Whether two names are of one tensor."""
        a, b = self.get(one), self.get(other)
        scales = [self.found.get(self.others.get(name, name) + "_scale") for name in (one, other)]
        held = [None if scale is None else bytes(scale.data) for scale in scales]
        return a is b or (
            a.shape == b.shape and a.dtype == b.dtype and a.data == b.data and held[0] == held[1]
        )

    def tensor(self, name: str) -> Tensor:
        """In fp32; integers are divided by their scale, one per row or one for all."""
        stored = self.get(name)
        value = stored.tensor().float()
        if not stored.dtype.is_floating_point:
            held = self.others.get(name, name) + "_scale"
            scale = self.get(held).tensor().float()
            if scale.shape not in ((), value.shape[:1]) or not bool((scale.isfinite() & (scale > 0)).all()):
                raise BadInput(f"{self.path}: {held} does not fit {name}")
            value /= scale.view(-1, *[1] * (value.ndim - 1)) if scale.ndim else scale
        if self.extra and name in EXTENDED:
            row = torch.full((self.extra, *value.shape[1:]), NEVER if value.ndim == 1 else 0.0)
            value = torch.cat([value, row])
        return value


EXTENDED = (
    "encoder/embeddings_0/weight",
    "decoder/embeddings/weight",
    "decoder/projection/weight",
    "decoder/projection/bias",
)
