"""What `heedful plan` prints: the best plan first, then all ways to divide the model, and their memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from ...bench.table import percent, table
from ...inside.costs import Costs
from ...planner.bill import Bill, bill_of
from ...planner.command import command_of
from ...planner.machines import Cluster
from ...planner.machines import table as machines
from ...planner.memory import SPARE, checkpointed, kept_activations
from ...planner.remedies import describe, notes, remedies
from ...planner.search import Planner, TrainingPlan, Workload, fastest, room
from ...planner.subject import Subject, read_count
from ..info import units

if TYPE_CHECKING:
    from ..plan import PlanOptions

GIB = 2**30
NAMES = 12  # characters of the names of figures
TRUST = (
    "Steps on one H200 are within 15 % of measurements. Published runs on many GPUs were up to 40 %\n"
    "slower than predicted, some even more: docs/howto/planning.md compares them."
)


@dataclass(frozen=True)
class PlanReport:
    """Everything that is known of a training."""

    subject: Subject
    work: Workload
    cluster: Cluster
    plans: list[TrainingPlan]
    costs: dict[int, Costs]  # by rows of a micro-batch
    best: TrainingPlan
    tokens: float
    price: float
    watts: float

    @property
    def bill(self) -> Bill:
        return self.bill_of(self.best)

    def bill_of(self, plan: TrainingPlan) -> Bill:
        return bill_of(plan, self.work, self.tokens, self.price, self.watts)

    def utilization(self, plan: TrainingPlan) -> float:
        """The share of the peak that the model's own FLOPs are: MFU."""
        flops = self.subject.costs.flops_per_token["training"] * self.work.tokens
        return flops / plan.step.total / (self.cluster.gpus * self.cluster.gpu.peak)

    @property
    def flops(self) -> float:
        """FLOPs of the whole training."""
        return self.subject.costs.flops_per_token["training"] * self.tokens

    @property
    def command(self) -> list[str]:
        return command_of(self.best, self.subject, self.work, self.bill.steps) if self.best.fits else []


def make_report(subject: Subject, given: PlanOptions, cluster: Cluster) -> PlanReport:
    """Plan it."""
    batch = None if given.batch is None else read_count("--batch", given.batch)
    asked = None if given.tokens is None else read_count("--tokens", given.tokens)
    work = subject.workload(cluster, batch)
    planner = Planner(work, cluster)
    plans = planner.all()
    gpu, tokens = cluster.gpu, subject.tokens(asked)
    price = gpu.price if given.price is None else given.price
    watts = gpu.watts if given.watts is None else given.watts
    costs = {plan.rows: planner.costs(plan.rows) for plan in plans}
    return PlanReport(subject, work, cluster, plans, costs, fastest(plans), tokens, price, watts)


def report_text(report: PlanReport) -> str:
    """The report for people, at most 100 columns wide."""
    told = ["\n".join(lines(report)), command_text(report), ways(report), memory(report), TRUST]
    return "\n\n".join(filter(None, told))


def lines(report: PlanReport) -> Iterator[str]:
    """The model, and the best plan or what would help."""
    best, costs = report.best, report.subject.costs
    yield from heading(report.subject.name, report.cluster)
    parts = [f"{part.name} {units(part.parameters, 'kMBT')}" for part in costs.whole.parts if part.parameters]
    yield figure("parameters", f"{costs.parameters:,}: {', '.join(parts)}")
    has = (
        f"of {room(report.cluster) / GIB:.1f} GiB that may be filled: {percent(SPARE)} of the GPU stays free"
    )
    if best.fits:
        yield from best_lines(report)
        yield figure("memory", f"{best.memory.total / GIB:.1f} GiB per GPU, {has}")
        for note in notes(best, report.work):
            yield figure("note", note)
        return
    yield figure("nothing fits", f"{describe(best)} takes the least memory:")
    yield figure("", f"{best.memory.total / GIB:,.1f} GiB per GPU, {has}")
    for remedy in remedies(report.work, report.cluster):
        yield figure("it fits with", remedy)


def best_lines(report: PlanReport) -> Iterator[str]:
    """The best plan, and what it takes."""
    best, bill, step, gpu = report.best, report.bill, report.best.step, report.cluster.gpu
    tensor = best.sharding.tensor
    each = "GPU" if tensor == 1 else f"group of {tensor} GPUs"
    micro = f"{best.micro_batches:,} micro-batch{'es' * (best.micro_batches > 1)}"
    yield figure("best", describe(best))
    yield figure("rows", f"{micro} of {best.rows:,} x {report.work.length:,} tokens per step on each {each}")
    read = f"{units(report.tokens, 'kMBT')} tokens, {bill.steps:,} steps of {report.work.tokens:,}"
    yield figure("time", f"{duration(bill.days)} for {read}")
    dated = "" if report.price != gpu.price else f", {machines()['price_date']}"
    hours = f"{amount(bill.gpu_hours)} GPU-hours at ${report.price:,.2f}{dated}"
    yield figure("cost", f"${amount(bill.dollars)}: {hours}")
    yield figure("energy", f"{amount(bill.kwh)} kWh at {report.watts:,.0f} W per GPU")
    used = percent(report.utilization(best))
    yield figure("compute", f"{report.flops:.3g} FLOPs, at {used} of the GPUs' peak (MFU)")
    hidden = f"{ms(step.communication)} exposed communication"
    yield figure(
        "step", f"{ms(step.total)} ms: {ms(step.compute)} compute, {hidden}, {ms(step.waiting)} waiting"
    )


