"""Edits as records, and how each is spelled.

    zero:cross.3.2          a head's output is 0
    mean:cross.3.2          a head's output is its mean over other sentences
    uniform:cross.3.2       a head attends to all allowed keys alike
    force:cross.3.2:5>2     query 5 attends to key 2 only
    scale:self.1.*:2.0      scores times 2 before the softmax
    patch:decoder.2@4<clean the stream after block 2 at position 4, from the trace called "clean"
    patch:cross.3.2@4<clean a head's output from there
    drop:decoder.2.cross    a sublayer adds nothing: self, cross or feed_forward
    mask:7                  token 7 becomes [MASK], or the unknown token
    positions:none          the model is given no positions

A head is spelled kind.layer.head; a * stands for all. Everything is counted from 1, streams from 0, which is
the embedding. Without @, a patch is made at every position.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from ..errors import BadInput
from ..files import one_line

KINDS = ("cross", "self", "encoder")
SHELLS = ("encoder", "decoder")
SUBLAYERS = ("self", "cross", "feed_forward")
NUMBER = "[1-9][0-9]{0,5}"
HEAD = rf"(?P<which>{'|'.join(KINDS)})\.(?P<layer>{NUMBER}|\*)\.(?P<head>{NUMBER}|\*)"


@dataclass(frozen=True)
class HeadChoice:
    """One head, or several: None stands for all layers, or for all heads."""

    which: str
    layer: int | None
    head: int | None

    @property
    def spelling(self) -> str:
        return f"{self.which}.{self.layer or '*'}.{self.head or '*'}"


@dataclass(frozen=True)
class StreamPlace:
    """The residual stream after a block; 0 is the embedding."""

    shell: str
    layer: int

    @property
    def spelling(self) -> str:
        return f"{self.shell}.{self.layer}"


@dataclass(frozen=True)
class ZeroHead:
    """A head's output is 0."""

    heads: HeadChoice

    @property
    def spelling(self) -> str:
        return f"zero:{self.heads.spelling}"


@dataclass(frozen=True)
class MeanHead:
    """A head's output is its mean over other sentences (`head_means`)."""

    heads: HeadChoice

    @property
    def spelling(self) -> str:
        return f"mean:{self.heads.spelling}"


@dataclass(frozen=True)
class UniformHead:
    """A head attends to all allowed keys alike."""

    heads: HeadChoice

    @property
    def spelling(self) -> str:
        return f"uniform:{self.heads.spelling}"


@dataclass(frozen=True)
class ForceHead:
    """A query of a head attends to one key only."""

    heads: HeadChoice
    query: int
    key: int

    @property
    def spelling(self) -> str:
        return f"force:{self.heads.spelling}:{self.query}>{self.key}"


@dataclass(frozen=True)
class ScaleHead:
    """Scores times a factor, before the softmax: above 1 attention gets sharper, below 1 flatter."""

    heads: HeadChoice
    factor: float

    @property
    def spelling(self) -> str:
        return f"scale:{self.heads.spelling}:{self.factor!r}"


@dataclass(frozen=True)
class Patch:
    """A stream, or a head's output, from another trace: at one position, or at all of them."""

    place: StreamPlace | HeadChoice
    position: int | None
    trace: str  # the name under which the other trace is given

    @property
    def spelling(self) -> str:
        at = "" if self.position is None else f"@{self.position}"
        return f"patch:{self.place.spelling}{at}<{self.trace}"


@dataclass(frozen=True)
class DropSublayer:
    """A sublayer adds nothing to the stream."""

    shell: str
    layer: int
    sublayer: str

    @property
    def spelling(self) -> str:
        return f"drop:{self.shell}.{self.layer}.{self.sublayer}"


@dataclass(frozen=True)
class MaskToken:
    """A token of the text becomes [MASK], or the unknown token."""

    token: int

    @property
    def spelling(self) -> str:
        return f"mask:{self.token}"


@dataclass(frozen=True)
class RemovePositions:
    """The model is given no positions."""

    @property
    def spelling(self) -> str:
        return "positions:none"


