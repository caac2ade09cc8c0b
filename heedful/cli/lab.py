"""Test claims of the lectures by experiments, each with a prediction, a figure and a verdict.

`heedful lab` lists the claims with their last verdicts. `heedful lab CLAIM` measures one or more of them, by
letter or by name; `heedful lab all` measures all. Verdicts are exact (an identity held to rounding),
supported, contradicted, inconclusive, and depends (the report says on what). The rule that decides is
fixed before anything runs, and the report states it.

Every measurement is recorded, so that an interrupted run continues and a repeated one takes no time. Records
are measured again when the code that they depend on has changed. --run holds a folder for each claim with
report.json, figure.svg and records.jsonl, which `heedful studio` shows. The exit code is 3 if a verdict is
not the expected one.

Claims train small models of their own. --on RUN asks a trained model instead: extrapolation (the
loss beyond its training length), offsets (its position table), mask (leaks), scaling and lookup (its scores),
alignment (its cross-attention). `heedful lab all --on RUN` tries all that apply. The folder of the model is
only read.

Examples: heedful lab; heedful lab e; heedful lab mask order --standard; heedful lab all --json;
heedful lab e --report pages/e; heedful lab scaling --on runs/demo; heedful lab all --on ./gpt2
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from ..errors import BadInput
from ..files import one_line, present
from ..lab.contents import claim_files, claim_texts, last_report
from ..models import nearest
from .shared.arguments import quoted
from .shared.exit_codes import DID_NOT_HOLD
from .shared.options import Positional, arg
from .shared.terminal import say, track

if TYPE_CHECKING:
    from ..lab.claim import Claim
    from ..lab.own_model.report import OwnModelReport
    from ..lab.report import ClaimReport
    from ..use.model import Model

WORDS = ("list", "run", "all")  # what may stand first; anything else is a claim
RECORDS = "runs/lab"
SHORT = 0.2  # minutes: a second process would only just have started


@dataclass(frozen=True)
class LabOptions:
    """The options of `heedful lab`."""

    what: Annotated[str, Positional, arg("[list|run|all|CLAIM]", "list")] = "list"
    """List all claims, run some of them, or run all. `run` may be left out."""

    claims: Annotated[tuple[str, ...], Positional, arg("[CLAIM ...]", "none")] = ()
    """The claims to run, by letter or name."""

    quick: Annotated[bool, arg(default="True, without --standard and --full")] = False
    """The fewest seeds and steps that can give a verdict."""

    standard: bool = False
    """More seeds, for narrower intervals."""

    full: bool = False
    """The most seeds and steps."""

    seeds: Annotated[int | None, arg("INT", "as the claim says")] = None
    """How many seeds to measure with, from 1 to 100."""

    run: Annotated[str, arg("DIR")] = RECORDS
    """Where records, verdicts and figures go: a folder for each claim."""

    report: Annotated[str | None, arg("DIR", "none")] = None
    """Also write a page with the figure, a worksheet and its key here; with several claims, a folder each.
    With --on: report.json and figure.svg."""

    on: Annotated[str | None, arg("RUN|FOLDER", "none")] = None
    """Ask this model instead of training small ones: the folder of a run, or a Hugging Face folder."""

    data: Annotated[str | None, arg("FILE", "the held-out data of the run, or built-in texts")] = None
    """With --on: texts to read, one a line (extrapolation, scaling, lookup)."""

    json: bool = False
    """Print one JSON object with all values instead."""


def lab(given: LabOptions) -> int | None:
    """List claims, or run some and print their verdicts; or try them on a trained model."""
    given = with_run(given)
    size = check_options(given)
    if given.what == "list":
        print_list(given)
        return None
    if given.on is not None:
        try_claims(given)
        return None
    from ..lab.claim import find_claim

    names = given.claims if given.what == "run" else tuple(claim_files())
    claims = {claim.name: claim for claim in map(find_claim, names)}
    reports = [measure(given, claim, size, alone=len(claims) == 1) for claim in claims.values()]
    if given.report is not None and len(reports) > 1:
        from ..lab.report import write_index

        say(f"all reports: {write_index(Path(given.report), reports)}")
    if given.json:
        print(json.dumps({"claims": [report.as_json() for report in reports]}, indent=2, allow_nan=False))
    unexpected = [report.claim.name for report in reports if report.surprises]
    if unexpected:
        say(f"not as expected: {', '.join(unexpected)}")
    return DID_NOT_HOLD if unexpected else None


def with_run(given: LabOptions) -> LabOptions:
    """The same with the word `run` where a claim stands first."""
    if given.what in WORDS:
        return given
    names = [*claim_files(), *(path.stem[0] for path in claim_files().values())]
    if given.what not in names:
        known = names if len(given.what) == 1 else [*claim_files(), *WORDS]
        raise BadInput(f"there is no claim {quoted(given.what)}{nearest(given.what, known)}")
    return replace(given, what="run", claims=(given.what, *given.claims))


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
    check_on(given, sizes)
    return sizes[0] if sizes else "quick"


def check_on(given: LabOptions, sizes: list[str]) -> None:
    """Refuse what does not go with a model of one's own, or only with one."""
    if given.on is None:
        if given.data is not None:
            raise BadInput("--data is for a model of your own: give --on RUN with it")
        return
    if given.what == "list":
        raise BadInput("--on needs a CLAIM to try, such as offsets, or `all`: `heedful lab` lists them")
    if sizes or given.seeds is not None:
        wrong = f"--{sizes[0]}" if sizes else "--seeds"
        raise BadInput(
            f"{wrong} is for small models that a claim trains: --on has one model, so leave it out"
        )
    if given.run != RECORDS:
        raise BadInput("--run keeps records, and --on makes none: --report DIR keeps its report")
    if given.data is not None and not present(Path(given.data)):
        raise BadInput(one_line(f"--data {given.data} is not there"))
    if given.report is not None and Path(given.report).resolve().is_relative_to(Path(given.on).resolve()):
        raise BadInput(one_line(f"--report {given.report} is in the folder of the model, which is only read"))


