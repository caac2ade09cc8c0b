"""Reports of a claim: for a terminal, as JSON, as a page with its figure, and as a worksheet with its key."""

from __future__ import annotations

import shutil
import statistics
import textwrap
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..certify.certificate import finite
from ..files import write_json, write_text
from ..runs.folder import make_folders
from ..tasks.student import mean_interval
from .claim import Claim, Judgment, judge
from .contents import REPORT
from .results import Results
from .run import ClaimRun
from .web_page import web_page

FIGURE = "figure.svg"


@dataclass(frozen=True)
class ClaimReport:
    """A claim, what was measured, and what it comes to."""

    claim: Claim
    results: Results
    judgment: Judgment
    size: str
    seeds: int | None  # if they were given, instead of those of the claim
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
    def finding(self) -> str:
        """The verdict in plain words."""
        if self.surprises:
            return " ".join(["This run does not show what was predicted.", *self.surprises])
        return self.claim.summary(self.results)

    @property
    def summary(self) -> str:
        """The verdict in plain words, and what would change it."""
        return self.finding if self.surprises else f"{self.finding} {self.claim.changes}"

    @property
    def command(self) -> str:
        """What was run."""
        seeds = "" if self.seeds is None else f" --seeds {self.seeds}"
        return f"heedful lab run {self.claim.letter} --{self.size}{seeds}"

    def as_json(self) -> dict[str, Any]:
        """What report.json says; the studio reads its first seven entries. Infinite numbers are null."""
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
        said = {
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
            "command": self.command,
            "seconds": round(self.seconds, 3),
            "parts": parts,
            "arms": {arm: means(self.results, arm) for arm in self.results.records},
        }
        return finite(said)

    def text(self) -> str:
        """The report for a terminal."""
        claim = self.claim
        rows = [("claim", f"{claim.says} ({claim.lecture})"), ("prediction", claim.predicts)]
        for part, ruling in zip(claim.parts, self.judgment.rulings, strict=True):
            control = " (control)" if part.control else ""
            rows += [(ruling.verdict, f"{part.says}{control}"), ("", ruling.why)]
        rows += [("verdict", self.summary)]
        rows += [("rates" if not i else "", line) for i, line in enumerate(rate_lines(self.results))]
        rows += [
            ("measured", f"{self.trials} measurements at size {self.size}, {self.seconds:.0f} s of one core")
        ]
        first = f"{claim.letter}  {claim.name}: {self.judgment.verdict}"
        return "\n".join([first, *(in_columns(name, said) for name, said in rows)])

    def page(self) -> str:
        """The report as a page of Markdown, beside its figure."""
        claim = self.claim
        rows = [
            f"| {part.says} | {part.rule.says()} | {ruling.why} | {ruling.verdict} |"
            for part, ruling in zip(claim.parts, self.judgment.rulings, strict=True)
        ]
        rates = rate_lines(self.results)
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
                *([f"Learning rates. {'. '.join(rates)}.", ""] if rates else []),
                (
                    f"{self.date}, size {self.size}, {self.trials} measurements, {self.seconds:.0f} s of one "
                    f"core: `{self.command}`."
                ),
                "",
            ]
        )

    def worksheet(self) -> str:
        """What students get: the claim and the experiment, and no answer."""
        claim = self.claim
        parts = [f"- [ ] {part.says} Rule: {part.rule.says()}" for part in claim.parts]
        arms = "; ".join(self.results.records)  # their names may have commas
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
        """The answers to the worksheet, with its numbers; 3 and 4 are for students to do."""
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
                f"5. The verdict is **{self.judgment.verdict}**. {self.finding}",
                f"6. {claim.changes}",
                "",
            ]
        )


def in_columns(name: str, said: str) -> str:
    """A name, and a text beside it that is as wide as the terminal."""
    wide = max(60, min(110, shutil.get_terminal_size((110, 24)).columns))
    return textwrap.fill(said, wide, initial_indent=f"   {name:<13}", subsequent_indent=" " * 16)


def rate_lines(results: Results) -> list[str]:
    """Which learning rates each arm tried, with their scores on validation data, and which it used."""
    found = []
    for arm in results.records:
        tried = results.series(arm, "validation")
        if len(tried) > 1:
            used = results.values(arm, "learning rate")
            some = [
                f"{rate:g} (score {statistics.fmean(scores):.3g}, best for {used.count(rate)} of {len(used)})"
                for rate, scores in tried.items()
            ]
            found.append(f"{arm}: {', '.join(some)}")
    return found


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
            between = "{:.4g} to {:.4g}".format(*mean_interval(values)) if len(values) > 1 else ""
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
        run.seeds,
        len(run.wanted),
        run.seconds,
        date or time.strftime("%Y-%m-%d"),
    )


def write_report(folder: Path, report: ClaimReport) -> None:
    """report.json and figure.svg, where the studio looks for them."""
    make_folders(folder)
    write_text(folder / FIGURE, report.claim.figure(report.results).svg())
    write_json(folder / REPORT, report.as_json())


def write_page(folder: Path, report: ClaimReport) -> list[Path]:
    """The page with its figure, the worksheet and its key, each as Markdown and for a browser."""
    make_folders(folder)
    drawn = report.claim.figure(report.results).svg()
    texts = {"page": report.page(), "worksheet": report.worksheet(), "key": report.key()}
    files = {FIGURE: drawn, **{f"{name}.md": text for name, text in texts.items()}}
    files |= {f"{name}.html": web_page(text, {FIGURE: drawn}) for name, text in texts.items()}
    for name, text in files.items():
        write_text(folder / name, text)
    return [folder / f"{name}.html" for name in texts]


def write_index(folder: Path, reports: Sequence[ClaimReport]) -> Path:
    """A page that lists the reports of several claims, each in a folder of its own."""
    rows = [
        f"| {one.claim.letter} | [{one.claim.name}]({one.claim.name}/page.html) | {one.claim.says} | "
        f"{one.claim.lecture} | {one.judgment.verdict} |"
        for one in reports
    ]
    head = [
        "# Claims of the lectures",
        "",
        "|  | claim | the lecture says | lectures | verdict |",
        "|---|---|---|---|---|",
    ]
    write_text(folder / "index.html", web_page("\n".join([*head, *rows]), {}))
    return folder / "index.html"
