"""Show the parts of a model, its parameters, FLOPs and memory.

Prints the architecture as a tree with the parameters of every part, then FLOPs per token and memory for one
batch size and length. Reads no weights and downloads nothing, so large models take no longer. Without a name,
it lists the presets.

Examples: heedful info gpt2; heedful info bert-base --batch 32 --length 128; heedful info gpt3-175b --json;
heedful info runs/demo
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from ..errors import BadInput
from .shared.options import Positional, arg
from .shared.terminal import show_rich

if TYPE_CHECKING:
    from ..inside.costs import Costs, Part


COLUMN = 60  # where the numbers of the tree end


@dataclass(frozen=True)
class InfoOptions:
    """The options of `heedful info`."""

    name: Annotated[str | None, Positional, arg("NAME|FOLDER", "list the presets")] = None
    """A preset (gpt2, bert-base, t5-small, vit-b16, ...), a run, or a Hugging Face folder."""

    batch: int = 1
    """Rows in a batch; activations and the cache grow with it."""

    length: Annotated[int | None, arg("INT", "the context, or 512")] = None
    """Tokens in a row; for an encoder-decoder, tokens of the target."""

    source_length: Annotated[int | None, arg("INT", "as --length")] = None
    """Tokens of the source of an encoder-decoder."""

    precision: Literal["fp32", "bf16"] = "fp32"
    """Precision of matrix products: fp32, or bf16 (autocast: weights, norms and optimizer stay in fp32)."""

    json: bool = False
    """Print one JSON object instead, with sizes in bytes."""


def info(args: InfoOptions) -> None:
    """Print a model's parts and costs, or the list of presets."""
    if args.name is None:
        refuse_in_vain(args)
        return list_presets(args)
    from ..files import naming
    from ..inside.costs import costs, default_length
    from ..models.base.skeleton import skeleton

    architecture, config = describe(args.name)
    with naming(Path(args.name) / "config.json"):
        model = skeleton(architecture, config)
    length = default_length(model, config) if args.length is None else args.length
    found = costs(model, args.batch, length, args.source_length, args.precision)
    formats = export_formats(Path(args.name), architecture, config)
    if args.json:
        report = as_json(args.name, architecture, config, found) | {"formats": formats}
        return print(json.dumps(report, indent=2))
    show_rich(tree(args.name, architecture, found), "", figures(found))
    able = [name for name, why in formats.items() if why is None]
    print(f"\nexport formats: {', '.join(able) or 'none'}")


def export_formats(folder: Path, architecture: str, config: Any) -> dict[str, str | None]:
    """{format: why heedful export would refuse such a model, or None}; it is taken to have an end token."""
    from ..interop.formats import refusals
    from ..interop.loaded import SPECIAL, Loaded
    from ..interop.run.read import labels_of_run
    from ..interop.run_folder import is_run
    from ..models.base.skeleton import skeleton

    model = skeleton(architecture, config, labels_of_run(folder) if is_run(folder) else 0)
    return refusals(Loaded(architecture, config, model, None, dict.fromkeys(SPECIAL, 0)))


def refuse_in_vain(args: InfoOptions) -> None:
    """Refuse options that the list of presets does not use."""
    for field in fields(args):
        if field.name not in ("name", "json") and getattr(args, field.name) != field.default:
            raise BadInput(
                f"--{field.name.replace('_', '-')} applies to one model: give its NAME too, such as gpt2"
            )


def describe(name: str) -> tuple[str, Any]:
    """(architecture, config) of a preset or of a folder, whose weights are not read."""
    from ..models import find_preset, presets

    if name not in presets() and (Path(name).is_dir() or os.sep in name):
        from ..interop.hf.read import read_description
        from ..interop.run.read import describe_run
        from ..interop.run_folder import is_run

        if not Path(name).is_dir():
            raise BadInput(f"{name} is not a folder; a model is a folder with a config.json and its weights")
        if is_run(Path(name)):
            return describe_run(Path(name))
        architecture, config, _, _ = read_description(Path(name))
        return architecture, config
    return find_preset(name)


def list_presets(args: InfoOptions) -> None:
    """Every preset with its parameters: counted, not remembered."""
    from rich.table import Table

    from ..inside.costs import count_parameters
    from ..models import model_types, presets
    from ..models.base.skeleton import skeleton

    found = {
        name: (family, count_parameters(skeleton(family, config)))
        for name, (family, config) in presets().items()
    }
    if args.json:
        rows = {name: {"architecture": family, "parameters": n} for name, (family, n) in found.items()}
        return print(json.dumps({"presets": rows, "model_types": model_types()}, indent=2))
    table = Table(box=None, pad_edge=False)
    for heading, side in (("preset", "left"), ("architecture", "left"), ("parameters", "right")):
        table.add_column(heading, justify=side)  # type: ignore[arg-type]
    for name, (family, n) in found.items():
        table.add_row(name, family, units(n, "kMBT"))
    show_rich(table, "", "heedful info NAME shows one of them: its parts, FLOPs and memory.")
    print(f"\nHugging Face folders are read with model_type {', '.join(sorted(model_types()))}")