# Small models.


def measure(given: LabOptions, claim: Any, size: str, alone: bool) -> ClaimReport:
    """Measure what is not recorded yet, write the report, and print it."""
    from ..lab.report import report_of, write_page, write_report
    from ..lab.run import ClaimRun

    folder = Path(given.run) / claim.name
    processes = 2 if claim.minutes[size] > SHORT else 1
    run = ClaimRun(claim, folder, size, given.seeds, processes)
    if not given.json:
        recorded = len(run.wanted) - len(run)
        before = f", {recorded} of them recorded before" if recorded else ""
        say(f"{claim.name}: {len(run.wanted)} measurements{before}")
    for _ in track(run, f"measuring {claim.name}", "measurement"):
        pass
    report = report_of(run)
    write_report(folder, report)
    if not given.json:
        print(report.text() + "\n")
        say(f"figure: {folder / 'figure.svg'}")
    if given.report is not None:
        pages = Path(given.report) if alone else Path(given.report) / claim.name
        written = write_page(pages, report)
        if not given.json:
            say(f"report: {', '.join(map(str, written))}")
    return report


# A model of one's own.


def try_claims(given: LabOptions) -> None:
    """Ask a trained model what claims ask of small ones, and print what it says."""
    from ..lab.claim import find_claim
    from ..lab.own_model import CAN_TRY, READS_TEXTS, check_can_try, try_claim

    names = given.claims if given.what == "run" else tuple(name for name in claim_files() if name in CAN_TRY)
    claims = list({claim.name: claim for claim in map(find_claim, names)}.values())
    check_can_try(claims)
    if given.data is not None and not any(claim.name in READS_TEXTS for claim in claims):
        raise BadInput(f"{claims[0].name} reads no texts: leave out --data")
    if present(Path(str(given.on))) and not given.json:
        say(f"trying {', '.join(claim.name for claim in claims)} on {given.on}")  # at once: torch is slow
    model = opened(str(given.on))
    found: list[OwnModelReport] = []
    refused: dict[str, str] = {}
    for claim in claims:
        try:
            found.append(try_claim(claim, model, given.data if claim.name in READS_TEXTS else None))
        except BadInput as error:
            if len(claims) == 1:
                raise
            refused[claim.name] = str(error)
            continue
        show_tried(given, claim, found[-1], alone=len(claims) == 1)
    if not found:
        raise BadInput(next(iter(refused.values())))
    if given.json:
        reports = [report.as_json() for report in found]
        said = {"model": given.on, "claims": reports, "not_applicable": refused}
        return print(json.dumps(said, indent=2, allow_nan=False))
    for name, why in refused.items():
        say(f"not tried: {why if name in why else f'{name}: {why}'}")


def opened(folder: str) -> Model:
    """The model of a folder."""
    from ..interop.run_folder import is_run, refuse_stage
    from ..runs.finished import open_model
    from ..use.model import Model

    loaded = open_model(Path(folder), "cpu")
    refuse_stage(Path(folder), loaded.architecture, "be tried")
    return Model(loaded, folder, own=is_run(Path(folder)))


def show_tried(given: LabOptions, claim: Claim, report: OwnModelReport, alone: bool) -> None:
    """Print a report, and write it where it is wanted."""
    if not given.json:
        print(report.text() + "\n", flush=True)
    if given.report is not None:
        from ..lab.own_model.report import write_tried

        written = write_tried(Path(given.report) if alone else Path(given.report) / claim.name, report)
        if not given.json:
            say(f"report: {', '.join(map(str, written))}")


# The list.


def print_list(given: LabOptions) -> None:
    """Every claim, with the verdict of its last run."""
    rows = []
    for claim in claim_texts():
        last = last_report(Path(given.run) / claim.name)
        rows.append(asdict(claim) | {"verdict": last.get("verdict"), "date": last.get("date")})
    if given.json:
        return print(json.dumps({"claims": rows}, indent=2))
    wide = max(len(row["name"]) for row in rows)
    for row in rows:
        verdict = f"{row['verdict']} ({row['date']})" if row["verdict"] else "not run"
        print(f"{row['letter']}  {row['name']:<{wide}}  {verdict:<25}  {row['says']}")
    say("run one: heedful lab e; ask a model of your own: heedful lab e --on runs/demo")
