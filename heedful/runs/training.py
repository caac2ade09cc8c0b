"""The body of the training loop: log and report each step, evaluate, save, and stop when asked."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..data.tensor_files import file_order
from ..errors import NotFinite, command
from ..fast.async_loop import train_async
from ..models.base.shells import lasting
from ..parts.watch import eagerly
from ..tasks import expert_load, find_task
from ..tasks.evaluation import SHOWN, format_score
from ..tasks.recipe import to_json
from ..tasks.recipe.settings import Recipe
from ..tasks.task import SAMPLES, Job
from ..tasks.tuning import write_adapters
from ..train import loop, processes
from ..train.heartbeat import Phase
from ..train.loop import Batch, Progress
from ..train.parallel.wrapped import within
from ..train.processes import World, is_spread
from .belonging import describe_stop, reason_to_stop
from .checkpoint import Saved
from .clock import Clock
from .folder import RECIPE, RunFolder, Stop
from .memory import format_bytes, peak_memory
from .parallel import in_groups, spreading
from .plan import describe_plan, format_seconds
from .resume import Best, TrainingState, facts_of, kept, put_weights, restore, save
from .saving import Saver
from .setup import (
    Reporter,
    can_run_ahead,
    loop_settings,
    make_average,
    make_optimizers,
    make_scaler,
    micro_batches_of,
    new_model,
    prepare_model,
)
from .track import open_track

RISING = 3  # evaluations in a row that got worse: worth a word
PASSED_ON = 1.0  # seconds within which torchrun passes a signal on to processes that may have had it already


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
        steps: Steps that have been made.
        finished: False if the run was asked to stop; it can then be resumed.
        best: The best evaluation.
        job: What the task made of the recipe: config, vocabulary and batches.
        model: The network, with the best weights if the run finished.

    Example:
        >>> outcome = Outcome(4, True, Best(4, {"loss": 2.1}), job=None, model=torch.nn.Linear(2, 2))
        >>> outcome.best.scores["loss"]
        2.1
    """

    steps: int
    finished: bool
    best: Best
    job: Job
    model: nn.Module


def train_run(
    recipe: Recipe,
    job: Job,
    path: Path,
    folder: RunFolder | None,
    reporter: Reporter,
    device: torch.device,
    world: World,
    saved: Saved | None,
    clock: Clock | None = None,
    remake: Callable[[Recipe], Job] | None = None,
) -> Outcome:
    """Make every step that is left. `folder` is None in a process that does not write.

    clock: of a run that has a time; remake: the job of a recipe whose number of steps has changed.
    """
    model = new_model(job, recipe, device)
    adapted = job.tuning is not None and job.tuning.lora is not None  # whose checkpoints lack what came along
    if (saved is None or adapted) and job.begin is not None:
        job.begin(model)
        world.take_over(model)  # what was computed from data may be rounded otherwise on another machine
    world = in_groups(recipe, world)
    plan = spreading(recipe, job, model, world, device)
    trained, loss_of = prepare_model(model, job.loss, recipe, device, plan.grid)
    optimizers = make_optimizers(recipe, model, together=plan.grid.size > 1)
    state = TrainingState(model, optimizers, make_scaler(recipe, device), make_average(recipe, model))
    state.carried = job.carried
    if saved is not None:
        restore(state, saved)
    if folder is not None:
        folder.metrics.check_kept(state.step)
        for log in (folder.metrics, folder.samples):
            log.drop_after(state.step)
        folder.metrics.track = open_track(path, to_json(recipe), folder.metrics.read(), reporter.say)
        folder.status("running", step=state.step)
    for line in describe_plan(recipe, job, model, world, device, plan):
        reporter.say(line)
    if not patient(state, recipe):
        reporter.say(f"already finished at step {state.step}: it lost patience")
    elif state.step >= recipe.train.steps:
        reporter.say(f"already finished at step {state.step}: for more, raise train.steps in {path / RECIPE}")
    elif state.step:
        reporter.say(f"going on after step {state.step}")
    finished, why, found = True, "", facts_of(recipe, job, world, device)
    sync_logs = (lambda: None) if folder is None else folder.sync_logs
    # whoever torchrun asks to end because another process has ended first finds out which one
    with (
        Stop(again=0.0 if world.size == 1 else PASSED_ON) as stop,
        processes.connected(world),
        Saver(path, world, device, sync_logs) as saver,
    ):
        pace: list[float] = []
        tokens = 0 if folder is None else tokens_in(folder.metrics.read())

        def asked() -> bool:
            return world.any(bool(stop.asked) or world.abandoned, device)

        def called() -> bool:
            return world.any(bool(stop.asked) or stop.saving or saver.failed or world.abandoned, device)

        def look() -> bool:
            return called() or (clock is not None and clock.due())

        going = True
        while going:
            going = False
            for progress in remaining_steps(state, job, recipe, trained, loss_of, look, world, device):
                state.step = progress.step
                last = state.step == recipe.train.steps
                tokens += progress.tokens
                progress = replace(progress, figures=job.figures())
                report_step(progress, folder, reporter, recipe, tokens)
                report_speed(pace, progress, recipe, device, reporter)
                if clock is not None:
                    clock.after_step(state.step)
                if not progress.settled:
                    continue
                retimed = recipe
                evaluated = state.step % recipe.evaluate.every == 0 or last
                if evaluated:
                    world.mark(Phase.EVALUATE, state.step)
                    if clock is not None:
                        clock.before_evaluation(state.step)
                    state.best = evaluate(
                        job,
                        state,
                        trained,
                        folder,
                        reporter,
                        world,
                        device,
                        metric_of(recipe),
                        recipe.evaluate.examples,
                    )
                    if clock is not None:
                        clock.after_evaluation(state.step)
                if clock is not None and not last and (evaluated or clock.due()):
                    retimed = clock.corrected(recipe, state.step)
                last = last or not patient(state, recipe)
                stopping = saving = False
                if called():  # in every process, or in none
                    if world.any(saver.failed, device):
                        saver.wait()
                    stopping, saving = asked(), world.any(stop.saving, device)
                    why = describe_stop(world.texts(reason_to_stop(stop.asked, world.abandoned), device))
                due = last or stopping or saving or retimed != recipe
                if due or state.step % recipe.checkpoint.every == 0:
                    world.mark(Phase.SAVE, state.step)
                    save(state, saver, retimed, found)
                if saving or retimed != recipe:
                    saver.wait()
                if saving:
                    stop.saving = False
                    reporter.say(f"step {state.step}: saved a checkpoint on request")
                if last or stopping:
                    finished = last
                    break
                if retimed != recipe:
                    recipe, job = retimed, job if remake is None else remake(retimed)
                    if recipe.train.average_checkpoints:
                        state.average = make_average(recipe, model, state.step)
                    if folder is not None:
                        folder.write_recipe({**to_json(recipe), "facts": found})
                    reporter.say(f"steps: {recipe.train.steps:,} fit the time")
                    going = True
                    break
    if not patient(state, recipe):
        reporter.say(f"stopped at step {state.step}: no better for {state.best.since} evaluations")
    return finish(state, job, path, folder, reporter, recipe, world, finished, why)


