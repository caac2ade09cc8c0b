"""Check whether a model is sound: sixteen self-checks, each with its value, its limit and a remedy.

The checks: weights are finite; no token sees a later one; padding, batching and the cache change nothing; the
tokenizer restores texts, is used, and fits the model; padding is not the end; embeddings and positions were
trained; a fresh model of these sizes has a loss near ln V; the residual stream is level; attention is not
saturated; heads are in use; a run is better than guessing on its held-out data. Works on runs of every task
and on Hugging Face folders, and changes nothing. The exit code is 3 if a check failed.

Examples: heedful doctor runs/demo; heedful doctor ./gpt2 --json
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from ..errors import BadInput
from ..files import one_line
from ..interop.run_folder import is_run, refuse_stage
from .shared.exit_codes import DID_NOT_HOLD
from .shared.options import Positional, arg

if TYPE_CHECKING:
    from ..inside.doctor import Finding


@dataclass(frozen=True)
class DoctorOptions:
    """The options of `heedful doctor`."""

    run: Annotated[str, Positional, arg("RUN|FOLDER")]
    """The folder of a run, or a Hugging Face folder."""

    seed: int = 0
    """The seed of the random tokens to check with."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute; auto takes the GPU if there is one."""

    json: bool = False
    """Print one JSON object instead."""


def doctor(given: DoctorOptions) -> int:
    """Check the model of a folder, and print each result at once."""
    from ..inside.doctor import FAIL, SEEDS, examine
    from ..runs.finished import open_model, read_run

    if given.seed not in SEEDS:
        raise BadInput(f"--seed must be a whole number {SEEDS}, not {given.seed}")
    folder = Path(given.run)
    loaded = open_model(folder, given.device)
    refuse_stage(folder, loaded.architecture, "be examined")
    recipe = read_run(folder)[0] if is_run(folder) else None
    task = f", trained for {recipe.task}" if recipe else ""
    size = sum(weight.numel() for weight in loaded.model.parameters())
    found: list[Finding] = []
    skipped: dict[str, str] = {}
    if not given.json:
        print(f"{given.run}: {loaded.architecture}, {size:,} parameters{task}\n", flush=True)
    for finding in examine(loaded, folder, recipe, given.seed):
        if isinstance(finding, tuple):
            skipped[finding[0]] = finding[1]
        else:
            found.append(finding)
            if not given.json:
                print("\n".join(lines_of(finding)), flush=True)
    failed = sum(finding.verdict == FAIL for finding in found)
    if given.json:
        report = {
            "run": given.run,
            "architecture": loaded.architecture,
            "parameters": size,
            "sound": not failed,
        }
        report |= {"checks": [asdict(finding) for finding in found], "not_applicable": skipped}
        print(json.dumps(report, indent=2, allow_nan=False))
    else:
        print("\n".join(closing(found, skipped)))
    return DID_NOT_HOLD if failed else 0


def lines_of(finding: Finding) -> list[str]:
    """A check in a line; below it, if it is not ok, the remedy."""
    from ..inside.doctor import OK

    lines = [f"  {finding.verdict:<5} {finding.name:<24} {one_line(finding.summary)}  [{finding.limit}]"]
    return lines if finding.verdict == OK else [*lines, f"        → {finding.remedy}"]


def closing(found: Sequence[Finding], skipped: dict[str, str]) -> list[str]:
    from ..inside.doctor import FAIL, OK, WARN

    counts = {verdict: sum(finding.verdict == verdict for finding in found) for verdict in (OK, WARN, FAIL)}
    lines = [f"\n{len(found)} checks: {counts[OK]} ok, {counts[WARN]} warnings, {counts[FAIL]} failed"]
    return [*lines, *(f"not checked: {name} ({why})" for name, why in skipped.items())]