def as_json(name: str, architecture: str, config: Any, found: Costs) -> dict[str, Any]:
    def nested(part: Part) -> dict[str, Any]:
        row: dict[str, Any] = {"name": part.name, "detail": part.detail, "count": part.count}
        row |= {"parameters": part.parameters, "flops": part.flops, "activations": part.kept}
        return row | {"parts": [nested(inner) for inner in part.parts]}

    return {
        "name": name,
        "architecture": architecture,
        "config": asdict(config),
        "parameters": found.parameters,
        "active_parameters": found.active,
        "parts": [nested(part) for part in found.whole.parts],
        "flops_per_token": found.flops_per_token,
        "token": found.tokens,
        "flops": {"forward": found.whole.flops, "training": 3 * found.whole.flops},
        "memory": found.memory,
        "batch": found.batch,
        "length": found.length,
        "source_length": found.source_length,
        "precision": found.precision,
    }


def tree(name: str, architecture: str, found: Costs, depth: int = 4) -> Any:
    """The architecture, every part with its parameters, down to `depth`."""
    from rich.text import Text
    from rich.tree import Tree

    def label(level: int, name: str, note: str, parameters: int) -> Text:
        text = Text(name, style="bold" if level == 0 else "")
        text.append(f"  {note}" if note else "", style="dim")
        number = units(parameters, "kMBT") if parameters else "-"
        text.pad_right(COLUMN - 4 * level - text.cell_len - len(number))
        return text.append(number, style="cyan")

    def grow(branch: Any, parts: tuple[Part, ...], level: int) -> None:
        for part in filter(is_visible, parts):
            each = (
                f"{units(part.parameters / part.count, 'kMBT')} each" if part.name.endswith("blocks") else ""
            )
            inner = branch.add(label(level, part.name, part.detail or each, part.parameters))
            if level < depth:
                grow(inner, part.parts, level + 1)

    root = Tree(label(0, name, architecture if architecture != name else "", found.parameters))
    grow(root, found.whole.parts, 1)
    return root


def is_visible(part: Part) -> bool:
    """Worth a line: it has parameters or a detail."""
    return bool(part.parameters or part.detail) or any(map(is_visible, part.parts))


# What each line of the memory table is.
MEMORY = {
    "weights": "in fp32",
    "gradients": "in fp32",
    "optimizer": "AdamW: two fp32 values per parameter",
    "copies": "bf16 copies of the matrices",
    "activations": "kept for the backward pass",
    "logits": "in fp32, the loss keeps a second copy",
    "training": "total",
    "cache": "keys and values of all tokens",
    "inference": "weights in this precision, and the cache",
}


def figures(found: Costs) -> Any:
    """Parameters, FLOPs and memory, each with a short explanation."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column()
    table.add_column(justify="right", style="cyan")
    table.add_column(style="dim")
    flops, reading = found.flops_per_token, found.source_length
    table.add_row("parameters", f"{found.parameters:,}", "each weight counted once")
    if found.active < found.parameters:
        table.add_row("  active", f"{found.active:,}", "used per token")
    table.add_row("FLOPs forward", units(flops["forward"]), f"per {found.tokens}")
    if "encoder" in flops:
        table.add_row("  encoder alone", units(flops["encoder"]), "per source token")
        table.add_row("  decoder alone", units(flops["decoder"]), "per target token")
    whole = flops["training"] >= 2.9 * flops["forward"]
    note = "3 x forward" if whole else "3 x forward, except for frozen parts"
    table.add_row("FLOPs training", units(flops["training"]), note)
    table.add_row("", "", "matrix products only; masked positions are counted")
    size = f"batch {found.batch:,} x {found.length:,} tokens" + (f", source {reading:,}" if reading else "")
    table.add_row(f"memory, {found.precision}", "", size)
    for name, note in MEMORY.items():
        together = name in ("training", "inference")
        if found.memory[name]:
            table.add_row(name if together else f"  {name}", binary(found.memory[name]), note)
    return table


def units(number: float, letters: str = "kMGTP") -> str:
    """A count for people: 124.4 M. Parameters are counted in B, FLOPs in G."""
    unit = ""
    for letter in letters:
        if number < 999.95:
            break
        number, unit = number / 1000, f" {letter}"
    return f"{number:,.1f}{unit}" if unit else f"{number:,.0f}"


def binary(size: float) -> str:
    """Bytes for people: 474.7 MiB."""
    unit = "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1023.95:
            break
        size, unit = size / 1024, larger
    return f"{size:,.0f} B" if unit == "B" else f"{size:,.1f} {unit}"
