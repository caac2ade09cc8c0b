"""Write docs/explain/claims.md and its figures from the reports of `heedful lab all --standard`.

    python tools/claims_page.py             from runs/lab
    python tools/claims_page.py FOLDER      from another --run folder

The page has every claim with its verdict, what it means, what would change it, and its figure. Claims are in
the order of their letters. A claim without a report of a standard run is refused.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any
from xml.sax.saxutils import unescape

from heedful.lab.claim import claim_files

DOCS = Path(__file__).parents[1] / "docs" / "explain"
FIGURES = "claims"  # a folder beside the page
START = """# Claims

Every claim below is an experiment of [`heedful lab`](lab.md). The verdicts are those of `heedful lab all
--standard`: two processes of one thread each on a machine with two cores, torch {torch}. Predictions and
margins were set with pilot runs. Where a part was changed after a first run, the file of the claim says so:
alignment, cost, residuals, concatenation. [Rules](lab.md#rules) have their methods; a control shows that the
measurement works.

| | claim | the lecture says | lectures | verdict |
|---|---|---|---|---|
"""


def main(folder: Path) -> None:
    reports = [read(folder / name) for name in claim_files()]
    (DOCS / FIGURES).mkdir(exist_ok=True)
    for report in reports:
        shutil.copyfile(folder / report["name"] / "figure.svg", DOCS / FIGURES / f"{report['name']}.svg")
    import torch

    rows = "\n".join(map(row, reports))
    text = (
        START.format(torch=torch.__version__.partition("+")[0])
        + rows
        + "\n\n"
        + "\n".join(map(section, reports))
    )
    (DOCS / "claims.md").write_text(text, encoding="utf-8")


def read(folder: Path) -> dict[str, Any]:
    path = folder / "report.json"
    if not path.is_file():
        sys.exit(f"{path} is missing: heedful lab run {folder.name} --standard --run {folder.parent}")
    report = json.loads(path.read_text(encoding="utf-8"))
    if report["size"] != "standard":
        sys.exit(f"{path} is of size {report['size']}: run it with --standard")
    return report


def row(report: dict[str, Any]) -> str:
    name = report["name"]
    link = f"[{name}](#{report['letter']}-{name}-{report['verdict']})"
    return f"| {report['letter']} | {link} | {report['says']} | {report['lecture']} | {report['verdict']} |"


def title_of(name: str) -> str:
    """The title of a figure that is there already."""
    drawn = (DOCS / FIGURES / f"{name}.svg").read_text(encoding="utf-8")
    found = re.search("<title>(.*?)</title>", drawn)
    return unescape(found[1]) if found else name


def section(report: dict[str, Any]) -> str:
    """A claim: what was asked, what was found, its parts, and the figure."""
    expected = "" if report["as_expected"] else " This is not the verdict that was predicted."
    parts = "\n".join(map(part_row, report["parts"]))
    return f"""## {report["letter"]} {report["name"]}: {report["verdict"]}

**The lecture says** ({report["lecture"]}): {report["says"]}

**Prediction.** {report["predicts"]}

**Verdict: {report["verdict"]}.** {report["summary"]}{expected}

![Figure {report["letter"]}, {report["verdict"]}: {title_of(report["name"])}]({FIGURES}/{report["name"]}.svg)

| statement | rule | measured | verdict |
|---|---|---|---|
{parts}

{report["date"]}, {report["trials"]} measurements, {report["seconds"]:,.0f} s of processor time:
`{report["command"]}`.
"""


def part_row(part: dict[str, Any]) -> str:
    control = " (control)" if part["control"] else ""
    return f"| {part['says']}{control} | {short(part['rule'])} | {part['why']} | {part['verdict']} |"


def short(rule: str) -> str:
    """A rule without its method, which docs/explain/lab.md says for each kind of rule."""
    if found := re.match(r"(.*): most seeds of .* reach ([\d.]+)\. ", rule):
        return f"a seed counts if its {found[1]} reaches {found[2]}"
    if rule.startswith("For every seed, "):
        return "within the tolerance for every seed"
    rule = rule.replace(" (two one-sided tests at 5 %)", "")
    return re.split(r"\. (?=Paired|Fit)", rule)[0].removesuffix(".")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("runs/lab"))