HeadEdit = ZeroHead | MeanHead | UniformHead | ForceHead | ScaleHead
Edit = HeadEdit | Patch | DropSublayer | MaskToken | RemovePositions


def spell(edit: Edit) -> str:
    """How an edit is spelled."""
    return edit.spelling


def parse(spelling: str) -> Edit:
    """The edit of a spelling, such as "zero:cross.3.2"."""
    for pattern, example, make in FORMS:
        name = example.split(":")[0]
        if spelling.startswith(f"{name}:") and (found := re.fullmatch(pattern, spelling)):
            return make(found)
    named = [example for _, example, _ in FORMS if spelling.split(":")[0] == example.split(":")[0]]
    shown = short(spelling)
    if named:
        raise BadInput(f'"{shown}" is no edit: it is spelled like {" or ".join(named)}')
    kinds = dict.fromkeys(example.split(":")[0] for _, example, _ in FORMS)
    raise BadInput(f'"{shown}" is no edit: edits are {", ".join(kinds)}, such as zero:cross.3.2')


def short(spelling: str) -> str:
    """What is shown of a spelling that is wrong."""
    return one_line(spelling if len(spelling) <= 60 else f"{spelling[:59]}…")


def parsed(edits: object) -> list[Edit]:
    """Edits that are given as records or as spellings."""
    if isinstance(edits, str) or not hasattr(edits, "__iter__"):
        raise BadInput('edits are a list, such as ["zero:cross.3.2"]')
    return [parse(one) if isinstance(one, str) else one for one in edits]


def heads_of(found: re.Match[str]) -> HeadChoice:
    layer, head = (None if found[name] == "*" else int(found[name]) for name in ("layer", "head"))
    return HeadChoice(found["which"], layer, head)


def scaled(found: re.Match[str]) -> ScaleHead:
    factor = float(found["factor"])
    if not 0 < factor < math.inf:
        raise BadInput(f"{short(found[0])} scales scores by {factor:g}: give a factor above 0")
    return ScaleHead(heads_of(found), factor)


def patched(found: re.Match[str]) -> Patch:
    position = None if found["position"] is None else int(found["position"])
    if "shell" in found.re.groupindex:
        place: StreamPlace | HeadChoice = StreamPlace(found["shell"], int(found["layer"]))
    else:
        place = heads_of(found)
    return Patch(place, position, found["trace"])


FROM = rf"(@(?P<position>{NUMBER}))?<(?P<trace>[^\x00-\x1f]+)"
SHELL = rf"(?P<shell>{'|'.join(SHELLS)})"
FORMS: list[tuple[str, str, Callable[[re.Match[str]], Edit]]] = [
    (f"zero:{HEAD}", "zero:cross.3.2", lambda found: ZeroHead(heads_of(found))),
    (f"mean:{HEAD}", "mean:cross.3.2", lambda found: MeanHead(heads_of(found))),
    (f"uniform:{HEAD}", "uniform:cross.3.2", lambda found: UniformHead(heads_of(found))),
    (
        rf"force:{HEAD}:(?P<query>{NUMBER})>(?P<key>{NUMBER})",
        "force:cross.3.2:5>2",
        lambda found: ForceHead(heads_of(found), int(found["query"]), int(found["key"])),
    ),
    (rf"scale:{HEAD}:(?P<factor>[0-9]+(\.[0-9]*)?(e[+-]?[0-9]{{1,3}})?)", "scale:self.1.*:2.0", scaled),
    (rf"patch:{SHELL}\.(?P<layer>0|{NUMBER}){FROM}", "patch:decoder.2@4<clean", patched),
    (rf"patch:{HEAD}{FROM}", "patch:cross.3.2@4<clean", patched),
    (
        rf"drop:{SHELL}\.(?P<layer>{NUMBER})\.(?P<part>{'|'.join(SUBLAYERS)})",
        "drop:decoder.2.cross",
        lambda found: DropSublayer(found["shell"], int(found["layer"]), found["part"]),
    ),
    (rf"mask:(?P<token>{NUMBER})", "mask:7", lambda found: MaskToken(int(found["token"]))),
    ("positions:none", "positions:none", lambda found: RemovePositions()),
]
