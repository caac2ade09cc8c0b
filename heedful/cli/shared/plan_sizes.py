"""What `heedful plan` prints for an architecture: all its presets, and for GPT-3 the lectures' table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from ...bench.table import NOTHING, percent, table
from ...models import family, find_preset, preset_families
from ...planner.machines import Cluster
from ...planner.published import Generation, generations, published_trainings
from ...planner.search import TrainingPlan
from ...planner.subject import Subject
from ..info import units
from .plan_report import PlanReport, amount, heading, make_report, plan_json

if TYPE_CHECKING:
    from ..plan import PlanOptions

LECTURES = "gpt3"  # the architecture whose sizes stand beside the lectures' table


@dataclass(frozen=True)
class SizeReport:
    """A preset and its report; published: FLOPs of its training, if they were."""

    preset: str
    report: PlanReport
    published: float | None


def show_sizes(given: PlanOptions, cluster: Cluster) -> None:
    """Print the plan of every preset of an architecture."""
    sizes = [size_report(preset, given, cluster) for preset in family(given.model).PRESETS]
    if given.json:
        rows = [{"preset": size.preset, **size_json(size)} for size in sizes]
        lectures = [asdict(one) for one in generations()] if given.model == LECTURES else []
        found = {"architecture": given.model, "presets": rows, "lectures": lectures}
        return print(json.dumps(found, indent=2))
    print("\n".join(lines(given, cluster, sizes)))


def size_report(preset: str, given: PlanOptions, cluster: Cluster) -> SizeReport:
    """The best plan of a preset, with the batch and the tokens it was trained with, where they are known."""
    known = published_trainings().get(preset)
    subject = Subject(preset, *find_preset(preset), given.context)
    asked = given
    if known is not None and given.batch is None:
        asked = replace(asked, batch=str(known.batch))
    if known is not None and given.tokens is None:
        tokens = known.tokens or known.flops / subject.costs.flops_per_token["training"]
        asked = replace(asked, tokens=f"{tokens:.0f}")
    return SizeReport(preset, make_report(subject, asked, cluster), known.flops if known else None)


HEADINGS = ("preset", "weights", "tokens", "FLOPs", "paper", "days", "MWh", "cost", "MFU", "best way")


def lines(given: PlanOptions, cluster: Cluster, sizes: list[SizeReport]) -> Iterator[str]:
    """The tables for people, at most 100 columns wide."""
    yield from heading(given.model, cluster)
    yield ""
    yield table(HEADINGS, [size_row(size) for size in sizes])
    if given.model == LECTURES:
        yield "\nGPT as the lectures show it\n"
        found = [(one, generation_report(one, given, cluster, sizes)) for one in generations()]
        yield table(GENERATIONS, [generation_row(*pair) for pair in found])
        yield "\nTokens of GPT-1 and GPT-2 follow from their compute; docs/howto/planning.md has the sources."
    yield f"\nheedful plan {sizes[-1].preset} --gpus {cluster.gpus} shows one of them."


def size_row(size: SizeReport) -> list[str]:
    report, bill = size.report, size.report.bill
    figures = [amount(bill.days), amount(bill.kwh / 1000), dollars(bill.dollars)]
    figures.append(percent(report.utilization(report.best)))
    if not report.best.fits:
        figures = 4 * [NOTHING]
    return [
        size.preset,
        units(report.subject.costs.parameters, "kMBT"),
        count(report.tokens),
        scientific(report.flops),
        NOTHING if size.published is None else scientific(size.published),
        *figures,
        in_short(report.best) if report.best.fits else "does not fit",
    ]


def in_short(plan: TrainingPlan) -> str:
    """A plan in three words: "fsdp, tensor=2, recompute"."""
    words = [plan.sharding.parallel] + [f"tensor={plan.sharding.tensor}"] * (plan.sharding.tensor > 1)
    return ", ".join([*words, *["recompute"] * plan.checkpointing])


def count(number: float) -> str:
    """300 B for people."""
    return units(number, "kMBT").replace(".0 ", " ")


def scientific(number: float) -> str:
    """3.1e23 for people."""
    return f"{number:.2g}".replace("e+", "e")


GENERATIONS = ("model", "year", "printed", "parameters", "tokens", "days", "cost", "data; published cost")


def generation_report(
    one: Generation, given: PlanOptions, cluster: Cluster, sizes: list[SizeReport]
) -> SizeReport | None:
    """The plan of a line of the lectures' table; None where nothing is known of the model."""
    if one.preset not in preset_families():
        return None
    known = {size.preset: size for size in sizes}
    return known.get(one.preset) or size_report(one.preset, given, cluster)


def generation_row(one: Generation, size: SizeReport | None) -> list[str]:
    printed = NOTHING if one.said is None else count(one.said)
    figures = 4 * [NOTHING]
    if size is not None:
        report, bill = size.report, size.report.bill
        spent = [amount(bill.days), dollars(bill.dollars)] if report.best.fits else 2 * [NOTHING]
        figures = [units(report.subject.costs.parameters, "kMBT"), count(report.tokens), *spent]
    return [one.name, str(one.year), printed, *figures, "; ".join(dict.fromkeys((one.data, one.cost)))]


def dollars(price: float) -> str:
    """$4.2 M for people."""
    return f"${units(price, 'kMBT')}"


def size_json(size: SizeReport) -> dict[str, Any]:
    report = size.report
    return {
        "parameters": report.subject.costs.parameters,
        "tokens": report.tokens,
        "batch_tokens": report.work.tokens,
        "flops": report.flops,
        "published_flops": size.published,
        "best": plan_json(report, report.best),
    }