def remaining_steps(
    state: TrainingState,
    job: Job,
    recipe: Recipe,
    trained: nn.Module,
    loss_of: Callable[[Any, Any], Any],
    wanted: Callable[[], bool],
    world: World,
    device: torch.device,
) -> Iterator[Progress]:
    """The steps that are left. On one GPU the host runs ahead of the device where nothing prevents it.

    wanted: whether somebody wants to look at the model now, at whatever step.
    """
    if not patient(state, recipe):
        return

    def after(step: int) -> None:
        if state.average is not None:
            state.average.after(step, state.model)

    def look(step: int) -> bool:
        return step % recipe.evaluate.every == 0 or step % recipe.checkpoint.every == 0 or wanted()

    batches = told(micro_batches_of(job, recipe, world), world)
    settings = loop_settings(recipe, job, device)
    if can_run_ahead(job, state.model, state.scaler, world, device):
        steady = job.steady and not recipe.train.activation_checkpointing
        yield from train_async(
            trained, batches, loss_of, state.optimizers, settings, state.step, look, after, steady
        )
        return
    for progress in loop.train(
        trained, batches, loss_of, state.optimizers, settings, state.step, state.scaler, world
    ):
        after(progress.step)
        yield progress


def told(batches: Callable[[int], Sequence[Batch]], world: World) -> Callable[[int], Sequence[Batch]]:
    """The same micro-batches of a step; the other processes hear how far this one is."""

    def read(step: int) -> Sequence[Batch]:
        world.mark(Phase.READ, step + 1)
        found = batches(step)
        world.mark(Phase.COMPUTE, step + 1)
        return found

    return read


def patient(state: TrainingState, recipe: Recipe) -> bool:
    """Whether the held-out loss got better recently enough to go on (evaluate.patience)."""
    return not recipe.evaluate.patience or state.best.since < recipe.evaluate.patience


def finish(
    state: TrainingState,
    job: Job,
    path: Path,
    folder: RunFolder | None,
    reporter: Reporter,
    recipe: Recipe,
    world: World,
    finished: bool,
    why: str = "",
) -> Outcome:
    """Say why the run stopped; a finished one gives its best weights."""
    if not finished:
        if folder is not None:
            folder.status("interrupted", step=state.step, **({"why": why} if why else {}))
        resume = command("train", "--resume", path)
        asked = f" ({why})" if world.size > 1 and why else ""
        reporter.say(f"stopped at step {state.step} of {recipe.train.steps}{asked}: go on with `{resume}`")
    elif folder is not None:
        folder.status("done", step=state.step, best=state.best.scores, best_step=state.best.step)
        if not is_spread(state.model):
            put_weights(lasting(state.model), folder.read_model())
        for line in expert_load.describe_load(folder.metrics.path, state.step):
            reporter.say(line)
        if job.tuning is not None and job.tuning.lora is not None:
            reporter.say(write_adapters(path))
        if in_vain := warning_if_no_better(state.best, job):
            reporter.say(in_vain)
    return Outcome(state.step, finished, state.best, job, lasting(state.model).eval())


