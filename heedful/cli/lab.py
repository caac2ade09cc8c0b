"""Test claims of the lectures by experiments, each with a prediction, a figure and a verdict.

`heedful lab` lists the claims with their last verdicts. `heedful lab run CLAIM` measures one or more of them,
by letter or by name; `heedful lab all` measures all. Verdicts are exact (an identity held to rounding),
supported, contradicted, inconclusive, and depends (and the report says on what). The rule that decides is
fixed before anything runs, and the report states it.

Every measurement is recorded, so that an interrupted run continues and a repeated one takes no time. Records
are measured again when the code that they depend on has changed. --run holds a folder for each claim with
report.json, figure.svg and records.jsonl, which `heedful studio` shows. The exit code is 3 if a verdict is
not the expected one.

Examples: heedful lab; heedful lab run e; heedful lab run mask order --standard; heedful lab all --json;
heedful lab run e --report pages/e
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from ..errors import BadInput
from ..files import one_line, present
from .shared.options import Positional, arg
from .shared.terminal import say, track

if TYPE_CHECKING:
    from ..lab.report import ClaimReport

UNEXPECTED = 3  # the exit code


@dataclass(frozen=True)
class LabOptions:
    """The options of `heedful lab`."""

    what: Annotated[Literal["list", "run", "all"], Positional] = "list"
    """list all claims, run some of them, or run all."""

    claims: Annotated[tuple[str, ...], Positional, arg("[CLAIM ...]", "none")] = ()
    """What to run: letters or names, as the list has them."""

    quick: bool = False
    """The fewest seeds and steps that can give a verdict. This is the default."""

    standard: bool = False
    """More seeds, for narrower intervals."""

    full: bool = False
    """The most seeds and steps."""

    seeds: Annotated[int | None, arg("INT", "as the claim says")] = None
    """How many seeds each arm is measured with, from 1 to 100."""

    run: Annotated[str, arg("DIR")] = "runs/lab"
    """Where records, verdicts and figures go: a folder for each claim."""

    report: Annotated[str | None, arg("DIR", "none")] = None
    """Also write a page with the figure, a worksheet and its key here; with several claims, a folder each."""

    json: bool = False
    """Print one JSON object with all values instead."""


def lab(given: LabOptions) -> int | None:
    """List claims, or run some and print their verdicts."""
    size = check_options(given)
    if given.what == "list":
        print_list(given)
        return None
    from ..lab.claim import claim_files, find_claim

    names = given.claims if given.what == "run" else tuple(claim_files())
    claims = {claim.name: claim for claim in map(find_claim, names)}
    reports = [measure(given, claim, size, alone=len(claims) == 1) for claim in claims.values()]
    if given.json:
        print(json.dumps({"claims": [as_json(report) for report in reports]}, indent=2, allow_nan=False))
    unexpected = [report.claim.name for report in reports if report.surprises]
    if unexpected:
        say(f"not as expected: {', '.join(unexpected)}")
    return UNEXPECTED if unexpected else None


def check_options(given: LabOptions) -> str:
    """Refuse what does not go together; returns the size."""
    sizes = [name for name in ("quick", "standard", "full") if getattr(given, name)]
    if len(sizes) > 1:
        raise BadInput(f"--{sizes[0]} and --{sizes[1]} are two sizes: give one of them")
    if given.what == "run" and not given.claims:
        raise BadInput("run needs a CLAIM, such as e: `heedful lab` lists them")
    if given.what != "run" and given.claims:
        raise BadInput(one_line(f"{given.what} takes no claim: `heedful lab run {given.claims[0]}` runs one"))
    if given.what == "list" and (sizes or given.seeds is not None or given.report is not None):
        raise BadInput("list measures nothing: give `run CLAIM` or `all` with these options")
    if given.seeds is not None and not 1 <= given.seeds <= 100:
        raise BadInput(f"--seeds is from 1 to 100, not {given.seeds}")
    for name, folder in (("run", given.run), ("report", given.report)):
        if folder is not None and present(Path(folder)) and not Path(folder).is_dir():
            raise BadInput(one_line(f"--{name} {folder} is a file: give a folder"))
    return sizes[0] if sizes else "quick"


def measure(given: LabOptions, claim: Any, size: str, alone: bool) -> ClaimReport:
    """Measure what is not recorded yet, write the report, and print it."""
    from ..lab.report import report_of, write_page, write_report
    from ..lab.run import ClaimRun

    folder = Path(given.run) / claim.name
    run = ClaimRun(claim, folder, size, given.seeds)
    if not given.json:
        recorded = len(run.wanted) - len(run)
        say(f"{claim.name}: {len(run.wanted)} measurements, {recorded} of them recorded before")
    for _ in track(run, f"measuring {claim.name}"):
        pass
    report = report_of(run)
    write_report(folder, report)
    if given.report is not None:
        pages = Path(given.report) if alone else Path(given.report) / claim.name
        write_page(pages, report)
    if not given.json:
        print(report.text() + "\n")
        say(f"figure: {folder / 'figure.svg'}")
    return report


def as_json(report: ClaimReport) -> dict[str, Any]:
    from ..lab.report import finite

    return finite(report.as_json())


def print_list(given: LabOptions) -> None:
    """Every claim, with the verdict of its last run."""
    from ..lab.claim import claim_files, find_claim
    from ..lab.report import last_report

    rows = []
    for claim in map(find_claim, claim_files()):
        last = last_report(Path(given.run) / claim.name)
        row: dict[str, Any] = {
            "letter": claim.letter,
            "name": claim.name,
            "lecture": claim.lecture,
            "says": claim.says,
        }
        row |= {"expected": claim.expected, "minutes": dict(claim.minutes)}
        row |= {"verdict": last.get("verdict"), "date": last.get("date")}
        rows.append(row)
    if given.json:
        return print(json.dumps({"claims": rows}, indent=2))
    wide = max(len(row["name"]) for row in rows)
    for row in rows:
        verdict = f"{row['verdict']} ({row['date']})" if row["verdict"] else "not run"
        print(f"{row['letter']}  {row['name']:<{wide}}  {verdict:<25}  {row['says']}")
    say("run one: heedful lab run e")
