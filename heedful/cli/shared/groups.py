"""Scores of groups of examples, as `heedful evaluate` prints them: of labels, of kinds, and of flaws."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...files import one_line
from ...tasks.evaluation import SHOWN

if TYPE_CHECKING:
    from ...tasks.evaluation import Measured

MOST_LABELS = 30  # shown; JSON has all


def labels(measured: Measured) -> list[str]:
    """A line for each label, where there are labels."""
    found = measured.details.get("labels", {})
    if not found:
        return []
    width = max(5, *(len(one_line(label)) for label in list(found)[:MOST_LABELS]))
    lines = ["", f"  {'label':<{width}}  precision  recall      F1    rows"]
    for label, s in list(found.items())[:MOST_LABELS]:
        shares = f"{s['precision']:>9.4f}  {s['recall']:.4f}  {s['f1']:.4f}  {s['count']:>6,}"
        lines.append(f"  {one_line(label):<{width}}  {shares}")
    if len(found) > MOST_LABELS:
        lines.append(f"  and {len(found) - MOST_LABELS} more: --json has all")
    return lines


def groups(measured: Measured) -> Iterator[str]:
    """A line for each kind of example, and for each flaw of a response, where there are any."""
    for name in ("kinds", "flaws"):
        found = measured.details.get(name, {})
        if not found:
            continue
        some = next(iter(found.values()))
        columns = {key: SHOWN[key] for key in some if key != "count"}
        titles = "  ".join(f"{title:>6}" for title, _ in columns.values())
        yield from ("", f"  {name[:-1]:<9}  {titles}    rows")
        for group, scores in found.items():
            cells = [
                form.format(scores[key]).rjust(max(6, len(title))) for key, (title, form) in columns.items()
            ]
            yield f"  {group:<9}  {'  '.join(cells)}  {scores['count']:>6,}"