def metric_of(recipe: Recipe) -> str:
    """The figure that decides which evaluation is the best."""
    found = find_task(recipe.task).metric_for(recipe.data.corpus)
    return found if recipe.evaluate.choose_by == "metric" else "loss"


def evaluate(
    job: Job,
    state: TrainingState,
    trained: nn.Module,
    folder: RunFolder | None,
    reporter: Reporter,
    world: World,
    device: torch.device,
    metric: str,
    shown: int,
) -> Best:
    """Evaluate, show and keep a few examples, and publish the weights if they are the best so far."""
    began = time.perf_counter()
    model, step, best = state.model, state.step, state.best
    averaged = state.average is not None and state.average.ready(step)
    with state.average.in_place_of(model) if averaged and state.average else nullcontext():
        model.eval()
        with torch.no_grad(), eagerly():
            scores, examples, samples = within(
                trained, lambda model: (job.evaluate(model), job.show(model), job.samples(model))
            )
        model.train()
        examples = [*examples, *(sample.line for sample in samples[:shown])]
        scores = dict(zip(scores, world.from_leader(list(scores.values()), device), strict=True))
        if not math.isfinite(scores["loss"]):
            raise NotFinite(
                f"step {step}: the held-out loss is {scores['loss']}, though the training loss is finite: "
                f"look for a held-out example that is unlike the others, or try a lower learning rate",
                {"step": step, "valid_loss": scores["loss"]},
            )
        better = best.beaten_by(scores, metric)
        if better:
            publish(kept(lasting(model)), folder)
    if folder is not None:
        folder.metrics.append({"step": step, **{f"valid_{name}": score for name, score in scores.items()}})
        folder.keep_samples(step, [sample.as_json() for sample in samples[:SAMPLES]])
    listed = ", ".join(format_score(name, score) for name, score in scores.items())
    whose = " of averaged weights" if averaged else ""
    reporter.say(f"step {step}: held-out {listed}{whose} ({time.perf_counter() - began:.1f} s)")
    for line in changed_examples(state.shown, examples):
        reporter.say(line)
    state.shown = examples
    if better:
        return Best(step, scores)
    if best.since + 1 == RISING:
        reporter.say(
            f"warning: the held-out {SHOWN[metric][0]} has not been better for {RISING} evaluations: "
            "the model may be learning the training examples by heart; more dropout, a smaller model or "
            f"evaluate.patience={RISING} may help"
        )
    return replace(best, since=best.since + 1)


def publish(weights: dict[str, Tensor], folder: RunFolder | None) -> None:
    """Write the best weights, each of them put together when its turn comes; every process takes part."""
    if folder is not None:
        folder.write_model(weights, processes.whole)
        return
    for name in file_order(weights):
        processes.whole(weights[name])


def changed_examples(before: list[str], now: list[str]) -> list[str]:
    """The examples that differ from those of the evaluation before, and how many do not."""
    if len(before) != len(now):
        return now
    changed = [example for old, example in zip(before, now, strict=True) if example != old]
    same = len(now) - len(changed)
    return [*changed, f"    ({same} of {len(now)} examples unchanged)"] if same else changed


SETTLED = 20  # steps after which the speed is said


def tokens_in(lines: list[dict[str, Any]]) -> int:
    """Target tokens of all steps that a log has."""
    return max((int(line["tokens"]) for line in lines if "tokens" in line), default=0)


def report_step(
    progress: Progress, folder: RunFolder | None, reporter: Reporter, recipe: Recipe, tokens: int
) -> None:
    """Write a step's loss, learning rate and gradient norm to the log. tokens: of all steps so far."""
    if folder is not None:
        figures = {"loss": progress.loss, "rate": progress.rate, "norm": progress.norm, "tokens": tokens}
        figures |= progress.figures
        folder.metrics.append({"step": progress.step} | figures | expert_load.logged(progress.expert_load))
    reporter.step(progress, recipe.train.steps)


def report_speed(
    pace: list[float], progress: Progress, recipe: Recipe, device: torch.device, reporter: Reporter
) -> None:
    """Report the speed, the time left and the memory in use, once the first steps are done."""
    if len(pace) > SETTLED:
        return
    pace.append(progress.seconds)
    if len(pace) == SETTLED:
        seconds = statistics.median(pace)
        left = seconds * (recipe.train.steps - progress.step)
        of_all = "" if device.type == "cuda" else ", Python and torch included"
        reporter.say(
            f"speed: {1000 * seconds:.0f} ms a step, {progress.a_second(seconds)} a second; "
            f"about {format_seconds(left)} left; memory so far {format_bytes(peak_memory(device))}{of_all}"
        )


def warning_if_no_better(best: Best, job: Job) -> str | None:
    """A warning, if a model that has finished is no better than what takes no learning."""
    what, baseline = job.baselines.get("loss", ("", math.inf))
    if best.scores["loss"] < baseline:
        return None
    return (
        f"warning: the best held-out loss, {best.scores['loss']:.3f}, is not below the baseline {what}, "
        f"{baseline:.3f}: the model has learned nothing yet; give it more --steps, or another "
        "train.learning_rate (--find-rate suggests one)"
    )
