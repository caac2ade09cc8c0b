"""Reports of a claim: for a terminal, as JSON, as a page with its figure, and as a worksheet with its key."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import BadInput
from ..files import read_json, write_json, write_text
from ..runs.folder import make_folders
from ..tasks.student import LEVEL
from .claim import Claim, Judgment, judge
from .figures import svg_file
from .results import Results
from .rules import spread_around
from .run import ClaimRun

REPORT, FIGURE, PAGE, WORKSHEET, KEY = "report.json", "figure.svg", "page.md", "worksheet.md", "key.md"


@dataclass(frozen=True)
class ClaimReport:
    """A claim, what was measured, and what it comes to."""

    claim: Claim
    results: Results
    judgment: Judgment
    size: str
    trials: int
    seconds: float
    date: str

    @property
    def surprises(self) -> list[str]:
        """Sentences about parts whose verdict is not the expected one."""
        rulings = dict(zip((part.name for part in self.claim.parts), self.judgment.rulings, strict=True))
        return [
            f"The part {part.name} is {rulings[part.name].verdict}, and {part.expected} was expected "
            f"({rulings[part.name].why})."
            for part in self.judgment.surprises(self.claim)
        ]

    @property
    def summary(self) -> str:
        """The verdict in plain words, and what would change it."""
        if self.surprises:
            return " ".join(["This run does not show what was predicted.", *self.surprises])
        return f"{self.claim.summary(self.results)} {self.claim.changes}"

    def as_json(self) -> dict[str, Any]:
        """What report.json says; the studio reads its first seven entries."""
        claim = self.claim
        parts = [
            {
                "name": part.name,
                "says": part.says,
                "rule": part.rule.says(),
                "verdict": ruling.verdict,
                "expected": part.expected,
                "control": part.control,
                "why": ruling.why,
            }
            for part, ruling in zip(claim.parts, self.judgment.rulings, strict=True)
        ]
        return {
            "name": claim.name,
            "says": claim.says,
            "verdict": self.judgment.verdict,
            "lecture": claim.lecture,
            "summary": self.summary,
            "date": self.date,
            "trials": self.trials,
            "letter": claim.letter,
            "predicts": claim.predicts,
            "expected": claim.expected,
            "as_expected": not self.surprises,
            "size": self.size,
            "seconds": round(self.seconds, 3),
            "parts": parts,
            "arms": {arm: means(self.results, arm) for arm in self.results.records},
        }

    def text(self) -> str:
        """The report for a terminal."""
        claim = self.claim
        lines = [
            f"{claim.letter}  {claim.name}: {self.judgment.verdict}",
            f"   claim        {claim.says} ({claim.lecture})",
            f"   prediction   {claim.predicts}",
        ]
        for part, ruling in zip(claim.parts, self.judgment.rulings, strict=True):
            control = " (control)" if part.control else ""
            lines += [f"   {ruling.verdict:<12} {part.says}{control}", f"   {'':<13}{ruling.why}"]
        measured = f"{self.trials} measurements at size {self.size}, {self.seconds:.1f} s"
        return "\n".join([*lines, f"   verdict      {self.summary}", f"   measured     {measured}"])

    def page(self) -> str:
        """The report as a page of Markdown, beside its figure."""
        claim = self.claim
        rows = [
            f"| {part.says} | {part.rule.says()} | {ruling.why} | {ruling.verdict} |"
            for part, ruling in zip(claim.parts, self.judgment.rulings, strict=True)
        ]
        return "\n".join(
            [
                f"# {claim.name}: {self.judgment.verdict}",
                "",
                f"**Claim** ({claim.lecture}). {claim.says}",
                "",
                f"**Prediction.** {claim.predicts}",
                "",
                f"**Verdict: {self.judgment.verdict}.** {self.summary}",
                "",
                f"![{claim.name}]({FIGURE})",
                "",
                "| statement | rule | measured | verdict |",
                "|---|---|---|---|",
                *rows,
                "",
                *number_table(self.results),
                "",
                (
                    f"{self.date}, size {self.size}, {self.trials} measurements, {self.seconds:.1f} s on one "
                    f"core: `heedful lab run {claim.letter} --{self.size}`."
                ),
                "",
            ]
        )

    def worksheet(self) -> str:
        """What students get: the claim and the experiment, and no answer."""
        claim = self.claim
        parts = [f"- [ ] {part.says} Rule: {part.rule.says()}" for part in claim.parts]
        arms = ", ".join(self.results.records)
        return "\n".join(
            [
                f"# Worksheet: {claim.name}",
                "",
                f"The lecture says ({claim.lecture}): {claim.says}",
                "",
                f"1. Before you run anything: {claim.question} Write down your prediction and a reason.",
                "2. Check the statements that you expect to hold. An experiment may contradict some of them.",
                "",
                *parts,
                "",
                f"3. Run `heedful lab run {claim.letter}`. It compares: {arms}.",
                (
                    "4. Draw the figure that you expect, with names and units on both axes. Compare it with "
                    "figure.svg."
                ),
                (
                    "5. Give your verdict: exact, supported, contradicted, inconclusive, or depends (and on "
                    "what)."
                ),
                "6. What would have to be different for another verdict?",
                "",
            ]
        )

    def key(self) -> str:
        """The answers to the worksheet."""
        claim = self.claim
        parts = [
            f"- {part.says} **{ruling.verdict}**: {ruling.why}."
            for part, ruling in zip(claim.parts, self.judgment.rulings, strict=True)
        ]
        return "\n".join(
            [
                f"# Key: {claim.name}",
                "",
                f"1. {claim.question} {claim.predicts}",
                "2. The statements and their verdicts:",
                "",
                *parts,
                "",
                f"3. The verdict is **{self.judgment.verdict}**. {self.summary}",
                f"4. {claim.changes}",
                "",
            ]
        )


def means(results: Results, arm: str) -> dict[str, dict[str, Any]]:
    """{measure: mean and seeds} of an arm."""
    names = next(iter(results.records[arm].values()))
    return {name: {"mean": results.mean(arm, name), "seeds": results.values(arm, name)} for name in names}


def number_table(results: Results, most: int = 60) -> list[str]:
    """The numbers of all arms as lines of a table."""
    rows = ["| arm | measure | mean | 95 % interval | seeds |", "|---|---|---|---|---|"]
    for arm in results.records:
        for name in next(iter(results.records[arm].values())):
            values = results.values(arm, name)
            between = "{:.4g} to {:.4g}".format(*spread_around(values, LEVEL)) if len(values) > 1 else ""
            rows.append(f"| {arm} | {name} | {statistics.fmean(values):.4g} | {between} | {len(values)} |")
    left_out = len(rows) - 2 - most
    return rows if left_out <= 0 else [*rows[: most + 2], "", f"{left_out} more rows are in report.json."]


def report_of(run: ClaimRun, date: str | None = None) -> ClaimReport:
    """The report of a run whose measurements are done."""
    results = run.results
    return ClaimReport(
        run.claim,
        results,
        judge(run.claim, results),
        run.size,
        len(run.wanted),
        run.seconds,
        date or time.strftime("%Y-%m-%d"),
    )


def write_report(folder: Path, report: ClaimReport) -> None:
    """report.json and figure.svg, where the studio looks for them."""
    make_folders(folder)
    write_text(folder / FIGURE, svg_file(report.claim.figure(report.results)))
    write_json(folder / REPORT, finite(report.as_json()))


def write_page(folder: Path, report: ClaimReport) -> list[Path]:
    """The page with its figure, the worksheet and its key, in a folder of their own."""
    make_folders(folder)
    write_text(folder / FIGURE, svg_file(report.claim.figure(report.results)))
    texts = {PAGE: report.page(), WORKSHEET: report.worksheet(), KEY: report.key()}
    for name, text in texts.items():
        write_text(folder / name, text)
    return [folder / name for name in (*texts, FIGURE)]


def finite(value: Any) -> Any:
    """JSON has no name for numbers that are not finite: they become null."""
    if isinstance(value, dict):
        return {name: finite(one) for name, one in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [finite(one) for one in value]
    return None if isinstance(value, float) and value - value != 0 else value


def last_report(folder: Path) -> dict[str, Any]:
    """The report of a claim's last run; nothing if there is none, or a damaged one."""
    try:
        return read_json(folder / REPORT)
    except (OSError, BadInput):
        return {}
