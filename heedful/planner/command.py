"""The command that trains as a plan says."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from ..inside.costs import sizes_of
from ..models import preset_families
from ..tasks import find_task
from ..train.parallel.way import Way
from .search import TrainingPlan, Workload
from .subject import Subject

# Tasks that a plan may be for, the most usual first, and the options that name their data.
DATA = {
    "lm": ("--text", "FILES"),
    "translate": ("--source", "A.SRC", "--target", "A.TGT"),
    "mlm": ("--text", "FILES"),
    "image-classify": ("--images", "FOLDER"),
}
WIDTH = 92  # characters of a line of a command
UNSAID = ("vocab", "target_vocab")  # sizes that the data decide


def task_of(architecture: str) -> str | None:
    """The task that trains an architecture from the beginning; None if no plan is for it."""
    return next((task for task in DATA if architecture in find_task(task).all_architectures()), None)


def command_of(plan: TrainingPlan, subject: Subject, work: Workload, steps: int) -> list[str]:
    """The command that trains as a plan says.

    Args:
        plan: The plan.
        subject: The model.
        work: What a step has to do.
        steps: Optimizer steps.

    Returns:
        Its lines; none where no task trains such a model from the beginning.

    Example:
        >>> from heedful.models import find_preset
        >>> from heedful.planner.machines import find_cluster, find_gpu
        >>> from heedful.planner.search import Planner, fastest
        >>> cluster, subject = find_cluster(find_gpu("h200"), gpus=1), Subject("gpt2", *find_preset("gpt2"))
        >>> work = subject.workload(cluster)
        >>> print(command_of(fastest(Planner(work, cluster).all()), subject, work, steps=1000)[0])
        heedful train lm --text FILES --run runs/gpt2 --architecture gpt2 --size gpt2
    """
    architecture, config = subject.architecture, subject.config
    task = task_of(architecture)
    if task is None:
        return []
    train = ["heedful", "train", task, *DATA[task], "--run", f"runs/{subject.name}"]
    lines = [*launch(plan, subject.name), train]
    if preset_families().get(subject.name) == architecture:
        lines.append(["--architecture", architecture, "--size", subject.name])
        lines += [["--set", setting] for setting in subject.settings]
    else:
        sizes = {f"model.{key}": getattr(config, key) for key in sizes_of(config) if key not in UNSAID}
        lines += [["--architecture", architecture], *settings(sizes)]
    if hasattr(config, "vocab"):
        lines += settings({"data.vocab_size": config.vocab})
    if subject.context is not None and task == "lm":
        lines += settings({"data.max_length": subject.context})
    lines += [["--steps", str(steps)], *settings(train_settings(plan, subject, work))]
    return list(folded([shlex.join(line) for line in lines]))


def folded(words: list[str]) -> Iterator[str]:
    """Options side by side in lines that are not too long; the command begins a line of its own."""
    line = ""
    for word in words:
        if line and (len(line) + len(word) >= WIDTH or word.startswith("heedful ")):
            yield line
            line = word
        else:
            line = f"{line} {word}" if line else word
    yield line


def launch(plan: TrainingPlan, name: str) -> list[list[str]]:
    """torchrun, unless there is one GPU."""
    cluster = plan.sharding.cluster
    if cluster.gpus == 1:
        return []
    if cluster.machines == 1:
        return [["torchrun", "--nproc-per-node", str(cluster.gpus), "-m", "--"]]
    meeting = ["--rdzv-backend", "c10d", "--rdzv-endpoint", "NODE:29500", "--rdzv-id", name]
    nodes = ["--nnodes", str(cluster.machines), "--nproc-per-node", str(cluster.per_machine)]
    return [["torchrun", *nodes, "--max-restarts", "3"], [*meeting, "-m", "--"]]


def train_settings(plan: TrainingPlan, subject: Subject, work: Workload) -> dict[str, Any]:
    """The settings of `heedful train` that a plan stands for: AdamW without an average of the weights."""
    found: dict[str, Any] = {
        "train.optimizer": "adamw",
        "train.learning_rate": learning_rate(subject.costs.parameters),
        "train.ema_decay": 0,
        "train.batch_tokens": work.tokens,
        "train.accumulation_steps": plan.micro_batches,
        "train.precision": "bf16",
        "train.compile": True,
    }
    if plan.checkpointing:
        found["train.activation_checkpointing"] = True
    if plan.sharding.cluster.gpus > 1:
        found["train.parallel"] = str(Way(plan.sharding.parallel, plan.sharding.tensor))
    return found


def learning_rate(parameters: int) -> float:
    """A rate to begin with: 6e-4 for 125 M parameters, and with their cube root less, as GPT-3's were."""
    return float(f"{min(1e-3, 6e-4 * (125e6 / parameters) ** (1 / 3)):.1g}")


def settings(values: Mapping[str, Any]) -> list[list[str]]:
    """Each as an option, as it is typed."""
    return [["--set", f"{key}={as_typed(value)}"] for key, value in values.items()]


def as_typed(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