def heading(name: str, cluster: Cluster) -> Iterator[str]:
    """What is planned, and the machines."""
    yield f"{name} on {cluster.gpus:,} x {cluster.gpu.name}"
    if cluster.machines > 1:
        several = f"{cluster.machines:,} with {cluster.per_machine} GPUs each, {cluster.network_name}"
        yield figure("machines", several)


def amount(number: float) -> str:
    """Three digits of a small number, all of a large one."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def ms(seconds: float) -> str:
    """Milliseconds."""
    return amount(1000 * seconds)


def figure(name: str, text: str) -> str:
    return f"{name:<{NAMES}} {text}"


def duration(days: float) -> str:
    """Days, or hours where there are few."""
    if days >= 2:
        return f"{days:,.1f} days"
    return f"{24 * days:,.1f} hours" if days >= 1 / 24 else f"{24 * 60 * days:,.1f} minutes"


def command_text(report: PlanReport) -> str:
    """The command as it can be copied."""
    return " \\\n    ".join(report.command)


TIMES = ("step ms", "compute", "exposed", "waiting", "MFU", "days")
WAYS = ("sharding", "tensor", "micro-batches", "GiB", *TIMES, "")


def ways(report: PlanReport) -> str:
    """Every sharding with its fastest micro-batch."""
    rows = []
    for plan in report.plans:
        step, bill = plan.step, report.bill_of(plan)
        seconds = (step.total, step.compute, step.communication, step.waiting)
        figures = [*map(ms, seconds), percent(report.utilization(plan)), amount(bill.days)]
        told = "recompute" * plan.checkpointing
        if not plan.fits:
            figures, told = len(TIMES) * ["-"], "too large"
        size = f"{plan.micro_batches:,} x {plan.rows:,}"
        name = [plan.sharding.parallel, str(plan.sharding.tensor)]
        rows.append([*name, size, gib(plan.memory.total), *figures, told])
    return table(WAYS, rows)


STATE = ("weights", "grads", "moments", "copies")
MEMORY = ("GiB of a GPU", *STATE, "kept", "recomputed", "logits", "buffers", "total")


def memory(report: PlanReport) -> str:
    """The memory of each: activations that are kept, and those with activation checkpointing."""
    rows = []
    for plan in report.plans:
        found, costs, tensor = plan.memory, report.costs[plan.rows], plan.sharding.tensor
        both = [kept_activations(costs, tensor), checkpointed(costs, tensor)]
        state = [found.weights, found.gradients, found.optimizer, found.copies]
        name = f"{plan.sharding.parallel}, tensor={tensor}"
        sizes = [*state, *both, found.logits, found.buffers]
        rows.append([name, *map(gib, sizes), gib(found.total).rjust(6)])
    return table(MEMORY, rows)


def gib(size: float) -> str:
    return f"{size / GIB:,.1f}"


def report_json(report: PlanReport) -> dict[str, Any]:
    """The report for programs: bytes, seconds, FLOPs."""
    cluster, work, whole = report.cluster, report.work, report.subject.costs.whole
    return {
        "model": report.subject.name,
        "architecture": report.subject.architecture,
        "parameters": report.subject.costs.parameters,
        "active_parameters": report.subject.costs.active,
        "parts": [
            {"name": part.name, "count": part.count, "parameters": part.parameters} for part in whole.parts
        ],
        "gpu": cluster.gpu.name,
        "gpus": cluster.gpus,
        "gpus_per_machine": cluster.per_machine,
        "network": cluster.network_name,
        "tokens": report.tokens,
        "flops": report.flops,
        "context": work.length,
        "batch_tokens": work.tokens,
        "room": room(cluster),
        "fits": report.best.fits,
        "best": plan_json(report, report.best),
        "command": report.command,
        "remedies": [] if report.best.fits else list(remedies(work, cluster)),
        "plans": [plan_json(report, plan) for plan in report.plans],
    }


def plan_json(report: PlanReport, plan: TrainingPlan) -> dict[str, Any]:
    costs, tensor = report.costs[plan.rows], plan.sharding.tensor
    memory = {field.name: getattr(plan.memory, field.name) for field in fields(plan.memory)}
    return {
        "parallel": plan.sharding.parallel,
        "tensor": tensor,
        "rows": plan.rows,
        "micro_batches": plan.micro_batches,
        "activation_checkpointing": plan.checkpointing,
        "fits": plan.fits,
        "memory": memory | {"total": plan.memory.total},
        "activations": {"kept": kept_activations(costs, tensor), "checkpointed": checkpointed(costs, tensor)},
        "step": asdict(plan.step) | {"total": plan.step.total},
        "utilization": report.utilization(plan),
        **asdict(report.bill_of(plan)),
    }
