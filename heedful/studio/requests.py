"""What requests to the studio may hold. Fields that are not listed are refused with the nearest name."""

from __future__ import annotations

import types
import typing
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Literal, TypeVar

from starlette.requests import Request

from ..models.base.settings import Range
from ..service.answering import body_of
from ..service.app import Service
from ..service.fields import HttpError, Most, Pattern, bare, hints_of, read

T = TypeVar("T")
Text = Annotated[str, Most("characters")]
RunId = Annotated[str, Pattern("[0-9a-z]{1,16}", "the id of a run"), "an id of /api/runs"]
Edits = Annotated[list[Annotated[str, Most("stop_characters")]], Most("texts"), "such as zero:cross.3.2"]
Layer = Annotated[int, Range(1, 10_000), "counted from 1"]
Sizes = Annotated[dict[str, int | str], Most("texts"), "whole numbers or names, by setting"]
RATE = Range(1, 1e20)
Kind = Annotated[Literal["self", "cross", "encoder"], "which attention"]
TensorName = Literal[
    "weights", "scores", "q", "k", "v", "allowed", "stream",
    "x", "normed", "source", "heads", "out", "added", "sum", "after",
    "W_q", "W_k", "W_v", "bias_q", "bias_k", "bias_v", "pixels",
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class NothingRequest:
    """No fields."""


@dataclass(frozen=True, kw_only=True)
class TraceRequest:
    """Send a text through a model, and keep everything."""

    run: RunId
    text: Text
    target: Annotated[Text | None, "what an encoder-decoder is to write; its own translation if left out"] = (
        None
    )
    edits: Edits = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class PictureRequest:
    """Keep a picture for traces."""

    picture: Annotated[str, Most("image_bytes"), "a PNG or JPEG file in base64, or as a data: URL"]


# Queries of a trace.


@dataclass(frozen=True, kw_only=True)
class ThumbsQuery:
    """All heads of a kind as small pictures."""

    which: Kind
    side: Annotated[int, Range(4, 128), "pixels at most, down and across"] = 32


@dataclass(frozen=True, kw_only=True)
class TensorQuery:
    """Numbers of one head, or of one layer."""

    name: TensorName
    which: Annotated[Literal["self", "cross", "encoder"], "which attention; stream has none"] = "self"
    shell: Annotated[Literal["encoder", "decoder"], "of stream"] = "decoder"
    layer: Annotated[int, Range(0, 10_000), "counted from 1; of stream, 0 is the embedding"]
    head: Annotated[int, Range(0, 10_000), "counted from 1; 0: all of them"] = 0
    dtype: Literal["f16", "f32"] = "f16"


@dataclass(frozen=True, kw_only=True)
class StepsQuery:
    """One query of one head, step by step."""

    which: Kind
    layer: Layer
    head: Layer
    query: Layer


@dataclass(frozen=True, kw_only=True)
class SublayerQuery:
    """One query through a sublayer."""

    which: Kind
    layer: Layer
    query: Layer


@dataclass(frozen=True, kw_only=True)
class AlignmentQuery:
    """Where outputs come from."""

    by: Annotated[Literal["weight", "norm", "zeroing", "gradient"], "the measure"] = "weight"
    row: Annotated[Literal["prediction", "input"], "where a word of the target is read"] = "prediction"
    which: Annotated[Literal["self", "cross", "encoder"] | None, "the first that there is, if left out"] = (
        None
    )
    layer: Annotated[int, Range(0, 10_000), "counted from 1; 0: that of the best head"] = 0
    head: Annotated[int, Range(0, 10_000), "counted from 1; 0: the best"] = 0
    mean: Annotated[int, Range(0, 1), "1: all heads of the layer together"] = 0


@dataclass(frozen=True, kw_only=True)
class FlowQuery:
    """What each layer would predict."""

    top: Annotated[int, Range(1, 100), "most likely tokens at each place"] = 5


@dataclass(frozen=True, kw_only=True)
class PositionsRequest:
    """Tables of positions."""

    run: RunId
    length: Annotated[int, Range(2, 512), "positions"] = 48
    base: Annotated[float | None, Range(2, 1e9), "of the frequencies, instead of the model's own"] = None


@dataclass(frozen=True, kw_only=True)
class SpellRequest:
    """A text through a tokenizer."""

    run: RunId
    text: Text
    target: Annotated[bool, "by the vocabulary that the model writes with, where it has two"] = False


@dataclass(frozen=True, kw_only=True)
class TokenStatisticsRequest:
    """What a tokenizer makes of the held-out texts of a run, or of built-in sentences."""

    run: RunId
    target: Annotated[bool, "the vocabulary that the model writes with, on its targets"] = False
    count: Annotated[int, Range(2, 4096), "texts at most"] = 512


@dataclass(frozen=True, kw_only=True)
class CostRequest:
    """What a model costs."""

    run: RunId
    batch: Annotated[int, Range(1, 10**6), "texts"] = 1
    length: Annotated[int | None, Range(1, 10**6), "tokens of a text; at most what the model can read"] = None
    source_length: Annotated[int | None, Range(1, 10**6), "tokens that an encoder reads"] = None
    precision: Literal["fp32", "bf16"] = "fp32"
    config: Annotated[Sizes | None, "sizes instead of the model's own, such as layers"] = None
    room: Annotated[int | None, Range(1, 2**60), "bytes: largest batches that fit, and formulas"] = None
    flops_rate: Annotated[float | None, RATE, "FLOPs a second of this machine, for predicted seconds"] = None
    bandwidth: Annotated[float | None, RATE, "bytes a second of its memory"] = None


# Reading them.


async def asked_for(kind: type[T], service: Service, request: Request, most: int | None = None) -> T:
    """The body of a request, checked."""
    limits = service.limits
    return read(kind, await body_of(request, most or limits.body_bytes), limits)


def query_of(kind: type[T], service: Service, request: Request) -> T:
    """The query of a request, checked: numbers come as texts."""
    hints, given = hints_of(typing.cast(Any, kind)), dict[str, Any]()
    names = {one.name for one in fields(kind)}  # type: ignore[arg-type]
    for name, value in request.query_params.multi_items():
        if name in given:
            raise HttpError(400, f'"{name[:60]}" is given twice', name[:60])
        given[name] = number_in(hints[name], value, name) if name in names else value
    return read(kind, given, service.limits)


def number_in(hint: Any, value: str, name: str) -> Any:
    """A text as the number that a field takes; as it is, if the field takes texts."""
    hint, _ = bare(hint)
    members = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    kinds = {bare(one)[0] for one in members}
    for number in (int, float):
        if number in kinds:
            try:
                return number(value) if len(value) < 40 else value
            except ValueError:
                return value
    return value
