"""The loop: a generator that makes one step at a time and says how it went.

    for progress in train(model, task, plan, ...):
        ...                                     # log, evaluate, save: the caller's business

Which examples make up step N, and every random number of it, follow from (seed, N): a run that is stopped and
started again makes the same steps. Gradients are divided by the number of target tokens of the whole step,
over all micro-batches and processes, so that accumulating changes nothing but rounding. `fast.async_loop`
has the same loop for one GPU.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ..data.batch import Seen, seen_in
from ..errors import NotFinite
from ..parts.watch import eagerly
from .loss import Loss
from .optimizer import set_rate
from .parallel.wrapped import bare, reducing
from .processes import IdleBatch, World, whole
from .schedule import Schedule


class Batch(Protocol):
    """What the loop needs of a batch: the number of target tokens, `count`, and a way to a device, `to`.

    Subclasses of `Tensors` with a field `count` have both.

    Example:
        >>> from dataclasses import dataclass
        >>> from heedful.data.batch import Tensors
        >>> @dataclass(frozen=True)
        ... class Rows(Tensors):
        ...     tokens_BT: torch.Tensor
        ...     count: int
        >>> Rows(torch.ones(2, 3), count=6).to(CPU).count
        6
    """

    @property
    def count(self) -> int: ...

    def to(self, device: torch.device) -> Batch: ...


CPU = torch.device("cpu")


@dataclass(frozen=True)
class Progress:
    """How one step went.

    Attributes:
        step: Steps done, this one included.
        loss: Nats per target token, without label smoothing.
        tokens: Target tokens of this step.
        rate: Learning rate.
        norm: Norm of the gradient before clipping.
        seconds: Seconds that the step took.
        expert_load: Tokens that each expert of each layer got, in a model with experts.
        settled: Whether the model is as this step left it. On a GPU the next step may be on its way.
        seen: What the speed is given in, if not in tokens.
        figures: Other figures of the task, by name.

    Example:
        >>> progress = Progress(1, 2.5, tokens=64, rate=1e-3, norm=1.0, seconds=0.5)
        >>> progress.a_second(progress.seconds)
        '128 tokens'
    """

    step: int
    loss: float
    tokens: int
    rate: float
    norm: float
    seconds: float
    expert_load: Sequence[Sequence[float]] = ()
    settled: bool = True
    seen: Seen | None = None
    figures: Mapping[str, float] = field(default_factory=dict)

    def a_second(self, seconds: float) -> str:
        """What is seen in a second, if a step takes so long.

        Args:
            seconds: Seconds of a step.

        Returns:
            A number with its unit, such as "12,300 tokens".
        """
        return (self.seen or Seen(self.tokens)).a_second(seconds)


@dataclass(frozen=True)
class LoopSettings:
    """What the loop needs to know beside the model and its data.

    Attributes:
        rate: Learning rate at the peak of the schedule.
        schedule: The factor of the learning rate at a step, counted from 1.
        steps: Steps of the run.
        seed: Seed of dropout and all other random numbers.
        clip: Gradients are clipped to this norm; 0: not at all.
        precision: "fp32", "bf16" or "fp16" for matrix products; the rest stays in fp32.
        device: Where batches are moved to. The model must be there.

    Example:
        >>> from heedful.train.schedule import cosine
        >>> LoopSettings(rate=1e-3, schedule=cosine(warmup=10, steps=100), steps=100).clip
        1.0
    """

    rate: float
    schedule: Schedule
    steps: int
    seed: int = 0
    clip: float = 1.0
    precision: str = "fp32"
    device: torch.device = CPU


def seed_for(seed: int, *what: object) -> int:
    """A seed of its own for each purpose and step; the same on every machine."""
    digest = hashlib.sha256(repr((seed, *what)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def seed_device(seed: int, device: torch.device) -> None:
    """Let all that is drawn on a device depend on the seed. `torch.manual_seed` seeds every kind of device
    there could be, and writes down where it was called from: half a millisecond, which a small step on a CPU
    would notice."""
    if device.type == "cpu":
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)


def autocast(settings: LoopSettings) -> AbstractContextManager[object]:
    """Matrix products in half precision, if asked for; norms, softmax and the loss stay in fp32."""
    if settings.precision == "fp32":
        return nullcontext()
    half = torch.bfloat16 if settings.precision == "bf16" else torch.float16
    return torch.autocast(settings.device.type, half)


def train(
    model: nn.Module,
    batches: Callable[[int], Sequence[Batch]],
    loss_of: Callable[[nn.Module, Any], Loss],
    optimizers: list[torch.optim.Optimizer],
    settings: LoopSettings,
    start: int = 0,
    scaler: torch.amp.GradScaler | None = None,
    world: World = World(),  # noqa: B008 (frozen)
) -> Iterator[Progress]:
    """Train a model, one step at a time. The caller logs, evaluates and saves between the steps.

    The random numbers of a step follow from the seed and the step, so a loop that starts at step N makes the
    same steps as one that was never stopped.

    Args:
        model: The model.
        batches: This process's micro-batches of a step, counted from 0.
        loss_of: The `Loss` of the model and a batch: a sum over target tokens.
        optimizers: The optimizers; all get the same learning rate.
        settings: Learning rate, schedule, steps, seed, clipping, precision and device.
        start: Steps that were made before.
        scaler: Scales the loss, for "fp16".
        world: Which process this is, of how many.

    Yields:
        `Progress` of steps start + 1 to settings.steps.

    Raises:
        NotFinite: The loss or the gradient is not finite. The message names the layer and the examples.

    Example:
        >>> from dataclasses import dataclass
        >>> from heedful.data.batch import Tensors
        >>> from heedful.train.loss import cross_entropy
        >>> from heedful.train.optimizer import adamw
        >>> from heedful.train.schedule import constant
        >>> @dataclass(frozen=True)
        ... class Numbered(Tensors):
        ...     x_BD: torch.Tensor
        ...     answers_B: torch.Tensor
        ...     count: int
        >>> batch = Numbered(torch.eye(3), torch.tensor([2, 0, 1]), count=3)
        >>> def loss_of(model, batch):
        ...     return Loss(*cross_entropy(model(batch.x_BD), batch.answers_B), batch.count)
        >>> model = torch.nn.Linear(3, 3)
        >>> settings = LoopSettings(rate=0.1, schedule=constant(warmup=0), steps=50)
        >>> optimizers = adamw(model, rate=0.1, decay=0.0)
        >>> losses = [p.loss for p in train(model, lambda step: [batch], loss_of, optimizers, settings)]
        >>> len(losses), losses[-1] < 0.1 * losses[0]
        (50, True)
    """
    model.train()
    weights = list(model.parameters())
    for step in range(start, settings.steps):
        began = time.perf_counter()
        seed_device(seed_for(settings.seed, "step", step, world.share), settings.device)
        micro = batches(step)
        tokens, seen_all = count_targets(micro, world, settings.device)
        nll, expert_load_LE = accumulate(model, micro, loss_of, tokens, settings, scaler)
        nll = world.sum(nll)
        if scaler is not None:
            for optimizer in optimizers:
                scaler.unscale_(optimizer)
        seen = torch.stack([nll / tokens, clip(weights, settings)])
        if expert_load_LE is not None:
            seen = torch.cat([seen, world.sum(expert_load_LE).flatten().to(seen.dtype)])
        loss, size, *load = seen.tolist()  # the one look at the device in a step
        if not math.isfinite(loss) or (scaler is None and not math.isfinite(size)):
            told = not_finite(model, micro, loss_of, settings, step, world, loss, size)
            raise NotFinite(told, {"step": step + 1, "loss": loss, "norm": size})
        rate = settings.rate * settings.schedule(step + 1)
        set_rate(optimizers, rate)
        for optimizer in optimizers:
            if scaler is None:
                optimizer.step()
            else:
                scaler.step(optimizer)
            optimizer.zero_grad(set_to_none=True)
        if scaler is not None:
            scaler.update()
        seconds = time.perf_counter() - began
        yield Progress(
            step + 1, loss, tokens, rate, size, seconds, rows_of(load, expert_load_LE), seen=seen_all
        )


def clip(weights: Sequence[nn.Parameter], settings: LoopSettings) -> Tensor:
    """Make the gradient no longer than the settings say, if they do; its length before."""
    weights = [weight for weight in weights if weight.grad is not None]
    if settings.clip:
        return whole(nn.utils.clip_grad_norm_(weights, settings.clip))
    return whole(nn.utils.get_total_norm([weight.grad for weight in weights]))  # type: ignore[misc]


def rows_of(load: list[float], expert_load_LE: Tensor | None) -> list[list[float]]:
    """The loads as they came from the device, a list for each layer."""
    E = 1 if expert_load_LE is None else expert_load_LE.shape[1]
    return [load[at : at + E] for at in range(0, len(load), E)]


def count_targets(micro: Sequence[Batch], world: World, device: torch.device) -> tuple[int, Seen]:
    """Target tokens of the whole step, and what its speed is told in, over all processes."""
    mine, seen = sum(batch.count for batch in micro), seen_in(micro)
    if world.shares == 1:
        return mine, seen
    tokens, number = world.sum(torch.tensor([mine, seen.number], device=device)).tolist()
    return tokens, Seen(number, seen.unit)


def accumulate(
    model: nn.Module,
    micro: Sequence[Batch],
    loss_of: Callable[[nn.Module, Any], Loss],
    tokens: int | Tensor,
    settings: LoopSettings,
    scaler: torch.amp.GradScaler | None,
) -> tuple[Tensor, Tensor | None]:
    """Forward and backward passes of all micro-batches; returns the sums of nll and of expert load."""
    total, expert_load_LE = torch.zeros((), device=settings.device), None
    for number, batch in enumerate(micro, 1):
        with reducing(model, last=number == len(micro)):
            with autocast(settings):
                loss = loss_of(model, batch.to(settings.device))
            share = loss.total / tokens
            (share if scaler is None else scaler.scale(share)).backward()
        total = total + loss.nll.detach()
        if loss.expert_load_LE is not None:
            expert_load_LE = (
                loss.expert_load_LE if expert_load_LE is None else expert_load_LE + loss.expert_load_LE
            )
    return total, expert_load_LE


BATCHES, EXAMPLES = 10, 20  # that are named when a number is not finite


def not_finite(
    model: nn.Module,
    micro: Sequence[Batch],
    loss_of: Callable[[nn.Module, Any], Loss],
    settings: LoopSettings,
    step: int,
    world: World = World(),  # noqa: B008 (frozen)
    loss: float = math.nan,
    norm: float = math.nan,
) -> str:
    """What to say when a number is not finite: the step, the batch, and the first layer it came out of.

    Every process says so of its own batches, and every one gets the same sentence.
    """
    seed_device(seed_for(settings.seed, "step", step, world.share), settings.device)
    faults = [fault(model, batch, loss_of, settings) for batch in micro]
    mine = next(filter(None, faults), None)
    named = [batch for batch, found in zip(micro, faults, strict=True) if found or mine is None]
    ids = [list(map(int, getattr(batch, "ids", ())))[:EXAMPLES] for batch in named[:BATCHES]]
    said = [json.loads(text) for text in world.texts(json.dumps([mine, ids]), settings.device)]
    blamed = [rank for rank, (found, _) in enumerate(said) if found]
    where = said[blamed[0]][0] if blamed else "in the backward pass: every layer's output is finite"
    process = f" of process {blamed[0]}" if blamed and world.size > 1 else ""
    examples = [some for rank in blamed or range(world.size) for some in said[rank][1] if some]
    return (
        f"step {step + 1}: the loss is {loss} and the gradient's norm {norm}, {where}{process}; examples "
        f"{examples}. "
        "The weights of the last checkpoint are untouched; try a lower learning rate, or look at these "
        "examples"
    )


def fault(
    model: nn.Module, batch: Batch, loss_of: Callable[[nn.Module, Any], Loss], settings: LoopSettings
) -> str | None:
    """Where the first number of a batch comes up that is not finite; None if all are."""
    first: list[str] = []

    def listen(path: str) -> Callable[..., None]:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            if isinstance(output, Tensor) and not first and not output.isfinite().all():
                first.append(path)

        return hook

    hooks = [
        m.register_forward_hook(listen(path))
        for path, m in bare(model).named_modules()
        if not list(m.children())
    ]
    try:
        with torch.no_grad(), autocast(settings), eagerly():  # compiled code would not listen
            loss = loss_of(model, batch.to(settings.device))
    finally:
        for hook in hooks:
            hook.remove()
    if isinstance(batch, IdleBatch) or (not first and loss.total.isfinite()):
        return None
    return f"first in {first[0]}" if first else "first in the loss itself"
