"""Traces as files: one safetensors file, whose metadata holds the words and sizes as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from ..errors import BadInput
from ..files import one_line, write_bytes
from .capture import Captured
from .look.inputs import InputTokens
from .sublayer import Projections, Sublayer
from .trace_parts import NOT_RECORDED, Kind, LayerAttention, LayerDetail

if TYPE_CHECKING:
    from .trace import Trace

VERSION = 1


def write_trace(seen: Trace, path: Path, details: dict[tuple[str, int], LayerDetail]) -> None:
    """Write a trace, with the exact inside of some layers."""
    tensors: dict[str, Tensor] = {}
    for (which, layer), one in seen.attention.items():
        put(tensors, f"attention.{which}.{layer}", one)
    for (which, layer), detail in details.items():
        put(tensors, f"detail.{which}.{layer}", detail)
    tensors |= {f"stream.{shell}.{layer}": x for (shell, layer), x in seen.streams.items()}
    tensors |= {f"output.{name}": x for name, x in seen.outputs.items()}
    masks = list({id(mask): mask for mask in seen.masks.values()}.values())
    tensors |= {f"mask.{number}": mask for number, mask in enumerate(masks)}
    number_of = {id(mask): number for number, mask in enumerate(masks)}
    about = {
        "version": VERSION,
        "words": asdict(seen.words),
        "kinds": {which: asdict(kind) for which, kind in seen.kinds.items()},
        "agreement": seen.agreement,
        "facts": seen.provenance,
        "masks": [[which, layer, number_of[id(mask)]] for (which, layer), mask in seen.masks.items()],
        "columns": [[*key, places] for key, places in seen.columns.items()],
        "details": [[*key, *described(detail)] for key, detail in details.items()],
    }
    # safetensors refuses tensors that share memory
    own = {name: x.clone(memory_format=torch.contiguous_format) for name, x in tensors.items()}
    write_bytes(path, save(own, {"heedful trace": json.dumps(about)}))


def described(detail: LayerDetail) -> tuple[float, str | None, list[list[str]], str]:
    """What of a layer's inside is no tensor."""
    order = None if detail.sublayer is None else detail.sublayer.order
    return detail.scale, order, [list(one.changed) for one in detail.projections], detail.no_parts


def put(tensors: dict[str, Tensor], start: str, record: Any) -> None:
    """The tensors of a record, and of the records in it."""
    for one in fields(record):
        value = getattr(record, one.name)
        if isinstance(value, Tensor):
            tensors[f"{start}.{one.name}"] = value
        elif isinstance(value, Sublayer):
            put(tensors, f"{start}.sublayer", value)
        elif isinstance(value, list):
            for number, each in enumerate(value):
                put(tensors, f"{start}.projections.{number}", each)


def take(tensors: dict[str, Tensor], start: str, kind: type) -> dict[str, Tensor | None]:
    """The tensors of a record, by their names; None for those that it does not have."""
    return {one.name: tensors.get(f"{start}.{one.name}") for one in fields(kind)}


def read_trace(path: Path) -> dict[str, Any]:
    """The arguments of the trace in a file."""
    about, tensors = read_file(path)
    words = InputTokens(**about["words"])
    kinds = {which: Kind(**kind) for which, kind in about["kinds"].items()}
    keys = [(which, layer) for which, kind in kinds.items() for layer in range(1, kind.layers + 1)]
    attention: dict[Any, Any] = {
        (which, n): LayerAttention(**take(tensors, f"attention.{which}.{n}", LayerAttention))  # type: ignore[arg-type]
        for which, n in keys
    }
    streams = {}
    for name, x in tensors.items():
        if name.startswith("stream."):
            _, shell, layer = name.split(".")
            streams[shell, int(layer)] = x
    outputs = {name.removeprefix("output."): x for name, x in tensors.items() if name.startswith("output.")}
    masks = {(which, layer): tensors[f"mask.{number}"] for which, layer, number in about["masks"]}
    details = {(row[0], row[1]): read_detail(tensors, *row) for row in about["details"]}
    columns = {(which, layer): places for which, layer, places in about["columns"]}
    captured = Captured(attention, streams, masks, columns, outputs)
    found = {"words": words, "kinds": kinds, "captured": captured, "details": details}
    return {**found, "agreement": about["agreement"], "facts": about["facts"]}


def read_detail(
    tensors: dict[str, Tensor],
    which: str,
    layer: int,
    scale: float,
    order: str | None,
    changed: list[list[str]],
    no_parts: str = NOT_RECORDED,
) -> LayerDetail:
    """The exact inside of one layer."""
    start = f"detail.{which}.{layer}"
    inside: dict[str, Any] = take(tensors, start, LayerDetail)
    inside |= {"scale": scale, "sublayer": None, "projections": [], "no_parts": no_parts}
    if order is not None:
        parts: dict[str, Any] = take(tensors, f"{start}.sublayer", Sublayer)
        inside["sublayer"] = Sublayer(**parts | {"order": order})
    for number, names in enumerate(changed):
        rows: dict[str, Any] = take(tensors, f"{start}.projections.{number}", Projections)
        inside["projections"].append(Projections(**rows | {"changed": tuple(names)}))
    return LayerDetail(**inside)


def read_file(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The JSON and the tensors of a file."""
    try:
        with safe_open(path, framework="pt") as file:
            about = (file.metadata() or {}).get("heedful trace")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as fault:
        raise BadInput(one_line(f"{path} cannot be read as a trace: {fault}")) from None
    if about is None:
        raise BadInput(one_line(f"{path} holds no trace, as `heedful look --save` and `Trace.save` write it"))
    found = json.loads(about)
    if found.get("version") != VERSION:
        raise BadInput(
            one_line(f"{path} is a trace of version {found.get('version')}, and this heedful reads {VERSION}")
        )
    return found, tensors
