"""Plan a training run: memory, time, energy and cost on GPUs that are not here.

Predicts how a model would train on so many H200, H100 or A100 GPUs: the memory of a GPU and the time of a
step for each way to divide the model, then days, energy and cost, and the command that trains as the best
plan says. Everything is arithmetic on shapes; docs/howto/planning.md has the formulas and how far they are
from measurements. The name of an architecture, such as gpt3, compares all its presets.

Examples: heedful plan gpt2 --gpus 8 --gpu h100 --tokens 10B; heedful plan llama3-8b --gpus 64 --context 4096;
heedful plan gpt3 --gpus 1024 --gpu a100; heedful plan runs/lm --gpus 1 --json;
heedful plan llama --set model.layers=48 --set model.width=6144 --gpus 256 --tokens 1T
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from ..errors import BadInput
from ..planner.machines import find_cluster, find_gpu
from .shared.options import Positional, Repeated, arg
from .shared.terminal import say

if TYPE_CHECKING:
    from ..planner.subject import Subject


@dataclass(frozen=True)
class PlanOptions:
    """The options of `heedful plan`."""

    model: Annotated[str, Positional, arg("NAME|FOLDER")]
    """A preset (gpt2, llama3-8b, ...), an architecture with --set, a run, or a Hugging Face folder. An
    architecture without --set, such as gpt3, compares all its presets."""

    gpus: int = 8
    """Number of GPUs."""

    gpu: Literal["h200", "h100", "a100"] = "h100"
    """Kind of GPU: H200 (141 GB), H100 (80 GB) or A100 (80 GB), linked by NVLink within a machine."""

    tokens: Annotated[str | None, arg("COUNT", "20 per parameter")] = None
    """Tokens to train on, such as 300B or 1.5T."""

    context: Annotated[int | None, arg("INT", "as the model")] = None
    """Tokens in a row."""

    batch: Annotated[str | None, arg("COUNT", "524288, at least one row per GPU")] = None
    """Tokens in a step, over all GPUs."""

    gpus_per_machine: Annotated[int | None, arg("INT", "8")] = None
    """GPUs in a machine."""

    network: Annotated[str | None, arg("NAME|GBITS", "InfiniBand, as usual for the GPU")] = None
    """Network between machines: ndr, hdr, ethernet-400, ethernet-100, ethernet-25, or Gb/s per machine."""

    price: Annotated[float | None, arg("DOLLARS", "by GPU")] = None
    """Price of a GPU for an hour."""

    watts: Annotated[float | None, arg("WATTS", "the GPU's limit")] = None
    """Power of a GPU; give more to include its share of the machine and of cooling."""

    set: Annotated[tuple[str, ...], arg("model.NAME=VALUE", "none"), Repeated] = ()
    """A size of the model, such as model.layers=24; may be repeated."""

    json: bool = False
    """Print one JSON object instead, with bytes, seconds and FLOPs."""


def plan(given: PlanOptions) -> None:
    """Print the best plan and all others, or the presets of an architecture."""
    cluster = find_cluster(find_gpu(given.gpu), given.gpus, given.gpus_per_machine, given.network)
    for name in ("price", "watts"):
        value = getattr(given, name)
        if value is not None and not 0 <= value <= MOST:
            raise BadInput(f"--{name} must be from 0 to {MOST:,}, not {value:g}")
    if given.context is not None and not 1 <= given.context <= LONGEST:
        raise BadInput(f"--context must be from 1 to {LONGEST:,}, not {given.context:,}")
    if sys.stderr.isatty():
        say(f"planning {given.model} on {cluster.describe()}")
    from ..models import FAMILIES, preset_families

    if given.model in FAMILIES and given.model not in preset_families() and not given.set:
        from .shared.plan_sizes import show_sizes

        return show_sizes(given, cluster)
    from .shared.plan_report import make_report, report_json, report_text

    report = make_report(subject_of(given), given, cluster)
    print(json.dumps(report_json(report), indent=2) if given.json else report_text(report))


MOST = 1_000_000  # dollars an hour, or watts
LONGEST = 1 << 24  # tokens of a row


def subject_of(given: PlanOptions) -> Subject:
    """The model that was requested."""
    from ..models import FAMILIES, preset_families
    from ..planner.subject import Subject, default_config, with_settings
    from .info import describe

    name = given.model
    if name in FAMILIES and name not in preset_families():
        architecture, config = name, default_config(name)
    else:
        architecture, config = describe(name)
    if given.set:
        config = with_settings(architecture, config, given.set)
    return Subject(Path(name).name or "model", architecture, config, given.context, given.set)
